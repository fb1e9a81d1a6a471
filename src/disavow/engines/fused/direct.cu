// Convolutions that are not pooled, forward and the gradient of the input. Without windows there is little to share
// between threads but the weights, so maps are read where they are, and no block waits for its neighbours.
//
// Shapes are defined as in kernels.cu. Weights lie in shared memory four channels together. A thread computes EACH
// fours of channels at DOWN places, one below the other, so that a weight that is read serves several sums.

#define FOURS_OUT ((OC + 3) / 4)
#define FOURS_IN ((IC + 3) / 4)

struct alignas(16) Four {
  float v[4];
};

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
  constexpr int SPAN = (DOWN - 1) * STRIDE + K;
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
      float seen[SPAN][K];
#pragma unroll
      for (int i = 0; i < SPAN; ++i)
#pragma unroll
        for (int k = 0; k < K; ++k) {
          const bool inside = PAD == 0 || (y + i >= 0 && y + i < IH && x + k >= 0 && x + k < IW);
          seen[i][k] = inside ? from[(c * IH + y + i) * IW + x + k] : 0.0f;
        }
#pragma unroll
      for (int k = 0; k < K * K; ++k)
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
          const Four four = w[(c * K * K + k) * FOURS_OUT + group + e];
#pragma unroll
          for (int a = 0; a < DOWN; ++a)
#pragma unroll
            for (int j = 0; j < 4; ++j) sum[a][e].v[j] += four.v[j] * seen[a * STRIDE + k / K][k % K];
        }
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
  constexpr int SPAN = DOWN + K - 1;
  for (int item = threadIdx.x; item < here * (FOURS_IN / EACH) * (IH / DOWN * IW); item += blockDim.x) {
    const int place = item % (IH / DOWN * IW), top = place / IW * DOWN, x = place % IW;
    const int group = item / (IH / DOWN * IW) % (FOURS_IN / EACH) * EACH;
    const int n = item / (IH / DOWN * IW * (FOURS_IN / EACH));
    // where the outputs are whose taps lie on these pixels: the last taps of a kernel reach the first of them
    int row_at[SPAN], column_at[K];
#pragma unroll
    for (int i = 0; i < SPAN; ++i) {
      const int y = top + PAD + i - (K - 1);
      row_at[i] = y >= 0 && y % STRIDE == 0 && y / STRIDE < OH ? y / STRIDE * OW : -1;
    }
#pragma unroll
    for (int i = 0; i < K; ++i) {
      const int across = x + PAD + i - (K - 1);
      column_at[i] = across >= 0 && across % STRIDE == 0 && across / STRIDE < OW ? across / STRIDE : -1;
    }
    Four sum[DOWN][EACH] = {};
    for (int o = 0; o < OC; ++o) {
      const long long from = ((position + n) * OC + o) * (OH * OW);
      float steep[SPAN][K];
#pragma unroll
      for (int i = 0; i < SPAN; ++i)
#pragma unroll
        for (int k = 0; k < K; ++k) {
          const long long at = from + row_at[i] + column_at[k];
          const bool open = row_at[i] >= 0 && column_at[k] >= 0 && !(RELU && chosen[at]);
          steep[i][k] = open ? delta[at] : 0.0f;
        }
#pragma unroll
      for (int k = 0; k < K * K; ++k)
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
          const Four four = w[(o * K * K + k) * FOURS_IN + group + e];
#pragma unroll
          for (int a = 0; a < DOWN; ++a)
#pragma unroll
            for (int j = 0; j < 4; ++j) sum[a][e].v[j] += four.v[j] * steep[a + K - 1 - k / K][K - 1 - k % K];
        }
    }
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
