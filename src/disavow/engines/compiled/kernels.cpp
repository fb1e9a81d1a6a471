// Local training of one client, whole, in one call: forward, backward and SGD for a chain of layers.
//
// Sixteen images travel together, one in each lane of a vector ("a group"): every layer then works at full
// width, whatever its shape. Maps are stored pixel by pixel, the channels of a pixel side by side, so that one
// row of a convolution's window is one contiguous run. ReLU and pooling happen on the way out of a convolution,
// while its results are still in registers. After pooling only one position in four carries a gradient: the
// gradient of the weights visits just those, image by image.
//
// The arithmetic is IEEE float32 throughout (fused multiply-add, no fast-math): NaN and infinity behave as in
// PyTorch. Results do not depend on the number of threads: a call is one client's and uses one.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

namespace {

template <int L> struct Lanes;
template <> struct Lanes<16> {
  typedef float F __attribute__((vector_size(64)));
  typedef float U __attribute__((vector_size(64), aligned(4)));
  typedef int32_t I __attribute__((vector_size(64)));
};
template <> struct Lanes<8> {
  typedef float F __attribute__((vector_size(32)));
  typedef float U __attribute__((vector_size(32), aligned(4)));
  typedef int32_t I __attribute__((vector_size(32)));
};
template <int L> using F = typename Lanes<L>::F;
template <int L> using U = typename Lanes<L>::U;
template <int L> using I = typename Lanes<L>::I;

#ifdef __AVX512F__
constexpr int WIDE = 16, REGISTERS = 30; // vectors that may stay in registers, with two to spare
#else
constexpr int WIDE = 8, REGISTERS = 14;
#endif
constexpr int MOST = 16;      // images in a group, at most
constexpr int32_t NOBODY = 4; // no position of the window carries the gradient: ReLU has closed it

template <int L> inline F<L> splat(float value) { return value - F<L>{}; }
template <int L> inline F<L> &at(float *base, int64_t item) { return *reinterpret_cast<F<L> *>(base + item * L); }
template <int L> inline const F<L> &at(const float *base, int64_t item) {
  return *reinterpret_cast<const F<L> *>(base + item * L);
}

// A number that several products share is loaded once: left alone, the compiler reads it from memory for each.
#if defined(__x86_64__) && defined(__AVX512F__)
#define IN_REGISTER(v) __asm__("" : "+v"(v))
#elif defined(__x86_64__) && defined(__AVX__)
#define IN_REGISTER(v) __asm__("" : "+x"(v))
#else
#define IN_REGISTER(v)
#endif

// Aligned memory that starts as zeros.
template <class T> class Buffer {
public:
  explicit Buffer(int64_t count) {
    size_t bytes = (static_cast<size_t>(count) * sizeof(T) + 127) / 64 * 64;
    data_ = static_cast<T *>(std::aligned_alloc(64, bytes));
    if (!data_) throw std::bad_alloc();
    std::memset(data_, 0, bytes);
  }
  Buffer(Buffer &&other) noexcept : data_(other.data_) { other.data_ = nullptr; }
  Buffer(const Buffer &) = delete;
  ~Buffer() { std::free(data_); }
  operator T *() const { return data_; }

private:
  T *data_;
};

struct Layer {
  int64_t conv;               // 1 for a convolution, 0 for a dense layer
  int64_t ic, ih, iw;         // what comes in; a dense layer has ic inputs and ih = iw = 1
  int64_t oc, kh, kw, stride, pad;
  int64_t relu, pool;
  int64_t oh, ow;             // maps of the convolution, before pooling
  int64_t ch, cw;             // maps that go out: pooled, or the same
  int64_t weight, bias;       // where they lie among the parameters
  int64_t row() const { return kw * ic; }
  int64_t pitch() const { return (ic + 15) / 16 * 16; } // of a dense layer's weights
  int64_t inputs() const { return conv ? in_h() * in_w() * ic : pitch(); }
  int64_t in_h() const { return ih + 2 * pad + stride; } // a convolution may look one block past the end
  int64_t in_w() const { return iw + 2 * pad + stride; }
  int64_t cells() const { return ch * cw * oc; }
};

// ---- convolution ------------------------------------------------------------------------------------------------

struct Maps {
  const float *x; // padded input, lanes
  int64_t xw, ic, stride;
  const float *weight; // [channel][row][run]
  const float *bias;   // or null
  int64_t kh, run;
  int64_t oh, ow, oc;
  int64_t ch, cw; // cells: windows of two by two, or pixels
  bool relu;
  float *out; // lanes, `out_w` pixels a row, first pixel at `out_pad`
  int64_t out_w, out_pad;
  int32_t *chosen; // lanes; which position of the window went out, or NOBODY; may be null
};

template <int L> inline void store(const Maps &m, int64_t y, int64_t x, int64_t o, F<L> value, I<L> which) {
  if (m.relu) {
    which = value <= 0.0f ? I<L>{} + NOBODY : which;
    value = value < 0.0f ? F<L>{} : value; // NaN stays
  }
  at<L>(m.out, ((y + m.out_pad) * m.out_w + x + m.out_pad) * m.oc + o) = value;
  if (m.chosen) reinterpret_cast<I<L> *>(m.chosen)[(y * m.cw + x) * m.oc + o] = which;
}

// The first of the largest wins, and NaN over all, as in PyTorch.
template <int L> inline void larger(F<L> &best, I<L> &which, F<L> value, int32_t position) {
  const I<L> wins = (value > best) | (value != value);
  best = wins ? value : best;
  which = wins ? I<L>{} + position : which;
}

// C channels at a block of two by two positions, all in registers.
template <int L, int C, bool POOL> void convolve(const Maps &m, int64_t o) {
  const int64_t rows = POOL ? m.ch : (m.oh + 1) / 2, columns = POOL ? m.cw : (m.ow + 1) / 2;
  const int64_t right = m.stride * m.ic, down = m.stride * m.xw * m.ic, each = m.kh * m.run;
  const float *weight = m.weight + o * each;
  for (int64_t y = 0; y < rows; ++y)
    for (int64_t x = 0; x < columns; ++x) {
      F<L> sum[4][C];
#pragma GCC unroll 8
      for (int j = 0; j < C; ++j)
        sum[0][j] = sum[1][j] = sum[2][j] = sum[3][j] = splat<L>(m.bias ? m.bias[o + j] : 0.0f);
      const float *corner = m.x + (2 * y * down + 2 * x * right) * L;
      for (int64_t ky = 0; ky < m.kh; ++ky) {
        const float *p = corner + ky * m.xw * m.ic * L;
        const float *w = weight + ky * m.run;
        for (int64_t t = 0; t < m.run; ++t, p += L, ++w) {
          F<L> a = at<L>(p, 0), b = at<L>(p, right), c = at<L>(p, down), d = at<L>(p, down + right);
          IN_REGISTER(a);
          IN_REGISTER(b);
          IN_REGISTER(c);
          IN_REGISTER(d);
#pragma GCC unroll 8
          for (int j = 0; j < C; ++j) {
            const F<L> s = splat<L>(w[j * each]);
            sum[0][j] += a * s;
            sum[1][j] += b * s;
            sum[2][j] += c * s;
            sum[3][j] += d * s;
          }
        }
      }
      const bool second_column = 2 * x + 1 < m.ow, second_row = 2 * y + 1 < m.oh;
      if (POOL) {
        I<L> which[C];
#pragma GCC unroll 8
        for (int j = 0; j < C; ++j) {
          which[j] = I<L>{};
          if (second_column) larger<L>(sum[0][j], which[j], sum[1][j], 1);
          if (second_row) larger<L>(sum[0][j], which[j], sum[2][j], 2);
          if (second_column && second_row) larger<L>(sum[0][j], which[j], sum[3][j], 3);
          store<L>(m, y, x, o + j, sum[0][j], which[j]);
        }
      } else {
#pragma GCC unroll 8
        for (int j = 0; j < C; ++j) {
          store<L>(m, 2 * y, 2 * x, o + j, sum[0][j], I<L>{});
          if (second_column) store<L>(m, 2 * y, 2 * x + 1, o + j, sum[1][j], I<L>{});
          if (second_row) store<L>(m, 2 * y + 1, 2 * x, o + j, sum[2][j], I<L>{});
          if (second_column && second_row) store<L>(m, 2 * y + 1, 2 * x + 1, o + j, sum[3][j], I<L>{});
        }
      }
    }
}

template <int L, bool POOL> void convolve_all(const Maps &m) {
  int64_t o = 0;
  for (; o + 6 <= m.oc && L == 16; o += 6) convolve<L, 6, POOL>(m, o);
  for (; o + 4 <= m.oc; o += 4) convolve<L, 4, POOL>(m, o);
  for (; o + 2 <= m.oc; o += 2) convolve<L, 2, POOL>(m, o);
  for (; o < m.oc; ++o) convolve<L, 1, POOL>(m, o);
}

// What a convolution has to answer for, image by image: the delta of each cell (0 where ReLU has closed it), and which
// position of its window it is.
struct Deltas {
  const float *delta;
  const int32_t *chosen;
  int64_t images, pitch;
};

// Where the windows of the four positions begin, from the first one's.
struct Windows {
  int64_t across, line, down, step;
  int64_t offset[5];
  explicit Windows(const Layer &l)
      : across(l.stride * l.ic), line(l.in_w() * l.ic), down(l.stride * line), step(l.pool ? 2 : 1),
        offset{0, across, down, down + across, 0} {}
};

// The gradient of the weights of C channels: for each image and cell, the one window that counts. R rows of V vectors
// of W numbers stay in registers for each channel; what lies beyond a row's run is dropped at the end.
template <int W, int R, int V, int C>
void weight_gradient_of(const Layer &l, int64_t o, const Deltas &s, const float *held, int64_t pitch, float *dw) {
  const Windows windows(l);
  F<W> sum[C][R][V];
#pragma GCC unroll 8
  for (int j = 0; j < C; ++j)
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[j][r][v] = F<W>{};
  for (int64_t n = 0; n < s.images; ++n) {
    const float *delta = s.delta + n * s.pitch + o;
    const int32_t *chosen = s.chosen + n * s.pitch + o;
    for (int64_t y = 0; y < l.ch; ++y) {
      const float *corner = held + n * pitch + windows.step * windows.down * y;
      for (int64_t x = 0; x < l.cw; ++x, delta += l.oc, chosen += l.oc, corner += windows.step * windows.across) {
#pragma GCC unroll 8
        for (int j = 0; j < C; ++j) {
          const float *p = corner + windows.offset[chosen[j]];
          const F<W> g = splat<W>(delta[j]);
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v)
              sum[j][r][v] += g * *reinterpret_cast<const U<W> *>(p + r * windows.line + v * W);
        }
      }
    }
  }
  alignas(64) float whole[C][R][V * W];
#pragma GCC unroll 8
  for (int j = 0; j < C; ++j)
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) *reinterpret_cast<F<W> *>(&whole[j][r][v * W]) = sum[j][r][v];
  for (int j = 0; j < C; ++j)
    for (int r = 0; r < R; ++r)
      for (int64_t t = 0; t < l.row(); ++t) dw[((o + j) * R + r) * l.row() + t] += whole[j][r][t];
}

