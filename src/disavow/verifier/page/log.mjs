/** The log: hashes of leaves, closed leaves, and the replay from the first leaf to the last ("The log", "Version 4"). */

import { fromBase64, hex, toBase64, u32, unhex, utf8 } from "./bytes.mjs";
import { require } from "./failures.mjs";
import { encodeJson } from "./json.mjs";
import { readKey } from "./keys.mjs";
import { LARGEST_WHOLE, MANY } from "./kinds.mjs";
import { leafHash, positionMask } from "./merkle.mjs";
import { Sha256, sha256 } from "./sha256.mjs";

const CLOSED_ROUND_BYTES = 64;
const ROUND_TAG = utf8("disavow/round/v4\0");
const WITHDRAWAL_TAG = utf8("disavow/withdrawal/v4\0");
const WIDEST = 4;
const LONGEST_NUMBER = 5;

/** How many leaves a list of leaves and closed leaves stands for. */
export function logSize(shown) {
  return shown.reduce((size, item) => size + (item.type === "closed rounds" ? closedIn(item) : 1), 0);
}

const closedIn = (item) => fromBase64(item.rounds).length / CLOSED_ROUND_BYTES;

export const isClosed = (leaf) => leaf.type === "closed round" || leaf.type === "closed withdrawal";
const isWithdrawal = (leaf) => leaf.type === "withdrawal" || leaf.type === "closed withdrawal";

/** Put every leaf at its place, and give closed ones what follows from the leaves before them ("Opening the log"). */
export function openLog(shown) {
  const models = [shown[0].initial_model];
  const attempts = new Map();
  const leaves = [];
  let rounds = 0;
  const another = (after) => {
    const number = models.length;
    attempts.set(number, (attempts.get(number) ?? 0) + 1);
    rounds++;
    const before = models.at(-1);
    models.push(after);
    return { number, attempt: attempts.get(number), before, after };
  };
  for (const [at, item] of shown.entries()) {
    if (item.type === "closed rounds") {
      require(shown[at - 1]?.type !== "closed rounds", "closed rounds stand just behind closed rounds");
      const data = fromBase64(item.rounds);
      for (let start = 0; start < data.length; start += CLOSED_ROUND_BYTES) {
        const after = hex(data.subarray(start, start + 32));
        const digest = data.subarray(start + 32, start + CLOSED_ROUND_BYTES);
        leaves.push({ type: "closed round", ...another(after), digest });
      }
    } else if (item.type === "closed withdrawal") {
      leaves.push({ ...item, rounds, rollsBack: shown[at + 1]?.type === "rollback" });
    } else {
      leaves.push(item);
      if (item.type === "round" || item.type === "rebuilt") another(item.after);
      else if (item.type === "rollback" || item.type === "purge") models.length = Math.min(models.length, item.to);
    }
  }
  return leaves;
}

/** The hash of a leaf in a log, shown or closed. */
export function hashInLog(leaf) {
  if (leaf.type === "closed round" || (leaf.type === "round" && "version" in leaf)) {
    const inner = leaf.type === "round" ? sha256(encodeJson(leaf)) : leaf.digest;
    return leafHash(ROUND_TAG, u32(leaf.number), u32(leaf.attempt), unhex(leaf.before), unhex(leaf.after), inner);
  }
  if (leaf.type === "closed withdrawal" || (leaf.type === "withdrawal" && "slots" in leaf)) {
    const inner = leaf.type === "withdrawal" ? sha256(encodeJson(leaf)) : fromBase64(leaf.digest);
    return leafHash(WITHDRAWAL_TAG, u32(leaf.rounds), Uint8Array.of(rollsBack(leaf) ? 1 : 0), inner, fromBase64(leaf.slots));
  }
  return leafHash(encodeJson(leaf));
}

const rollsBack = (leaf) => leaf.rollsBack ?? leaf.requests.some((request) => request.verdict === "rollback");

/** The hash of a cluster leaf, whose slots are given one by one. */
export function clusterHash({ position, first, size, weight, spread, slots }) {
  const joined = new Sha256();
  for (const slot of slots) joined.update(fromBase64(slot));
  return leafHash(encodeJson({ position, first, size, weight, spread, slots: toBase64(joined.digest()) }));
}

/** The moment or day of a leaf; of a closed one, none. */
export const momentOf = (leaf) => leaf.created_at ?? leaf.at ?? "";

/** The largest of the times that are shown, as text. */
export const latestTime = (leaves) => leaves.reduce((latest, leaf) => (momentOf(leaf) > latest ? momentOf(leaf) : latest), "");

/** The least and the most slots of a cluster; fixed clusters lose and gain clients. */
export function clusterSizes(policy) {
  return policy.clustering === "fixed" ? [1n, BigInt(LARGEST_WHOLE)] : [BigInt(policy.k), 2n * BigInt(policy.k) - 1n];
}

