/**
 * The checks of a verification, numbered by their place in `CHECKS` from 1 ("The checks"). Each gives what it found in
 * words, or null where there was nothing to check, and throws where the proof does not hold; it may use what those
 * before it have found sound.
 */

import { boundsOf, chanceDrawn, figureOrNull, log10Odds, noiseFits, totalOf, withinOdds } from "./bounds.mjs";
import { fromBase64, hex, join, same, utf8 } from "./bytes.mjs";
import { holdsEd25519, holdsUnderDer } from "./ed25519.mjs";
import { AnotherModel, need, require } from "./failures.mjs";
import { readCanonical, textOf } from "./json.mjs";
import { cosignedAt, readKey, readNote, readSignatures } from "./keys.mjs";
import { LARGEST_WHOLE, figureOf } from "./kinds.mjs";
import { clusterHash, clusterSizes, hashInLog, latestTime, logSize, momentOf, openLog, replay } from "./log.mjs";
import {
  Prefixes, Tree, leafHash, mapValue, recordList, recordsCommitment, requestCommitment, rootByCover, rootByPath,
  roundsCommitment, slotCommitment, withdrawnEntry, withdrawnInner, wordDigest,
} from "./merkle.mjs";
import { sha256 } from "./sha256.mjs";
import * as shapes from "./shapes.mjs";
import { count, purgedInWords, quoted, rebuiltInWords, recordsInWords, unchangedInWords } from "./wording.mjs";

/** Bytes of a proof, of its statement and of an opening that are read. */
export const LARGEST = 16_777_216;
export const LARGEST_RECEIPT = 1_048_576;
export const LARGEST_WORD = 65_536;

const origin = (run) => `disavow/run/${run}`;

/** What DSSE signs. */
const toBeSigned = (type, payload) => join([utf8(`DSSEv1 ${type.length} ${type} ${payload.length} `), payload]);

const ascending = (values) => values.every((value, i) => i === 0 || values[i - 1] < value);

// -- 1 to 3: the file ----------------------------------------------------------------------------------------------

function readable(v) {
  const envelope = readCanonical(v.inputs.proof, LARGEST, "the proof");
  shapes.envelope(envelope, "the envelope");
  require(envelope.signatures.length === 1, "the proof is not signed");
  v.envelope = { ...envelope, payload: fromBase64(envelope.payload), signature: envelope.signatures[0] };
  return `${count(v.inputs.proof.length, "byte")} in canonical form`;
}

async function signature(v) {
  const { payload, payloadType, signature: signed } = v.envelope;
  const key = v.keys.withId(signed.keyid);
  require(key !== undefined, () => `it is signed by key ${signed.keyid.slice(0, 16)}, which is not among those given`);
  const holds = await holdsEd25519(key.bytes, fromBase64(signed.sig), toBeSigned(payloadType, payload));
  require(holds, () => `the signature of ${key.name} does not fit the proof`);
  const revoked = v.keys.revoked(key);
  require(revoked === undefined, () => `it is signed with a key that was revoked at ${revoked}`);
  v.signer = key;
  return `by ${key.name} (${key.id.slice(0, 16)})`;
}

async function statement(v) {
  const { payload, payloadType } = v.envelope;
  const data = payloadType === shapes.PACKED_PAYLOAD ? await unpack(payload) : payload;
  const found = readCanonical(data, LARGEST, "the statement");
  shapes.statement(found, "the statement");
  Object.assign(v, shapes.STATEMENTS[found.predicateType]);
  shapes.PREDICATES[v.version](found.predicate, "predicate");
  v.said = found.predicate;
  v.subject = found.subject[0].digest.sha256;
  require(!v.whatIf || v.inputs.whatIf, "this is a what-if about a client that is still in: nothing was erased");
  require(v.whatIf || !v.inputs.whatIf, "this is an erasure, not a what-if");
  return `${v.whatIf ? "what-if" : "erasure"}, version ${v.version}`;
}

/** Decompress one zlib stream, and no more of it than is read. */
async function unpack(payload) {
  const found = await inflate(payload);
  need(found !== null, "the payload is not packed as it should be, or unpacks to too much");
  // some engines ignore what follows the stream; then it ends without the last byte, too
  need((await inflate(payload.subarray(0, -1))) === null, "something follows the packed payload");
  return found;
}

async function inflate(data) {
  const reader = new Blob([data]).stream().pipeThrough(new DecompressionStream("deflate")).getReader();
  const parts = [];
  let size = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return join(parts);
      parts.push(value);
      size += value.length;
      if (size > LARGEST) {
        await reader.cancel();
        return null;
      }
    }
  } catch {
    return null;
  }
}

// -- 4 to 8: the log -----------------------------------------------------------------------------------------------

async function checkpoint(v) {
  const note = readNote(v.said.checkpoint, "the checkpoint");
  await note.requireSignedBy(v.signer, "the checkpoint");
  const size = logSize(v.said.leaves);
  require(note.size === size, () => `it covers ${note.size} leaves, and ${size} are shown`);
  v.head = note;
  return `of ${count(size, "leaf", "leaves")}, by ${v.signer.name}`;
}

