/**
 * SHA-256 (FIPS 180-4). WebCrypto has it too, but only for data that is in memory at once, which a model need not be,
 * and only with a promise for each hash, of which a log takes hundreds of thousands.
 */

const CONSTANTS = Int32Array.of(
  0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
  0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
  0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
  0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
  0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
  0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
  0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
  0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
);
const INITIAL = Int32Array.of(
  0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
);
const BLOCK = 64;
const WORDS = new Int32Array(64);

/** A digest of bytes that come one part after the other. */
export class Sha256 {
  #state = INITIAL.slice();
  #block = new Uint8Array(BLOCK);
  #filled = 0;
  #size = 0;

  /** Take another part. */
  update(part) {
    this.#size += part.length;
    let at = 0;
    if (this.#filled > 0) {
      at = Math.min(BLOCK - this.#filled, part.length);
      this.#block.set(part.subarray(0, at), this.#filled);
      this.#filled += at;
      if (this.#filled < BLOCK) return this;
      compress(this.#state, this.#block, 0);
      this.#filled = 0;
    }
    for (; at + BLOCK <= part.length; at += BLOCK) compress(this.#state, part, at);
    this.#block.set(part.subarray(at), 0);
    this.#filled = part.length - at;
    return this;
  }

  /** The digest of all parts; nothing can follow. */
  digest() {
    const block = this.#block;
    block[this.#filled] = 0x80;
    block.fill(0, this.#filled + 1);
    if (this.#filled + 1 > BLOCK - 8) {
      compress(this.#state, block, 0);
      block.fill(0);
    }
    const view = new DataView(block.buffer);
    view.setUint32(BLOCK - 8, Math.floor(this.#size / 2 ** 29));
    view.setUint32(BLOCK - 4, (this.#size % 2 ** 29) * 8);
    compress(this.#state, block, 0);
    const digest = new DataView(new ArrayBuffer(32));
    this.#state.forEach((word, i) => digest.setInt32(4 * i, word));
    return new Uint8Array(digest.buffer);
  }
}

/** H: the digest of parts, one behind the other. */
export function sha256(...parts) {
  const hash = new Sha256();
  for (const part of parts) hash.update(part);
  return hash.digest();
}

function compress(state, data, start) {
  const w = WORDS;
  for (let i = 0; i < 16; i++) {
    const at = start + 4 * i;
    w[i] = (data[at] << 24) | (data[at + 1] << 16) | (data[at + 2] << 8) | data[at + 3];
  }
  for (let i = 16; i < 64; i++) {
    const x = w[i - 15];
    const y = w[i - 2];
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    w[i] = (w[i - 16] + s0 + w[i - 7] + s1) | 0;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let i = 0; i < 64; i++) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const first = (h + s1 + ((e & f) ^ (~e & g)) + CONSTANTS[i] + w[i]) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const second = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + first) | 0;
    d = c;
    c = b;
    b = a;
    a = (first + second) | 0;
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
  state[4] += e;
  state[5] += f;
  state[6] += g;
  state[7] += h;
}
