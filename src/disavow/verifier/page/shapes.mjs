/** The objects of the format, field by field ("The log", "The proof file", "The opening", "The word", "The serving statement",
 * "The receipt"). */

import { fromBase64 } from "./bytes.mjs";
import { need } from "./failures.mjs";
import { key } from "./keys.mjs";
import {
  base64, boolean, day, decimal, digest, fields, figure, hash, isObject, listOf, oneOf, orNull, path, positive, runId,
  text, time, whole,
} from "./kinds.mjs";

const MOST_REQUESTS = 10_000;
const MOST_SLOTS_OF_RECEIPT = 1_048_576;
const MOST_COSIGNATURES = 1_000;
const CLOSED_ROUND_BYTES = 64;

export const JSON_PAYLOAD = "application/vnd.in-toto+json";
export const PACKED_PAYLOAD = "application/vnd.disavow.in-toto+zlib";
export const SERVING_PAYLOAD = "application/vnd.disavow.serving+json";

/** What the types of statements are. */
export const STATEMENTS = {
  "urn:disavow:proof-of-deniability:v3": { version: 3, whatIf: false },
  "urn:disavow:what-if:v3": { version: 3, whatIf: true },
  "urn:disavow:proof-of-deniability:v4": { version: 4, whatIf: false },
  "urn:disavow:what-if:v4": { version: 4, whatIf: true },
};

const verdict = oneOf("never present", "deniable", "rollback");
const anything = () => {};

const policy = fields({
  k: positive,
  x: positive,
  representatives: positive,
  delta: orNull(decimal),
  relative_delta: orNull(decimal),
  odds: orNull(decimal),
  clustering: oneOf("mdav", "constrained-kmeans", "fixed"),
  sticky: boolean,
  metric: oneOf("l2", "cosine", "published"),
  noise: oneOf("paper", "sensitivity", "calibrated", "none"),
  distribution: oneOf("gaussian", "laplace"),
  sigma: decimal,
  statistics: oneOf("mean", "drawn"),
  clip: orNull(decimal),
  tau: orNull(decimal),
  draws: oneOf("fresh", "seeded"),
  mechanism: oneOf("retrain", "retrain-from-scratch", "federaser"),
});

const request = fields({ asked_at: day, verdict, client: hash, rounds: hash, records: hash }, ["records"]);

const LEAVES = {
  run: fields(
    {
      type: anything,
      version: oneOf(3, 4),
      run: runId,
      created_at: time,
      initial_model: digest,
      policy,
      key: orNull(key),
      frozen: digest,
    },
    ["frozen"],
  ),
  round: fields(
    {
      type: anything,
      number: positive,
      attempt: positive,
      before: digest,
      after: digest,
      delta: decimal,
      update_norm: decimal,
      pairs_within: decimal,
      tau: decimal,
      participants: positive,
      clusters: positive,
      root: hash,
      at: time,
      version: oneOf(4),
    },
    ["version"],
  ),
  rebuilt: fields({
    type: anything,
    number: positive,
    attempt: positive,
    before: digest,
    after: digest,
    mechanism: oneOf("federaser"),
    participants: positive,
    root: hash,
    at: time,
  }),
  withdrawal: fields(
    { type: anything, requests: listOf(request, MOST_REQUESTS), rounds: whole, root: hash, at: day, slots: base64 },
    ["slots"],
  ),
  rollback: fields({ type: anything, withdrawal: positive, to: positive, at: day }),
  purge: fields({ type: anything, to: positive, at: day }),
  key: fields({ type: anything, key, at: time }),
};

const CLOSED = {
  "closed rounds": fields({ type: anything, rounds: closedRounds }),
  "closed withdrawal": fields({ type: anything, digest: hash, slots: base64 }),
};

function closedRounds(value, where) {
  const size = fromBase64(value, where).length;
  need(size > 0 && size % CLOSED_ROUND_BYTES === 0, () => `${where} does not have 64 bytes for each round`);
}

/** One of several objects that differ by their field `type`. */
const byType = (shapes) => (value, where) => {
  const type = isObject(value) && typeof value.type === "string" ? value.type : "";
  need(Object.hasOwn(shapes, type), () => `${where} is of no type that is known`);
  shapes[type](value, where);
};

