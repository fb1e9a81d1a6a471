// Batch norm of maps and sums of two, for many clients at once. A term or the sum of two goes out, after ReLU if there
// is one; a term is maps, normalised or as they are. Each client normalises by its own batch, whose empty positions are
// left out.
//
// One kernel is compiled at a time. The launcher defines which (NORM_STATISTICS, ...) and
//   CHANNELS AREA   the shape of the maps      KNOWN   1 where the running statistics stand for those of the batch
//   TERMS NORMED    how many there are, and how many of them, the first ones, are normalised      RELU   1 or 0
//   IMAGES          positions in a block of the kernels that go over all maps
//   SPAN            positions in a block of the kernels that add up a channel: a part of its client's positions
//
// `one` and `other` are the maps of the terms, `one` twice where there is but one. For each norm, `places` are where
// weight, bias, mean and variance begin in a client's row, and `habits` epsilon and the momentum of the running
// statistics. Sums go in a fixed order.

#define MOST 256 // threads in a block; a power of two
#define NORMS (NORMED ? NORMED : 1)
#define SIZE (CHANNELS * AREA)
#define WIDE (AREA % 4 ? 1 : 4) // numbers of one channel that are loaded together
#define WIDES (AREA / WIDE)

struct alignas(4 * WIDE) Wide {
  float v[WIDE];
};

__device__ const Wide *wide(const float *maps, long long start) { return (const Wide *)(maps + start); }
__device__ Wide *wide(float *maps, long long start) { return (Wide *)(maps + start); }

// How many numbers there are, their mean, and the squares of their distances to it, added up. Unlike plain sums of
// squares these keep their digits where the mean is large beside the deviation.
struct Moments {
  float count, mean, squares;
};
__device__ Moments merged(Moments a, Moments b) {
  const float count = a.count + b.count, share = count > 0.0f ? b.count / count : 0.0f, apart = b.mean - a.mean;
  return {count, a.mean + apart * share, a.squares + b.squares + apart * apart * share * a.count};
}

// The gradients of a channel's bias, and of its weight in each norm.
struct Gradients {
  float bias, weight[NORMS];
};
__device__ Gradients merged(Gradients a, const Gradients &b) {
  a.bias += b.bias;
  for (int t = 0; t < NORMED; ++t) a.weight[t] += b.weight[t];
  return a;
}

// What the threads of a block have, merged; for thread 0.
template <class T> __device__ T merged_over_block(T own) {
  __shared__ T all[MOST];
  all[threadIdx.x] = own;
  for (int half = blockDim.x / 2; half; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) all[threadIdx.x] = merged(all[threadIdx.x], all[threadIdx.x + half]);
  }
  return all[0];
}

// What a norm does in one channel.
struct alignas(16) Norm {
  float middle, inverse, scale, shift;
};
__device__ Norm norm_of(float middle, float inverse, const float *own, const int *places, int term, int channel) {
  return {middle, inverse, inverse * own[places[4 * term] + channel], own[places[4 * term + 1] + channel]};
}
__device__ long long number_of(int client, int term, int channel) {
  return ((long long)client * NORMS + term) * CHANNELS + channel;
}
// By the statistics of the batch, as the forward pass left them.
__device__ Norm norm_of(const float *statistics, const float *own, const int *places, int client, int term,
                        int channel) {
  const float *of = statistics + 2 * number_of(client, term, channel);
  return norm_of(of[0], of[1], own, places, term, channel);
}

// What goes out, before ReLU. Forward and backward it is rounded alike, so that ReLU is open for the same numbers.
__device__ float normalised(float x, const Norm &norm) { return fmaf(x - norm.middle, norm.scale, norm.shift); }
__device__ float sum_of(float one, float other, const Norm *norms) {
  const float first = NORMED > 0 ? normalised(one, norms[0]) : one;
  return TERMS > 1 ? first + (NORMED > 1 ? normalised(other, norms[NORMS - 1]) : other) : first;
}
// The delta, where ReLU let something through. Where every term is normalised, its maps are read anyway and what went
// out is computed once more; else it is read.
#define AGAIN (NORMED == TERMS)
__device__ float through(float delta, float one, float other, float out, const Norm *norms) {
  return RELU && (AGAIN ? sum_of(one, other, norms) : out) <= 0.0f ? 0.0f : delta;
}

// Where a block finds its part of a channel, and how much of that is taken.
struct Part {
  int client, items;
  long long start;
};
__device__ Part part_of(const int *count, int block, int channel, int batch) {
  const int parts = (batch + SPAN - 1) / SPAN, client = block / parts, first = block % parts * SPAN;
  const int taken = max(min(SPAN, count[client] - first), 0);
  return {client, taken * WIDES, (((long long)client * batch + first) * CHANNELS + channel) * AREA};
}
// Where item i of it lies.
__device__ int place_of(int i) { return i / WIDES * (CHANNELS * WIDES) + i % WIDES; }

