/** Verifies apart from the page, so that no file, however hostile, makes the page stand still. */

import { hex } from "./bytes.mjs";
import { LARGEST } from "./checks.mjs";
import { Sha256 } from "./sha256.mjs";
import { verify } from "./verification.mjs";

const PROGRESS_EVERY = 64 << 20;

/** Answer each message with a report, or with what went wrong in the page itself. */
export function answerMessages(scope) {
  scope.addEventListener("message", async ({ data: { id, files, options } }) => {
    try {
      const given = await readFiles(files, (bytes) => scope.postMessage({ id, hashed: bytes }));
      scope.postMessage({ id, report: await verify({ ...options, ...given }) });
    } catch (error) {
      scope.postMessage({ id, error: error.message });
    }
  });
}

/** The bytes of files, and the digest of the model, which may be of any size. */
async function readFiles({ model, receipts = [], ...single }, progress) {
  const read = {};
  for (const [role, file] of Object.entries(single)) read[role] = await bytesOf(file);
  read.receipts = await Promise.all(receipts.map(bytesOf));
  read.model = model ? await digestOf(model, progress) : null;
  return read;
}

/** One byte more than is read of any file is enough to refuse it. */
async function bytesOf(file) {
  return file === null ? null : new Uint8Array(await file.slice(0, LARGEST + 1).arrayBuffer());
}

async function digestOf(file, progress) {
  const hash = new Sha256();
  const reader = file.stream().getReader();
  let [size, reported] = [0, 0];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return hex(hash.digest());
    hash.update(value);
    size += value.length;
    if (size - reported >= PROGRESS_EVERY) progress((reported = size));
  }
}
