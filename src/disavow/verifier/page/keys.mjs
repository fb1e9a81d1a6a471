/** Public keys, lists of them, and signed notes ("Public keys", "Checkpoints"). */

import { fromBase64, hex, utf8 } from "./bytes.mjs";
import { holdsEd25519 } from "./ed25519.mjs";
import { Invalid, need, require } from "./failures.mjs";
import { readAny, textOf } from "./json.mjs";
import { codePoints, fields, hasLoneSurrogate, hash, isObject, listOf, oneOf, orNull, text, time } from "./kinds.mjs";
import { sha256 } from "./sha256.mjs";

const NAME = /^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,99}$/;
const ED25519 = 1;
const COSIGNATURE = 4;
const MOST_WITNESSES = 1_000;
const TIME_BYTES = 8;
const SIGNATURE_BYTES = 64;
const LATEST = 253_402_300_799n; // the last second of the year 9999
const MOST_KEYS = 10_000;
const MOST_KEY_BYTES = 1_048_576;
const LONGEST_NOTE = 16_384;
const SPACE = " \t\r\n";

/** A public key. */
export class PublicKey {
  constructor(name, bytes, algorithm = ED25519) {
    this.name = name;
    this.bytes = bytes;
    this.id = hex(sha256(bytes));
    this.line = `${name} ${hex(keyHash(name, bytes, algorithm))}`;
  }

  /** Two keys are the same if name and bytes are. */
  get identity() {
    return `${this.name} ${this.id}`;
  }
}

function keyHash(name, bytes, algorithm) {
  return sha256(utf8(name), Uint8Array.of(0x0a, algorithm), bytes).subarray(0, 4);
}

/** Read `name+hash+base64`. */
export function readKey(value, where, algorithm = ED25519) {
  text(value, where);
  const [name, short, ...rest] = value.split("+");
  need(rest.length > 0 && NAME.test(name), () => `${where} is not a public key: name+hash+base64`);
  const data = fromBase64(rest.join("+"), where);
  const kind = algorithm === ED25519 ? "an Ed25519 key" : "the key of a witness";
  need(data.length === 33 && data[0] === algorithm, () => `${where} is not ${kind}`);
  const key = data.subarray(1);
  need(hex(keyHash(name, key, algorithm)) === short, () => `${where} has another hash than its key`);
  return new PublicKey(name, key, algorithm);
}

/** Read a file with keys of witnesses, one a line ("Cosignatures"). */
export function readWitnesses(data) {
  const what = "the file of witnesses";
  need(data.length <= MOST_KEY_BYTES, `${what} is too large`);
  const lines = textOf(data, what).split("\n").map((line) => line.replace(/^[ \t\r]+|[ \t\r]+$/g, ""));
  const found = lines.filter((line) => line !== "").map((line) => readKey(line, what, COSIGNATURE));
  need(found.length > 0 && found.length <= MOST_WITNESSES, `${what} has no key, or too many`);
  return found;
}

/** The kind of a public key as text. */
export function key(value, where) {
  readKey(value, where);
}

const DATED = { key, from: time, until: orNull(time) };
const LISTS = {
  "disavow/keys/v1": fields(DATED),
  "disavow/keys/v2": fields({ ...DATED, revoked: orNull(time) }),
};

/** Read the keys that a verifier was given: one public key, or a list with dates. */
export function readTrusted(data) {
  const what = "the key file";
  need(data.length <= MOST_KEY_BYTES, `${what} is too large to be a key`);
  let [start, end] = [0, data.length];
  while (start < end && SPACE.includes(String.fromCharCode(data[start]))) start++;
  while (start < end && SPACE.includes(String.fromCharCode(data[end - 1]))) end--;
  if (data[start] !== "{".charCodeAt(0)) {
    const only = readKey(textOf(data.subarray(start, end), what), what);
    return new TrustedKeys([{ key: only, from: null, until: null, revoked: null }]);
  }
  const list = readAny(data, MOST_KEY_BYTES, what);
  need(isObject(list) && Object.hasOwn(LISTS, list.type ?? ""), `${what} is not a list of keys`);
  fields({ type: oneOf(list.type), keys: listOf(LISTS[list.type], MOST_KEYS) })(list, what);
  return new TrustedKeys(list.keys.map((entry) => ({ revoked: null, ...entry, key: readKey(entry.key, what) })));
}

/** The keys that a verifier trusts, each with its dates. */
export class TrustedKeys {
  #byLine = new Map();
  #revoked = new Map();