function log(v) {
  const [promised] = v.said.leaves;
  require(promised?.type === "run", "the log does not begin with the run's promises");
  require(promised.version === v.version, "the proof is of another version than the log");
  v.leaves = v.version === 4 ? openLog(v.said.leaves) : v.said.leaves;
  v.hashes = v.leaves.map(hashInLog);
  v.prefixes = new Prefixes(v.hashes);
  require(same(v.prefixes.root(v.leaves.length), v.head.root), "the leaves do not have the root that was signed");
  require(v.head.origin === origin(promised.run), "the checkpoint is of another run's log");
  v.promised = promised;
  return "the root rebuilt from all leaves is the one signed";
}

async function history(v) {
  if (v.inputs.checkpoint === null) return null;
  const what = "the older checkpoint";
  need(v.inputs.checkpoint.length <= LARGEST, `${what} is too large`);
  const kept = readNote(textOf(v.inputs.checkpoint, what), what, { cosigned: true });
  await v.keys.open(kept, what);
  require(kept.origin === v.head.origin, `${what} is of another run's log`);
  require(kept.size <= v.leaves.length, () => `${what} has ${kept.size} leaves, more than this log`);
  require(same(v.prefixes.root(kept.size), kept.root), () => `the first ${kept.size} leaves are not those of ${what}: a fork`);
  const withdrawal = v.said.withdrawal;
  const when = withdrawal === null ? "" : `, signed ${kept.size <= withdrawal ? "before" : "after"} the withdrawal`;
  return `${what} of ${count(kept.size, "leaf", "leaves")} is a prefix${when}`;
}

function policy(v) {
  const { k, x, representatives, delta, relative_delta: relative, odds } = v.promised.policy;
  const needed = x + representatives - 1;
  const together = needed <= k && (representatives === 1 || representatives < k);
  require(together, `k = ${k}, x = ${x} and ${representatives} representatives do not go together`);
  require(delta === null || relative === null, "Δ is said to be fixed and relative");
  require(odds === null || Number(odds) >= 1, "odds are at least 1, and less is promised");
  const keys = v.leaves.filter((leaf) => leaf.type === "run" || leaf.type === "key").map((leaf) => leaf.key);
  const last = keys.at(-1);
  const isSigner = last === null || readKey(last).identity === v.signer.identity;
  require(isSigner, "the log is to be signed with another key than the one that signed the proof");
  const latest = latestTime(v.leaves);
  const inUse = ({ from, until }) =>
    (last === null || from === null || from.slice(0, latest.length) <= latest) &&
    (until === null || until.slice(0, latest.length) >= latest);
  require(v.keys.of(v.signer).some(inUse), () => `the key that signed was not in use at ${latest}, the time of the last leaf`);
  v.needed = needed;
  const width = relative !== null ? `${relative} times the median update norm` : (delta ?? "adaptive");
  const limit = odds === null ? "" : `, odds of at most ${odds}`;
  const { frozen } = v.promised;
  const suffix = frozen === undefined ? "" : `; frozen parameters ${frozen.slice(0, 16)}`;
  const late = keys[0] === null ? "; signed late: no key bound the server when the run began" : "";
  return `k = ${k}, x = ${x}, ${representatives} drawn of each cluster, Δ ${width}${limit}, from leaf 0${suffix}${late}`;
}

function rounds(v) {
  v.history = replay(v.leaves);
  const moments = v.leaves.map(momentOf);
  const ahead = v.inputs.now === null ? [] : moments.filter((moment) => moment > v.inputs.now);
  if (ahead.length > 0) {
    v.warnings.push(
      `${ahead.length} of ${moments.length} leaves are dated in the future, the last ${ahead.at(-1)}: ` +
        "the clock of the server, or yours, or its word is wrong",
    );
  }
  const found = `${v.history.standing.length} stand, without gap, from the initial model to the one served`;
  return v.history.rebuilt > 0 ? `${found}; ${rebuiltInWords(v.history.rebuilt)}` : found;
}

// -- 9 to 12: the leaver's clusters --------------------------------------------------------------------------------

function clusters(v) {
  const shown = v.said.clusters;
  require(ascending(shown.map((each) => each.leaf)), "clusters are not in the order of their rounds, one for each");
  const standing = new Set(v.history.standing);
  for (const cluster of shown) {
    require(standing.has(cluster.leaf), () => `a cluster is of leaf ${cluster.leaf}, which is no standing round`);
    const round = v.leaves[cluster.leaf];
    require(round.type !== "closed round", () => `a cluster is of leaf ${cluster.leaf}, which is closed`);
    require(round.type === "round", () => `round ${round.number} was rebuilt and stands: nobody is deniable in it`);
    requirePlaced(v.promised.policy, cluster, round);
  }
  if (v.version === 4) {
    v.gone = countWithdrawn(v.history, v.said.clusters);
    requireOwnEntries(v);
  } else {
    for (const cluster of shown) requireOwnSlot(v, cluster);
    requireMaps(v);
  }
  return `${count(shown.length, "cluster")} and those withdrawn from them are those of the log`;
}

