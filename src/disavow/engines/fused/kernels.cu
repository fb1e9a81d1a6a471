// One step of local training for many clients at once: convolutions with ReLU and pooling, forward and backward, the
// delta of the loss, and SGD. Dense layers are batched matrix products and come from the BLAS library.
//
// Every client has a row: its own parameters, its own batch of `batch` positions, the first count[row] of them taken.
// Blocks that would work on empty positions return at once, so that unequal clients cost what they have. Sums go in a
// fixed order: the same call gives the same bits.
//
// One kernel for one layer is compiled at a time. The launcher defines which (CONV_FORWARD, ...) and the layer's shape:
//   IC IH IW    what comes in              OC K STRIDE PAD   the convolution
//   OH OW       maps before pooling        CH CW SIDE        maps that go out; windows of SIDE by SIDE
//   RELU        1 or 0                     GATHER            1 where images come from the data set, by number
//   IMAGES      images in a block          GROUP             channels that one thread computes
//   THREADS     in a block, so that registers last for all
//   PARTS COPIES CHUNK TOGETHER            how the gradient of the weights is divided (see there)
//   PITCH       see below                  BIAS              1 where the convolution has one
//   BAND        rows of cells that a block takes at a time, where those of a whole image do not fit
//   ADD         1 where the gradient of the input is added to what others left there
//   WITHIN      input channels in a block of the gradient of the input;  PLANES  output channels loaded together
//   OWN LANES                              how direct_weight divides its work besides
// Convolutions that are not pooled have kernels of their own: direct.cu, and for their weights direct_weight below.

#define NOBODY 4
#define XH ((BAND * SIDE - 1) * STRIDE + K) // what the windows of a band can see, border included
#define XW ((CW * SIDE - 1) * STRIDE + K)
// Rows of maps in shared memory are PITCH numbers apart, which the launcher chooses so that threads that read at the
// same time find what they need in different banks.
#define CELLS (CH * CW)
#define BANDS ((CH + BAND - 1) / BAND)
#define CELLS_OF_BAND (BAND * CW)
#define WINDOWS (SIDE * SIDE)
#define PATCH (K + (SIDE - 1) * STRIDE)
#define TAPS (IC * K * K)
#define FOURS ((K + 3) / 4) // a row of a kernel in shared memory is padded, so that it is read four numbers at a time

struct alignas(16) Four {
  float v[4];
};
struct alignas(8) Two {
  float v[2];
};

// A square of N by N numbers into registers; two at a time where every square begins at an even position.
template <int N, bool EVEN> __device__ void load_patch(const float *from, float (&to)[N][N]) {
#pragma unroll
  for (int y = 0; y < N; ++y) {
#pragma unroll
    for (int x = 0; EVEN && x + 1 < N; x += 2) {
      const Two two = *(const Two *)(from + y * PITCH + x);
      to[y][x] = two.v[0];
      to[y][x + 1] = two.v[1];
    }
#pragma unroll
    for (int x = EVEN ? N / 2 * 2 : 0; x < N; ++x) to[y][x] = from[y * PITCH + x];
  }
}

// What a band sees of an image, with the border, into shared memory.
__device__ void load_image(const float *from, int band, float *to) {
  const int top = band * BAND * SIDE * STRIDE - PAD;
#pragma unroll 4
  for (int i = threadIdx.x; i < IC * XH * XW; i += blockDim.x) {
    const int line = i / XW, y = line % XH + top, x = i % XW - PAD;
    to[line * PITCH + i % XW] =
        y >= 0 && y < IH && x >= 0 && x < IW ? from[(line / XH * IH + y) * IW + x] : 0.0f;
  }
}

// Which image lies at a position: one of the data set, or what the layer before made of it.
__device__ const float *image_at(const float *images, const int *index, long long position) {
  return images + (GATHER ? (long long)index[position] : position) * (IC * IH * IW);
}