template <int W, int R, int V>
void weight_gradient(const Layer &l, const Deltas &s, const float *held, int64_t pitch, float *dw) {
  constexpr int most = REGISTERS / (R * V), C = most >= 6 ? 6 : most >= 3 ? 3 : most >= 2 ? 2 : 1;
  int64_t o = 0;
  for (; o + C <= l.oc; o += C) weight_gradient_of<W, R, V, C>(l, o, s, held, pitch, dw);
  for (; o < l.oc; ++o) weight_gradient_of<W, R, V, 1>(l, o, s, held, pitch, dw);
}

// The same for any shape, without keeping the sums in registers.
void weight_gradient_any(const Layer &l, const Deltas &s, const float *held, int64_t pitch, float *dw) {
  const Windows windows(l);
  for (int64_t n = 0; n < s.images; ++n)
    for (int64_t c = 0; c < l.ch * l.cw; ++c)
      for (int64_t o = 0; o < l.oc; ++o) {
        const int64_t cell = n * s.pitch + c * l.oc + o;
        const float *p = held + n * pitch + windows.offset[s.chosen[cell]] +
                         windows.step * (c / l.cw * windows.down + c % l.cw * windows.across);
        for (int64_t r = 0; r < l.kh; ++r)
          for (int64_t t = 0; t < l.row(); ++t)
            dw[(o * l.kh + r) * l.row() + t] += s.delta[cell] * p[r * windows.line + t];
      }
}