/** Whether a cluster with all its slots can lie where it says, and leads to the root of its round. */
function requirePlaced(policy, cluster, round) {
  const { first, size, position, slots, slot, weight } = cluster;
  const of = (what) => () => `round ${round.number}: ${what}`;
  require(slots.length === size && new Set(slots).size === size, of("a cluster does not list all its slots, each once"));
  require(slot >= first && slot < first + size, of("the leaver's slot is not in the leaver's cluster"));
  require(Number(weight) > 0 && Number(weight) <= 1, of(`a cluster has a share of ${weight} of the data`));
  const shares = round.clusters > 1 || policy.clustering === "fixed" || Number(weight) === 1;
  require(shares, of("its only cluster does not have all the data"));
  const [least, most] = clusterSizes(policy); // products may be above 2^53
  const fits = (slots, clusters) => least * BigInt(clusters) <= BigInt(slots) && BigInt(slots) <= most * BigInt(clusters);
  const room =
    fits(size, 1) &&
    fits(first, position) &&
    position < round.clusters &&
    fits(round.participants - first - size, round.clusters - position - 1);
  require(room, of(`cluster ${position} has ${size} slots from ${first} on, which cannot be`));
  const path = cluster.path.map((step) => fromBase64(step));
  const root = rootByPath(clusterHash(cluster), position, round.clusters, path);
  require(same(root, fromBase64(round.root)), of("a cluster does not lead to the root of the round"));
}

/** Count, over all withdrawals, who was withdrawn from each of these clusters; version 4. */
function countWithdrawn({ entries: withdrawals, leaves }, clustersShown) {
  const shown = new Map(
    clustersShown.map((cluster, i) => [cluster.leaf, { i, cluster, round: leaves[cluster.leaf], root: null }]),
  );
  const gone = clustersShown.map(() => 0);
  for (const entries of withdrawals.values()) {
    entries.positions.forEach((place, index) => {
      const found = shown.get(place);
      if (found === undefined) return;
      found.root ??= fromBase64(found.round.root);
      const position = entries.position(index, found.root);
      require(position < found.round.clusters, () => `round ${found.round.number}: a slot is withdrawn from no cluster of it`);
      if (position === found.cluster.position) gone[found.i]++;
    });
  }
  return gone;
}

/** The leaver's withdrawal has an entry for each of its slots; a what-if has none to show. */
function requireOwnEntries(v) {
  const cover = fromBase64(v.said.cover);
  if (v.whatIf) {
    const none = cover.length === 0 && v.said.clusters.every((each) => each.entry === null && each.salt === null);
    require(none, "nobody was withdrawn, and a what-if shows entries of a withdrawal");
    return;
  }
  const withdrawal = v.history.withdrawals.get(v.said.withdrawal);
  require(withdrawal?.type === "withdrawal", "the proof does not point to a withdrawal that it shows");
  const entries = v.history.entries.get(v.said.withdrawal);
  const known = new Map();
  for (const { leaf, slot, position, entry, salt } of v.said.clusters) {
    const round = v.leaves[leaf];
    const isThere = entry !== null && salt !== null && entries.positions[entry] === leaf;
    require(isThere, () => `round ${round.number}: the leaver's slot was not withdrawn when the leaver asked`);
    const from = entries.position(entry, fromBase64(round.root));
    require(from === position, () => `round ${round.number}: the leaver's slot was withdrawn from another cluster`);
    known.set(entry, leafHash(withdrawnInner(fromBase64(salt), slot)));
  }
  const root = rootByCover(known, entries.positions.length, cover);
  require(same(root, fromBase64(withdrawal.root)), "the leaver's slots do not lead to the root of its withdrawal");
}

/** The leaver's slot was withdrawn by its withdrawal and no other; version 3. */
function requireOwnSlot(v, cluster) {
  const by = cluster.withdrawn.filter((entry) => entry.slot === cluster.slot).map((entry) => entry.leaf);
  const right = v.whatIf ? by.length === 0 : by.length === 1 && by[0] === v.said.withdrawal;
  require(right, () => `the leaver's slot in leaf ${cluster.leaf} was not withdrawn when the leaver asked`);
}

/** What is shown and given of the maps leads to the root of each withdrawal; version 3 ("The map of withdrawals"). */
function requireMaps(v) {
  const { maps } = v.said;
  const { withdrawals, rounds: logged } = v.history;
  require(maps.length === withdrawals.size, "there is not one map for each withdrawal");
  const positions = [...logged.keys()];
  const ordinal = new Map(positions.map((place, i) => [place, i]));
  const shown = new Set(v.said.clusters.map((cluster) => cluster.leaf));
  const hidden = positions.filter((place) => !shown.has(place));
  const computed = valuesShown(v);
  const nobody = mapValue(0, new Tree().root());
  const tree = new Tree();
  const values = new Map();
  let closed = 0;
  let at = 0;
  for (const [place, withdrawal] of withdrawals) {
    const given = maps[at++];
    while (closed < hidden.length && hidden[closed] < place) closed++;
    require(given.length === closed, () => `the map of leaf ${place} does not have one value for each round not shown`);
    while (tree.size < withdrawal.rounds) tree.set(tree.size, leafHash(nobody));
    const put = (round, value) => {
      values.set(round, value);
      tree.set(ordinal.get(round), leafHash(value));
    };
    given.forEach((text, i) => {
      if (text === null) return;
      const value = fromBase64(text);
      const before = values.get(hidden[i]) ?? nobody;
      require(!same(value, before), () => `the map of leaf ${place} gives a value that has not changed`);
      put(hidden[i], value);
    });
    for (const [round, value] of computed.get(place) ?? []) put(round, value);
    require(same(tree.root(), fromBase64(withdrawal.root)), () => `those withdrawn do not lead to the map of leaf ${place}`);
  }
}

