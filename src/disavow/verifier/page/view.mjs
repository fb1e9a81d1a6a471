/** The page: files come in, a report goes out. All text is set as text: nothing of a file is ever read as HTML. */

import { hasEd25519 } from "./ed25519.mjs";
import { roleOf } from "./recognise.mjs";
import { count, quoted } from "./wording.mjs";

const SINGLE = ["proof", "keys", "opening", "checkpoint", "word", "witnesses", "serving", "model"];
const NAMES = {
  proof: "proof", keys: "key", opening: "opening", checkpoint: "checkpoint", receipts: "receipts", word: "word",
  witnesses: "keys of witnesses", serving: "serving statement", model: "model",
};
const MARKS = { passed: "✓", failed: "✗", "not checked": "–", "not reached": "·" };
const STATES = { passed: "Passed", failed: "Failed", "not checked": "Not checked", "not reached": "Not reached" };

/** By outcome: the class of the verdict, its sign, its heading and what it comes to. */
const VERDICTS = {
  valid: ["good", "✓", "Valid", (report) => `The proof holds, and it is about ${quoted(report.names)}.`],
  "names nobody": [
    "good",
    "✓",
    "Valid, but it names nobody",
    () => "The proof holds. To see whom it is about, add the opening, the file that the client was given.",
  ],
  "another model": ["mixed", "≠", "Valid, but of another model", (report) => `The proof holds, but not of the model in question: ${report.reason}.`],
  invalid: ["bad", "✗", "Not valid", (report) => `Do not rely on it. ${failedIn(report)}${report.reason}.`],
  unreadable: ["bad", "✗", "Cannot be read", (report) => `A file is damaged, or not what it should be. ${failedIn(report)}${report.reason}.`],
};

/** What each check asks, in plain words. */
const QUESTIONS = {
  readable: "Is the file whole and in its one form?",
  signature: "Did the server whose key you gave sign it?",
  statement: "Does it say something that is known, of the kind you asked for?",
  checkpoint: "Did the server also sign the state of its log?",
  log: "Is the log in the proof the one that was signed?",
  history: "Is it still the log that somebody kept the state of?",
  policy: "What did the server promise at the start, and was its key in use?",
  rounds: "Does each round follow from those before it?",
  clusters: "Are the client's groups, and all who left them, those of the log?",
  survivors: "Are enough others left in each group?",
  spread: "Were the members of each group alike enough?",
  bounds: "Are the figures about risk computed right?",
  verdict: "Is the answer the one in the log, with all rounds of the client?",
  opening: "Whom is it about?",
  receipts: "Does it fit what the client kept?",
  model: "Is it about the model that you have?",
  word: "Did the client sign that it deleted the records?",
  witnesses: "Did others, whom you trust, see the same log?",
  serving: "Is it about the model that the server says it serves?",
};

const failedIn = ({ failed, keys, receipt }) =>
  failed ? `Check ${failed.number} (${failed.name}) failed: ` : keys ? "The key file: " : receipt ? "The receipt: " : "";

const byId = (id) => document.getElementById(id);

/** An element with a class and children, which are elements or texts. */
function element(tag, kind, ...children) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  made.append(...children);
  return made;
}

/** How many checks passed, and why others did not. */
function tallyOf(checks) {
  const many = (state) => checks.filter((check) => check.state === state).length;
  const parts = [`${many("passed")} of ${checks.length} passed`];
  if (many("failed")) parts.push("1 failed, and ends the verification");
  if (many("not checked")) parts.push(`${many("not checked")} had nothing to check, because no file was given for them`);
  return `${parts.join("; ")}.`;
}

