/** A verification from its files to its result ("The checks", "The result"). */

import { toBase64, utf8 } from "./bytes.mjs";
import { CHECKS, readReceipt, requireReceipt } from "./checks.mjs";
import { AnotherModel, Invalid, Unreadable } from "./failures.mjs";
import { readTrusted, readWitnesses } from "./keys.mjs";
import { latestTime } from "./log.mjs";
import { count, meaning, notClaimed, quoted } from "./wording.mjs";

const NAMES_NOBODY = 3;
const RECEIPT = utf8('"type":"disavow/receipt/v2"');
const UNCHECKED = {
  history: "no older checkpoint was given: nothing shows that this log was told before the request",
  opening: "none was given",
  receipts: "none were given",
  model: "no model was given; the subject is the model of the last standing round",
  word: "none was given",
  witnesses: "none were named: nothing shows that others were told the same history",
  serving: "none was given: nothing says which model the server serves",
};
const OUTCOMES = { 0: "valid", 1: "invalid", 2: "unreadable", 3: "names nobody", 13: "another model" };

/**
 * Verify a proof, or a receipt in its place.
 *
 * `given` has bytes: `proof`, `keys`, and where they were given `opening`, `checkpoint`, `word`, `witnesses`, `serving`, `receipts`
 * (a list); `quorum`, how many of the witnesses must have cosigned, null for all; `model`, the SHA-256 of a model file in
 * hexadecimal; `client`, whom it must be about; `whatIf`, whether a what-if is asked for;
 * `now`, the present time as leaves have it. The report can be cloned and has only text, numbers and lists.
 */
export async function verify(given) {
  const inputs = {
    opening: null, checkpoint: null, word: null, witnesses: null, quorum: null, serving: null, model: null, client: null,
    now: null, receipts: [], whatIf: false, ...given,
  };
  const report = { checks: [], warnings: [], notClaimed: [], meaning: [], names: null, asOf: null, facts: [], receipt: false };
  let keys;
  try {
    keys = readTrusted(inputs.keys);
  } catch (failure) {
    return ended(report, failure, { keys: true });
  }
  if (holdsBytes(inputs.proof, RECEIPT)) return verifyReceipt(inputs, keys, report);
  try {
    if (inputs.witnesses !== null) inputs.witnesses = readWitnesses(inputs.witnesses);
  } catch (failure) {
    return ended(report, failure);
  }
  const v = { inputs, keys, client: null, warnings: report.warnings };
  let failure = null;
  for (const [i, [name, check]] of CHECKS.entries()) {
    const result = { number: i + 1, name, state: "not reached", detail: "" };
    report.checks.push(result);
    if (failure !== null && !(failure instanceof AnotherModel)) continue; // which does not say that the proof holds
    try {
      const detail = await check(v);
      Object.assign(result, detail === null ? { state: "not checked", detail: UNCHECKED[name] } : { state: "passed", detail });
    } catch (error) {
      Object.assign(result, { state: "failed", detail: reasonOf(error) });
      failure = error;
    }
  }
  if (failure === null || failure instanceof AnotherModel) tell(v, report);
  report.names = v.client;
  return ended(report, failure);
}

/** What a refusal says; what is no refusal is a fault of the page, and is thrown on. */
function reasonOf(error) {
  if (error instanceof Invalid || error instanceof Unreadable || error instanceof AnotherModel) return error.message;
  throw error;
}

function ended(report, failure, more = {}) {
  if (failure !== null) report.reason = reasonOf(failure);
  report.exitCode = failure?.exitCode ?? (report.names === null ? NAMES_NOBODY : 0);
  report.outcome = OUTCOMES[report.exitCode];
  report.failed = report.checks.findLast((check) => check.state === "failed") ?? null;
  return Object.assign(report, more);
}

/** What a proof that holds says, and what it does not. */
function tell(v, report) {
  report.meaning = meaning(v);
  report.notClaimed = notClaimed(v);
  const root = toBase64(v.head.root);
  report.asOf = { leaves: v.head.size, root, at: latestTime(v.leaves) };
  const { times, verdict } = v.said;
  report.facts = [
    ["Kind", v.whatIf ? "What-if: nothing was erased" : "Erasure"],
    ["Verdict", verdict.kind + (verdict.from === null ? "" : ` from round ${verdict.from}`)],
    ["Signed by", `${v.signer.name} (${v.signer.id})`],
    ["Run", v.promised.run],
    ...(times === null ? [] : [["Asked", times.asked_at], ["Judged", times.judged_at], ["Answered", times.answered_at]]),
    ["Model (SHA-256)", v.subject],
    ["As of", `head of ${count(v.head.size, "leaf", "leaves")}, root ${root}, last time ${report.asOf.at}`],
  ];
}

async function verifyReceipt(inputs, keys, report) {
  report.receipt = true;
  try {
    const receipt = readReceipt(inputs.proof);
    const head = await requireReceipt(receipt, keys);
    if (inputs.client !== null && inputs.client !== receipt.client) {
      throw new Invalid(`the receipt is about ${quoted(receipt.client)}, and not the client asked for`);
    }
    report.names = receipt.client;
    const where = `round ${receipt.header.number}, slot ${receipt.slot}`;
    report.meaning = [
      `${quoted(receipt.client)} was in ${where}, under a head of ${count(head.size, "leaf", "leaves")} that the server signed.`,
      "It can be held against a proof: give both, and the round must be shown there or have been undone.",
    ];
    return ended(report, null);
  } catch (failure) {
    return ended(report, failure);
  }
}

function holdsBytes(data, part) {
  for (let at = data.indexOf(part[0]); at >= 0; at = data.indexOf(part[0], at + 1)) {
    let i = 1;
    while (i < part.length && data[at + i] === part[i]) i++;
    if (i === part.length) return true;
  }
  return false;
}