/** By withdrawal: the rounds that are shown from which it took somebody, each with its value in the map from there on. */
function valuesShown(v) {
  const computed = new Map();
  for (const cluster of v.said.clusters) {
    const tree = new Tree();
    const { withdrawn } = cluster;
    withdrawn.forEach((entry, i) => {
      const inOrder = entry.leaf >= (withdrawn[i - 1]?.leaf ?? cluster.leaf + 1) && v.history.withdrawals.has(entry.leaf);
      require(inOrder, () => `leaf ${cluster.leaf}: withdrawn slots are not in the order of the withdrawals`);
      tree.set(tree.size, entryHash(v.leaves[cluster.leaf], cluster, entry));
      if (withdrawn[i + 1]?.leaf === entry.leaf) return;
      const values = computed.get(entry.leaf) ?? [];
      values.push([cluster.leaf, mapValue(tree.size, tree.root())]);
      computed.set(entry.leaf, values);
    });
  }
  return computed;
}

/** The hash of a withdrawn slot: open in the cluster that is shown, closed in others. */
function entryHash(round, cluster, { position, slot, salt, inner }) {
  if (position !== cluster.position) {
    const closed = slot === null && salt === null && inner !== null && position < round.clusters;
    require(closed, () => `round ${round.number}: a withdrawn slot of another cluster is open, or of no cluster`);
    return withdrawnEntry(position, fromBase64(inner));
  }
  const open = slot !== null && salt !== null && inner === null;
  const inside = open && slot >= cluster.first && slot < cluster.first + cluster.size;
  require(inside, () => `round ${round.number}: a withdrawn slot of the cluster is closed, or not in it`);
  return withdrawnEntry(position, withdrawnInner(fromBase64(salt), slot));
}

function survivors(v) {
  if (v.version === 3) v.gone = v.said.clusters.map((cluster) => countOpen(v.leaves[cluster.leaf], cluster));
  const leaver = v.whatIf ? 1 : 0; // who is still in, and so is not among those withdrawn
  const left = v.said.clusters.map((cluster, i) => cluster.size - v.gone[i] - leaver);
  left.forEach((each, i) => {
    const { number } = v.leaves[v.said.clusters[i].leaf];
    require(each >= v.needed, () => `round ${number}: ${each} survivors are left, fewer than the ${v.needed} that are needed`);
  });
  if (left.length === 0) return "the leaver was in no round that stands";
  v.fewest = left.reduce((least, each) => Math.min(least, each), LARGEST_WHOLE);
  return `at least ${v.fewest} in each of ${count(left.length, "round")}; ${v.needed} are needed`;
}

function countOpen(round, cluster) {
  const slots = cluster.withdrawn.map((entry) => entry.slot).filter((slot) => slot !== null);
  require(new Set(slots).size === slots.length, () => `round ${round.number}: a slot is withdrawn twice`);
  return slots.length;
}

function spread(v) {
  for (const cluster of v.said.clusters) {
    const { number, delta } = v.leaves[cluster.leaf];
    const fits = Number(cluster.spread) <= Number(delta);
    require(fits, () => `in round ${number} the cluster is ${cluster.spread} wide, more than Δ ${delta}`);
  }
  const { delta, relative_delta: relative } = v.promised.policy;
  return "no cluster is wider than Δ" + (delta === null && relative === null ? "; adaptive Δ excludes nobody" : "");
}

function bounds(v) {
  const { policy: promised } = v.promised;
  const { representatives, odds } = promised;
  const each = v.said.clusters.map((cluster) => {
    const round = v.leaves[cluster.leaf];
    require(noiseFits(promised, round, cluster), () => `the noise of round ${round.number} is not that of the policy`);
    const found = boundsOf(cluster, Number(round.tau), representatives);
    const right = cluster.displacement === figureOf(found.displacement) && cluster.log10_odds === figureOrNull(log10Odds(found.ratio));
    require(right, () => `the bounds of round ${round.number} are not those of its cluster`);
    return found;
  });
  const total = totalOf(each);
  const said = v.said.bounds;
  v.drawn = chanceDrawn(v.said.clusters.map((cluster) => cluster.size), representatives);
  const right =
    said.displacement === figureOf(total.displacement) &&
    said.ratio === figureOrNull(total.ratio) &&
    said.drawn === figureOf(v.drawn);
  require(right, "the bounds over all rounds are not those of its clusters");
  require(odds === null || withinOdds(total.ratio, Number(odds)), () => `the odds over all rounds are more than the policy's ${odds}`);
  v.ratio = total.ratio;
  return `displacement ${said.displacement}, √Σratio² ${said.ratio ?? "without Gaussian noise"}`;
}