#ifdef NORM_STATISTICS
extern "C" __global__ void norm_statistics(const int *count, const float *one, const float *other, int batch,
                                           Moments *moments) {
  const int channel = blockIdx.x % CHANNELS, term = blockIdx.x / CHANNELS % NORMS;
  const Part part = part_of(count, blockIdx.x / (CHANNELS * NORMS), channel, batch);
  if (!part.items) return;
  const Wide *x = wide(term ? other : one, part.start);
  // distances to the thread's first number: it has few, so the square of their mean takes few digits from the squares
  const float pivot = threadIdx.x < part.items ? x[place_of(threadIdx.x)].v[0] : 0.0f;
  float seen = 0.0f, sum = 0.0f, squares = 0.0f;
#pragma unroll 4
  for (int i = threadIdx.x; i < part.items; i += blockDim.x) {
    const Wide here = x[place_of(i)];
    seen += WIDE;
#pragma unroll
    for (int j = 0; j < WIDE; ++j) {
      const float apart = here.v[j] - pivot;
      sum += apart;
      squares += apart * apart;
    }
  }
  const float shifted = seen > 0.0f ? sum / seen : 0.0f, rest = squares - sum * shifted;
  // rounding may leave less than nothing; NaN stays
  const Moments all = merged_over_block(Moments{seen, pivot + shifted, rest < 0.0f ? 0.0f : rest});
  if (threadIdx.x == 0) moments[blockIdx.x] = all;
}
#endif

#ifdef NORM_FORWARD
// The first block of a client also leaves the statistics for the way back, and lets the running ones follow.
extern "C" __global__ void norm_forward(const int *count, const float *one, const float *other, int batch,
                                        float *parameters, int row, const int *places, const float *habits,
                                        const Moments *moments, float *statistics, float *out) {
  __shared__ Norm norms[CHANNELS * NORMS];
  const int tiles = (batch + IMAGES - 1) / IMAGES, client = blockIdx.x / tiles, first = blockIdx.x % tiles * IMAGES;
  const int positions = min(IMAGES, batch - first), here = max(min(positions, count[client] - first), 0);
  const long long start = ((long long)client * batch + first) * SIZE;
  // whoever reads an empty position multiplies it by zero, so it must hold a number
  for (int i = here * (SIZE / WIDE) + threadIdx.x; i < positions * (SIZE / WIDE); i += blockDim.x)
    wide(out, start)[i] = Wide{};
  if (!here) return;
  float *own = parameters + (long long)client * row;
  for (int i = threadIdx.x; i < NORMED * CHANNELS; i += blockDim.x) {
    const int term = i / CHANNELS, c = i % CHANNELS, *place = places + 4 * term;
    const float epsilon = habits[2 * term], momentum = habits[2 * term + 1];
    float middle, inverse;
    if (KNOWN) {
      middle = own[place[2] + c];
      inverse = 1.0f / sqrtf(own[place[3] + c] + epsilon);
    } else {
      const int parts = (batch + SPAN - 1) / SPAN;
      Moments all = {};
      for (int part = 0; part * SPAN < count[client]; ++part)
        all = merged(all, moments[number_of(client * parts + part, term, c)]);
      const float total = count[client] * AREA;
      middle = all.mean;
      inverse = 1.0f / sqrtf(all.squares / total + epsilon);
      if (first == 0) {
        float *of = statistics + 2 * number_of(client, term, c);
        of[0] = middle;
        of[1] = inverse;
        own[place[2] + c] += momentum * (middle - own[place[2] + c]);
        own[place[3] + c] += momentum * (all.squares / (total - 1.0f) - own[place[3] + c]);
      }
    }
    norms[c * NORMS + term] = norm_of(middle, inverse, own, places, term, c);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < here * (SIZE / WIDE); i += blockDim.x) {
    const Wide x = wide(one, start)[i], y = TERMS > 1 ? wide(other, start)[i] : x;
    Wide sum;
#pragma unroll
    for (int j = 0; j < WIDE; ++j) {
      sum.v[j] = sum_of(x.v[j], y.v[j], norms + i / WIDES % CHANNELS * NORMS);
      if (RELU && sum.v[j] < 0.0f) sum.v[j] = 0.0f;
    }
    wide(out, start)[i] = sum;
  }
}
#endif

