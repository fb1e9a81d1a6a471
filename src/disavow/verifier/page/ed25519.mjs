/**
 * Signatures: Ed25519 (RFC 8032) and ECDSA by WebCrypto. Browsers from before 2024 have WebCrypto without Ed25519;
 * for them it is computed here. Only public data is handled, so that nothing has to take a constant time.
 */

import { join, same } from "./bytes.mjs";
import { Unreadable, need } from "./failures.mjs";

const P = 2n ** 255n - 19n;
const ORDER = 2n ** 252n + 27742317777372353535851937790883648493n;
const SIGNATURE_BYTES = 64;

/** WebCrypto, which browsers give only to pages from a file, from this machine or by https. */
export function subtle() {
  const found = globalThis.crypto?.subtle;
  if (found) return found;
  throw new Error("This browser gives the page no WebCrypto. Open the page from a file or by https, or use another browser.");
}

let native = null;

/** Whether the browser itself has Ed25519. */
export function hasEd25519() {
  native ??= subtle()
    .importKey("raw", new Uint8Array(32).fill(1, 0, 1), "Ed25519", false, ["verify"])
    .then(
      () => true,
      () => false,
    );
  return native;
}

/** Whether a signature of Ed25519 holds. 32 bytes that are no point are a key under which none does. */
export async function holdsEd25519(key, signature, message) {
  if (signature.length !== SIGNATURE_BYTES) return false;
  if (!(await hasEd25519())) return computeEd25519(key, signature, message);
  try {
    const imported = await subtle().importKey("raw", key, "Ed25519", false, ["verify"]);
    return await subtle().verify("Ed25519", imported, signature, message);
  } catch {
    return false;
  }
}

const mod = (value, by = P) => {
  const rest = value % by;
  return rest < 0n ? rest + by : rest;
};

function power(base, exponent) {
  let result = 1n;
  for (let square = mod(base); exponent > 0n; exponent >>= 1n) {
    if (exponent & 1n) result = (result * square) % P;
    square = (square * square) % P;
  }
  return result;
}

const D = mod(-121665n * power(121666n, P - 2n));
const ROOT_OF_MINUS_ONE = power(2n, (P - 1n) / 4n);

function littleEndian(bytes) {
  let value = 0n;
  for (let i = bytes.length - 1; i >= 0; i--) value = (value << 8n) | BigInt(bytes[i]);
  return value;
}

/** The point of 32 bytes, in extended coordinates; null where they are no point. A second encoding of y is read. */
function decodePoint(bytes) {
  const number = littleEndian(bytes);
  const sign = number >> 255n;
  const y = (number & (2n ** 255n - 1n)) % P;
  const u = mod(y * y - 1n);
  const v = mod(D * y * y + 1n);
  let x = mod(u * power(v, 3n) * power(u * power(v, 7n), (P - 5n) / 8n));
  const square = mod(v * x * x);
  if (square === mod(-u)) x = mod(x * ROOT_OF_MINUS_ONE);
  else if (square !== u) return null;
  if ((x & 1n) !== sign) x = mod(-x);
  return [x, y, 1n, mod(x * y)];
}

function encodePoint([x, y, z]) {
  const inverse = power(z, P - 2n);
  let value = mod(y * inverse) | ((mod(x * inverse) & 1n) << 255n);
  return Uint8Array.from({ length: 32 }, () => {
    const byte = Number(value & 255n);
    value >>= 8n;
    return byte;
  });
}

function add([x1, y1, z1, t1], [x2, y2, z2, t2]) {
  const a = mod((y1 - x1) * (y2 - x2));
  const b = mod((y1 + x1) * (y2 + x2));
  const c = mod(2n * D * t1 * t2);
  const d = mod(2n * z1 * z2);
  const [e, f, g, h] = [b - a, d - c, d + c, b + a];
  return [mod(e * f), mod(g * h), mod(f * g), mod(e * h)];
}

const NEUTRAL = [0n, 1n, 1n, 0n];
const BASE = decodePoint(Uint8Array.from({ length: 32 }, (_, i) => (i === 0 ? 0x58 : 0x66)));