const clusterLeaf = { position: whole, first: whole, size: positive, weight: decimal, spread: decimal, path };
const cluster = {
  ...clusterLeaf,
  leaf: positive,
  slot: whole,
  slots: listOf(hash),
  displacement: figure,
  log10_odds: orNull(figure),
};
const withdrawn = fields({
  leaf: positive,
  position: whole,
  slot: orNull(whole),
  salt: orNull(hash),
  inner: orNull(hash),
});
const predicate = {
  checkpoint: text,
  withdrawal: orNull(positive),
  request: orNull(whole),
  rounds: orNull(fields({ salt: hash, superseded: listOf(positive) })),
  bounds: fields({ displacement: figure, ratio: orNull(figure), drawn: figure }),
  verdict: fields({ kind: verdict, from: orNull(positive) }),
  times: orNull(fields({ asked_at: time, judged_at: time, answered_at: time })),
};

const shownLeaf = byType({ ...LEAVES, ...CLOSED });

/** Predicates by the version of their statement. */
export const PREDICATES = {
  3: fields({
    ...predicate,
    leaves: listOf(byType(LEAVES)),
    maps: listOf(listOf(orNull(hash))),
    clusters: listOf(fields({ ...cluster, withdrawn: listOf(withdrawn) })),
  }),
  4: fields(
    {
      ...predicate,
      leaves: listOf(shownLeaf),
      cover: base64,
      clusters: listOf(fields({ ...cluster, entry: orNull(whole), salt: orNull(hash) })),
      records: fields({ count: positive, closed: hash, word: hash }, ["word"]),
      purge: positive,
      cosignatures: listOf(text, MOST_COSIGNATURES),
    },
    ["records", "purge", "cosignatures"],
  ),
};

export const statement = fields({
  _type: oneOf("https://in-toto.io/Statement/v1"),
  predicateType: oneOf(...Object.keys(STATEMENTS)),
  subject: (value, where) => {
    need(Array.isArray(value) && value.length === 1, () => `${where} is not one model`);
    fields({ name: oneOf("model.safetensors"), digest: fields({ sha256: digest }) })(value[0], `${where}[0]`);
  },
  predicate: anything,
});

export const envelope = fields({
  payload: base64,
  payloadType: oneOf(JSON_PAYLOAD, PACKED_PAYLOAD),
  signatures: listOf(fields({ keyid: digest, sig: base64 }), 1),
});

export const opening = fields(
  {
    type: oneOf("disavow/opening/v1"),
    run: runId,
    client: text,
    salt: orNull(hash),
    rounds: listOf(fields({ leaf: positive, slot: whole, salt: hash, update: hash })),
    records: fields({ salt: hash, keys: listOf(text) }),
  },
  ["records"],
);

export const signedServing = fields({
  payload: base64,
  payloadType: oneOf(SERVING_PAYLOAD),
  signatures: listOf(fields({ keyid: digest, sig: base64 }), 1),
});
export const serving = fields({
  type: oneOf("disavow/serving/v1"), model: digest, at: time, checkpoint: text, since: whole, leaves: listOf(shownLeaf),
});

export const signedWord = fields({ type: oneOf("disavow/word/v1"), payload: base64, publicKey: base64, signature: base64 });
export const word = fields({ run: runId, records: hash, at: time, nonce: hash });

const receiptFields = {
  type: oneOf("disavow/receipt/v2"),
  run: runId,
  client: text,
  leaf: positive,
  slot: whole,
  salt: hash,
  update: hash,
  inclusion: path,
  checkpoint: text,
};
const RECEIPTS = {
  round: fields({
    ...receiptFields,
    header: LEAVES.round,
    cluster: fields({ ...clusterLeaf, slots: listOf(hash, MOST_SLOTS_OF_RECEIPT) }),
  }),
  rebuilt: fields({ ...receiptFields, header: LEAVES.rebuilt, path }),
};

/** A receipt, for a round or for a rebuilt one. */
export function receipt(value, where) {
  const type = isObject(value) && isObject(value.header) ? value.header.type : "";
  need(typeof type === "string" && Object.hasOwn(RECEIPTS, type), () => `${where} is not for a round`);
  RECEIPTS[type](value, where);
}
