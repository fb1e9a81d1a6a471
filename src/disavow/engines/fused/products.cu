// Convolutions as products of matrices on tensor cores: forward, the gradient of the input, and that of the weights.
//
// Shapes are defined as in kernels.cu. Besides:
//   BANDS    of BAND rows; a block takes one             TALL WIDE  what a band sees of a map, border included
//   PLANES   maps in shared memory at a time             COLUMNS    maps that come out
//   TILES    tiles of 16 rows that a warp computes       TOGETHER SPLIT  how the gradient of the weights is divided
//
// Tensor cores multiply numbers of eleven bits (TF32). Each float32 number is taken apart into one that holds its
// leading bits and one that holds the rest; of the four products of such parts three are added up, and the fourth is
// smaller than float32's own rounding. Tensor cores round sums towards zero, so that sums of a few products alone are
// left to them, and these are added up in float32.
//
// P. Micikevicius et al., "Mixed Precision Training" (2018); H. Ootomo and R. Yokota, "Recovering single precision
// accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance" (2022).

#define NOBODY 4
#define CELLS (CH * CW)
#define WINDOWS (SIDE * SIDE)
#define TAPS (IC * K * K)
#define FEW 4 // steps of eight products each whose sums are left to tensor cores

#ifdef __CUDACC__
// The leading eleven bits, rounded to nearest.
__device__ unsigned leading(float number) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(number));
  return bits;
}

// 16 by 8 sums, over 8 products each, by the 32 threads of a warp. With g = lane / 4 and t = lane % 4, a thread has of
// the rows a (g, t), (g + 8, t), (g, t + 4) and (g + 8, t + 4), of the columns b (t, g) and (t + 4, g), and of the sums
// (g, 2t), (g, 2t + 1), (g + 8, 2t) and (g + 8, 2t + 1).
__device__ void multiply(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// Numbers as two each: leading bits, and the rest.
template <int N> struct Parts {
  unsigned large[N], small[N];
};

template <int N> __device__ Parts<N> take_apart(const float (&numbers)[N]) {
  Parts<N> parts;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    parts.large[i] = leading(numbers[i]);
    parts.small[i] = leading(numbers[i] - __uint_as_float(parts.large[i]));
  }
  return parts;
}

__device__ void add_products(float (&sum)[4], const Parts<4> &a, const Parts<2> &b) {
  multiply(sum, a.small, b.large); // the smallest first
  multiply(sum, a.large, b.small);
  multiply(sum, a.large, b.large);
}

// Adds what tensor cores summed up to sums in float32, and lets them begin anew.
template <int M, int N> __device__ void move_sums(float (&few)[M][N][4], float (&sum)[M][N][4]) {
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sum[i][j][e] += few[i][j][e];
        few[i][j][e] = 0.0f;
      }
}

// Which image lies at a position: one of the data set, or what the layer before made of it.
__device__ const float *image_at(const float *images, const int *index, long long position) {
  return images + (GATHER ? (long long)index[position] : position) * (IC * IH * IW);
}

#if defined(PRODUCT_FORWARD) || defined(PRODUCT_INPUT)
// A convolution of planes in shared memory: every warp computes TILES * 16 positions of COLUMNS maps. Rows of the
// matrices are positions, columns are maps that come out, and products go over the taps of the planes.
#define ACROSS ((COLUMNS + 7) / 8)
#define ROW (8 * (ACROSS | 1)) // of weights: an odd multiple of eight puts what a warp reads into different banks
#define DEPTH (PLANES * K * K)
#define STEPS ((DEPTH + 7) / 8)

__shared__ float planes[IMAGES * PLANES * TALL * PITCH];
__shared__ float weights[STEPS * 8 * ROW];
__shared__ int taps[STEPS * 8]; // where a tap lies, from the position

__device__ void lay_out_taps() {
  for (int i = threadIdx.x; i < STEPS * 8; i += blockDim.x)
    taps[i] = i < DEPTH ? (i / (K * K) * TALL + i / K % K) * PITCH + i % K : 0; // beyond, weights are zero
}