/** RFC 8032, 5.1.7, without the cofactor: [S]B - [k]A must be R byte for byte. */
export async function computeEd25519(key, signature, message) {
  const [r, s] = [signature.subarray(0, 32), littleEndian(signature.subarray(32))];
  const point = decodePoint(key);
  if (point === null || s >= ORDER) return false;
  const hashed = await subtle().digest("SHA-512", join([r, key, message]));
  const k = littleEndian(new Uint8Array(hashed)) % ORDER;
  const minus = [mod(-point[0]), point[1], point[2], mod(-point[3])];
  const both = add(BASE, minus);
  let sum = NEUTRAL;
  for (let bit = 252n; bit >= 0n; bit--) {
    sum = add(sum, sum);
    const [inS, inK] = [(s >> bit) & 1n, (k >> bit) & 1n];
    if (inS || inK) sum = add(sum, inS && inK ? both : inS ? BASE : minus);
  }
  return same(encodePoint(sum), r);
}

// -- the key of a word ---------------------------------------------------------------------------------------------

const bytesOf = (...values) => Uint8Array.from(values);
const ED25519_INFO = bytesOf(0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00);
const EC = [0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const CURVES = [
  {
    name: "P-256",
    bytes: 32,
    info: bytesOf(0x30, 0x59, 0x30, 0x13, ...EC, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04),
  },
  {
    name: "P-384",
    bytes: 48,
    info: bytesOf(0x30, 0x76, 0x30, 0x10, ...EC, 0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22, 0x03, 0x62, 0x00, 0x04),
  },
];

/** Whether the holder of a key in DER signed: Ed25519, P-256 or P-384; another key is unreadable ("The word"). */
export async function holdsUnderDer(key, signature, message) {
  const begins = (info, bytes) => key.length === info.length + bytes && same(key.subarray(0, info.length), info);
  if (begins(ED25519_INFO, 32)) return holdsEd25519(key.subarray(ED25519_INFO.length), signature, message);
  const curve = CURVES.find((each) => begins(each.info, 2 * each.bytes));
  need(curve !== undefined, "the key of the word is not Ed25519, P-256 or P-384 in DER");
  let imported;
  try {
    imported = await subtle().importKey("spki", key, { name: "ECDSA", namedCurve: curve.name }, false, ["verify"]);
  } catch {
    throw new Unreadable("the key of the word is no point of its curve");
  }
  const raw = rawSignature(signature, curve.bytes);
  return raw !== null && subtle().verify({ name: "ECDSA", hash: "SHA-256" }, imported, raw, message);
}

/** r and s, each of the curve's length, of a signature in DER; null where it is none, or a number is too large. */
function rawSignature(signature, bytes) {
  const [sequence, ...behind] = derValues(signature, 0x30) ?? [];
  const numbers = sequence && behind.length === 0 ? derValues(sequence, 0x02) : null;
  if (numbers?.length !== 2) return null;
  const raw = new Uint8Array(2 * bytes);
  for (const [i, number] of numbers.entries()) {
    const needless = number.length > 1 && number[0] === 0 && number[1] < 0x80;
    if (number.length === 0 || number[0] >= 0x80 || needless) return null;
    const digits = number[0] === 0 ? number.subarray(1) : number;
    if (digits.length > bytes) return null;
    raw.set(digits, (i + 1) * bytes - digits.length);
  }
  return raw;
}

/** The contents of the values of one tag that bytes consist of; null where they do not, or a length is not minimal. */
function derValues(bytes, tag) {
  const values = [];
  for (let at = 0; at < bytes.length; ) {
    let [size, start] = [bytes[at + 1], at + 2];
    if (size === 0x81) {
      size = bytes[start++];
      if (!(size >= 0x80)) return null;
    } else if (size > 0x7f) return null; // no signature of these curves has 256 bytes
    if (bytes[at] !== tag || size === undefined || start + size > bytes.length) return null;
    values.push(bytes.subarray(start, start + size));
    at = start + size;
  }
  return values;
}