/** Run the page in a document; `source` is the text of its own script, of which the worker is made. */
export function runPage(source) {
  const given = { receipts: [], ...Object.fromEntries(SINGLE.map((role) => [role, null])) };
  let worker = null;
  let turn = 0;

  const roles = () => [...SINGLE, "receipts"];
  const filesOf = (role) => (role === "receipts" ? given.receipts : given[role] === null ? [] : [given[role]]);

  function put(role, files) {
    if (role === "receipts") given.receipts = [...files].sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
    else given[role] = files[0] ?? null;
  }

  function showFiles() {
    for (const role of roles()) {
      const files = filesOf(role);
      const chosen = files.length > 1 ? count(files.length, "file") : files.length === 1 ? files[0].name : "";
      byId(`name-${role}`).textContent = chosen;
      byId(`remove-${role}`).hidden = files.length === 0;
      byId(`row-${role}`).classList.toggle("given", files.length > 0);
    }
  }

  /** Take files that were dropped or chosen together; several receipts are added to those there are. */
  async function sortIn(files) {
    const unknown = [];
    const receipts = [];
    for (const file of files) {
      const role = await roleOf(file).catch(() => null);
      if (role === null) unknown.push(file.name);
      else if (role === "receipts") receipts.push(file);
      else put(role, [file]);
    }
    if (receipts.length === 1 && files.length === 1 && given.proof === null) put("proof", receipts);
    else if (receipts.length > 0) put("receipts", [...given.receipts, ...receipts]);
    const names = unknown.map(quoted).join(", ");
    byId("notice").textContent = unknown.length === 0 ? "" : `Not recognised: ${names}. Choose it in its place below.`;
    changed();
  }

  /** Verify anew after each change; what is still running is stopped. */
  function changed() {
    showFiles();
    turn++;
    worker?.terminate();
    worker = null;
    byId("result").hidden = true;
    const missing = ["proof", "keys"].filter((role) => given[role] === null);
    const waits = missing.length === 1 ? `Now add the ${missing[0] === "keys" ? "server’s public key" : "proof"}.` : "";
    byId("state").textContent = missing.length === 0 ? "Checking …" : waits;
    if (missing.length === 0) start();
  }

  function start() {
    const id = turn;
    const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    worker = new Worker(url);
    URL.revokeObjectURL(url);
    worker.addEventListener("error", (event) => fault(event.message || "the browser does not let the page work"));
    worker.addEventListener("message", ({ data }) => {
      if (data.id !== turn) return;
      if (data.hashed) byId("state").textContent = `Reading the model: ${Math.round(data.hashed / 2 ** 20)} MiB …`;
      else if (data.error) fault(data.error);
      else showReport(data.report);
    });
    const client = byId("client").value;
    const quorum = byId("quorum").valueAsNumber;
    const options = {
      client: client === "" ? null : client,
      whatIf: byId("what-if").checked,
      quorum: Number.isInteger(quorum) && quorum > 0 ? quorum : null,
      now: new Date().toISOString().replace("Z", "000+00:00"),
    };
    worker.postMessage({ id, files: { ...given }, options });
  }

  function fault(message) {
    byId("state").textContent = `The page could not finish: ${message}`;
  }

  function showReport(report) {
    byId("state").textContent = "";
    const [kind, sign, heading, explain] = VERDICTS[report.outcome];
    byId("verdict").className = `verdict ${kind}`;
    byId("sign").textContent = sign;
    byId("heading").textContent = report.receipt && report.exitCode === 0 ? "Valid receipt" : heading;
    byId("explanation").textContent = report.receipt && report.exitCode === 0 ? "The server signed it." : explain(report);
    fill("meaning", report.meaning.map((sentence) => element("p", "", sentence)));
    fill("warnings", report.warnings.map((warning) => element("p", "warning", `Warning: ${warning}.`)));
    fill("limits", report.notClaimed.map((sentence) => element("li", "", sentence)));
    fill("facts", report.facts.flatMap(([name, value]) => [element("dt", "", name), element("dd", "", value)]));
    fill("checks", report.checks.map(checkRow));
    byId("tally").textContent = tallyOf(report.checks);
    byId("result").hidden = false;
    byId("heading").focus();
  }

  /** Put children into an element; a part of the page without any is hidden. */
  function fill(id, children) {
    byId(id).replaceChildren(...children);
    byId(id).closest(".part").hidden = children.length === 0;
  }

  function checkRow({ number, name, state, detail }) {
    const badge = element("span", `badge ${state.replace(" ", "-")}`, element("span", "mark", MARKS[state]), ` ${STATES[state]}`);
    badge.firstChild.setAttribute("aria-hidden", "true");
    const what = element("td", "", element("span", "question", QUESTIONS[name]), element("span", "detail", detail));
    const head = element("th", "", name);
    head.scope = "row";
    return element("tr", state.replace(" ", "-"), element("td", "number", String(number)), head, element("td", "", badge), what);
  }

  for (const role of roles()) {
    byId(`file-${role}`).addEventListener("change", ({ target }) => {
      if (target.files.length > 0) put(role, target.files);
      byId("notice").textContent = "";
      target.value = ""; // the same file can be chosen again after it was changed
      changed();
    });
    byId(`remove-${role}`).setAttribute("aria-label", `Remove the ${NAMES[role]}`);
    byId(`remove-${role}`).addEventListener("click", () => {
      put(role, []);
      changed();
      byId(`file-${role}`).focus();
    });
  }
  byId("files").addEventListener("change", async ({ target }) => {
    const files = [...target.files];
    target.value = "";
    await sortIn(files);
  });
  byId("client").addEventListener("change", changed);
  byId("quorum").addEventListener("change", changed);
  byId("what-if").addEventListener("change", changed);
  const over = (event) => {
    event.preventDefault(); // or the browser leaves the page and shows the file
    byId("drop").classList.toggle("over", event.type === "dragover");
  };
  for (const name of ["dragover", "dragleave", "drop"]) addEventListener(name, over);
  addEventListener("drop", (event) => sortIn([...(event.dataTransfer?.files ?? [])]));
  showFiles();
  try {
    hasEd25519().then((native) => {
      byId("engine").textContent = native
        ? "Signatures are checked by this browser."
        : "This browser cannot check Ed25519 signatures by itself; the page computes them.";
    });
  } catch (error) {
    byId("notice").textContent = error.message;
  }
}
