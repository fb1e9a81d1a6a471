// Convolutions that are not pooled, forward and the gradient of the input. Without windows there is little to share
// between threads but the weights, so maps are read where they are, and no block waits for its neighbours.
//
// Shapes are defined as in kernels.cu. Weights lie in shared memory four channels together. A thread computes EACH
// fours of channels at DOWN places, one below the other, so that a weight that is read serves several sums. DOWN is 1
// where the stride is not.

#define FOURS_OUT ((OC + 3) / 4)
#define FOURS_IN ((IC + 3) / 4)

struct alignas(16) Four {
  float v[4];
};

// Adds what one tap gives of one number that it lies on, for EACH fours of channels.
__device__ void add_tap(Four (&sum)[EACH], const Four *weights, float seen) {
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const Four four = weights[e];
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[e].v[j] += four.v[j] * seen;
  }
}

#ifdef DIRECT_FORWARD
extern "C" __global__ void direct_forward(const float *images, const int *index, const int *count,
                                          const float *parameters, int row, int weight, int bias, int batch, float *out,
                                          unsigned char *chosen) {
  __shared__ Four w[IC * K * K * FOURS_OUT];
  __shared__ float b[FOURS_OUT * 4];
  const int tiles = (batch + IMAGES - 1) / IMAGES, client = blockIdx.x / tiles;
  const int first = blockIdx.x % tiles * IMAGES, positions = min(IMAGES, batch - first);
  const int here = max(min(positions, count[client] - first), 0);
  const long long position = (long long)client * batch + first;
  float *to = out + position * (OC * OH * OW);
  // whoever reads an empty position multiplies it by zero, so it must hold a number
  for (int i = threadIdx.x + here * (OC * OH * OW); i < positions * (OC * OH * OW); i += blockDim.x) to[i] = 0.0f;
  if (!here) return;
  const float *own = parameters + (long long)client * row;
  for (int i = threadIdx.x; i < IC * K * K * FOURS_OUT * 4; i += blockDim.x) {
    const int o = i % (FOURS_OUT * 4), tap = i / (FOURS_OUT * 4);
    w[i / 4].v[i % 4] = o < OC ? own[weight + o * (IC * K * K) + tap] : 0.0f;
  }
  for (int i = threadIdx.x; i < FOURS_OUT * 4; i += blockDim.x) b[i] = BIAS && i < OC ? own[bias + i] : 0.0f;
  __syncthreads();
  for (int item = threadIdx.x; item < here * (FOURS_OUT / EACH) * (OH / DOWN * OW); item += blockDim.x) {
    const int place = item % (OH / DOWN * OW), top = place / OW * DOWN, y = top * STRIDE - PAD;
    const int x = place % OW * STRIDE - PAD, group = item / (OH / DOWN * OW) % (FOURS_OUT / EACH) * EACH;
    const int n = item / (OH / DOWN * OW * (FOURS_OUT / EACH));
    const float *from = images + (GATHER ? (long long)index[position + n] : position + n) * (IC * IH * IW);
    Four sum[DOWN][EACH];
#pragma unroll
    for (int a = 0; a < DOWN; ++a)
#pragma unroll
      for (int e = 0; e < EACH; ++e)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[a][e].v[j] = b[(group + e) * 4 + j];
    for (int c = 0; c < IC; ++c) {
#if DOWN == 1
#pragma unroll
      for (int k = 0; k < K * K; ++k) {
        const int iy = y + k / K, ix = x + k % K;
        const bool inside = PAD == 0 || (iy >= 0 && iy < IH && ix >= 0 && ix < IW);
        add_tap(sum[0], w + (c * K * K + k) * FOURS_OUT + group, inside ? from[(c * IH + iy) * IW + ix] : 0.0f);
      }
#else
      float seen[DOWN + K - 1][K];
#pragma unroll
      for (int i = 0; i < DOWN + K - 1; ++i)
#pragma unroll
        for (int k = 0; k < K; ++k) {
          const bool inside = PAD == 0 || (y + i >= 0 && y + i < IH && x + k >= 0 && x + k < IW);
          seen[i][k] = inside ? from[(c * IH + y + i) * IW + x + k] : 0.0f;
        }
#pragma unroll
      for (int k = 0; k < K * K; ++k)
#pragma unroll
        for (int a = 0; a < DOWN; ++a)
          add_tap(sum[a], w + (c * K * K + k) * FOURS_OUT + group, seen[a + k / K][k % K]);
#endif
    }
#pragma unroll
    for (int a = 0; a < DOWN; ++a)
#pragma unroll
      for (int e = 0; e < EACH; ++e)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int o = (group + e) * 4 + j, at = ((n * OC + o) * OH + top + a) * OW + place % OW;
          if (o >= OC) continue;
          const float value = sum[a][e].v[j];
          to[at] = RELU && value < 0.0f ? 0.0f : value;
          if (RELU) chosen[position * (OC * OH * OW) + at] = value <= 0.0f ? 4 : 0;
        }
  }
}
#endif

