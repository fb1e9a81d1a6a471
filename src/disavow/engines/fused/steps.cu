// The parts of a step that do not depend on a layer's shape.

// Images by number, one a position; nothing where the position is empty.
extern "C" __global__ void gather(const float *images, const int *index, const int *count, int size, int batch,
                                  int positions, float *out) {
  const long long total = (long long)positions * size;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < total;
       i += (long long)gridDim.x * blockDim.x) {
    const long long position = i / size;
    out[i] = position % batch < count[position / batch] ? images[(long long)index[position] * size + i % size] : 0.0f;
  }
}

// The delta of the mean cross-entropy of each client's batch, in place of the scores.
extern "C" __global__ void loss(const long long *labels, const int *index, const int *count, int classes, int batch,
                                int positions, float *scores) {
  for (int position = blockIdx.x * blockDim.x + threadIdx.x; position < positions; position += gridDim.x * blockDim.x) {
    float *score = scores + (long long)position * classes;
    const int taken = count[position / batch];
    if (position % batch >= taken) {
      for (int o = 0; o < classes; ++o) score[o] = 0.0f;
      continue;
    }
    float top = score[0], total = 0.0f;
    for (int o = 1; o < classes; ++o) top = score[o] > top ? score[o] : top;
    for (int o = 0; o < classes; ++o) total += score[o] = expf(score[o] - top);
    const long long label = labels[index[position]];
    for (int o = 0; o < classes; ++o) score[o] = (score[o] / total - (o == label ? 1.0f : 0.0f)) / taken;
  }
}

// The same for attributes, each of which is said of a sample or not: the mean binary cross-entropy over all of them.
extern "C" __global__ void loss_of_attributes(const float *labels, const int *index, const int *count, int attributes,
                                              int batch, int positions, float *scores) {
  for (int position = blockIdx.x * blockDim.x + threadIdx.x; position < positions; position += gridDim.x * blockDim.x) {
    float *score = scores + (long long)position * attributes;
    const int taken = count[position / batch];
    const float *label = labels + (long long)index[position] * attributes;
    for (int o = 0; o < attributes; ++o) {
      // with the exponential of what is negative, which cannot overflow
      const float small = expf(score[o] < 0.0f ? score[o] : -score[o]);
      const float likely = score[o] < 0.0f ? small / (1.0f + small) : 1.0f / (1.0f + small);
      score[o] = position % batch < taken ? (likely - label[o]) / (taken * attributes) : 0.0f;
    }
  }
}

// Lets no delta through where ReLU was closed.
extern "C" __global__ void relu_backward(const float *out, int positions, int size, float *delta) {
  const long long total = (long long)positions * size;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < total;
       i += (long long)gridDim.x * blockDim.x)
    if (out[i] <= 0.0f) delta[i] = 0.0f;
}

// SGD with momentum and weight decay on `size` numbers of every client, and on `rest` more that lie elsewhere in its row.
// Their gradients are sums of `slots` slots. `rates`, a row each: learning rate, momentum, weight decay. Whoever has no
// batch stays as it is.
extern "C" __global__ void sgd(const float *gradient, int slots, int size, int offset, int rest, int rest_offset,
                               const int *count, const float *rates, int clients, int row, float *parameters,
                               float *velocity) {
  const int slot = size + rest;
  const long long total = (long long)clients * slot;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < total;
       i += (long long)gridDim.x * blockDim.x) {
    const int client = i / slot, number = i % slot;
    if (!count[client]) continue;
    const float *from = gradient + (long long)client * slots * slot + number;
    float push = 0.0f;
    for (int s = 0; s < slots; ++s) push += from[(long long)s * slot];
    const long long at = (long long)client * row + (number < size ? offset + number : rest_offset + number - size);
    push += rates[3 * client + 2] * parameters[at];
    push += rates[3 * client + 1] * velocity[at];
    velocity[at] = push;
    parameters[at] -= rates[3 * client] * push;
  }
}
