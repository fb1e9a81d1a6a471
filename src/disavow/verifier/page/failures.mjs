/** How a file is refused (docs/proof-format.md, "Notation" and "The result"). */

/** It can be read, and does not hold. */
export class Invalid extends Error {
  exitCode = 1;
}

/** It cannot even be read. */
export class Unreadable extends Error {
  exitCode = 2;
}

/** It holds, but of another model than the one given. */
export class AnotherModel extends Error {
  exitCode = 13;
}

/** Refuse as invalid what does not hold; `reason` is a text, or a function where making it costs something. */
export function require(holds, reason) {
  if (!holds) throw new Invalid(typeof reason === "function" ? reason() : reason);
}

/** Refuse as unreadable. */
export function need(readable, reason) {
  if (!readable) throw new Unreadable(typeof reason === "function" ? reason() : reason);
}