#ifdef CONV_FORWARD
extern "C" __global__ void __launch_bounds__(256, 3) conv_forward(const float *images, const int *index, const int *count,
                                        const float *parameters, int row, int weight, int bias, int batch,
                                        float *out, unsigned char *chosen) {
  __shared__ Two pairs[IMAGES * IC * XH * PITCH / 2];
  float *x = (float *)pairs;
  __shared__ Four w[OC * IC * K * FOURS];
  __shared__ float b[OC];
  const int tiles = (batch + IMAGES - 1) / IMAGES, client = blockIdx.x / (tiles * BANDS);
  const int first = blockIdx.x / BANDS % tiles * IMAGES, positions = min(IMAGES, batch - first);
  const int band = blockIdx.x % BANDS, top = band * BAND;
  const int here = min(positions, count[client] - first);
  const long long position = (long long)client * batch + first;
  // whoever reads an empty position multiplies it by zero, so it must hold a number
  for (int i = threadIdx.x + max(here, 0) * OC * CELLS; band == 0 && i < positions * OC * CELLS; i += blockDim.x)
    out[position * (OC * CELLS) + i] = 0.0f;
  if (here <= 0) return;
  const float *own = parameters + (long long)client * row;
  for (int i = threadIdx.x; i < OC * TAPS; i += blockDim.x) w[i / K * FOURS + i % K / 4].v[i % K % 4] = own[weight + i];
  for (int i = threadIdx.x; i < OC; i += blockDim.x) b[i] = BIAS ? own[bias + i] : 0.0f;
  for (int n = 0; n < here; ++n) load_image(image_at(images, index, position + n), band, x + n * (IC * XH * PITCH));
  __syncthreads();
  for (int item = threadIdx.x; item < here * (OC / GROUP) * CELLS_OF_BAND; item += blockDim.x) {
    const int cell = item % CELLS_OF_BAND, cy = cell / CW, cx = cell % CW;
    const int o = item / CELLS_OF_BAND % (OC / GROUP) * GROUP, n = item / (CELLS_OF_BAND * (OC / GROUP));
    if (top + cy >= CH) continue;
    const float *corner = x + n * (IC * XH * PITCH) + cy * SIDE * STRIDE * PITCH + cx * SIDE * STRIDE;
    float sum[GROUP][WINDOWS];
#pragma unroll
    for (int j = 0; j < GROUP; ++j)
#pragma unroll
      for (int q = 0; q < WINDOWS; ++q) sum[j][q] = b[o + j];
    for (int c = 0; c < IC; ++c) {
      float patch[PATCH][PATCH];
      load_patch<PATCH, SIDE * STRIDE % 2 == 0>(corner + c * XH * PITCH, patch);
#pragma unroll
      for (int j = 0; j < GROUP; ++j)
#pragma unroll
        for (int ky = 0; ky < K; ++ky) {
          Four line[FOURS];
#pragma unroll
          for (int f = 0; f < FOURS; ++f) line[f] = w[(((o + j) * IC + c) * K + ky) * FOURS + f];
#pragma unroll
          for (int kx = 0; kx < K; ++kx)
#pragma unroll
            for (int q = 0; q < WINDOWS; ++q)
              sum[j][q] += line[kx / 4].v[kx % 4] * patch[ky + q / SIDE * STRIDE][kx + q % SIDE * STRIDE];
        }
    }
#pragma unroll
    for (int j = 0; j < GROUP; ++j) {
      float best = sum[j][0];
      int which = 0;
#pragma unroll
      for (int q = 1; q < WINDOWS; ++q) {
        const bool there = (top + cy) * SIDE + q / SIDE < OH && cx * SIDE + q % SIDE < OW;
        if (there && (sum[j][q] > best || sum[j][q] != sum[j][q])) { // the first of the largest, and NaN over all
          best = sum[j][q];
          which = q;
        }
      }
      if (RELU && best <= 0.0f) which = NOBODY;
      if (RELU && best < 0.0f) best = 0.0f;
      const long long to = ((position + n) * OC + o + j) * CELLS + top * CW + cell;
      out[to] = best;
      chosen[to] = which;
    }
  }
}
#endif

#ifdef CONV_WEIGHT
// The gradient of the weights. A block takes CHUNK images of one client, TOGETHER at a time; each of its OC * PARTS *
// COPIES threads keeps the sums of every PARTS-th tap of one channel, over every COPIES-th cell. The sums of copies are
// added up here, those of blocks by `sgd`. The last OC numbers of a slot belong to the bias, if there is one.
struct alignas(8) Delta {
  float delta;
  int window;
};

