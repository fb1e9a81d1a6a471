// Batch norm of maps, for many clients at once: each normalises by its own batch, whose empty positions are left out.
//
// One kernel is compiled at a time. The launcher defines which (NORM_STATISTICS, ...) and
//   CHANNELS AREA   the shape of the maps      KNOWN   1 where the running statistics stand for those of the batch
//   IMAGES          positions in a block of the kernels that go over all maps
//
// `habits` are epsilon and the momentum of the running statistics. Sums go in a fixed order.

#define MOST 512 // threads in a block; a power of two

// The maps of one channel of a client, as one row: where it begins, and number i of it.
__device__ const float *channel_of(const float *maps, int client, int channel, int batch) {
  return maps + ((long long)client * batch * CHANNELS + channel) * AREA;
}
__device__ float at(const float *channel, int i) { return channel[i / AREA * (CHANNELS * AREA) + i % AREA]; }

// The sum over the threads of a block, for each of them.
__device__ float added_up(float own) {
  __shared__ float sums[MOST];
  sums[threadIdx.x] = own;
  for (int half = blockDim.x / 2; half; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  __syncthreads();
  const float sum = sums[0];
  __syncthreads();
  return sum;
}

#ifdef NORM_STATISTICS
// Mean and inverse deviation of each channel of each client; the running statistics follow them.
extern "C" __global__ void norm_statistics(const int *count, const float *maps, const float *habits, int batch, int row,
                                           int mean, int variance, float *parameters, float *statistics) {
  const int client = blockIdx.x / CHANNELS, channel = blockIdx.x % CHANNELS, total = count[client] * AREA;
  if (!total) return;
  const float *x = channel_of(maps, client, channel, batch);
  float sum = 0.0f, squares = 0.0f;
  for (int i = threadIdx.x; i < total; i += blockDim.x) sum += at(x, i);
  const float middle = added_up(sum) / total;
  for (int i = threadIdx.x; i < total; i += blockDim.x) squares += (at(x, i) - middle) * (at(x, i) - middle);
  squares = added_up(squares);
  if (threadIdx.x) return;
  statistics[2 * blockIdx.x] = middle;
  statistics[2 * blockIdx.x + 1] = 1.0f / sqrtf(squares / total + habits[0]);
  float *own = parameters + (long long)client * row;
  own[mean + channel] += habits[1] * (middle - own[mean + channel]);
  own[variance + channel] += habits[1] * (squares / (total - 1) - own[variance + channel]);
}
#endif

#ifdef NORM_FORWARD
extern "C" __global__ void norm_forward(const int *count, const float *maps, const float *habits, int batch, int relu,
                                        const float *parameters, int row, int weight, int bias, int mean, int variance,
                                        const float *statistics, float *out) {
  __shared__ float middle[CHANNELS], scale[CHANNELS], shift[CHANNELS];
  const int tiles = (batch + IMAGES - 1) / IMAGES, client = blockIdx.x / tiles, first = blockIdx.x % tiles * IMAGES;
  const int positions = min(IMAGES, batch - first), here = max(min(positions, count[client] - first), 0);
  const float *own = parameters + (long long)client * row, *of_batch = statistics + 2 * client * CHANNELS;
  for (int c = threadIdx.x; c < CHANNELS; c += blockDim.x) {
    const float inverse = KNOWN ? 1.0f / sqrtf(own[variance + c] + habits[0]) : of_batch[2 * c + 1];
    middle[c] = KNOWN ? own[mean + c] : of_batch[2 * c];
    scale[c] = inverse * own[weight + c];
    shift[c] = own[bias + c];
  }
  __syncthreads();
  const long long start = ((long long)client * batch + first) * (CHANNELS * AREA);
  for (int i = threadIdx.x; i < positions * (CHANNELS * AREA); i += blockDim.x) {
    const int c = i / AREA % CHANNELS;
    const float normal = (maps[start + i] - middle[c]) * scale[c] + shift[c];
    // whoever reads an empty position multiplies it by zero, so it must hold a number
    out[start + i] = i >= here * (CHANNELS * AREA) || (relu && normal < 0.0f) ? 0.0f : normal;
  }
}
#endif

#ifdef NORM_WEIGHT
// The gradients of weight and bias: first those of all weights of a client, then those of all biases.
extern "C" __global__ void norm_weight(const int *count, const float *maps, const float *delta, int batch,
                                       const float *statistics, float *gradient) {
  const int client = blockIdx.x / CHANNELS, channel = blockIdx.x % CHANNELS, total = count[client] * AREA;
  const float *x = channel_of(maps, client, channel, batch), *d = channel_of(delta, client, channel, batch);
  const float middle = statistics[2 * blockIdx.x], inverse = statistics[2 * blockIdx.x + 1];
  float of_weight = 0.0f, of_bias = 0.0f;
  for (int i = threadIdx.x; i < total; i += blockDim.x) {
    of_weight += at(d, i) * ((at(x, i) - middle) * inverse);
    of_bias += at(d, i);
  }
  of_weight = added_up(of_weight);
  of_bias = added_up(of_bias);
  if (threadIdx.x) return;
  gradient[2 * client * CHANNELS + channel] = of_weight;
  gradient[(2 * client + 1) * CHANNELS + channel] = of_bias;
}
#endif

#ifdef NORM_INPUT
// The gradient of the input: the delta less its part along the batch's mean and deviation.
extern "C" __global__ void norm_input(const int *count, const float *maps, const float *delta, int batch,
                                      const float *parameters, int row, int weight, const float *statistics,
                                      const float *gradient, int add, float *out) {
  __shared__ float middle[CHANNELS], scale[CHANNELS], along[CHANNELS], level[CHANNELS];
  const int tiles = (batch + IMAGES - 1) / IMAGES, client = blockIdx.x / tiles, first = blockIdx.x % tiles * IMAGES;
  const int here = min(IMAGES, count[client] - first);
  if (here <= 0) return;
  for (int c = threadIdx.x; c < CHANNELS; c += blockDim.x) {
    const float inverse = statistics[2 * (client * CHANNELS + c) + 1], share = 1.0f / (count[client] * AREA);
    middle[c] = statistics[2 * (client * CHANNELS + c)];
    scale[c] = parameters[(long long)client * row + weight + c] * inverse;
    along[c] = gradient[2 * client * CHANNELS + c] * share * inverse;
    level[c] = gradient[(2 * client + 1) * CHANNELS + c] * share;
  }
  __syncthreads();
  const long long start = ((long long)client * batch + first) * (CHANNELS * AREA);
  for (int i = threadIdx.x; i < here * (CHANNELS * AREA); i += blockDim.x) {
    const int c = i / AREA % CHANNELS;
    const float moved = scale[c] * (delta[start + i] - level[c] - (maps[start + i] - middle[c]) * along[c]);
    out[start + i] = add ? out[start + i] + moved : moved;
  }
}
#endif