// -- 13 to 18: the answer ------------------------------------------------------------------------------------------

function verdict(v) {
  const found = v.whatIf ? requireWhatIf(v) : requireErasure(v);
  const unchanged = unchangedInWords(v);
  if (unchanged) v.warnings.push(`${unchanged}: nothing shows that they were retrained`);
  return [found, purgedInWords(v), unchanged, recordsInWords(v)].filter(Boolean).join("; ");
}

function requireWhatIf({ said }) {
  const { kind, from } = said.verdict;
  const linked = [said.withdrawal, said.request, said.rounds, said.times, from];
  const none = linked.every((each) => each === null) && !("records" in said) && !("purge" in said);
  require(none, "a what-if has no withdrawal");
  require(kind === (said.clusters.length > 0 ? "deniable" : "never present"), `${kind} is not what the clusters say`);
  return `${kind}, if it were asked`;
}

function requireErasure(v) {
  const { said } = v;
  const { kind, from } = said.verdict;
  const withdrawal = v.history.withdrawals.get(said.withdrawal);
  const points = said.request !== null && said.rounds !== null && said.times !== null;
  require(withdrawal?.type === "withdrawal" && points, "the proof does not point to a withdrawal that it shows");
  require(said.request < withdrawal.requests.length, "the proof does not point to a request of its withdrawal");
  v.request = withdrawal.requests[said.request];
  requireRecords(v);
  require(kind === v.request.verdict, () => `the verdict in the log is ${v.request.verdict}`);
  require((from !== null) === (kind === "rollback"), "a rollback has a round from which on it was, and nothing else has");
  if (kind === "rollback") {
    require(from === v.leaves[said.withdrawal + 1].to, "the rollback in the log is to another round");
    const old = v.history.standing.slice(from - 1).some((place) => place < said.withdrawal);
    require(!old, "a round was not retrained after the withdrawal");
  }
  requireTimes(said.times, v.request, withdrawal);
  requireTookPart(v);
  if ("purge" in said) requirePurge(v);
  const { asked_at, judged_at, answered_at } = said.times;
  return `${kind}${from === null ? "" : ` from round ${from}`}, asked ${asked_at}, judged ${judged_at}, answered ${answered_at}`;
}

function requireRecords(v) {
  const { records } = v.said;
  const right = (records === undefined) === (v.request.records === undefined);
  require(right, "the log says otherwise whether records or a whole client were to be erased");
  if (records === undefined) return;
  v.records = recordsCommitment(v.promised.run, records.count, fromBase64(records.closed));
  require(same(v.records, fromBase64(v.request.records)), "the records are not those that the withdrawal committed to");
}

function requireTimes({ asked_at, judged_at, answered_at }, request, withdrawal) {
  require(asked_at <= judged_at && judged_at <= answered_at, "the request was judged before it was asked, or answered before it was judged");
  const days = asked_at.slice(0, 10) === request.asked_at && judged_at.slice(0, 10) === withdrawal.at;
  require(days, "the request was asked or judged on other days than the log has");
}

/** The rounds shown are all that the withdrawal committed to. */
function requireTookPart(v) {
  const { superseded, salt } = v.said.rounds;
  const undone = superseded.every((place) => v.history.undoneBy.has(place));
  require(ascending(superseded) && undone, "rounds are called superseded that are not");
  const positions = [...superseded, ...v.said.clusters.map((cluster) => cluster.leaf)].sort((a, b) => a - b);
  require(positions.every((place) => place <= v.said.withdrawal), "the leaver is shown in a round after its withdrawal");
  const right = same(roundsCommitment(fromBase64(salt), positions), fromBase64(v.request.rounds));
  require(right, "the rounds shown are not those that the withdrawal committed to");
  const { kind } = v.said.verdict;
  require((kind === "never present") === (positions.length === 0), `${kind} is not what the rounds say`);
}

/** That leaf, behind the withdrawal, undid the last round with the leaver in it. */
function requirePurge({ said, history }) {
  require(history.rebuilt === 0, "a round that stands was rebuilt approximately: nobody was purged");
  const { superseded } = said.rounds;
  const gone = said.clusters.length === 0 && superseded.length > 0;
  require(gone, "a slot of the leaver stands, or it was in no round: nothing was purged");
  const last = superseded.reduce((latest, place) => Math.max(latest, history.undoneBy.get(place)), 0);
  require(said.purge === last && last > said.withdrawal, `leaf ${said.purge} is not the one that undid the leaver's last round`);
}