extern "C" __global__ void __launch_bounds__(THREADS) conv_weight(const float *images, const int *index,
                                       const int *count, const float *delta, const unsigned char *chosen, int batch,
                                       float *slots) {
  constexpr int SEEN = IC * XH * PITCH, OWN = (TAPS + PARTS - 1) / PARTS, SLOT = OC * TAPS + BIAS * OC;
  __shared__ float x[TOGETHER * SEEN];
  __shared__ Delta cells[OC * TOGETHER * CELLS_OF_BAND];
  __shared__ float sums[COPIES > 1 ? COPIES * SLOT : 1];
  const int chunks = (batch + CHUNK - 1) / CHUNK, client = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
  const int o = threadIdx.x / (PARTS * COPIES), part = threadIdx.x % PARTS, copy = threadIdx.x / PARTS % COPIES;
  int tap[OWN];
  float sum[OWN], bias = 0.0f;
#pragma unroll
  for (int i = 0; i < OWN; ++i) {
    const int t = min(part + i * PARTS, TAPS - 1);
    tap[i] = (t / (K * K) * XH + t / K % K) * PITCH + t % K;
    sum[i] = 0.0f;
  }
  const int last = min(count[client], (chunk + 1) * CHUNK);
  for (int n = chunk * CHUNK; n < last; n += TOGETHER)
    for (int band = 0; band < BANDS; ++band) {
      const int some = min(TOGETHER, last - n), top = band * BAND;
      const long long position = (long long)client * batch + n;
      for (int t = 0; t < some; ++t) load_image(image_at(images, index, position + t), band, x + t * SEEN);
      for (int i = threadIdx.x; i < some * OC * CELLS_OF_BAND; i += blockDim.x) {
        const int t = i / (OC * CELLS_OF_BAND), channel = i / CELLS_OF_BAND % OC;
        const int cell = i % CELLS_OF_BAND, cy = cell / CW, cx = cell % CW;
        const long long from = ((position + t) * OC + channel) * CELLS + top * CW + cell;
        const int which = top + cy >= CH ? NOBODY : SIDE > 1 || RELU ? chosen[from] : 0;
        const int q = which == NOBODY ? 0 : which;
        Delta &here = cells[(channel * TOGETHER + t) * CELLS_OF_BAND + cell];
        here.delta = which == NOBODY ? 0.0f : delta[from];
        here.window = t * SEEN + (cy * SIDE + q / SIDE) * STRIDE * PITCH + (cx * SIDE + q % SIDE) * STRIDE;
      }
      __syncthreads();
      if (o < OC)
#pragma unroll 4
        for (int cell = copy; cell < some * CELLS_OF_BAND; cell += COPIES) {
          const Delta here = cells[o * TOGETHER * CELLS_OF_BAND + cell];
          bias += here.delta;
#pragma unroll
          for (int i = 0; i < OWN; ++i) sum[i] += here.delta * x[here.window + tap[i]];
        }
      __syncthreads();
    }
  float *slot = slots + (long long)(client * chunks + chunk) * SLOT, *to = COPIES > 1 ? sums + copy * SLOT : slot;
  if (o < OC) {
#pragma unroll
    for (int i = 0; i < OWN; ++i)
      if (part + i * PARTS < TAPS) to[o * TAPS + part + i * PARTS] = sum[i];
    if (BIAS && part == 0) to[OC * TAPS + o] = bias;
  }
  if (COPIES == 1) return;
  __syncthreads();
  for (int i = threadIdx.x; i < SLOT; i += blockDim.x) {
    float total = 0.0f;
    for (int c = 0; c < COPIES; ++c) total += sums[c * SLOT + i];
    slot[i] = total;
  }
}
#endif