__device__ void convolve(const int (&position)[TILES][2], float (&sum)[TILES][ACROSS][4]) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float few[TILES][ACROSS][4] = {};
  for (int step = 0; step < STEPS; ++step) {
    const int near = taps[step * 8 + t], far = taps[step * 8 + t + 4];
    const float *own = weights + (step * 8 + t) * ROW + g;
    Parts<2> b[ACROSS];
#pragma unroll
    for (int j = 0; j < ACROSS; ++j) {
      const float two[2] = {own[j * 8], own[j * 8 + 4 * ROW]};
      b[j] = take_apart(two);
    }
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
      const float a[4] = {planes[position[i][0] + near], planes[position[i][1] + near], planes[position[i][0] + far],
                          planes[position[i][1] + far]};
      const Parts<4> parts = take_apart(a);
#pragma unroll
      for (int j = 0; j < ACROSS; ++j) add_products(few[i][j], parts, b[j]);
    }
    if (step % FEW == FEW - 1) move_sums(few, sum);
  }
  move_sums(few, sum);
}
#endif

#ifdef PRODUCT_FORWARD
extern "C" __global__ void __launch_bounds__(THREADS) product_forward(const float *images, const int *index, const int *count,
                                           const float *parameters, int row, int weight, int bias, int batch,
                                           float *out, unsigned char *chosen) {
  __shared__ float b[OC];
  const int tiles = (batch + IMAGES - 1) / IMAGES, client = blockIdx.x / (tiles * BANDS);
  const int first = blockIdx.x / BANDS % tiles * IMAGES, positions = min(IMAGES, batch - first);
  const int band = blockIdx.x % BANDS, here = min(positions, count[client] - first);
  const long long position = (long long)client * batch + first;
  // whoever reads an empty position multiplies it by zero, so it must hold a number
  for (int i = threadIdx.x + max(here, 0) * OC * CELLS; band == 0 && i < positions * OC * CELLS; i += blockDim.x)
    out[position * (OC * CELLS) + i] = 0.0f;
  if (here <= 0) return;
  const float *own = parameters + (long long)client * row;
  lay_out_taps();
  for (int i = threadIdx.x; i < OC; i += blockDim.x) b[i] = BIAS ? own[bias + i] : 0.0f;

  // the positions of a window are rows g and g + 8 of two tiles, so that one thread has all of them
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, from = threadIdx.x / 32 * (TILES * 16 / WINDOWS);
  int at[TILES][2];
#pragma unroll
  for (int i = 0; i < TILES; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int cell = from + (SIDE == 1 ? i * 16 + h * 8 : i / 2 * 8) + g, q = SIDE == 1 ? 0 : i % 2 * 2 + h;
      const int n = cell / (BAND * CW), y = cell / CW % BAND * SIDE + q / SIDE, x = cell % CW * SIDE + q % SIDE;
      at[i][h] = n < here ? (n * PLANES * TALL + y * STRIDE) * PITCH + x * STRIDE : 0;
    }

  float sum[TILES][ACROSS][4] = {};
  for (int c = 0; c < IC; c += PLANES) {
    if (c) __syncthreads();
    for (int i = threadIdx.x; i < here * PLANES * TALL * WIDE; i += blockDim.x) {
      const int line = i / WIDE, n = line / (PLANES * TALL), plane = line / TALL % PLANES;
      const int y = band * BAND * SIDE * STRIDE + line % TALL - PAD, x = i % WIDE - PAD;
      const bool inside = y >= 0 && y < IH && x >= 0 && x < IW;
      planes[line * PITCH + i % WIDE] =
          inside ? image_at(images, index, position + n)[((c + plane) * IH + y) * IW + x] : 0.0f;
    }
    for (int i = threadIdx.x; i < STEPS * 8 * ACROSS * 8; i += blockDim.x) {
      const int tap = i / 8 % (STEPS * 8), o = i / (64 * STEPS) * 8 + i % 8; // so that threads write to different banks
      weights[tap * ROW + o] = tap < DEPTH && o < OC ? own[weight + o * TAPS + c * K * K + tap] : 0.0f;
    }
    __syncthreads();
    convolve(at, sum);
  }

#pragma unroll
  for (int i = 0; i < TILES; i += SIDE)
#pragma unroll
    for (int h = 0; h < (SIDE == 1 ? 2 : 1); ++h) {
      const int cell = from + (SIDE == 1 ? i * 16 + h * 8 : i / 2 * 8) + g, n = cell / (BAND * CW);
      const int cy = band * BAND + cell / CW % BAND, cx = cell % CW;
      if (n >= here || cy >= CH) continue;
#pragma unroll
      for (int j = 0; j < ACROSS; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int o = j * 8 + 2 * t + e;
          if (o >= OC) continue;
          float best = sum[i][j][2 * h + e] + b[o];
          int which = 0;
#pragma unroll
          for (int q = 1; q < WINDOWS; ++q) {
            const float other = sum[(i + q / 2) % TILES][j][q % 2 * 2 + e] + b[o];
            const bool there = cy * SIDE + q / SIDE < OH && cx * SIDE + q % SIDE < OW;
            if (there && (other > best || other != other)) { // the first of the largest, and NaN over all
              best = other;
              which = q;
            }
          }
          if (RELU && best <= 0.0f) which = NOBODY;
          if (RELU && best < 0.0f) best = 0.0f;
          const long long to = ((position + n) * OC + o) * CELLS + cy * CW + cx;
          out[to] = best;
          chosen[to] = which;
        }
    }
}
#endif