function opening(v) {
  const { opening: data, client: expected } = v.inputs;
  if (data === null) {
    require(expected === null, "a client was asked for, and no opening says whom the proof is about");
    return null;
  }
  const opened = readCanonical(data, LARGEST, "the opening");
  shapes.opening(opened, "the opening");
  requireOpened(v, opened);
  requireOpenedRecords(v.said.records, opened.records);
  require(expected === null || expected === opened.client, () => `the opening is about ${quoted(opened.client)}, and not the client asked for`);
  if (v.whatIf && v.said.clusters.length === 0) {
    return "nothing in the log tells who it is: the client was in no round, and has not asked";
  }
  v.client = opened.client;
  v.recordKeys = opened.records?.keys ?? [];
  const some = opened.records === undefined ? "" : `, and ${count(opened.records.keys.length, "record")} of it`;
  return `it names ${quoted(opened.client)} in ${count(v.said.clusters.length, "round")} that stand${some}`;
}

function requireOpened(v, { run, client, salt, rounds: opened }) {
  require(run === v.promised.run, "the opening is of another run");
  require((salt === null) === v.whatIf, "the opening of a what-if is no opening of an erasure, nor the reverse");
  if (!v.whatIf) {
    const commitment = requestCommitment(run, fromBase64(salt), client);
    require(same(commitment, fromBase64(v.request.client)), "it does not open the request: somebody else asked");
  }
  const superseded = new Set(v.whatIf ? [] : v.said.rounds.superseded);
  const standing = opened.filter((each) => !superseded.has(each.leaf));
  const shown = v.said.clusters;
  const fits =
    ascending(opened.map((each) => each.leaf)) &&
    standing.length === shown.length &&
    standing.every((each, i) => each.leaf === shown[i].leaf && each.slot === shown[i].slot);
  require(fits, "the opening is not of the slots that the proof shows");
  standing.forEach((each, i) => {
    const { number } = v.leaves[each.leaf];
    const made = slotCommitment(run, number, fromBase64(each.salt), client, fromBase64(each.update));
    const logged = fromBase64(shown[i].slots[each.slot - shown[i].first]);
    require(same(made, logged), () => `it does not open the slot of round ${number}: it is another client's`);
  });
}

function requireOpenedRecords(said, opened) {
  const both = (said === undefined) === (opened === undefined);
  require(both, "the opening of records is no opening of a whole client, nor the reverse");
  if (said === undefined) return;
  const { keys, salt } = opened;
  require(keys.length === said.count && new Set(keys).size === keys.length, "it does not name the records, each once");
  require(same(recordList(fromBase64(salt), keys), fromBase64(said.closed)), "it does not open the records: others were to be erased");
}

/** Read a receipt; nothing of it is believed yet. */
export function readReceipt(data) {
  const receipt = readCanonical(data, LARGEST_RECEIPT, "the receipt");
  shapes.receipt(receipt, "the receipt");
  return receipt;
}

/** Refuse a receipt that does not lead to a signed head of its run's log; that head ("The receipt"). */
export async function requireReceipt(receipt, keys) {
  const { header, slot, run } = receipt;
  const what = "the receipt's checkpoint";
  const head = await keys.open(readNote(receipt.checkpoint, what), what);
  const of = (why) => () => `the receipt for round ${header.number} ${why}`;
  require(head.origin === origin(run), of("is under another run's log"));
  const made = slotCommitment(run, header.number, fromBase64(receipt.salt), receipt.client, fromBase64(receipt.update));
  const steps = (path) => path.map((step) => fromBase64(step));
  let root;
  if (header.type === "round") {
    const { slots, first, size, position, path } = receipt.cluster;
    require(slots.length === size && slot >= first && slot < first + size, of("shows a slot that is not in its cluster"));
    require(same(made, fromBase64(slots[slot - first])), of("does not open its slot"));
    root = rootByPath(clusterHash(receipt.cluster), position, header.clusters, steps(path));
  } else root = rootByPath(leafHash(made), slot, header.participants, steps(receipt.path));
  require(same(root, fromBase64(header.root)), of("does not lead to its round"));
  const logged = rootByPath(hashInLog(header), receipt.leaf, head.size, steps(receipt.inclusion));
  require(same(logged, head.root), of("does not lead to the signed head"));
  return head;
}

async function receipts(v) {
  if (v.inputs.receipts.length === 0) return null;
  const read = v.inputs.receipts.map(readReceipt);
  const standing = new Set(v.history.standing);
  const shown = new Map(v.said.clusters.map((cluster) => [cluster.leaf, cluster.slot]));
  const superseded = new Set(v.whatIf ? [] : v.said.rounds.superseded);
  for (const receipt of read) {
    const { leaf, header } = receipt;
    const of = (why) => () => `the receipt for round ${header.number} ${why}`;
    const head = await requireReceipt(receipt, v.keys);
    require(receipt.run === v.promised.run, of("is of another run"));
    require(v.client === null || v.client === receipt.client, of("is another client's"));
    require(head.size <= v.leaves.length, of("is newer than this proof, which cannot speak about it"));
    const inLog = same(v.hashes[leaf], hashInLog(header)) && same(v.prefixes.root(head.size), head.root);
    require(inLog, of("is not in this log: the server told two stories"));
    if (standing.has(leaf)) require(shown.get(leaf) === receipt.slot, of("shows a slot that the proof leaves out"));
    else require(v.whatIf || superseded.has(leaf), of("is for a superseded round that the proof leaves out"));
  }
  return `${count(read.length, "receipt")} in this log, opened or superseded`;
}