  constructor(entries) {
    this.entries = entries;
    for (const { key: each, revoked } of entries) {
      if (revoked !== null) this.#revoked.set(each.id, revoked);
      const found = this.#byLine.get(each.line) ?? new Map();
      this.#byLine.set(each.line, found.set(each.id, each));
    }
  }

  /** The first key of an id; undefined where none is trusted. */
  withId(id) {
    return this.entries.find((entry) => entry.key.id === id)?.key;
  }

  /** The entries of one key. */
  of(key) {
    return this.entries.filter((entry) => entry.key.identity === key.identity);
  }

  /** Since when a key is revoked; undefined where it is not. One entry with its bytes is enough. */
  revoked(key) {
    return this.#revoked.get(key.id);
  }

  /** The checkpoint of a note that one of the keys opens; revoked ones open nothing. */
  async open(note, what) {
    let refusal = `${what} is not signed by a key that was given`;
    for (const line of note.signatures.keys()) {
      for (const each of this.#byLine.get(line)?.values() ?? []) {
        if (!(await note.isSignedBy(each))) continue;
        if (this.revoked(each) === undefined) return note;
        refusal = `${what} is signed with a key that was revoked: nothing that it signed is accepted`;
      }
    }
    throw new Invalid(refusal);
  }
}

/** A checkpoint that was read; nobody has looked at its signatures, which are kept by name and hash of their key. */
class Note {
  constructor(body, origin, size, root, signatures) {
    Object.assign(this, { body, origin, size, root, signatures });
  }

  /** Whether every signature under the name and hash of a key is the key's; it has one at least. */
  async isSignedBy(each) {
    for (const signature of this.signatures.get(each.line)) {
      if (!(await holdsEd25519(each.bytes, signature, utf8(this.body)))) return false;
    }
    return true;
  }

  /** Refuse the note if a key did not sign it. */
  async requireSignedBy(each, what) {
    require(this.signatures.has(each.line), () => `${what} is not signed by ${each.name}`);
    require(await this.isSignedBy(each), () => `${what} bears a false signature of ${each.name}`);
  }
}

/** Read a note of three lines and its signatures. */
export function readNote(note, what, { cosigned = false } = {}) {
  need(note.length <= 2 * LONGEST_NOTE && codePoints(note) <= LONGEST_NOTE, `${what} is too long`);
  need(!hasLoneSurrogate(note), `${what} is no proper text`);
  const split = note.lastIndexOf("\n\n");
  const body = note.slice(0, split + 1);
  const signed = note.slice(split + 2);
  const [origin, size, root, ...more] = body.split("\n");
  need(split >= 0 && more.length === 1 && signed.endsWith("\n"), `${what} is not a note of three lines with a signature`);
  need(origin !== "" && /^(?:0|[1-9][0-9]{0,14})$/.test(size), `${what} does not say how long the log is`);
  hash(root, `the root of ${what}`);
  const lines = signed.slice(0, -1).split("\n");
  need(cosigned || lines.length === 1, `${what} bears more than one signature`);
  return new Note(body, origin, Number(size), fromBase64(root), readSignatures(lines, what));
}

/** Read lines with signatures: the bytes behind the hashes of their keys, by name and hash. */
export function readSignatures(lines, what) {
  const signatures = new Map();
  for (const line of lines) {
    const [, name, encoded] = /^\u2014 ([^ ]*) (.*)$/su.exec(line) ?? [];
    need(name !== undefined && NAME.test(name), `${what} holds a line that is no signature`);
    const data = fromBase64(encoded, `a signature of ${what}`);
    need(data.length > 4, `${what} holds a line that is no signature`);
    const id = `${name} ${hex(data.subarray(0, 4))}`;
    signatures.set(id, [...(signatures.get(id) ?? []), data.subarray(4)]);
  }
  return signatures;
}

/** When a witness cosigned a note, in seconds since 1970; null where this is not its cosignature. */
export async function cosignedAt(witness, note, data) {
  if (data.length !== TIME_BYTES + SIGNATURE_BYTES) return null;
  const time = data.subarray(0, TIME_BYTES).reduce((value, byte) => value * 256n + BigInt(byte), 0n);
  if (time === 0n || time > LATEST) return null;
  const message = utf8(`cosignature/v1\ntime ${time}\n${note.body}`);
  return (await holdsEd25519(witness.bytes, data.subarray(TIME_BYTES), message)) ? Number(time) : null;
}