/** The slots that one withdrawal takes out: places of rounds, and masked positions of clusters ("Withdrawn slots"). */
export class Entries {
  constructor(data, withdrawal) {
    this.withdrawal = withdrawal;
    this.positions = [];
    this.width = data.length > 0 ? data[0] : 0;
    const refuse = () => `the withdrawn slots of leaf ${withdrawal} are not written as they should be`;
    require(data.length === 0 || (this.width >= 1 && this.width <= WIDEST && data.length > 1), refuse);
    this.masked = new Uint8Array(data.length);
    let [place, at] = [0, 1];
    while (at < data.length) {
      let [step, turn, byte] = [0, 0, 0x80];
      for (; byte >= 0x80; turn++) {
        require(at < data.length && turn < LONGEST_NUMBER, refuse);
        byte = data[at++];
        step += (byte & 0x7f) * 2 ** (7 * turn);
      }
      require((turn === 1 || byte !== 0) && at + this.width <= data.length, refuse);
      place += step;
      this.masked.set(data.subarray(at, at + this.width), this.positions.length * this.width);
      this.positions.push(place);
      require(this.positions.length <= MANY, refuse);
      at += this.width;
    }
  }

  /** Take the mask off the position of an entry, with the root of its round. */
  position(index, root) {
    const mask = positionMask(root, this.withdrawal, index);
    let position = 0;
    for (let i = 0; i < this.width; i++) position = position * 256 + (this.masked[index * this.width + i] ^ mask[i]);
    return position;
  }
}

/** Go through the leaves of a log, each of which must follow from those before it ("Replay"). */
export function replay(leaves) {
  const history = new History(leaves);
  for (let place = 1; place < leaves.length; place++) history.take(place, leaves[place]);
  history.requireEnd();
  return history;
}

/** What the leaves come to. Leaves are referred to by their places. */
class History {
  /** Leaves of all rounds by their places. */
  rounds = new Map();
  /** Places of the rounds that stand. */
  standing = [];
  /** Leaves of all withdrawals by their places. */
  withdrawals = new Map();
  /** The entries of withdrawals by their places; none in version 3. */
  entries = new Map();
  /** Models of rounds that were undone. */
  undone = new Set();
  /** By the place of a round, that of the leaf that undid it. */
  undoneBy = new Map();
  #attempts = new Map();
  #keys = new Set();
  #latest;
  #due = 0;
  /** The number of the first standing round from which a slot was withdrawn: a purge may not leave it. */
  #firstWithdrawn = Infinity;

  constructor(leaves) {
    this.leaves = leaves;
    [this.promised] = leaves;
    this.policy = this.promised.policy;
    this.model = this.promised.initial_model;
    this.#latest = this.promised.created_at;
    if (this.promised.key !== null) this.#keys.add(readKey(this.promised.key).identity);
  }

  get rebuilt() {
    return this.standing.filter((place) => this.leaves[place].type === "rebuilt").length;
  }