#ifdef PRODUCT_INPUT
// The gradient of the input: the same over deltas, STRIDE apart with nothing between them, with weights turned by half
// a turn.
extern "C" __global__ void __launch_bounds__(THREADS) product_input(const int *count, const float *delta,
                                         const unsigned char *chosen, const float *parameters, int row, int weight,
                                         int batch, float *out) {
  constexpr int EDGE = K - 1 - PAD;
  const int tiles = (batch + IMAGES - 1) / IMAGES, client = blockIdx.x / (tiles * BANDS);
  const int first = blockIdx.x / BANDS % tiles * IMAGES, here = min(IMAGES, count[client] - first);
  if (here <= 0) return;
  const int top = blockIdx.x % BANDS * BAND;
  const long long position = (long long)client * batch + first;
  const float *own = parameters + (long long)client * row + weight;
  lay_out_taps();

  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, from = threadIdx.x / 32 * (TILES * 16);
  int at[TILES][2];
#pragma unroll
  for (int i = 0; i < TILES; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int pixel = from + i * 16 + h * 8 + g, n = pixel / (BAND * IW);
      at[i][h] = n < here ? (n * PLANES * TALL + pixel / IW % BAND) * PITCH + pixel % IW : 0;
    }

  // the rows of cells that a band can see
  const int low = max(top - EDGE, 0) / (STRIDE * SIDE), high = min((top + BAND - 1 + PAD) / (STRIDE * SIDE), CH - 1);
  const int seen = max(high - low + 1, 0) * CW;
  float sum[TILES][ACROSS][4] = {};
  for (int o = 0; o < OC; o += PLANES) {
    if (o) __syncthreads();
    for (int i = threadIdx.x; i < here * PLANES * TALL * PITCH; i += blockDim.x) planes[i] = 0.0f;
    __syncthreads();
    for (int i = threadIdx.x; i < here * PLANES * seen; i += blockDim.x) {
      const int cell = low * CW + i % seen, plane = i / seen % PLANES, n = i / (seen * PLANES);
      const long long number = ((position + n) * OC + o + plane) * CELLS + cell;
      const int q = SIDE > 1 || RELU ? chosen[number] : 0;
      const int y = (cell / CW * SIDE + q / SIDE) * STRIDE + EDGE - top;
      const int x = (cell % CW * SIDE + q % SIDE) * STRIDE + EDGE;
      if (q != NOBODY && y >= 0 && y < TALL) planes[((n * PLANES + plane) * TALL + y) * PITCH + x] = delta[number];
    }
    for (int i = threadIdx.x; i < STEPS * 8 * ACROSS * 8; i += blockDim.x) {
      const int tap = i / 8 % (STEPS * 8), c = i / (64 * STEPS) * 8 + i % 8;
      const int turned = (o + tap / (K * K)) * TAPS + c * K * K + K * K - 1 - tap % (K * K);
      weights[tap * ROW + c] = tap < DEPTH && c < IC ? own[turned] : 0.0f;
    }
    __syncthreads();
    convolve(at, sum);
  }

#pragma unroll
  for (int i = 0; i < TILES; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int pixel = from + i * 16 + h * 8 + g, n = pixel / (BAND * IW), y = top + pixel / IW % BAND;
      if (n >= here || y >= IH) continue;
#pragma unroll
      for (int j = 0; j < ACROSS; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int c = j * 8 + 2 * t + e;
          if (c >= IC) continue;
          float *to = out + ((position + n) * IC + c) * (IH * IW) + y * IW + pixel % IW;
          *to = ADD ? *to + sum[i][j][2 * h + e] : sum[i][j][2 * h + e];
        }
    }
}
#endif