using WeightGradient = decltype(&weight_gradient_any);

template <int R> WeightGradient weight_gradient_for(int64_t run) {
  if (run <= 8) return weight_gradient<8, R, 1>;
  if (run <= 16) return weight_gradient<16, R, 1>;
  if (run <= 32) return weight_gradient<16, R, 2>;
  if (run <= 48 && R * 3 <= 20) return weight_gradient<16, R, 3>;
  if (run <= 64 && R * 4 <= 20) return weight_gradient<16, R, 4>;
  return weight_gradient_any;
}

WeightGradient weight_gradient_for(const Layer &l) {
  switch (l.kh) {
  case 1: return weight_gradient_for<1>(l.row());
  case 2: return weight_gradient_for<2>(l.row());
  case 3: return weight_gradient_for<3>(l.row());
  case 4: return weight_gradient_for<4>(l.row());
  case 5: return weight_gradient_for<5>(l.row());
  default: return weight_gradient_any;
  }
}

// The gradient of a pooled convolution's input. All windows of a cell lie in one patch of R by V vectors, which stays
// in registers while the channels add to it. `shifted` holds each channel's kernel with a row of zeros above and
// below, and that twice: at the left of the patch, and one pixel to the right.
template <int W, int R, int V>
void input_gradient(const Layer &l, const Deltas &s, const float *shifted, float *out, int64_t pitch) {
  const int64_t line = l.in_w() * l.ic;
  for (int64_t n = 0; n < s.images; ++n) {
    float *image = out + n * pitch;
    std::memset(image, 0, sizeof(float) * l.inputs());
    for (int64_t y = 0; y < l.ch; ++y)
      for (int64_t x = 0; x < l.cw; ++x) {
        F<W> patch[R][V];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
          for (int v = 0; v < V; ++v) patch[r][v] = F<W>{};
        const int32_t *chosen = s.chosen + n * s.pitch + (y * l.cw + x) * l.oc;
        const float *delta = s.delta + n * s.pitch + (y * l.cw + x) * l.oc;
        for (int64_t o = 0; o < l.oc; ++o) {
          const int32_t q = chosen[o];
          const F<W> g = splat<W>(delta[o]);
          const float *w = shifted + (((q & 1) * l.oc + o) * (R + 1) + 1 - ((q >> 1) & 1)) * (V * W);
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) patch[r][v] += g * *reinterpret_cast<const F<W> *>(w + (r * V + v) * W);
        }
        float *corner = image + 2 * (y * line + x * l.ic);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
          for (int v = 0; v < V; ++v) *reinterpret_cast<U<W> *>(corner + r * line + v * W) += patch[r][v];
      }
  }
}