function model(v) {
  require(v.subject === v.history.model, "the subject is not the model that the last standing round produced");
  const given = v.inputs.model;
  if (given === null) return null;
  if (given === v.subject) return `the model file is the subject, ${given.slice(0, 16)}`;
  const made = new Map([[v.promised.initial_model, "it is the initial model"]]);
  for (const place of v.history.standing) made.set(v.leaves[place].after, `it is that of round ${v.leaves[place].number}`);
  const short = given.slice(0, 16);
  require(made.has(given) || !v.history.undone.has(given), `the model file, ${short}, is that of a round that was undone`);
  if (v.inputs.serving !== null) return `the model file, ${short}, is not the subject; check serving compares it`;
  const where = made.get(given) ?? "no round up to there made it, and a later one needs a renewed proof";
  throw new AnotherModel(`another model (${short}) than the one proved (${v.subject.slice(0, 16)}), as of head ${v.head.size}: ${where}`);
}

async function word(v) {
  const data = v.inputs.word;
  if (data === null) return null;
  const signed = readCanonical(data, LARGEST_WORD, "the word");
  shapes.signedWord(signed, "the word");
  const { records } = v.said;
  require(records !== undefined, "a word was given, and the proof is about no records");
  const named = records.word !== undefined && same(fromBase64(records.word), wordDigest(data));
  require(named, "the proof has another word, or none: it may be older than the word");
  const payload = fromBase64(signed.payload);
  const statement = readCanonical(payload, LARGEST_WORD, "the word");
  shapes.word(statement, "the word");
  const about = statement.run === v.promised.run && same(fromBase64(statement.records), v.records);
  require(about, "the word is about other records");
  const key = fromBase64(signed.publicKey);
  const message = toBeSigned("application/vnd.disavow.word+json", payload);
  const holds = await holdsUnderDer(key, fromBase64(signed.signature), message);
  require(holds, "the signature of the word does not hold");
  return `given ${statement.at} by the holder of key ${hex(sha256(key)).slice(0, 16)}: compare it with the client's`;
}

async function witnesses(v) {
  const { witnesses: listed, quorum, checkpoint: kept } = v.inputs;
  if (listed === null) return null;
  const named = [...new Map(listed.map((witness) => [witness.identity, witness])).values()];
  const what = "a cosignature";
  const given = [readSignatures(v.said.cosignatures ?? [], what)];
  if (kept !== null) {
    const note = readNote(textOf(kept, "the older checkpoint"), "the older checkpoint", { cosigned: true });
    if (note.body === v.head.body) given.push(note.signatures);
  }
  const found = new Map();
  for (const witness of named) {
    for (const data of given.flatMap((signatures) => signatures.get(witness.line) ?? [])) {
      const time = await cosignedAt(witness, v.head, data);
      require(time !== null, () => `what is said to be the cosignature of ${witness.name} is not one of this head`);
      found.set(witness.id, Math.max(time, found.get(witness.id) ?? 0));
    }
  }
  const known = new Set(named.map((witness) => witness.id)).size;
  const needed = quorum ?? known;
  const missing = [...new Set(named.filter((each) => !found.has(each.id)).map((each) => each.name))].slice(0, 10).join(", ");
  const few = `the head is cosigned by ${found.size} of ${known} witnesses, and ${needed} are needed`;
  require(found.size >= needed, missing === "" ? few : `${few}: not by ${missing}`);
  const first = new Date(Math.min(...found.values()) * 1000).toISOString().replace(".000Z", "+00:00");
  return `${found.size} of ${known} have cosigned the head; ${needed} are needed, the first ${first}`;
}

async function serving(v) {
  const data = v.inputs.serving;
  if (data === null) return null;
  const what = "the serving statement";
  const envelope = readCanonical(data, LARGEST, what);
  shapes.signedServing(envelope, what);
  require(envelope.signatures.length === 1, `${what} is not signed`);
  const [{ keyid, sig }] = envelope.signatures;
  const key = v.keys.withId(keyid);
  require(key !== undefined, () => `${what} is signed by key ${keyid.slice(0, 16)}, which is not among those given`);
  const payload = fromBase64(envelope.payload);
  const holds = await holdsEd25519(key.bytes, fromBase64(sig), toBeSigned(shapes.SERVING_PAYLOAD, payload));
  require(holds, () => `the signature of ${key.name} does not fit ${what}`);
  require(v.keys.revoked(key) === undefined, `${what} is signed with a key that was revoked`);
  const said = readCanonical(payload, LARGEST, what);
  shapes.serving(said, what);
  const head = readNote(said.checkpoint, `the checkpoint of ${what}`, { cosigned: true });
  await head.requireSignedBy(key, `the checkpoint of ${what}`);
  require(head.origin === v.head.origin, `${what} is of another run's log`);
  require(said.since + logSize(said.leaves) === head.size, `${what} does not have the leaves that it says it has`);
  const inUse = ({ from, until }) => (from === null || from <= said.at) && (until === null || until >= said.at);
  require(v.keys.of(key).some(inUse), () => `the key of ${what} was not in use at ${said.at}`);
  let found;
  if (head.size <= v.head.size) found = servedBefore(v, said, head);
  else if (said.since === v.head.size && v.version === 4) found = servedLater(v, said, head, key);
  else if (said.model === v.subject) found = `the one proved; that head ${head.size} goes on from head ${v.head.size} is not shown`;
  else throw otherServed(v, said, `it is of head ${head.size}: ask for a statement since ${v.head.size}, or a renewed proof`);
  if (v.inputs.model !== null && v.inputs.model !== said.model) {
    throw new AnotherModel(`another model (${v.inputs.model.slice(0, 16)}) than the one served (${said.model.slice(0, 16)}) at ${said.at}`);
  }
  return `at ${said.at} the server served ${said.model.slice(0, 16)}, ${found}`;
}