  take(place, leaf) {
    require(leaf.type !== "run", () => `leaf ${place} is a second beginning`);
    if (!isClosed(leaf)) {
      require(leaf.at >= this.#latest.slice(0, leaf.at.length), () => `leaf ${place} is older than one before it`);
      if (leaf.at > this.#latest) this.#latest = leaf.at;
    }
    if (leaf.type === "key") this.#takeKey(place, leaf);
    else if (isWithdrawal(leaf)) this.#takeWithdrawal(place, leaf);
    else if (leaf.type === "rollback" || leaf.type === "purge") this.#undo(place, leaf);
    else this.#takeRound(place, leaf);
  }

  /** The last leaf and the last round are shown: the log's latest time is in them. */
  requireEnd() {
    const positions = [this.leaves.length - 1, [...this.rounds.keys()].at(-1) ?? 0];
    require(!positions.some((place) => isClosed(this.leaves[place])), "the last leaf, or the last round, is closed");
  }

  #takeRound(place, leaf) {
    const { number } = leaf;
    const attempt = (this.#attempts.get(number) ?? 0) + 1;
    this.#attempts.set(number, attempt);
    const due = this.standing.length + 1;
    require(number === due, () => `leaf ${place} is round ${number} where round ${due} is due: there is a gap`);
    require(leaf.attempt === attempt, () => `leaf ${place} is attempt ${leaf.attempt} of round ${number}, not ${attempt}`);
    require(leaf.before === this.model, () => `round ${number} does not start from the model before it`);
    const isBack = leaf.after !== leaf.before && this.undone.has(leaf.after);
    if (leaf.type === "rebuilt") this.#requireRebuilt(leaf, isBack);
    else {
      if (leaf.type === "round") this.#requireRound(leaf, isBack);
      else require(!isBack, () => `round ${number} ends in a model that was undone, and is closed`);
      this.#due = 0;
    }
    this.rounds.set(place, leaf);
    this.standing.push(place);
    this.model = leaf.after;
  }

  #requireRound(leaf, isBack) {
    const { number } = leaf;
    const { policy } = this;
    const round = (what) => () => `round ${number} ${what}`;
    require("version" in leaf === (this.promised.version === 4), round("is of another version than its log"));
    const [least, most] = clusterSizes(policy);
    const [clusters, slots] = [BigInt(leaf.clusters), BigInt(leaf.participants)];
    require(least * clusters <= slots && slots <= most * clusters, round("cannot have so many clusters of its clients"));
    require(policy.delta === null || policy.delta === leaf.delta, round("has another Δ than the policy"));
    if (policy.relative_delta !== null) {
      const delta = Number(policy.relative_delta) * Number(leaf.update_norm);
      require(Number(leaf.delta) === delta, round("has another Δ than the policy makes of its updates"));
    }
    require(Number(leaf.pairs_within) <= 1, round("has more pairs within Δ than there are"));
    require(!(Number(leaf.tau) > 0 && isBack), round("ends, noise and all, in a model that was undone: it was not retrained"));
  }

  #requireRebuilt(leaf, isBack) {
    const round = (what) => () => `round ${leaf.number} ${what}`;
    require(leaf.mechanism === this.policy.mechanism, round("was rebuilt by another mechanism than the policy's"));
    require(leaf.number <= this.#due, round("is rebuilt, and nothing undid it"));
    require(leaf.participants >= this.policy.k, round("was rebuilt with fewer than k clients"));
    require(!isBack, round("ends in a model that was undone: it was not rebuilt"));
  }

  #takeWithdrawal(place, leaf) {
    const withdrawal = (what) => () => `leaf ${place}, a withdrawal, ${what}`;
    require(leaf.rounds === this.rounds.size, withdrawal("counts other rounds than there were"));
    if (leaf.type === "withdrawal") {
      require(leaf.requests.length > 0, withdrawal("was asked for by nobody"));
      require(leaf.requests.every((each) => each.asked_at <= leaf.at), withdrawal("answers before it was asked"));
      require("slots" in leaf === (this.promised.version === 4), withdrawal("is of another version than its log"));
    }
    const followed = this.leaves[place + 1]?.type === "rollback";
    require(rollsBack(leaf) === followed, withdrawal("has no rollback that was due, or one that was not"));
    if ("slots" in leaf) this.#withdraw(new Entries(fromBase64(leaf.slots), place), withdrawal);
    this.withdrawals.set(place, leaf);
  }

  #withdraw(entries, withdrawal) {
    let before = 0;
    for (const at of entries.positions) {
      if (at === before) continue;
      before = at;
      const number = this.rounds.get(at)?.number;
      require(number !== undefined, withdrawal("takes slots from what is no round before it"));
      if (this.standing[number - 1] === at) this.#firstWithdrawn = Math.min(this.#firstWithdrawn, number);
    }
    require(entries.positions[0] !== 0, withdrawal("takes slots from what is no round before it"));
    this.entries.set(entries.withdrawal, entries);
  }

  #undo(place, leaf) {
    const undoing = (what) => () => `leaf ${place}, a ${leaf.type}, ${what}`;
    if (leaf.type === "rollback") {
      const behind = leaf.withdrawal === place - 1 && this.withdrawals.has(place - 1);
      require(behind, undoing("does not stand just behind its withdrawal"));
    } else {
      require(this.promised.version === 4, undoing("stands in a log of version 3, which has none"));
      require(this.policy.mechanism !== "federaser", undoing("is of a run that does not retrain exactly"));
      require(this.#firstWithdrawn >= leaf.to, undoing("leaves a round standing from which a slot was withdrawn"));
    }
    require(leaf.to <= this.standing.length, undoing("begins with a round that does not stand"));
    this.#due = Math.max(this.#due, this.standing.length);
    for (const at of this.standing.splice(leaf.to - 1)) {
      this.undone.add(this.leaves[at].after);
      this.undoneBy.set(at, place);
    }
    if (this.#firstWithdrawn >= leaf.to) this.#firstWithdrawn = Infinity;
    this.model = this.standing.length > 0 ? this.leaves[this.standing.at(-1)].after : this.promised.initial_model;
  }

  #takeKey(place, leaf) {
    const { identity } = readKey(leaf.key);
    require(!this.#keys.has(identity), () => `leaf ${place} brings back a key that was replaced`);
    this.#keys.add(identity);
  }

  /** The standing rounds behind a place that end in a model of before it that was undone. */
  unchangedSince(place) {
    const standing = new Set(this.standing);
    const earlier = [...this.rounds.keys()].filter((at) => at < place);
    const undone = new Set(earlier.filter((at) => !standing.has(at)).map((at) => this.leaves[at].after));
    for (const at of earlier) if (standing.has(at)) undone.delete(this.leaves[at].after);
    undone.delete(this.promised.initial_model);
    return this.standing.filter((at) => at > place && undone.has(this.leaves[at].after));
  }
}
