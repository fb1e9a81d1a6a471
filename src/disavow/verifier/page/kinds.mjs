/** Kinds of values: each is a function that refuses as unreadable what is not of the kind ("Kinds of values"). */

import { need } from "./failures.mjs";
import { fromBase64 } from "./bytes.mjs";

export const LARGEST_WHOLE = 4_294_967_295;
export const MANY = 1_000_000;
const LONGEST_TEXT = 4096;
const LONGEST_PATH = 64;

export function whole(value, where) {
  const holds = typeof value === "number" && value >= 0 && value <= LARGEST_WHOLE;
  need(holds, () => `${where} is not a whole number from 0 to ${LARGEST_WHOLE}`);
}

export function positive(value, where) {
  whole(value, where);
  need(value >= 1, () => `${where} is not positive`);
}

export function boolean(value, where) {
  need(typeof value === "boolean", () => `${where} is neither true nor false`);
}

/** Whether a text has a surrogate that is not part of a pair: it has no UTF-8. */
export const hasLoneSurrogate = (text) => /[\ud800-\udfff]/u.test(text);

/** The number of code points of a text. */
export function codePoints(text) {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

export function text(value, where) {
  need(typeof value === "string", () => `${where} is not text`);
  const short = value.length <= LONGEST_TEXT || (value.length <= 2 * LONGEST_TEXT && codePoints(value) <= LONGEST_TEXT);
  need(short && !hasLoneSurrogate(value), () => `${where} is too long, or no proper text`);
}

/** The float64 of a decimal or a figure. */
function number(value, where) {
  const written = typeof value === "string" && /^[0-9][0-9.e+-]{0,30}$/.test(value);
  const found = written ? Number(value) : NaN;
  need(Number.isFinite(found), () => `${where} is not a finite decimal number in quotes`);
  return found;
}

export function decimal(value, where) {
  need(decimalOf(number(value, where)) === value, () => `${where} is not in its shortest form`);
}

export function figure(value, where) {
  need(figureOf(number(value, where)) === value, () => `${where} is not rounded to six digits`);
}

/** The shortest text that reads back as a float64, as Python writes it. */
export function decimalOf(value) {
  if (value === 0) return "0.0";
  const [digits, exponent] = scientific(value.toExponential());
  if (exponent < -4 || exponent >= 16) return withExponent(digits, exponent);
  return positional(digits, exponent, ".0");
}

/** Six significant digits, like C's %.6g; an exact tie goes to the even digit, where `toPrecision` rounds up. */
export function figureOf(value) {
  if (value === 0) return "0";
  const [all, exponent] = scientific(value.toExponential(100), false);
  const rounded = roundDigits(all, 6);
  const shifted = exponent + (rounded.length > 6 ? 1 : 0);
  const digits = rounded.replace(/0+$/, "");
  if (shifted < -4 || shifted >= 6) return withExponent(digits, shifted);
  return positional(digits, shifted, "");
}

/** A number with so many decimals, a tie going to the even digit, as Python formats it; from 0 to 10^20. */
export function fixed(value, decimals) {
  const [before, behind] = value.toFixed(100).split(".");
  const digits = roundDigits(before + behind, before.length + decimals);
  const point = digits.length - decimals;
  return decimals === 0 ? digits : `${digits.slice(0, point)}.${digits.slice(point)}`;
}

function scientific(text, strip = true) {
  const [mantissa, exponent] = text.split("e");
  const digits = mantissa.replace(".", "");
  return [strip ? digits.replace(/(?<=.)0+$/, "") : digits, Number(exponent)];
}

/** The first so many of decimal digits, rounded by the others; one digit more where all of them were nines. */
function roundDigits(digits, count) {
  const kept = BigInt(digits.slice(0, count) || "0");
  const rest = digits.slice(count).replace(/0+$/, "");
  const up = rest === "5" ? kept % 2n === 1n : rest > "5";
  return String(up ? kept + 1n : kept).padStart(count, "0");
}

function positional(digits, exponent, without) {
  if (exponent < 0) return `0.${"0".repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  const rest = digits.slice(exponent + 1);
  return rest ? `${whole}.${rest}` : whole + without;
}

function withExponent(digits, exponent) {
  const mantissa = digits.length > 1 ? `${digits[0]}.${digits.slice(1)}` : digits;
  return `${mantissa}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
}

export function digest(value, where) {
  need(typeof value === "string" && /^[0-9a-f]{64}$/.test(value), () => `${where} is not a SHA-256 digest`);
}

export function time(value, where) {
  const form = /^([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})\.[0-9]{6}\+00:00$/;
  const found = typeof value === "string" ? form.exec(value) : null;
  const exists = found !== null && isDay(found[1]) && found[2] <= "23" && found[3] <= "59" && found[4] <= "59";
  need(exists, () => `${where} is not a time like 2026-01-31T12:00:00.000000+00:00`);
}

export function day(value, where) {
  need(typeof value === "string" && isDay(value), () => `${where} is not a day like 2026-01-31`);
}

function isDay(text) {
  const found = /^([0-9]{4})-([0-9]{2})-([0-9]{2})$/.exec(text);
  if (found === null) return false;
  const [year, month, number] = found.slice(1).map(Number);
  const leap = (year % 4 === 0 && year % 100 !== 0) || year % 400 === 0;
  const lengths = [31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
  return year >= 1 && month >= 1 && month <= 12 && number >= 1 && number <= lengths[month - 1];
}

export function base64(value, where) {
  fromBase64(value, where);
}

export function hash(value, where) {
  need(typeof value === "string" && value.length === 44, () => `${where} is not a hash of 32 bytes`);
  need(fromBase64(value, where).length === 32, () => `${where} is not a hash of 32 bytes`);
}

export function runId(value, where) {
  need(typeof value === "string" && /^[A-Za-z0-9._-]{1,64}$/.test(value), () => `${where} is not the id of a run`);
}

/** One of a few values. */
export const oneOf =
  (...allowed) =>
  (value, where) =>
    need(allowed.includes(value), () => `${where} is none of ${allowed.join(", ")}`);

/** Of a kind, or null. */
export const orNull = (kind) => (value, where) => {
  if (value !== null) kind(value, where);
};

/** A list of at most so many of a kind. */
export const listOf =
  (kind, most = MANY) =>
  (value, where) => {
    need(Array.isArray(value) && value.length <= most, () => `${where} is not a list of at most ${most}`);
    for (let i = 0; i < value.length; i++) kind(value[i], `${where}[${i}]`);
  };

export const path = listOf(hash, LONGEST_PATH);

/** Whether a value is a JSON object. */
export const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** An object with exactly these fields, of which those named `mayMiss` may be left out. */
export function fields(kinds, mayMiss = []) {
  const names = Object.keys(kinds);
  const needed = names.filter((name) => !mayMiss.includes(name));
  return (value, where) => {
    need(isObject(value), () => `${where} is not an object`);
    for (const name of needed) need(name in value, () => `${where} has no ${name}`);
    for (const name in value) {
      need(Object.hasOwn(kinds, name), () => `${where} has a field that is not known`);
      kinds[name](value[name], `${where}.${name}`);
    }
  };
}