/** A statement whose head is a beginning of the proof's log, or the whole of it. */
function servedBefore(v, said, head) {
  require(same(v.prefixes.root(head.size), head.root), () => `the serving statement's head of ${head.size} leaves is not of this log: a fork`);
  const stood = [];
  v.leaves.slice(0, head.size).forEach((leaf, place) => {
    if (v.history.rounds.has(place)) stood.push(place);
    else if (leaf.type === "rollback" || leaf.type === "purge") stood.splice(leaf.to - 1);
  });
  const last = stood.length > 0 ? v.leaves[stood.at(-1)].after : v.promised.initial_model;
  require(head.size > 0 && said.model === last, `the serving statement names a model that its own log did not have at ${head.size}`);
  if (said.model === v.subject) return "the one proved";
  const known = new Set([v.promised.initial_model, ...v.history.standing.map((place) => v.leaves[place].after)]);
  if (!known.has(said.model)) {
    const undone = v.leaves[v.history.undoneBy.get(stood.at(-1))].at;
    require(said.at.slice(0, 10) <= undone, () => `the server says that it served at ${said.at} a model that was undone on ${undone}`);
  }
  throw otherServed(v, said, `the statement is older, of head ${head.size}`);
}

/** A statement that brings the leaves behind the proof's head: would the proof hold at its head, too? */
function servedLater(v, said, head, key) {
  const leaves = openLog([...v.said.leaves, ...said.leaves]);
  const root = new Prefixes(leaves.map(hashInLog)).root(leaves.length);
  require(same(root, head.root), () => `head ${head.size} of the serving statement does not go on from the proof's: a fork`);
  const history = replay(leaves);
  const last = leaves.filter((leaf) => leaf.type === "run" || leaf.type === "key").at(-1).key;
  const isSigner = last === null || readKey(last).identity === key.identity;
  require(isSigner, "the log is to be signed with another key than the one of the serving statement");
  require(said.model === history.model, () => `the serving statement names a model that its own log does not have at ${head.size}`);
  if (!v.whatIf) requireStillDeniable(v, history);
  else if (said.model !== v.subject) throw otherServed(v, said, `a what-if says nothing of rounds behind its head ${v.head.size}`);
  if (said.model === v.subject) return "the one proved";
  const unchanged = unchangedInWords({ ...v, history, leaves });
  const warning = `${unchanged}: nothing shows that they were retrained`;
  if (unchanged && !v.warnings.includes(warning)) v.warnings.push(warning);
  return `${count(history.rounds.size - v.history.rounds.size, "round")} later than the one proved and of the same log; the proof holds of it too`;
}

/** Of the clusters shown, those that still stand have enough survivors; and what was purged is not rebuilt. */
function requireStillDeniable(v, history) {
  const standing = new Set(history.standing);
  const shown = v.said.clusters.filter((cluster) => standing.has(cluster.leaf));
  countWithdrawn(history, shown).forEach((gone, i) => {
    const left = shown[i].size - gone;
    const { number } = v.leaves[shown[i].leaf];
    require(left >= v.needed, () => `round ${number}: in the model served, only ${left} survivors are left`);
  });
  require(!("purge" in v.said) || history.rebuilt === 0, "a round of the model served was rebuilt approximately: nobody was purged");
}

function otherServed(v, said, why) {
  const [served, proved] = [said.model.slice(0, 16), v.subject.slice(0, 16)];
  return new AnotherModel(`another model (${served}), served at ${said.at}, than the one proved (${proved}), as of head ${v.head.size}: ${why}`);
}

/** All checks in order. */
export const CHECKS = [
  ["readable", readable],
  ["signature", signature],
  ["statement", statement],
  ["checkpoint", checkpoint],
  ["log", log],
  ["history", history],
  ["policy", policy],
  ["rounds", rounds],
  ["clusters", clusters],
  ["survivors", survivors],
  ["spread", spread],
  ["bounds", bounds],
  ["verdict", verdict],
  ["opening", opening],
  ["receipts", receipts],
  ["model", model],
  ["word", word],
  ["witnesses", witnesses],
  ["serving", serving],
];
