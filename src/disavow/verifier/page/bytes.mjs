/** Bytes: numbers, texts, base64 and hexadecimal ("Notation", "Kinds of values"). */

import { need } from "./failures.mjs";

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const NO_DIGIT = 255;
const SIX_BITS = new Uint8Array(128).fill(NO_DIGIT);
for (let i = 0; i < ALPHABET.length; i++) SIX_BITS[ALPHABET.charCodeAt(i)] = i;

const ENCODER = new TextEncoder();

/** The UTF-8 bytes of a text that has no unpaired surrogate. */
export const utf8 = (text) => ENCODER.encode(text);

/** Four bytes, big-endian. */
export function u32(number) {
  return Uint8Array.of(number >>> 24, number >>> 16, number >>> 8, number);
}

/** Eight bytes, big-endian; numbers here are below 2^53. */
export function u64(number) {
  const bytes = new Uint8Array(8);
  bytes.set(u32(Math.floor(number / 2 ** 32)), 0);
  bytes.set(u32(number % 2 ** 32), 4);
  return bytes;
}

/** str(t): the length of a text in bytes, and the bytes. */
export function lengthAndText(text) {
  const bytes = utf8(text);
  return join([u32(bytes.length), bytes]);
}

/** One after the other. */
export function join(parts) {
  const joined = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

/** Whether the bytes are the same. */
export function same(one, other) {
  if (one.length !== other.length) return false;
  for (let i = 0; i < one.length; i++) if (one[i] !== other[i]) return false;
  return true;
}

/** Lower-case hexadecimal digits. */
export function hex(bytes) {
  let text = "";
  for (const byte of bytes) text += (byte < 16 ? "0" : "") + byte.toString(16);
  return text;
}

/** The bytes of hexadecimal digits that were checked before. */
export function unhex(text) {
  return Uint8Array.from({ length: text.length / 2 }, (_, i) => parseInt(text.slice(2 * i, 2 * i + 2), 16));
}

/** Decode base64 in the one way in which bytes can be written: whole padding, unused bits zero. */
export function fromBase64(text, where) {
  const refuse = () => `${where} is not base64 in its one form`;
  need(typeof text === "string" && text.length % 4 === 0, refuse);
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  const digits = text.length - padding;
  const bytes = new Uint8Array((text.length / 4) * 3 - padding);
  let held = 0;
  let bits = 0;
  let at = 0;
  for (let i = 0; i < digits; i++) {
    const code = text.charCodeAt(i);
    const value = code < 128 ? SIX_BITS[code] : NO_DIGIT;
    need(value !== NO_DIGIT, refuse);
    held = ((held << 6) | value) & 0xffff;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes[at++] = held >> bits;
    }
  }
  need((held & ((1 << bits) - 1)) === 0, refuse);
  return bytes;
}

/** Encode as base64, with padding. */
export function toBase64(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; i += 3) {
    const left = bytes.length - i;
    const three = (bytes[i] << 16) | ((left > 1 ? bytes[i + 1] : 0) << 8) | (left > 2 ? bytes[i + 2] : 0);
    text += ALPHABET[three >> 18] + ALPHABET[(three >> 12) & 63];
    text += (left > 1 ? ALPHABET[(three >> 6) & 63] : "=") + (left > 2 ? ALPHABET[three & 63] : "=");
  }
  return text;
}