#ifdef DIRECT_WEIGHT
// The gradient of the weights of a convolution that is not pooled. A block takes images as in conv_weight. All channels
// look at the same place, so a thread keeps the sums of all of them, for OWN taps that are LANES apart; each of COPIES
// teams of LANES threads takes every COPIES-th row.
extern "C" __global__ void __launch_bounds__(THREADS) direct_weight(const float *images, const int *index,
                                       const int *count, const float *delta, const unsigned char *chosen, int batch,
                                       float *slots) {
  constexpr int SEEN = IC * XH * PITCH, WIDE = (OC + 3) / 4, SLOT = OC * TAPS + BIAS * OC;
  __shared__ float x[TOGETHER * SEEN];
  __shared__ Four deltas[TOGETHER * CELLS_OF_BAND * WIDE];
  __shared__ float sums[SLOT];
  const int chunks = (batch + CHUNK - 1) / CHUNK, client = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
  const int lane = threadIdx.x % LANES, copy = threadIdx.x / LANES;
  int tap[OWN];
  Four sum[OWN][WIDE] = {}, bias[WIDE] = {};
#pragma unroll
  for (int i = 0; i < OWN; ++i) {
    const int t = min(lane + i * LANES, TAPS - 1);
    tap[i] = (t / (K * K) * XH + t / K % K) * PITCH + t % K;
  }
  for (int i = threadIdx.x; i < SLOT; i += blockDim.x) sums[i] = 0.0f;
  // channels that fill up the last four stay zero
  for (int i = threadIdx.x; i < TOGETHER * CELLS_OF_BAND * WIDE; i += blockDim.x) deltas[i] = Four{};
  const int last = min(count[client], (chunk + 1) * CHUNK);
  for (int n = chunk * CHUNK; n < last; n += TOGETHER)
    for (int band = 0; band < BANDS; ++band) {
      const int some = min(TOGETHER, last - n), top = band * BAND;
      const long long position = (long long)client * batch + n;
      __syncthreads();
      for (int t = 0; t < some; ++t) load_image(image_at(images, index, position + t), band, x + t * SEEN);
      for (int i = threadIdx.x; i < some * OC * CELLS_OF_BAND; i += blockDim.x) {
        const int t = i / (OC * CELLS_OF_BAND), channel = i / CELLS_OF_BAND % OC, cell = i % CELLS_OF_BAND;
        const long long from = ((position + t) * OC + channel) * CELLS + top * CW + cell;
        const bool open = top + cell / CW < CH && !(RELU && chosen[from] == NOBODY);
        deltas[(t * CELLS_OF_BAND + cell) * WIDE + channel / 4].v[channel % 4] = open ? delta[from] : 0.0f;
      }
      __syncthreads();
      for (int line = copy; line < some * BAND; line += COPIES) {
        const Four *here = deltas + line * CW * WIDE;
        const float *corner = x + line / BAND * SEEN + line % BAND * STRIDE * PITCH;
#pragma unroll 2
        for (int cell = 0; cell < CW; ++cell, here += WIDE) {
          float seen[OWN];
#pragma unroll
          for (int i = 0; i < OWN; ++i) seen[i] = corner[cell * STRIDE + tap[i]];
#pragma unroll
          for (int four = 0; four < WIDE; ++four) {
            const Four steep = here[four];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
#pragma unroll
              for (int i = 0; i < OWN; ++i) sum[i][four].v[j] += steep.v[j] * seen[i];
              if (BIAS && lane == 0) bias[four].v[j] += steep.v[j];
            }
          }
        }
      }
    }
  for (int turn = 0; turn < COPIES; ++turn) {
    __syncthreads();
    if (copy != turn) continue;
#pragma unroll
    for (int o = 0; o < OC; ++o) {
#pragma unroll
      for (int i = 0; i < OWN; ++i)
        if (lane + i * LANES < TAPS) sums[o * TAPS + lane + i * LANES] += sum[i][o / 4].v[o % 4];
      if (BIAS && lane == 0) sums[OC * TAPS + o] += bias[o / 4].v[o % 4];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < SLOT; i += blockDim.x) slots[(long long)(client * chunks + chunk) * SLOT + i] = sums[i];
}
#endif