struct InputGradient {
  decltype(&input_gradient<8, 4, 1>) call;
  int64_t row; // numbers in a row of the patch
};

template <int R> InputGradient input_gradient_for(int64_t run) {
  if (run <= 8) return {input_gradient<8, R, 1>, 8};
  if (run <= 16) return {input_gradient<16, R, 1>, 16};
  if (run <= 32) return {input_gradient<16, R, 2>, 32};
  if (run <= 40 && R * 5 <= 30) return {input_gradient<8, R, 5>, 40};
  if (run <= 48 && R * 3 <= 20) return {input_gradient<16, R, 3>, 48};
  if (run <= 64 && R * 4 <= 20) return {input_gradient<16, R, 4>, 64};
  if (run <= 80 && R * 5 <= 20) return {input_gradient<16, R, 5>, 80};
  return {nullptr, 0};
}

// Null where there is none for this shape.
InputGradient input_gradient_for(const Layer &l) {
  if (!l.pool || l.stride != 1) return {nullptr, 0};
  switch (l.kh) {
  case 3: return input_gradient_for<4>(l.row() + l.ic);
  case 5: return input_gradient_for<6>(l.row() + l.ic);
  default: return {nullptr, 0};
  }
}

// ---- dense ------------------------------------------------------------------------------------------------------

// out[o] = bias[o] + sum over i of weight[o * so + i * si] * x[i], for C neighbouring o.
template <int L, int C>
void combine(const float *x, int64_t count, const float *weight, int64_t so, int64_t si, const float *bias, int64_t o,
             float *out) {
  F<L> sum[C];
  for (int j = 0; j < C; ++j) sum[j] = splat<L>(bias ? bias[o + j] : 0.0f);
  const float *w = weight + o * so;
  for (int64_t i = 0; i < count; ++i, w += si) {
    const F<L> v = at<L>(x, i);
#pragma GCC unroll 8
    for (int j = 0; j < C; ++j) sum[j] += v * splat<L>(w[j * so]);
  }
  for (int j = 0; j < C; ++j) at<L>(out, o + j) = sum[j];
}

template <int L>
void combine_all(const float *x, int64_t count, const float *weight, int64_t so, int64_t si, const float *bias,
                 int64_t outputs, float *out) {
  int64_t o = 0;
  for (; o + 8 <= outputs; o += 8) combine<L, 8>(x, count, weight, so, si, bias, o, out);
  for (; o + 2 <= outputs; o += 2) combine<L, 2>(x, count, weight, so, si, bias, o, out);
  for (; o < outputs; ++o) combine<L, 1>(x, count, weight, so, si, bias, o, out);
}