#ifdef DIRECT_INPUT
extern "C" __global__ void direct_input(const int *count, const float *delta, const unsigned char *chosen,
                                        const float *parameters, int row, int weight, int batch, float *out) {
  __shared__ Four w[OC * K * K * FOURS_IN];
  const int tiles = (batch + IMAGES - 1) / IMAGES, client = blockIdx.x / tiles;
  const int first = blockIdx.x % tiles * IMAGES, here = min(IMAGES, count[client] - first);
  if (here <= 0) return;
  const long long position = (long long)client * batch + first;
  const float *own = parameters + (long long)client * row + weight;
  for (int i = threadIdx.x; i < OC * K * K * FOURS_IN * 4; i += blockDim.x) {
    const int c = i % (FOURS_IN * 4), k = i / (FOURS_IN * 4) % (K * K), o = i / (FOURS_IN * 4 * K * K);
    w[i / 4].v[i % 4] = c < IC ? own[(o * IC + c) * (K * K) + k] : 0.0f;
  }
  __syncthreads();
  for (int item = threadIdx.x; item < here * (FOURS_IN / EACH) * (IH / DOWN * IW); item += blockDim.x) {
    const int place = item % (IH / DOWN * IW), top = place / IW * DOWN, x = place % IW;
    const int group = item / (IH / DOWN * IW) % (FOURS_IN / EACH) * EACH;
    const int n = item / (IH / DOWN * IW * (FOURS_IN / EACH));
    const long long maps = (position + n) * (OC * OH * OW);
    Four sum[DOWN][EACH] = {};
#if DOWN == 1
#pragma unroll
    for (int k = 0; k < K * K; ++k) {
      // the output at which this tap lay on this pixel, if there is one
      const int y = top + PAD - k / K, across = x + PAD - k % K, oy = y / STRIDE, ox = across / STRIDE;
      if (y < 0 || across < 0 || oy * STRIDE != y || ox * STRIDE != across || oy >= OH || ox >= OW) continue;
      const long long from = maps + oy * OW + ox;
#pragma unroll 4
      for (int o = 0; o < OC; ++o) {
        const bool closed = RELU && chosen[from + o * (OH * OW)];
        add_tap(sum[0], w + (o * K * K + k) * FOURS_IN + group, closed ? 0.0f : delta[from + o * (OH * OW)]);
      }
    }
#else
    // tap k lies on pixel a at the output in row a + K - 1 - k / K, and column K - 1 - k % K, counted from these
    const int first_row = top + PAD - (K - 1), first_column = x + PAD - (K - 1);
    for (int o = 0; o < OC; ++o) {
      float steep[DOWN + K - 1][K];
#pragma unroll
      for (int i = 0; i < DOWN + K - 1; ++i)
#pragma unroll
        for (int k = 0; k < K; ++k) {
          const int oy = first_row + i, ox = first_column + k;
          const long long from = maps + (o * OH + oy) * OW + ox;
          const bool open = oy >= 0 && oy < OH && ox >= 0 && ox < OW && !(RELU && chosen[from]);
          steep[i][k] = open ? delta[from] : 0.0f;
        }
#pragma unroll
      for (int k = 0; k < K * K; ++k)
#pragma unroll
        for (int a = 0; a < DOWN; ++a)
          add_tap(sum[a], w + (o * K * K + k) * FOURS_IN + group, steep[a + K - 1 - k / K][K - 1 - k % K]);
    }
#endif
#pragma unroll
    for (int a = 0; a < DOWN; ++a)
#pragma unroll
      for (int e = 0; e < EACH; ++e)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int c = (group + e) * 4 + j;
          if (c >= IC) continue;
          float *to = out + (((position + n) * IC + c) * IH + top + a) * IW + x;
          *to = ADD ? *to + sum[a][e].v[j] : sum[a][e].v[j];
        }
  }
}
#endif