#ifdef NORM_WEIGHT
// The gradients of weights and biases, for each norm: first those of all weights of a part, then those of all biases.
extern "C" __global__ void norm_weight(const int *count, const float *one, const float *other, int batch,
                                       const float *parameters, int row, const int *places, const float *statistics,
                                       const float *out, const float *delta, float *gradient, float *other_gradient) {
  const int channel = blockIdx.x % CHANNELS, block = blockIdx.x / CHANNELS;
  const Part part = part_of(count, block, channel, batch);
  const float *own = parameters + (long long)part.client * row;
  Norm norms[NORMS];
  Gradients sums = {};
#pragma unroll
  for (int t = 0; t < NORMED; ++t) norms[t] = norm_of(statistics, own, places, part.client, t, channel);
#pragma unroll 2
  for (int i = threadIdx.x; i < part.items; i += blockDim.x) {
    const int at = place_of(i);
    const Wide d = wide(delta, part.start)[at], x = wide(one, part.start)[at];
    const Wide y = NORMED > 1 ? wide(other, part.start)[at] : x, z = RELU && !AGAIN ? wide(out, part.start)[at] : x;
#pragma unroll
    for (int j = 0; j < WIDE; ++j) {
      const float steep = through(d.v[j], x.v[j], y.v[j], z.v[j], norms);
      sums.bias += steep;
#pragma unroll
      for (int t = 0; t < NORMED; ++t)
        sums.weight[t] += steep * (((t ? y.v[j] : x.v[j]) - norms[t].middle) * norms[t].inverse);
    }
  }
  // an empty part has nothing to add, but it must say so: `sgd` adds up all parts
  sums = merged_over_block(sums);
  if (threadIdx.x) return;
  for (int t = 0; t < NORMED; ++t) {
    float *to = (t ? other_gradient : gradient) + (long long)block * (2 * CHANNELS) + channel;
    to[0] = sums.weight[t];
    to[CHANNELS] = sums.bias;
  }
}
#endif

#ifdef NORM_INPUT
// The gradients of the terms: for maps as they are the delta itself, for a norm what is left of it without its part
// along the batch's mean and deviation. `way` is 1 where it is written to `to`, 2 where it is added to what others left
// there, 0 where nobody asks. `to` may be the delta itself.
__device__ void pass_on(float *to, int way, long long start, int i, Wide delta) {
  if (!way) return;
  Wide *at = wide(to, start) + i;
  if (way == 2) {
    const Wide there = *at;
#pragma unroll
    for (int j = 0; j < WIDE; ++j) delta.v[j] += there.v[j];
  }
  *at = delta;
}

extern "C" __global__ void norm_input(const int *count, const float *one, const float *other, int batch,
                                      const float *parameters, int row, const int *places, const float *statistics,
                                      const float *out, const float *delta, const float *gradient,
                                      const float *other_gradient, float *to, int way, float *other_to, int other_way) {
  __shared__ Norm norms[CHANNELS * NORMS];
  __shared__ float along[CHANNELS * NORMS], level[CHANNELS];
  const int tiles = (batch + IMAGES - 1) / IMAGES, client = blockIdx.x / tiles, first = blockIdx.x % tiles * IMAGES;
  const int positions = min(IMAGES, batch - first), here = max(min(positions, count[client] - first), 0);
  const long long start = ((long long)client * batch + first) * SIZE;
  // a dense layer before a sum adds up what it finds in all positions
  for (int i = here * (SIZE / WIDE) + threadIdx.x; i < positions * (SIZE / WIDE); i += blockDim.x) {
    if (NORMED < 1) pass_on(to, way, start, i, Wide{});
    if (TERMS > 1 && NORMED < 2) pass_on(other_to, other_way, start, i, Wide{});
  }
  if (!here) return;
  const float *own = parameters + (long long)client * row;
  for (int i = threadIdx.x; i < NORMED * CHANNELS; i += blockDim.x) {
    const int term = i / CHANNELS, c = i % CHANNELS, parts = (batch + SPAN - 1) / SPAN;
    const float *from = (term ? other_gradient : gradient) + (long long)client * parts * (2 * CHANNELS) + c;
    float of_weight = 0.0f, of_bias = 0.0f;
    for (int part = 0; part * SPAN < count[client]; ++part) {
      of_weight += from[part * (2 * CHANNELS)];
      of_bias += from[part * (2 * CHANNELS) + CHANNELS];
    }
    const Norm norm = norm_of(statistics, own, places, client, term, c);
    const float share = 1.0f / (count[client] * AREA);
    norms[c * NORMS + term] = norm;
    along[c * NORMS + term] = of_weight * share * norm.inverse;
    if (term == 0) level[c] = of_bias * share;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < here * (SIZE / WIDE); i += blockDim.x) {
    const int c = i / WIDES % CHANNELS;
    const Wide d = wide(delta, start)[i], x = NORMED > 0 ? wide(one, start)[i] : d;
    const Wide y = NORMED > 1 ? wide(other, start)[i] : d, z = RELU && !AGAIN ? wide(out, start)[i] : d;
    Wide moved[2];
#pragma unroll
    for (int j = 0; j < WIDE; ++j) {
      const float steep = through(d.v[j], x.v[j], y.v[j], z.v[j], norms + c * NORMS);
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        moved[t].v[j] = steep;
        if (t >= NORMED) continue;
        const float apart = (t ? y.v[j] : x.v[j]) - norms[c * NORMS + t].middle;
        moved[t].v[j] = norms[c * NORMS + t].scale * (steep - level[c] - apart * along[c * NORMS + t]);
      }
    }
    pass_on(to, way, start, i, moved[0]);
    if (TERMS > 1) pass_on(other_to, other_way, start, i, moved[1]);
  }
}
#endif