// dw[o][i] += sum over images of dy[o][n] * x[n][i], for C neighbouring o and V vectors of i.
template <int C, int V>
void outer(const float *dy, int64_t lanes, int64_t images, const float *held, int64_t pitch, int64_t o, int64_t i,
           float *dw) {
  constexpr int W = WIDE;
  F<W> sum[C][V];
  for (int j = 0; j < C; ++j)
    for (int v = 0; v < V; ++v) sum[j][v] = *reinterpret_cast<F<W> *>(dw + (o + j) * pitch + i + v * W);
  for (int64_t n = 0; n < images; ++n) {
    const float *p = held + n * pitch + i;
#pragma GCC unroll 8
    for (int j = 0; j < C; ++j) {
      const F<W> s = splat<W>(dy[(o + j) * lanes + n]);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[j][v] += s * *reinterpret_cast<const F<W> *>(p + v * W);
    }
  }
  for (int j = 0; j < C; ++j)
    for (int v = 0; v < V; ++v) *reinterpret_cast<F<W> *>(dw + (o + j) * pitch + i + v * W) = sum[j][v];
}

template <int C>
void outer_row(const float *dy, int64_t lanes, int64_t images, const float *held, int64_t pitch, int64_t o, float *dw) {
  int64_t i = 0;
  for (; i + 4 * WIDE <= pitch; i += 4 * WIDE) outer<C, 4>(dy, lanes, images, held, pitch, o, i, dw);
  for (; i < pitch; i += WIDE) outer<C, 1>(dy, lanes, images, held, pitch, o, i, dw);
}

// ---- the chain --------------------------------------------------------------------------------------------------

struct Chain {
  std::vector<Layer> layers;
  int64_t parameters;
};

class Workspace {
public:
  explicit Workspace(const Chain &chain) : chain_(chain), parameters(chain.parameters), gradient(chain.parameters) {
    int64_t held = 0, kernel = 0;
    for (size_t i = 0; i < chain.layers.size(); ++i) {
      const Layer &l = chain.layers[i];
      const bool last = i + 1 == chain.layers.size();
      in_.emplace_back(l.inputs() * MOST);
      chosen_.emplace_back(l.conv ? l.cells() * MOST : 0);
      delta_.emplace_back((l.conv ? l.cells() : l.oc + 16) * MOST);
      spread_.emplace_back(l.conv && i ? (l.ih + l.kh) * (l.iw + l.kw) * l.oc * MOST : 0);
      if (last) in_.emplace_back((l.oc + 16) * MOST);
      held = std::max({held, l.inputs(), l.conv ? l.cells() : int64_t{0}});
      kernel = std::max(kernel, l.conv ? 2 * l.oc * (l.kh + 2) * (l.row() + l.ic + 16) : int64_t{0});
    }
    pitch_ = (held + 128) / 16 * 16;
    for (auto *buffer : {&held_, &deltas_, &before_}) buffer->emplace_back(pitch_ * MOST);
    picked_.emplace_back(pitch_ * MOST);
    kernel_.emplace_back(kernel);
  }

  // Puts the images of these samples into the lanes.
  template <int L> void load(const float *images, const int64_t *samples, int64_t count) {
    const Layer &l = chain_.layers[0];
    const int64_t size = l.ic * l.ih * l.iw;
    if (!l.conv) {
      for (int64_t n = 0; n < L; ++n)
        for (int64_t i = 0; i < size; ++i) in_[0][i * L + n] = n < count ? images[samples[n] * size + i] : 0.0f;
      return;
    }
    for (int64_t n = 0; n < L; ++n)
      for (int64_t c = 0; c < l.ic; ++c)
        for (int64_t y = 0; y < l.ih; ++y) {
          float *to = in_[0] + (((y + l.pad) * l.in_w() + l.pad) * l.ic + c) * L + n;
          if (n < count) {
            const float *from = images + samples[n] * size + (c * l.ih + y) * l.iw;
            for (int64_t x = 0; x < l.iw; ++x) to[x * l.ic * L] = from[x];
          } else {
            for (int64_t x = 0; x < l.iw; ++x) to[x * l.ic * L] = 0.0f;
          }
        }
  }

  // Lanes keep their place in the buffers only while the number of lanes does: borders must be zero again.
  template <int L> void settle() {
    if (lanes_ == L) return;
    for (size_t i = 0; i < chain_.layers.size(); ++i) {
      const Layer &l = chain_.layers[i];
      std::memset(in_[i], 0, sizeof(float) * l.inputs() * MOST);
      if (l.conv && i) std::memset(spread_[i], 0, sizeof(float) * (l.ih + l.kh) * (l.iw + l.kw) * l.oc * MOST);
    }
    lanes_ = L;
  }