#ifdef CONV_INPUT
// The gradient of the input: each thread has a block of two by two pixels and WITHIN channels. Deltas lie STRIDE apart,
// with nothing between them.
#define DH (IH + K) // deltas with a border in which nothing happened
#define DW (IW + K)
#define BLOCKS (((IH + 1) / 2) * ((IW + 1) / 2))
extern "C" __global__ void __launch_bounds__(THREADS) conv_input(const int *count, const float *delta,
                                      const unsigned char *chosen, const float *parameters, int row, int weight,
                                      int batch, float *out) {
  __shared__ Two pairs[IMAGES * PLANES * DH * PITCH / 2];
  float *d = (float *)pairs;
  __shared__ Four w[PLANES * WITHIN * K * FOURS];
  const int tiles = (batch + IMAGES - 1) / IMAGES, groups = IC / WITHIN;
  const int client = blockIdx.x / (tiles * groups), first = blockIdx.x / groups % tiles * IMAGES;
  const int c = blockIdx.x % groups * WITHIN, here = min(IMAGES, count[client] - first);
  if (here <= 0) return;
  const long long position = (long long)client * batch + first;
  const int n = threadIdx.x / BLOCKS, y = threadIdx.x % BLOCKS / ((IW + 1) / 2) * 2;
  const int x = threadIdx.x % ((IW + 1) / 2) * 2;
  float sum[WITHIN][4];
#pragma unroll
  for (int j = 0; j < WITHIN; ++j)
#pragma unroll
    for (int q = 0; q < 4; ++q) sum[j][q] = 0.0f;
  for (int o = 0; o < OC; o += PLANES) {
    // nothing, but for the one position of each window that counts
    for (int i = threadIdx.x; i < IMAGES * PLANES * DH * PITCH / 2; i += blockDim.x) pairs[i] = Two{0.0f, 0.0f};
    __syncthreads();
    for (int i = threadIdx.x; i < here * PLANES * CELLS; i += blockDim.x) {
      const int image = i / (PLANES * CELLS), plane = i / CELLS % PLANES, cell = i % CELLS;
      const long long from = ((position + image) * OC + o + plane) * CELLS + cell;
      const int q = chosen[from];
      if (q == NOBODY) continue;
      const int oy = (cell / CW * SIDE + q / SIDE) * STRIDE + K - 1 - PAD;
      const int ox = (cell % CW * SIDE + q % SIDE) * STRIDE + K - 1 - PAD;
      d[((image * PLANES + plane) * DH + oy) * PITCH + ox] = delta[from];
    }
    for (int i = threadIdx.x; i < PLANES * WITHIN * K * K; i += blockDim.x) {
      // turned by half a turn
      const int plane = o + i / (WITHIN * K * K), channel = c + i / (K * K) % WITHIN, turned = K * K - 1 - i % (K * K);
      w[i / K * FOURS + i % K / 4].v[i % K % 4] =
          parameters[(long long)client * row + weight + (plane * IC + channel) * K * K + turned];
    }
    __syncthreads();
    if (n < here)
      for (int p = 0; p < PLANES; ++p) {
        float patch[K + 1][K + 1];
        load_patch<K + 1, true>(d + ((n * PLANES + p) * DH + y) * PITCH + x, patch);
#pragma unroll
        for (int j = 0; j < WITHIN; ++j)
#pragma unroll
          for (int ky = 0; ky < K; ++ky) {
            Four line[FOURS];
#pragma unroll
            for (int f = 0; f < FOURS; ++f) line[f] = w[((p * WITHIN + j) * K + ky) * FOURS + f];
#pragma unroll
            for (int kx = 0; kx < K; ++kx)
#pragma unroll
              for (int q = 0; q < 4; ++q) sum[j][q] += line[kx / 4].v[kx % 4] * patch[ky + q / 2][kx + q % 2];
          }
      }
    __syncthreads();
  }
  if (n >= here) return;
#pragma unroll
  for (int j = 0; j < WITHIN; ++j)
#pragma unroll
    for (int q = 0; q < 4; ++q)
      if (y + q / 2 < IH && x + q % 2 < IW) {
        float *to = out + ((position + n) * IC + c + j) * (IH * IW) + (y + q / 2) * IW + x + q % 2;
        *to = ADD ? *to + sum[j][q] : sum[j][q];
      }
}
#endif