#ifdef PRODUCT_WEIGHT
// The gradient of the weights. Rows are taps, columns are channels, and products go over the places of maps. Behind the
// planes of an image lies one that is one everywhere: its tap is the bias.
//
// A block takes CHUNK images of one client, TOGETHER at a time. Its warps divide the rows, TILES tiles each, and SPLIT
// of them the places. Their sums are added up here, those of blocks by `sgd`. The last OC numbers of a slot belong to
// the bias, if there is one.
#define ROWS (TAPS + BIAS)
#define ACROSS ((OC + 7) / 8)
#define GROUPS ((ROWS + TILES * 16 - 1) / (TILES * 16))
#define SEEN ((IC + BIAS) * TALL * PITCH)
#define PLACES (BAND * SIDE * CW * SIDE)
#define STEPS ((TOGETHER * PLACES + 7) / 8)
#define LINE (STEPS * 8 + 4) // of deltas: four more than a multiple of eight put what a warp reads into different banks
#define SLOT (OC * ROWS)

extern "C" __global__ void __launch_bounds__(THREADS) product_weight(const float *images, const int *index,
                                          const int *count, const float *delta, const unsigned char *chosen, int batch,
                                          float *slots) {
  constexpr int HELD = TOGETHER * SEEN + OC * LINE;
  __shared__ float held[HELD > SPLIT * SLOT ? HELD : SPLIT * SLOT];
  __shared__ int places[STEPS * 8];
  float *const deltas = held + TOGETHER * SEEN;
  const int chunks = (batch + CHUNK - 1) / CHUNK, client = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int group = threadIdx.x / 32 % GROUPS, split = threadIdx.x / 32 / GROUPS;
  for (int i = threadIdx.x; i < STEPS * 8; i += blockDim.x) {
    const int place = i % PLACES;
    const int within = (place / (CW * SIDE) * PITCH + place % (CW * SIDE)) * STRIDE;
    places[i] = i < TOGETHER * PLACES ? i / PLACES * SEEN + within : 0; // beyond, deltas are zero
  }
  // what is never loaded is multiplied by zero, so it must hold a number
  for (int i = threadIdx.x; i < HELD; i += blockDim.x)
    held[i] = BIAS && i < TOGETHER * SEEN && i % SEEN >= IC * TALL * PITCH ? 1.0f : 0.0f;

  int tap[TILES][2];
#pragma unroll
  for (int i = 0; i < TILES; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = (group * TILES + i) * 16 + h * 8 + g;
      tap[i][h] = r < TAPS ? (r / (K * K) * TALL + r / K % K) * PITCH + r % K : r == TAPS && BIAS ? IC * TALL * PITCH : 0;
    }
  float few[TILES][ACROSS][4] = {}, sum[TILES][ACROSS][4] = {};
  const int last = min(count[client], (chunk + 1) * CHUNK);
  for (int n = chunk * CHUNK; n < last; n += TOGETHER)
    for (int band = 0; band < BANDS; ++band) {
      const int some = min(TOGETHER, last - n), top = band * BAND;
      const long long position = (long long)client * batch + n;
      __syncthreads();
      for (int i = threadIdx.x; i < some * IC * TALL * WIDE; i += blockDim.x) {
        const int line = i / WIDE % (IC * TALL), image = i / (IC * TALL * WIDE);
        const int y = top * SIDE * STRIDE + line % TALL - PAD, x = i % WIDE - PAD;
        const bool inside = y >= 0 && y < IH && x >= 0 && x < IW;
        held[image * SEEN + line * PITCH + i % WIDE] =
            inside ? image_at(images, index, position + image)[(line / TALL * IH + y) * IW + x] : 0.0f;
      }
      for (int i = threadIdx.x; i < TOGETHER * OC * BAND * CW; i += blockDim.x) {
        const int cell = i % (BAND * CW), o = i / (BAND * CW) % OC, image = i / (BAND * CW * OC);
        const int cy = cell / CW, cx = cell % CW;
        const bool there = image < some && top + cy < CH;
        const long long number = ((position + image) * OC + o) * CELLS + top * CW + cell;
        const int which = !there ? NOBODY : SIDE > 1 || RELU ? chosen[number] : 0;
        const float steep = which == NOBODY ? 0.0f : delta[number];
        float *to = deltas + o * LINE + image * PLACES + cy * SIDE * (CW * SIDE) + cx * SIDE;
#pragma unroll
        for (int q = 0; q < WINDOWS; ++q) to[q / SIDE * (CW * SIDE) + q % SIDE] = q == which ? steep : 0.0f;
      }
      __syncthreads();
      int done = 0;
      for (int step = split; step < STEPS; step += SPLIT) {
        const int near = places[step * 8 + t], far = places[step * 8 + t + 4];
        Parts<2> b[ACROSS];
#pragma unroll
        for (int j = 0; j < ACROSS; ++j) {
          const int o = j * 8 + g;
          const float *line = deltas + min(o, OC - 1) * LINE + step * 8 + t;
          const float two[2] = {o < OC ? line[0] : 0.0f, o < OC ? line[4] : 0.0f};
          b[j] = take_apart(two);
        }
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
          const float a[4] = {held[tap[i][0] + near], held[tap[i][1] + near], held[tap[i][0] + far],
                              held[tap[i][1] + far]};
          const Parts<4> parts = take_apart(a);
#pragma unroll
          for (int j = 0; j < ACROSS; ++j) add_products(few[i][j], parts, b[j]);
        }
        if (++done % FEW == 0) move_sums(few, sum);
      }
      move_sums(few, sum);
    }

  __syncthreads();
#pragma unroll
  for (int i = 0; i < TILES; ++i)
#pragma unroll
    for (int j = 0; j < ACROSS; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int r = (group * TILES + i) * 16 + e / 2 * 8 + g, o = j * 8 + 2 * t + e % 2;
        if (r < ROWS && o < OC) held[split * SLOT + (r < TAPS ? o * TAPS + r : OC * TAPS + o)] = sum[i][j][e];
      }
  __syncthreads();
  float *slot = slots + (long long)(client * chunks + chunk) * SLOT;
  for (int i = threadIdx.x; i < SLOT; i += blockDim.x) {
    float total = 0.0f;
    for (int s = 0; s < SPLIT; ++s) total += held[s * SLOT + i];
    slot[i] = total;
  }
}
#endif
