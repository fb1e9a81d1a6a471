/** Verify what stands on stdin, a line of JSON each, with the modules of the page; a line of JSON each comes back. */

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const folder = pathToFileURL(`${process.argv[2]}/`);
const { verify } = await import(new URL("verification.mjs", folder));
const bytes = (text) => (text === null ? null : new Uint8Array(Buffer.from(text, "base64")));

for await (const line of createInterface({ input: process.stdin })) {
  const { files, options } = JSON.parse(line);
  const given = Object.fromEntries(
    Object.entries(files).map(([role, data]) => [role, role === "receipts" ? data.map(bytes) : bytes(data)]),
  );
  console.log(JSON.stringify(await verify({ ...options, ...given })));
}
