/** What a verification found, in words: for what the format prescribes a sentence, that sentence ("Purpose"). */

import { NO_PROTECTION, log10Odds } from "./bounds.mjs";
import { fromBase64, hex } from "./bytes.mjs";
import { fixed } from "./kinds.mjs";

const MOST_SHOWN = 1000;

/** A number and what it counts. */
export function count(number, one, several = `${one}s`) {
  return `${String(number).replace(/\B(?=(\d{3})+$)/g, ",")} ${number === 1 ? one : several}`;
}

/** A text of somebody else in quotes; what cannot be seen, or turns the direction of text, is written as its code. */
export function quoted(text) {
  const shown = text.replace(/[\p{C}\p{Z}\\]/gu, (each) => (each === " " ? each : each === "\\" ? "\\\\" : code(each)));
  return `“${shown}”`;
}

const code = (character) => `\\u{${character.codePointAt(0).toString(16)}}`;

export function rebuiltInWords(rounds) {
  return `${rounds} ${rounds === 1 ? "round was" : "rounds were"} rebuilt approximately (not exact retraining)`;
}

/** That no round with the leaver in it stands, and what undid the last one; "" where nothing is said of it. */
export function purgedInWords({ said, leaves }) {
  const leaf = leaves[said.purge ?? -1];
  if (leaf?.type !== "purge" && leaf?.type !== "rollback") return "";
  return (
    `no update of the leaver is in the model served: the ${leaf.type} of ${leaf.at} (leaf ${said.purge}) undid its last ` +
    `round, and every round from ${leaf.to} on was trained after it`
  );
}

/** How many rounds since a rollback or purge end in models that were undone; "" where none do. */
export function unchangedInWords({ whatIf, said, history, leaves }) {
  if (whatIf || (said.purge === undefined && said.verdict.kind !== "rollback")) return "";
  const unchanged = history.unchangedSince(said.purge ?? said.withdrawal);
  if (unchanged.length === 0) return "";
  const since = said.purge === undefined || leaves[said.purge].type === "rollback" ? "rollback" : "purge";
  const end =
    unchanged.length === 1
      ? `1 round since the ${since} ends in the very model that was undone`
      : `${unchanged.length} rounds since the ${since} end in the very models that were undone`;
  return end + (unchanged.at(-1) === history.standing.at(-1) ? ", the one served among them" : "");
}

/** That records were to be erased, and who says that they were removed; "" of a whole client. */
export function recordsInWords({ said }) {
  if (said.records === undefined) return "";
  const about = `about ${count(said.records.count, "record")} of a client that stays`;
  if (said.records.word === undefined) {
    return `${about}: that it removed them is for the client to say, and its signed word is not in the proof`;
  }
  const digest = hex(fromBase64(said.records.word)).slice(0, 16);
  return `${about}: that it removed them is the client's signed word, of digest ${digest}`;
}

/** What a proof that holds does not claim. */
export function notClaimed(v) {
  const { policy } = v.promised;
  const shown = v.said.clusters.length > 0;
  return [
    drawnInWords(v),
    "Taken on the server's word, except where receipts say otherwise: that survivors are real; that spreads, shares and " +
      "noise are as stated; that draws were honest; and that the client was in no other round.",
    noiseInWords(log10Odds(v.ratio)),
    shown && policy.representatives > 1
      ? "Odds are of this client alone: for several leavers of one cluster together they are larger."
      : "",
    v.history.rebuilt > 0 ? `${rebuiltInWords(v.history.rebuilt)}.` : "",
    shown && policy.statistics === "mean"
      ? "Running statistics of batch norm, where the model has any, are means over all members of each cluster, the client " +
        "among them: for these numbers nobody else could have been in its place, and only noise hides its share."
      : "",
    policy.draws === "seeded"
      ? "Draws were seeded: whoever knows the seed knows who took part and who was drawn, and nothing is deniable to them."
      : "",
    policy.mechanism === "federaser"
      ? "The run keeps what its clients returned (mechanism federaser): whoever has its directory can find out who was " +
        "drawn, and nothing is deniable to them."
      : "",
  ].filter(Boolean);
}

function drawnInWords({ said, drawn, promised }) {
  const shown = said.clusters.length;
  if (shown === 0) return "It does not say that the client never took part.";
  const rounds = `${shown} round${shown === 1 ? " that stands" : "s that stand"}`;
  const most = promised.policy.clustering === "fixed" ? "at most " : "";
  const sentence =
    `The client was drawn at least once in the ${rounds} with a chance of ${most}${fixed(drawn * 100, 1)}%: ` +
    "deniable does not mean not used.";
  const undone = said.rounds?.superseded.length ?? 0;
  if (undone === 0) return sentence;
  const which = `${undone} round${undone === 1 ? " that was" : "s that were"} undone`;
  return `${sentence} It was also in ${which}, whose models were released; they are not counted.`;
}

function noiseInWords(odds) {
  if (odds !== null && odds <= NO_PROTECTION) return "";
  let limit = "there is no noise whose odds can be computed";
  if (odds !== null) limit = odds <= MOST_SHOWN ? `odds up to 10^${fixed(odds, 0)}` : `odds beyond 10^${MOST_SHOWN}`;
  return (
    "No protection by noise: whoever knows the updates of a cluster can tell from the models who was drawn " +
    `(${limit}), and nothing is deniable to them.`
  );
}

/** What a proof that holds means, for people who did not build this: a sentence each. */
export function meaning(v) {
  const { said, promised, whatIf } = v;
  const { kind, from } = said.verdict;
  const { k, x, representatives } = promised.policy;
  const who = v.client === null ? "the client" : quoted(v.client);
  const what = said.records === undefined ? "" : `${count(said.records.count, "record")} of `;
  const asked = whatIf
    ? `Nothing was erased. If ${who} asked to leave today, this would be the answer.`
    : `${capital(who)} asked on ${said.times.asked_at.slice(0, 10)} that ${what ? `${what}${who}` : "it"} be erased; it was answered on ${said.times.answered_at.slice(0, 10)}.`;
  const sentences = [asked];
  if (kind === "never present") sentences.push(`The log shows ${who} in no round, so that there was nothing to undo.`);
  if (kind === "rollback" && v.history.rebuilt > 0) {
    sentences.push(`All rounds from ${from} on that stood then were undone. ${capital(rebuiltInWords(v.history.rebuilt))}.`);
  } else if (kind === "rollback") {
    sentences.push(`All rounds from ${from} on that stood then were undone, and those that stand now were made after it asked.`);
  }
  if (said.clusters.length > 0) {
    const rounds = count(said.clusters.length, "round");
    const drawn = representatives === 1 ? "one was drawn in secret, whose update" : `${representatives} were drawn in secret, whose updates`;
    const least = promised.policy.clustering === "fixed" ? "" : ` of at least ${k} clients`;
    const would = whatIf ? "would remain" : "remain";
    sentences.push(
      `In the ${rounds} of ${who} that stand${said.clusters.length === 1 ? "s" : ""}, it was in a group${least}, of which ${drawn} went into the model. ` +
        `In each of these groups at least ${v.fewest} others ${would}, so that at least ${x} could have been drawn in its place.`,
    );
  }
  const purged = purgedInWords(v);
  if (purged) sentences.push(`${capital(purged)}.`);
  const records = recordsInWords(v);
  if (records) sentences.push(`This is ${records}.`);
  return sentences;
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);
