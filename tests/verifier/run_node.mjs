/** Verify what stands on stdin, a line of JSON each with files in base64, with the modules of the page; a line of JSON each. */

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const folder = pathToFileURL(`${process.argv[2]}/`);
const { verify } = await import(new URL("verification.mjs", folder));
const bytes = (text) => (text === null || text === undefined ? null : new Uint8Array(Buffer.from(text, "base64")));

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  const files = { proof: bytes(asked.proof), keys: bytes(asked.keys), opening: bytes(asked.opening) };
  const more = { checkpoint: bytes(asked.checkpoint), word: bytes(asked.word), receipts: asked.receipts.map(bytes) };
  const started = performance.now();
  const report = await verify({ ...asked, ...files, ...more });
  console.log(JSON.stringify({ ...report, milliseconds: performance.now() - started }));
}