  template <int L> const float *forward() {
    for (size_t i = 0; i < chain_.layers.size(); ++i) {
      const Layer &l = chain_.layers[i];
      const Layer *next = i + 1 < chain_.layers.size() ? &chain_.layers[i + 1] : nullptr;
      float *out = in_[i + 1];
      if (!l.conv) {
        combine_all<L>(in_[i], l.ic, parameters + l.weight, l.pitch(), 1, parameters + l.bias, l.oc, out);
        if (l.relu)
          for (int64_t o = 0; o < l.oc; ++o) at<L>(out, o) = at<L>(out, o) < 0.0f ? F<L>{} : at<L>(out, o);
        continue;
      }
      Maps m{in_[i], l.in_w(), l.ic, l.stride, parameters + l.weight, parameters + l.bias, l.kh, l.row(),
             l.oh, l.ow, l.oc, l.ch, l.cw, l.relu != 0, out, l.cw, 0, chosen_[i]};
      if (next && next->conv) {
        m.out_w = next->in_w();
        m.out_pad = next->pad;
      }
      if (l.pool) convolve_all<L, true>(m);
      else convolve_all<L, false>(m);
    }
    return in_[chain_.layers.size()];
  }

  // The gradient of the mean cross-entropy of `batch` samples, as far as the `count` in the lanes go.
  template <int L> void backward(const int64_t *labels, const int64_t *samples, int64_t count, int64_t batch) {
    const size_t last = chain_.layers.size() - 1;
    loss_delta<L>(labels, samples, count, batch);
    in_lanes_ = true;
    for (size_t i = last + 1; i-- > 0;) {
      const Layer &l = chain_.layers[i];
      if (l.conv) backward_conv<L>(i, count);
      else backward_dense<L>(i, count);
    }
  }

private:
  template <int L> void loss_delta(const int64_t *labels, const int64_t *samples, int64_t count, int64_t batch) {
    const size_t last = chain_.layers.size() - 1;
    const int64_t classes = chain_.layers[last].oc;
    const float *score = in_[last + 1];
    float *delta = delta_[last];
    for (int64_t n = 0; n < L; ++n) {
      if (n >= count) {
        for (int64_t o = 0; o < classes; ++o) delta[o * L + n] = 0.0f;
        continue;
      }
      float top = score[n], total = 0.0f;
      for (int64_t o = 1; o < classes; ++o) top = score[o * L + n] > top ? score[o * L + n] : top;
      for (int64_t o = 0; o < classes; ++o) total += delta[o * L + n] = std::exp(score[o * L + n] - top);
      const int64_t label = labels[samples[n]];
      for (int64_t o = 0; o < classes; ++o)
        delta[o * L + n] = (delta[o * L + n] / total - (o == label ? 1.0f : 0.0f)) / static_cast<float>(batch);
    }
  }

  // From lanes to images: each image's numbers side by side.
  template <int L, class T> static void part(const T *from, int64_t numbers, int64_t images, T *to, int64_t pitch) {
    for (int64_t first = 0; first < numbers; first += 16) {
      const int64_t here = std::min<int64_t>(16, numbers - first);
      for (int64_t n = 0; n < images; ++n)
        for (int64_t r = 0; r < here; ++r) to[n * pitch + first + r] = from[(first + r) * L + n];
    }
  }

  template <int L> void backward_dense(size_t i, int64_t count) {
    const Layer &l = chain_.layers[i];
    float *delta = delta_[i];
    if (l.relu)
      for (int64_t o = 0; o < l.oc; ++o)
        at<L>(delta, o) = at<L>(in_[i + 1], o) <= 0.0f ? F<L>{} : at<L>(delta, o);
    part<L, float>(in_[i], l.pitch(), count, held_[0], l.pitch());
    float *dw = gradient + l.weight, *db = gradient + l.bias;
    int64_t o = 0;
    for (; o + 4 <= l.oc; o += 4) outer_row<4>(delta, L, count, held_[0], l.pitch(), o, dw);
    for (; o < l.oc; ++o) outer_row<1>(delta, L, count, held_[0], l.pitch(), o, dw);
    for (o = 0; o < l.oc; ++o)
      for (int64_t n = 0; n < count; ++n) db[o] += delta[o * L + n];
    if (i) combine_all<L>(delta, l.oc, parameters + l.weight, 1, l.pitch(), nullptr, l.ic, delta_[i - 1]);
    in_lanes_ = true;
  }

