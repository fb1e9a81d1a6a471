/** Trees of RFC 6962 with SHA-256, and what is committed to ("Merkle trees", "Commitments", "Cover"). */

import { lengthAndText, u32, u64, utf8 } from "./bytes.mjs";
import { require } from "./failures.mjs";
import { Sha256, sha256 } from "./sha256.mjs";

const LEAF = Uint8Array.of(0);
const NODE = Uint8Array.of(1);
const HASH_BYTES = 32;

export const leafHash = (...data) => sha256(LEAF, ...data);
export const nodeHash = (left, right) => sha256(NODE, left, right);
export const emptyRoot = () => sha256();

/** A tree that grows and whose leaves change; the root is made of what changed since it was last asked for. */
export class Tree {
  #levels = [[]];
  #changed = new Set();

  get size() {
    return this.#levels[0].length;
  }

  /** Set a leaf; its index is at most the size. */
  set(index, hash) {
    if (index === this.size && index > 0) this.#changed.add(index - 1); // had perhaps no neighbour, and has one now
    this.#levels[0][index] = hash;
    this.#changed.add(index);
  }

  root() {
    if (this.size === 0) return emptyRoot();
    let changed = this.#changed;
    let level = 0;
    for (; this.#levels[level].length > 1; level++) {
      const below = this.#levels[level];
      const above = (this.#levels[level + 1] ??= []);
      const next = new Set();
      for (const index of changed) next.add(Math.floor(index / 2));
      for (const index of next) {
        const right = below[2 * index + 1];
        above[index] = right === undefined ? below[2 * index] : nodeHash(below[2 * index], right);
      }
      changed = next;
    }
    this.#changed = new Set();
    return this.#levels[level][0];
  }
}

/** The roots of all prefixes of a list of leaf hashes, each in a few steps: every whole subtree is kept. */
export class Prefixes {
  #levels;

  constructor(hashes) {
    this.#levels = [hashes];
    for (let below = hashes; below.length > 1; below = this.#levels.at(-1)) {
      const above = [];
      for (let i = 0; i + 1 < below.length; i += 2) above.push(nodeHash(below[i], below[i + 1]));
      this.#levels.push(above);
    }
  }

  root(size) {
    if (size === 0) return emptyRoot();
    let root = null;
    let end = size;
    for (let level = 0; end > 0; level++) {
      const width = 2 ** level;
      if (Math.floor(size / width) % 2 === 0) continue;
      const peak = this.#levels[level][end / width - 1];
      root = root === null ? peak : nodeHash(peak, root);
      end -= width;
    }
    return root;
  }
}

/** Follow a path from a leaf to the root. Sizes may be above 2^31, so that no bit operations are used. */
export function rootByPath(leaf, index, size, path) {
  require(index < size, "a path is of a leaf that is not in the tree");
  let [value, at, width, used] = [leaf, index, size, 0];
  while (width > 1) {
    const odd = at % 2 === 1;
    if (odd || at + 1 < width) {
      require(used < path.length, "a path is too short");
      const sibling = path[used++];
      value = odd ? nodeHash(sibling, value) : nodeHash(value, sibling);
    }
    at = Math.floor(at / 2);
    width = Math.ceil(width / 2);
  }
  require(used === path.length, "a path is too long");
  return value;
}

/** The root of a tree of which some leaves are known, by their indexes; the rest are in `cover`. */
export function rootByCover(known, size, cover) {
  require(cover.length % HASH_BYTES === 0, "the cover has half a hash");
  if (size === 0) {
    require(cover.length === 0, "the cover has hashes that nothing needs");
    return emptyRoot();
  }
  const indexes = [...known.keys()].sort((a, b) => a - b);
  let used = 0;
  const below = (index) => {
    let [low, high] = [0, indexes.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (indexes[middle] < index) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  const root = (start, end) => {
    if (below(start) === below(end)) {
      require(used + HASH_BYTES <= cover.length, "the cover is too short");
      used += HASH_BYTES;
      return cover.subarray(used - HASH_BYTES, used);
    }
    if (end - start === 1) return known.get(start);
    let half = 1;
    while (half * 2 < end - start) half *= 2;
    const left = root(start, start + half);
    return nodeHash(left, root(start + half, end));
  };
  const found = root(0, size);
  require(used === cover.length, "the cover has hashes that nothing needs");
  return found;
}

const tag = (name) => utf8(`${name}\0`);
const SLOT = tag("disavow/slot/v1");
const REQUEST = tag("disavow/request/v1");
const ROUNDS = tag("disavow/rounds/v1");
const RECORD_LIST = tag("disavow/record list/v1");
const RECORDS = tag("disavow/records/v1");
const WITHDRAWN = tag("disavow/withdrawn/v1");
const WORD = tag("disavow/word/v1");
const POSITION = tag("disavow/position/v4");

export const slotCommitment = (run, round, salt, client, update) =>
  sha256(SLOT, lengthAndText(run), u64(round), salt, lengthAndText(client), update);
export const requestCommitment = (run, salt, client) => sha256(REQUEST, lengthAndText(run), salt, lengthAndText(client));
export const recordsCommitment = (run, count, list) => sha256(RECORDS, lengthAndText(run), u64(count), list);
export const withdrawnInner = (salt, slot) => sha256(WITHDRAWN, salt, u32(slot));
export const withdrawnEntry = (position, inner) => leafHash(u32(position), inner);
export const mapValue = (entries, root) => sha256(u32(entries), root);
export const positionMask = (root, place, index) => sha256(POSITION, root, u32(place), u32(index));
export const wordDigest = (file) => sha256(WORD, file);

/** The rounds of a leaver; there may be more places than a call can have arguments. */
export function roundsCommitment(salt, positions) {
  const hash = new Sha256().update(ROUNDS).update(salt);
  for (const place of positions) hash.update(u64(place));
  return hash.digest();
}

/** The list of record keys, sorted by their bytes. */
export function recordList(salt, keys) {
  const byBytes = (one, other) => {
    for (let i = 0; i < one.length && i < other.length; i++) if (one[i] !== other[i]) return one[i] - other[i];
    return one.length - other.length;
  };
  const hash = new Sha256().update(RECORD_LIST).update(salt);
  for (const key of keys.map(utf8).sort(byBytes)) hash.update(u32(key.length)).update(key);
  return hash.digest();
}
