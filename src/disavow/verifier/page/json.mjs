/** JSON within limits, in its canonical form or, for key lists, in any ("Canonical JSON", "Files and limits"). */

import { Unreadable, need } from "./failures.mjs";
import { utf8 } from "./bytes.mjs";

const DEEPEST = 16;
const MOST_MEMBERS = 64;
const MOST_STRINGS_AND_BRACKETS = 1_500_000;
const LONGEST_NUMBER = 15;
const SHORT_ESCAPES = { b: "\b", t: "\t", n: "\n", f: "\f", r: "\r", '"': '"', "\\": "\\" };
const WRITTEN = Object.fromEntries(Object.entries(SHORT_ESCAPES).map(([letter, unit]) => [unit, `\\${letter}`]));
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Read a value from its one text. */
export const readCanonical = (data, most, what) => read(data, most, what, true);

/** Read a value in any spacing, order and escapes. */
export const readAny = (data, most, what) => read(data, most, what, false);

/** The text of bytes, which must be UTF-8; a byte order mark is a character like others. */
export function textOf(data, what) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    throw new Unreadable(`${what} is not UTF-8`);
  }
}

function read(data, most, what, canonical) {
  need(data.length <= most, () => `${what} has ${data.length} bytes; at most ${most} are read`);
  const reader = new Reader(textOf(data, what), what, canonical);
  return reader.whole();
}

/** One pass over a text. In canonical form whatever is not the one way to write a value is refused where it stands. */
class Reader {
  #text;
  #what;
  #canonical;
  #at = 0;
  #counted = 0;
  #number = /-?(?:0|[1-9][0-9]*)/y;

  constructor(text, what, canonical) {
    this.#text = text;
    this.#what = what;
    this.#canonical = canonical;
  }

  whole() {
    const value = this.#value(0);
    this.#space();
    if (this.#at !== this.#text.length) this.#refuse("something follows the value");
    return value;
  }

  #refuse(why) {
    throw new Unreadable(`${this.#what} is not JSON that is accepted here: ${why}, at character ${this.#at}`);
  }

  #space() {
    if (this.#canonical) return;
    while (this.#at < this.#text.length && " \t\n\r".includes(this.#text[this.#at])) this.#at++;
  }

  /** Strings and brackets are counted, so that a small file cannot become a large value. */
  #count() {
    if (++this.#counted > MOST_STRINGS_AND_BRACKETS) this.#refuse("too many strings and brackets");
  }

  /** Go over one character, with spaces before it where they are allowed. */
  #skip(character) {
    this.#space();
    if (this.#text[this.#at] !== character) return false;
    this.#at++;
    return true;
  }

  #value(depth) {
    this.#space();
    const next = this.#text[this.#at];
    if (next === "{") return this.#object(depth + 1);
    if (next === "[") return this.#list(depth + 1);
    if (next === '"') return this.#string();
    for (const [word, value] of [["true", true], ["false", false], ["null", null]]) {
      if (this.#text.startsWith(word, this.#at)) {
        this.#at += word.length;
        return value;
      }
    }
    return this.#whole();
  }

  #whole() {
    this.#number.lastIndex = this.#at;
    const found = this.#number.exec(this.#text);
    if (found === null) this.#refuse("no value");
    if (found[0].length > LONGEST_NUMBER || found[0] === "-0") this.#refuse("a number that is not accepted");
    this.#at += found[0].length;
    return Number(found[0]);
  }

  #open(depth) {
    this.#at++;
    this.#count();
    if (depth > DEEPEST) this.#refuse(`nested deeper than ${DEEPEST} levels`);
  }

  #list(depth) {
    this.#open(depth);
    const items = [];
    if (!this.#skip("]")) {
      do items.push(this.#value(depth));
      while (this.#skip(","));
      if (!this.#skip("]")) this.#refuse("a list does not end");
    }
    this.#count();
    return items;
  }

  #object(depth) {
    this.#open(depth);
    const members = Object.create(null); // a key may be "__proto__"
    let size = 0;
    let last = null;
    if (!this.#skip("}")) {
      do {
        this.#space();
        if (this.#text[this.#at] !== '"') this.#refuse("no key");
        const key = this.#string();
        if (this.#canonical ? last !== null && key <= last : key in members) this.#refuse("a key out of order, or twice");
        if (++size > MOST_MEMBERS) this.#refuse("too many members");
        if (!this.#skip(":")) this.#refuse("no colon");
        members[key] = this.#value(depth);
        last = key;
      } while (this.#skip(","));
      if (!this.#skip("}")) this.#refuse("an object does not end");
    }
    this.#count();
    return members;
  }

  #string() {
    this.#count();
    const text = this.#text;
    let start = ++this.#at;
    let value = "";
    for (;;) {
      if (this.#at >= text.length) this.#refuse("a string does not end");
      const code = text.charCodeAt(this.#at);
      if (code === QUOTE) break;
      if (code < 0x20 || (this.#canonical && code > 0x7e)) this.#refuse("a character that is not escaped");
      if (code !== BACKSLASH) {
        this.#at++;
        continue;
      }
      value += text.slice(start, this.#at) + this.#escape();
      start = this.#at;
    }
    value += text.slice(start, this.#at++);
    return value;
  }

  #escape() {
    const letter = this.#text[this.#at + 1];
    if (letter === "u") {
      const digits = this.#text.slice(this.#at + 2, this.#at + 6);
      if (!/^[0-9a-fA-F]{4}$/.test(digits)) this.#refuse("an escape that is none");
      const unit = String.fromCharCode(parseInt(digits, 16));
      const mustStand = unit in WRITTEN || (unit >= " " && unit <= "~") || digits !== digits.toLowerCase();
      if (this.#canonical && mustStand) this.#refuse("an escape that is not the one form");
      this.#at += 6;
      return unit;
    }
    const unit = letter === "/" && !this.#canonical ? "/" : Object.hasOwn(SHORT_ESCAPES, letter ?? "") ? SHORT_ESCAPES[letter] : null;
    if (unit === null) this.#refuse("an escape that is none");
    this.#at += 2;
    return unit;
  }
}

/** json(v): the canonical text of a value, as bytes. */
export const encodeJson = (value) => utf8(written(value));

function written(value) {
  if (typeof value === "string") return `"${value.replace(/[^ !#-[\]-~]/g, escaped)}"`;
  if (Array.isArray(value)) return `[${value.map(written).join(",")}]`;
  if (value === null || typeof value !== "object") return String(value);
  return `{${Object.keys(value).sort().map((key) => `${written(key)}:${written(value[key])}`).join(",")}}`;
}

function escaped(unit) {
  return WRITTEN[unit] ?? `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