  template <int L> void backward_conv(size_t i, int64_t count) {
    const Layer &l = chain_.layers[i];
    part<L, float>(in_[i], l.inputs(), count, held_[0], pitch_);
    part<L, int32_t>(chosen_[i], l.cells(), count, picked_[0], pitch_);
    if (in_lanes_) part<L, float>(delta_[i], l.cells(), count, deltas_[0], pitch_);
    else unframe(i, count);
    float *bias = gradient + l.bias;
    for (int64_t n = 0; n < count; ++n) {
      float *delta = deltas_[0] + n * pitch_;
      const int32_t *chosen = picked_[0] + n * pitch_;
      for (int64_t c = 0; c < l.cells(); ++c) delta[c] = chosen[c] == NOBODY ? 0.0f : delta[c];
      for (int64_t c = 0; c < l.ch * l.cw; ++c)
        for (int64_t o = 0; o < l.oc; ++o) bias[o] += delta[c * l.oc + o];
    }
    const Deltas s{deltas_[0], picked_[0], count, pitch_};
    weight_gradient_for(l)(l, s, held_[0], pitch_, gradient + l.weight);
    if (!i) return;
    const InputGradient sparse = input_gradient_for(l);
    in_lanes_ = !sparse.call;
    if (sparse.call) {
      shift(l, sparse.row);
      sparse.call(l, s, kernel_[0], before_[0], pitch_);
    } else {
      join<L>(deltas_[0], l.cells(), count, delta_[i]);
      dense_input_gradient<L>(i);
    }
  }

  // The layer after has left the deltas of its input within the border of its maps.
  void unframe(size_t i, int64_t count) {
    const Layer &l = chain_.layers[i], &next = chain_.layers[i + 1];
    const int64_t row = l.cw * l.oc;
    for (int64_t n = 0; n < count; ++n)
      for (int64_t y = 0; y < l.ch; ++y)
        std::memcpy(deltas_[0] + n * pitch_ + y * row,
                    before_[0] + n * pitch_ + ((y + next.pad) * next.in_w() + next.pad) * l.oc, sizeof(float) * row);
  }

  // From images back to lanes.
  template <int L> void join(const float *from, int64_t numbers, int64_t images, float *to) const {
    for (int64_t i = 0; i < numbers; ++i)
      for (int64_t n = 0; n < L; ++n) to[i * L + n] = n < images ? from[n * pitch_ + i] : 0.0f;
  }

  // What the layer before has to answer for: a convolution of the deltas, spread out again, with the kernel turned.
  template <int L> void dense_input_gradient(size_t i) {
    const Layer &l = chain_.layers[i];
    const I<L> *chosen = reinterpret_cast<const I<L> *>(static_cast<int32_t *>(chosen_[i]));
    const int64_t border = l.kh - 1 - l.pad, width = l.iw + l.kw;
    for (int64_t y = 0; y < l.ch; ++y)
      for (int64_t x = 0; x < l.cw; ++x)
        for (int64_t o = 0; o < l.oc; ++o) {
          const int64_t cell = (y * l.cw + x) * l.oc + o;
          const F<L> g = at<L>(delta_[i], cell);
          for (int q = 0; q < (l.pool ? 4 : 1); ++q) {
            const int64_t py = (l.pool ? 2 * y : y) + q / 2, px = (l.pool ? 2 * x : x) + q % 2;
            if (py >= l.oh || px >= l.ow) continue;
            at<L>(spread_[i], ((py * l.stride + border) * width + px * l.stride + border) * l.oc + o) =
                chosen[cell] == q ? g : F<L>{};
          }
        }
    Maps m{spread_[i], width, l.oc, 1, kernel_[0], nullptr, l.kh, l.kw * l.oc, l.ih, l.iw, l.ic, l.ih, l.iw,
           false, delta_[i - 1], l.iw, 0, nullptr};
    turn(l);
    convolve_all<L, false>(m);
  }

  // The kernel as `input_gradient` reads it.
  void shift(const Layer &l, int64_t row) {
    const float *w = parameters + l.weight;
    std::memset(kernel_[0], 0, sizeof(float) * 2 * l.oc * (l.kh + 2) * row);
    for (int64_t right = 0; right < 2; ++right)
      for (int64_t o = 0; o < l.oc; ++o)
        for (int64_t y = 0; y < l.kh; ++y)
          std::memcpy(kernel_[0] + ((right * l.oc + o) * (l.kh + 2) + y + 1) * row + right * l.ic,
                      w + (o * l.kh + y) * l.row(), sizeof(float) * l.row());
  }

  // The kernel by input channel, turned by half a turn.
  void turn(const Layer &l) {
    const float *w = parameters + l.weight;
    for (int64_t o = 0; o < l.oc; ++o)
      for (int64_t y = 0; y < l.kh; ++y)
        for (int64_t x = 0; x < l.kw; ++x)
          for (int64_t c = 0; c < l.ic; ++c)
            kernel_[0][((c * l.kh + l.kh - 1 - y) * l.kw + l.kw - 1 - x) * l.oc + o] =
                w[(o * l.kh + y) * l.row() + x * l.ic + c];
  }

  const Chain &chain_;
  int lanes_ = 0;
  bool in_lanes_ = true; // whether the deltas that come from the layer after are in lanes, or image by image
  int64_t pitch_ = 0;    // from image to image
  std::vector<Buffer<float>> in_, delta_, spread_, held_, deltas_, before_, kernel_;
  std::vector<Buffer<int32_t>> chosen_, picked_;

public:
  Buffer<float> parameters, gradient;
};

template <int L> void accumulate(Workspace &w, const float *images, const int64_t *labels, const int64_t *samples,
                                 int64_t count, int64_t batch) {
  w.settle<L>();
  w.load<L>(images, samples, count);
  w.forward<L>();
  w.backward<L>(labels, samples, count, batch);
}

template <int L> void score(Workspace &w, const float *images, const int64_t *samples, int64_t count, int64_t classes,
                            float *out) {
  w.settle<L>();
  w.load<L>(images, samples, count);
  const float *scores = w.forward<L>();
  for (int64_t n = 0; n < count; ++n)
    for (int64_t o = 0; o < classes; ++o) out[n * classes + o] = scores[o * L + n];
}

int64_t group_of(int64_t left) { return left > 8 && WIDE == 16 ? std::min<int64_t>(left, 16) : std::min<int64_t>(left, 8); }

} // namespace

extern "C" {

// `fields` holds the members of each Layer in the order of their declaration.
void *chain_create(const int64_t *fields, int64_t layers, int64_t parameters) {
  static_assert(sizeof(Layer) == 17 * sizeof(int64_t), "a layer is its fields");
  Chain *chain = new (std::nothrow) Chain;
  if (!chain) return nullptr;
  chain->layers.resize(layers);
  std::memcpy(chain->layers.data(), fields, layers * sizeof(Layer));
  chain->parameters = parameters;
  return chain;
}

void chain_destroy(void *chain) { delete static_cast<Chain *>(chain); }

// `offsets[i]` says where number i of the model lies among the chain's parameters. `order` holds `steps` batches, one
// after the other, `sizes` how many samples each has. Returns 0, or 1 when memory ran out.
int chain_train(const void *handle, const float *model, const int64_t *offsets, int64_t numbers, const float *images,
                const int64_t *labels, const int64_t *order, const int64_t *sizes, int64_t steps, float rate,
                float momentum, float decay, float *update) try {
  const Chain &chain = *static_cast<const Chain *>(handle);
  Workspace w(chain);
  Buffer<float> velocity(momentum != 0.0f ? chain.parameters : 0);
  for (int64_t i = 0; i < numbers; ++i) w.parameters[offsets[i]] = model[i];
  for (int64_t step = 0; step < steps; ++step) {
    std::memset(w.gradient, 0, sizeof(float) * chain.parameters);
    for (int64_t done = 0; done < sizes[step];) {
      const int64_t count = group_of(sizes[step] - done);
      if (count > 8) accumulate<WIDE>(w, images, labels, order, count, sizes[step]);
      else accumulate<8>(w, images, labels, order, count, sizes[step]);
      done += count;
      order += count;
    }
    float *p = w.parameters, *g = w.gradient, *v = velocity;
    for (int64_t i = 0; i < chain.parameters; ++i) {
      float pushed = decay != 0.0f ? g[i] + decay * p[i] : g[i];
      if (momentum != 0.0f) v[i] = pushed = step ? momentum * v[i] + pushed : pushed;
      p[i] -= rate * pushed;
    }
  }
  for (int64_t i = 0; i < numbers; ++i) update[i] = w.parameters[offsets[i]] - model[i];
  return 0;
} catch (const std::bad_alloc &) {
  return 1;
}

// The scores of `count` images, one row each.
int chain_score(const void *handle, const float *model, const int64_t *offsets, int64_t numbers, const float *images,
                int64_t first, int64_t count, float *out) try {
  const Chain &chain = *static_cast<const Chain *>(handle);
  const int64_t classes = chain.layers.back().oc;
  Workspace w(chain);
  for (int64_t i = 0; i < numbers; ++i) w.parameters[offsets[i]] = model[i];
  int64_t samples[MOST];
  for (int64_t done = 0; done < count;) {
    const int64_t here = group_of(count - done);
    for (int64_t n = 0; n < here; ++n) samples[n] = first + done + n;
    if (here > 8) score<WIDE>(w, images, samples, here, classes, out + done * classes);
    else score<8>(w, images, samples, here, classes, out + done * classes);
    done += here;
  }
  return 0;
} catch (const std::bad_alloc &) {
  return 1;
}
}
