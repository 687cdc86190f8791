// cuda.conv_depthwise.v1 on sm_80: tile 2x4, 4 channels read and 4 written at a time
// Geometry { grid: [1274, 1, 1], block: 120, shared: 0 }
// Made by `UPDATE=1 cargo test -p fuseplan-cuda --test kernels`, which `cargo test` compares with what is made now.


#define DEVICE __device__ __forceinline__
#define KERNEL(...) \
  extern "C" __global__ void __launch_bounds__(__VA_ARGS__) CLUSTER fuseplan_kernel(const __grid_constant__ Args args)
DEVICE void launch_next_grid() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
DEVICE void wait_for_grids() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
DEVICE void wait_for_grids(int known) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{\n.reg .pred p;\nsetp.ge.s32 p, %0, 0;\n@p griddepcontrol.wait;\n}" ::"r"(known) : "memory");
#endif
}
DEVICE void begin_grid() {
  launch_next_grid();
  wait_for_grids();
}
DEVICE void prefetch_sector(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }
template <class Hint> DEVICE void begin_grid(Hint hint) {
  launch_next_grid();
#if __CUDA_ARCH__ >= 900
  hint();
#endif
  wait_for_grids();
}
#define CLUSTER
#if __CUDA_ARCH__ < 800
#define AT_ONCE(blocks, shared) ((blocks) < 2 ? (blocks) : 2)
#else
#define AT_ONCE(blocks, shared) (blocks)
#endif
#define UNROLLED(rounds, products) (rounds)
#define WIDE_ROUNDS 4
#define DYNAMIC_SHARED(type, name) extern __shared__ __align__(128) type name[]

template <class Args> DEVICE const Args& reread(const Args& args) { return args; }

DEVICE float float_of_bits(unsigned v) { return __uint_as_float(v); }
DEVICE unsigned bits_of(float v) { return __float_as_uint(v); }

struct f16 {
  unsigned short bits;
};
struct bf16 {
  unsigned short bits;
};

DEVICE float to_float(f16 v) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v.bits));
  return r;
}
DEVICE float to_float(bf16 v) { return __uint_as_float((unsigned)v.bits << 16); }
DEVICE f16 f16_from_float(float v) {
  f16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
  return r;
}
DEVICE bf16 bf16_from_float(float v) {
  bf16 r;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
#else
  const unsigned u = __float_as_uint(v);
  r.bits = v != v ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
#endif
  return r;
}

struct ConvForward { enum { weights }; };
struct BiasForward { enum { bias }; };
struct PReluForward { enum { slope }; };
struct BatchNormInference { enum { scale, bias, mean, variance }; };
struct BatchNormForward { enum { scale, bias, saved_mean, saved_inv_variance, running_mean, running_variance }; };
struct BatchNormBackward { enum { x, scale, bias, saved_mean, saved_inv_variance, scale_diff, bias_diff }; };
struct ActivationBackward { enum { y }; };
typedef f16 T;
typedef int idx;
typedef unsigned int Unsigned;
struct alignas(8) Size {
  idx value;
  DEVICE operator idx() const { return value; }
};
struct Divisor {
  Size value;
  unsigned multiplier, shift;
  DEVICE idx divide(idx n) const {
    return sizeof(idx) == 4 ? (idx)((unsigned long long)(unsigned)n * multiplier >> shift) : n / value;
  }
  DEVICE operator idx() const { return value; }
};
template <class N> DEVICE idx operator/(N n, const Divisor& d) { return d.divide(n); }
template <class N> DEVICE idx operator%(N n, const Divisor& d) { return n - d.divide(n) * d.value; }
constexpr int CHANNELS_LAST{1};
constexpr int V_MAX{4};
constexpr int X_VECTOR{1};
constexpr int Y_VECTOR{1};
constexpr int TILE_H{2};
constexpr int TILE_W{4};
constexpr int STEP_H{1};
constexpr int STEP_W{1};
constexpr int TAPS_H{3};
constexpr int TAPS_W{3};
constexpr int PAD_H{0};
constexpr int PAD_W{0};
constexpr int STRIDE_H{2};
constexpr int STRIDE_W{2};
constexpr int DILATION_H{1};
constexpr int DILATION_W{1};
constexpr int MULTIPLIER{1};
constexpr int ROWS_UNROLLED{35};
constexpr int CHANNEL_THREADS{12};
constexpr int STRIPS{1};
constexpr int ROWS{2};
constexpr int PLANES{5};
constexpr int THREADS{120};
constexpr int BLOCKS{3};
constexpr int X_C{1};
constexpr int X_W{96};
constexpr int Y_C{1};
constexpr int Y_W{96};
constexpr int OPS = 1;
constexpr int POINTERS = 1;
struct Shape {
  Size out_h;
  Size out_w;
  Size x_n;
  Size x_h;
  Size y_n;
  Size y_h;
  Size w_k;
  Size w_h;
  Size w_w;
  Size in_h;
  Size in_w;
  Size images;
  Size out_k;
  Size image_step;
  Divisor block_columns;
  Divisor block_strips;
  Divisor block_rows;
};


template <class E, int V> struct alignas(sizeof(E) * V) Vector {
  E at[V];
};

DEVICE float to_float(float v) { return v; }
template <class E> DEVICE E from_float(float v);
template <> DEVICE float from_float<float>(float v) { return v; }
template <> DEVICE f16 from_float<f16>(float v) { return f16_from_float(v); }
template <> DEVICE bf16 from_float<bf16>(float v) { return bf16_from_float(v); }

DEVICE float part(unsigned word, bool, float) { return float_of_bits(word); }
DEVICE float part(unsigned word, bool high, f16) {
  const f16 element = {(unsigned short)(high ? word >> 16 : word)};
  return to_float(element);
}
DEVICE float part(unsigned word, bool high, bf16) { return float_of_bits(high ? word & 0xffff0000u : word << 16); }
DEVICE unsigned bits_of(f16 v) { return v.bits; }
DEVICE unsigned bits_of(bf16 v) { return v.bits; }

template <int V, bool WORDS = (sizeof(T) * V >= 4)> struct alignas(sizeof(T) * V) Packed {
  static constexpr int A_WORD = 4 / (int)sizeof(T);
  unsigned words[V / A_WORD];
  DEVICE float at(int i) const { return part(words[i / A_WORD], i % A_WORD != 0, T()); }
  DEVICE void set(int i, T v) { words[i / A_WORD] |= bits_of(v) << 16 * (i % A_WORD); }
};
template <int V> struct Packed<V, false> {
  T element;
  DEVICE float at(int) const { return to_float(element); }
  DEVICE void set(int, T v) { element = v; }
};

struct Op {
  const void* p[POINTERS];
  float alpha, a, b, c;
};

struct Args {
  const void* x;
  void* y;
  float beta;
  float reserved;
  Op op[OPS];
  Shape shape;
};

DEVICE bool is_plain(const Args& args) {
  bool plain = args.beta == 0.f;
#pragma unroll
  for (int i = 0; i < OPS; i++) plain = plain && args.op[i].alpha == 1.f;
  return plain;
}

DEVICE void make_plain(Args& args) {
  args.beta = 0.f;
#pragma unroll
  for (int i = 0; i < OPS; i++) args.op[i].alpha = 1.f;
}

struct Coord {
  idx y, n, k, p;
};

DEVICE bool is_aligned(const void* p, int bytes) {
  return bytes <= (int)sizeof(T) || ((unsigned long long)p & (bytes - 1)) == 0;
}

template <int V> DEVICE void write_vector(const Args& args, idx at, float* v) {
  Vector<T, V>* y = (Vector<T, V>*)((T*)args.y + at);
  if (__builtin_expect(args.beta != 0.f, 0)) {
    const Vector<T, V> prior = *y;
#pragma unroll
    for (int i = 0; i < V; i++) v[i] = fmaf(args.beta, to_float(prior.at[i]), v[i]);
  }
  Vector<T, V> result;
#pragma unroll
  for (int i = 0; i < V; i++) result.at[i] = from_float<T>(v[i]);
  *y = result;
}

template <class E> DEVICE float param(const Op& o, int which, idx i) { return to_float(((const E*)o.p[which])[i]); }
#define KEEP_ORDER asm volatile("" ::: "memory")

struct Norm {
  float scale, bias, mean, variance, epsilon;
};
template <class E> DEVICE Norm norm_of(const Op& o, idx i) {
  typedef BatchNormInference In;
  return {param<E>(o, In::scale, i), param<E>(o, In::bias, i), param<E>(o, In::mean, i), param<E>(o, In::variance, i),
          o.a};
}
DEVICE float factor_of(const Norm& norm) { return norm.scale / sqrtf(norm.variance + norm.epsilon); }
DEVICE float batch_norm(float x, float mean, float factor, float bias) { return fmaf(x - mean, factor, bias); }
template <int V> DEVICE Packed<V> elements(const Op& o, idx i) {
  const T* from = (const T*)o.p[0] + i;
  if (is_aligned(o.p[0], V * (int)sizeof(T))) return *(const Packed<V>*)from;
  Packed<V> v = {};
#pragma unroll
  for (int e = 0; e < V; e++) v.set(e, from[e]);
  return v;
}


constexpr float LEAST = sizeof(T) == 4 ? 1e-6f : 1e-4f;
DEVICE float reciprocal(float b) {
  const float r = __fdividef(1.f, b);
  return fmaf(r, fmaf(-b, r, 1.f), r);
}
DEVICE float logistic(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0.f ? e : 1.f) * reciprocal(1.f + e);
}
DEVICE float act_pasthru(float x, const Op&) { return x; }
DEVICE float act_logistic(float x, const Op&) { return logistic(x); }
DEVICE float act_tanh(float x, const Op& o) { return o.b * tanhf(o.a * x); }
DEVICE float act_relu(float x, const Op&) { return x > 0.f ? x : 0.f; }
DEVICE float act_softrelu(float x, const Op&) { return fmaxf(x, 0.f) + log1pf(expf(-fabsf(x))); }
DEVICE float act_abs(float x, const Op&) { return fabsf(x); }
DEVICE float act_power(float x, const Op& o) {
  const float base = fmaf(o.b, x, o.a);
  return base <= LEAST ? 0.f : powf(base, o.c);
}
DEVICE float act_clippedrelu(float x, const Op& o) { return fminf(o.a, fmaxf(x, 0.f)); }
DEVICE float act_leakyrelu(float x, const Op& o) { return x > 0.f ? x : o.a * x; }
DEVICE float act_elu(float x, const Op& o) { return x > 0.f ? x : o.a * expm1f(x); }
DEVICE float act_clamp(float x, const Op& o) { return fmaxf(o.a, fminf(o.b, x)); }

DEVICE float prelu(float x, float slope) { return x > 0.f ? x : slope * x; }

DEVICE float times_logistic(float x, float v) {
  const float e = expf(-fabsf(v));
  return (x > 0.f ? x : x * e) * reciprocal(1.f + e);
}
DEVICE float gelu_argument(float x) { return x * fmaf(0.071354816f * x, x, 1.5957691f); }
DEVICE float act_silu(float x, const Op&) { return times_logistic(x, x); }
DEVICE float act_hardsigmoid(float x, const Op&) {
  const float v = x + 3.f;
  return (v < 0.f ? 0.f : v > 6.f ? 6.f : v) * (1.f / 6.f);
}
DEVICE float act_hardswish(float x, const Op& o) { return x * act_hardsigmoid(x, o); }
DEVICE float normal_cdf(float x) {
  if (sizeof(T) == 4) return normcdff(x);
  const float t = fabsf(x), r = __fdividef(1.f, t + 2.5f);
  float p = fmaf(10.728068f, r, -20.928404f);
  p = fmaf(p, r, 11.318586f);
  p = fmaf(p, r, 0.65369183f);
  p = fmaf(p, r, 1.1361965f);
  p = fmaf(p, r, 0.39210796f);
  p = fmaf(p, r, 1.3377491e-4f);
  const float tail = p * __expf(-0.5f * t * t);
  return x > 0.f ? 1.f - tail : tail;
}
DEVICE float act_gelu(float x, const Op&) { return x * normal_cdf(x); }
DEVICE float act_gelutanh(float x, const Op&) { return times_logistic(x, gelu_argument(x)); }
DEVICE float act_mish(float x, const Op&) {
  const float w = expf(-fabsf(x)), above = fmaf(2.f, w, 1.f), below = w * (w + 2.f);
  return x * (x > 0.f ? above : below) * reciprocal(x > 0.f ? fmaf(2.f * w, w, above) : below + 2.f);
}

DEVICE float grad_pasthru(float, float, float dy, const Op&) { return dy; }
DEVICE float grad_logistic(float, float y, float dy, const Op&) { return dy * y * (1.f - y); }
DEVICE float grad_tanh(float, float y, float dy, const Op& o) {
  return fabsf(o.b) <= LEAST ? 0.f : dy * o.a * (o.b - y * y / o.b);
}
DEVICE float grad_relu(float x, float, float dy, const Op&) { return x > 0.f ? dy : 0.f; }
DEVICE float grad_softrelu(float x, float, float dy, const Op&) {
  const float e = expf(fminf(x, 50.f));
  return dy * e / (1.f + e);
}
DEVICE float grad_abs(float x, float, float dy, const Op&) { return x > 0.f ? dy : -dy; }
DEVICE float grad_power(float x, float y, float, const Op& o) {
  const float base = fmaf(o.b, x, o.a);
  return base <= LEAST ? 0.f : o.b * o.c * y / base;
}
DEVICE float grad_clippedrelu(float x, float, float dy, const Op& o) { return x > 0.f && x <= o.a ? dy : 0.f; }
DEVICE float grad_leakyrelu(float x, float, float dy, const Op& o) { return x > 0.f ? dy : o.a * dy; }
DEVICE float grad_elu(float x, float y, float dy, const Op& o) { return x > 0.f ? dy : dy * (y + o.a); }
DEVICE float grad_clamp(float x, float, float dy, const Op& o) { return x > o.a && x <= o.b ? dy : 0.f; }
DEVICE float grad_silu(float x, float, float dy, const Op&) {
  const float s = logistic(x);
  return dy * s * fmaf(x, 1.f - s, 1.f);
}
DEVICE float grad_hardswish(float x, float, float dy, const Op&) {
  return x <= -3.f ? 0.f : x < 3.f ? dy * fmaf(x, 1.f / 3.f, 0.5f) : dy;
}
DEVICE float grad_hardsigmoid(float x, float, float dy, const Op&) {
  return x > -3.f && x < 3.f ? dy * (1.f / 6.f) : 0.f;
}
DEVICE float grad_gelu(float x, float, float dy, const Op&) {
  return dy * fmaf(x, 0.39894228f * expf(-0.5f * x * x), normcdff(x));
}
DEVICE float grad_gelutanh(float x, float, float dy, const Op&) {
  const float s = logistic(gelu_argument(x)), near = fmaxf(-16.f, fminf(16.f, x));
  const float slope = fmaf(0.21406445f * near, near, 1.5957691f);
  return dy * fmaf(x * s * (1.f - s), slope, s);
}
DEVICE float grad_mish(float x, float, float dy, const Op& o) {
  const float t = tanhf(act_softrelu(x, o));
  return dy * fmaf(x * logistic(x), 1.f - t * t, t);
}

#define READS_ELEMENTS false

struct Numbers {
};

struct Channel {
};

DEVICE Numbers numbers_of(const Args& args, idx k) {
  Numbers n;
  return n;
}

DEVICE Channel channel_of(const Args& args, const Numbers& n) {
  Channel c;
  return c;
}

DEVICE Channel channel_of(const Args& args, idx k) {
  const Numbers n = numbers_of(args, k);
  KEEP_ORDER;
  return channel_of(args, n);
}

DEVICE Channel one_of(bool first, const Channel& a, const Channel& b) {
  Channel c;
  return c;
}

DEVICE float affine(const Args& args, const Channel& c, float v) {
  return v * (args.op[0].alpha);
}

template <int V> struct Residuals {
};

template <int V> DEVICE Residuals<V> residuals_of(const Args& args, idx y) {
  Residuals<V> r;
  return r;
}

template <class F> DEVICE void each_residual(const Args& args, F visit) {
}

template <int V>
DEVICE float chain(const Args& args, const Channel& c, const Residuals<V>& r, int e, float v, const Coord& at) {
  return v;
}


DEVICE void finish(const Args& args, const Channel& channel, float v, const Coord& at) {
  T* y = (T*)args.y + at.y;
  v = chain(args, channel, residuals_of<1>(args, at.y), 0, affine(args, channel, v), at);
  if (args.beta != 0.f) v = fmaf(args.beta, to_float(*y), v);
  *y = from_float<T>(v);
}

template <int V, bool ALONG_K>
DEVICE void chain_vector(const Args& args, const Channel* channel, const Residuals<V>& residuals, const float* v,
                         Coord at, float* out) {
#pragma unroll
  for (int i = 0; i < V; i++) {
    out[i] = chain(args, channel[ALONG_K ? i : 0], residuals, i, v[i], at);
    at.y++;
    if (ALONG_K) at.k++;
    else at.p++;
  }
}

template <int V, bool ALONG_K>
DEVICE void finish_to(const Args& args, const Channel* channel, const Residuals<V>& residuals, const float* v,
                      const Coord& at, float* out) {
#pragma unroll
  for (int i = 0; i < V; i++) out[i] = affine(args, channel[ALONG_K ? i : 0], v[i]);
  chain_vector<V, ALONG_K>(args, channel, residuals, out, at, out);
}

template <int V, bool ALONG_K>
DEVICE void finish_to(const Args& args, const Channel* channel, const float* v, const Coord& at, float* out) {
#pragma unroll
  for (int i = 0; i < V; i++) out[i] = affine(args, channel[ALONG_K ? i : 0], v[i]);
  chain_vector<V, ALONG_K>(args, channel, residuals_of<V>(args, at.y), out, at, out);
}

template <int V, bool ALONG_K>
DEVICE void finish_vector(const Args& args, const Channel* channel, const Residuals<V>& residuals, const float* v,
                          const Coord& at) {
  float out[V];
  finish_to<V, ALONG_K>(args, channel, residuals, v, at, out);
  write_vector<V>(args, at.y, out);
}
template <int V, bool ALONG_K>
DEVICE void finish_vector(const Args& args, const Channel* channel, const float* v, const Coord& at) {
  float out[V];
  finish_to<V, ALONG_K>(args, channel, v, at, out);
  write_vector<V>(args, at.y, out);
}


template <int COUNT, int LANES, int MOST, class Read, class Write>
DEVICE void bring(const Read& read, const Write& write) {
  constexpr int EACH = (COUNT + LANES - 1) / LANES, TIMES = (EACH + MOST - 1) / MOST,
                TOGETHER = (EACH + TIMES - 1) / TIMES;
#pragma unroll 1
  for (int first = threadIdx.x; first < COUNT; first += LANES * TOGETHER) {
    decltype(read(0)) v[TOGETHER];
#pragma unroll
    for (int u = 0; u < TOGETHER; u++) v[u] = read(first + u * LANES < COUNT ? first + u * LANES : COUNT - 1);
#pragma unroll
    for (int u = 0; u < TOGETHER; u++)
      if (first + u * LANES < COUNT) write(first + u * LANES, v[u]);
  }
}


constexpr int FILTERS = CHANNELS_LAST ? CHANNEL_THREADS * V_MAX : PLANES;
constexpr int TAPS = TAPS_H * TAPS_W;
DEVICE constexpr int channels_of(int filters) { return filters > MULTIPLIER ? filters / MULTIPLIER : 1; }
constexpr int IN_ROWS = ((TILE_H - 1) * STRIDE_H + (TAPS_H - 1) * DILATION_H) / STEP_H + 1;
constexpr int IN_COLUMNS = ((TILE_W - 1) * STRIDE_W + (TAPS_W - 1) * DILATION_W) / STEP_W + 1;

struct Spot {
  idx n, h, w, c, k;
  int filter;
};

template <int N> DEVICE void load_floats(const float* from, float* v) {
  constexpr int PART = N < 4 ? N : 4;
#pragma unroll
  for (int i = 0; i < N; i += PART) {
    const Vector<float, PART> part = *(const Vector<float, PART>*)(from + i);
#pragma unroll
    for (int j = 0; j < PART; j++) v[i + j] = part.at[j];
  }
}

template <int V, int X> struct Columns {
  Packed<V> each[IN_COLUMNS];
  Packed<X> core[IN_COLUMNS / X + 1];

  static DEVICE constexpr bool in_core(int c) { return X > 1 && c >= PAD_W && c - (c - PAD_W) % X + X <= IN_COLUMNS; }
  DEVICE void load(const Shape& s, const T* row, idx first, bool inside) {
#pragma unroll
    for (int c = 0; c < IN_COLUMNS; c++) {
      const bool there = inside && (Unsigned)(first + c * STEP_W) < (Unsigned)s.in_w;
      if (in_core(c)) {
        if ((c - PAD_W) % X != 0) continue;
        core[(c - PAD_W) / X] = {};
        if (there) core[(c - PAD_W) / X] = *(const Packed<X>*)(row + c);
      } else {
        each[c] = {};
        if (there) each[c] = *(const Packed<V>*)(row + (idx)c * STEP_W * X_W);
      }
    }
  }
  DEVICE void widen(float* v) const {
#pragma unroll
    for (int c = 0; c < IN_COLUMNS; c++) {
#pragma unroll
      for (int i = 0; i < V; i++) v[c * V + i] = in_core(c) ? core[(c - PAD_W) / X].at((c - PAD_W) % X) : each[c].at(i);
    }
  }
};

template <int V, int Y>
DEVICE void finish_row(const Args& args, const Spot& spot, const Channel* channel, int th, float (&acc)[TILE_W][V]) {
  const Shape& s = args.shape;
  const idx h = spot.h + th;
  if (h >= s.out_h) return;
#pragma unroll
  for (int tw = 0; tw < TILE_W; tw += Y) {
    const idx w = spot.w + tw;
    if (w >= s.out_w) break;
    const Coord at = {spot.n * s.y_n + spot.k * Y_C + h * s.y_h + w * Y_W, spot.n, spot.k, h * s.out_w + w};
    if (CHANNELS_LAST) {
      finish_vector<V, true>(args, channel, acc[tw], at);
    } else {
      float v[Y];
#pragma unroll
      for (int i = 0; i < Y; i++) v[i] = acc[tw + i][0];
      finish_vector<Y, false>(args, channel, v, at);
    }
  }
}

template <int V, int X, int Y, int UNROLL>
DEVICE void tile(const Args& args, const Spot& spot, const float* weights, const Channel* table) {
  constexpr int I = channels_of(V);
  const Shape& s = args.shape;
  const idx first_h = spot.h * STRIDE_H - PAD_H, first_w = spot.w * STRIDE_W - PAD_W;
  const T* corner = (const T*)args.x + (spot.n * s.x_n + spot.c * X_C + first_h * s.x_h + first_w * X_W);
  const auto load = [&](Columns<I, X>& columns, int r) {
    const idx h = first_h + r * STEP_H;
    columns.load(s, corner + (idx)r * STEP_H * s.x_h, first_w, (Unsigned)h < (Unsigned)s.in_h);
  };
  Channel channel[V];
#pragma unroll
  for (int i = 0; i < V; i++) channel[i] = table[spot.filter + i];
  float acc[TILE_H][TILE_W][V] = {};
  Columns<I, X> next;
  load(next, 0);
#pragma unroll UNROLL
  for (int r = 0; r < IN_ROWS; r++) {
    float in[IN_COLUMNS * I];
    next.widen(in);
    if (r + 1 < IN_ROWS) load(next, r + 1);
    KEEP_ORDER;
#pragma unroll
    for (int th = 0; th < TILE_H; th++) {
      const int below = r * STEP_H - th * STRIDE_H;
      if (below < 0 || below % DILATION_H != 0 || below / DILATION_H >= TAPS_H) continue;
#pragma unroll
      for (int t = 0; t < TAPS_W; t++) {
        float weight[V];
        load_floats<V>(weights + (below / DILATION_H * TAPS_W + t) * FILTERS + spot.filter, weight);
#pragma unroll
        for (int tw = 0; tw < TILE_W; tw++) {
          const int c = (tw * STRIDE_W + t * DILATION_W) / STEP_W;
#pragma unroll
          for (int i = 0; i < V; i++) acc[th][tw][i] = fmaf(in[c * I + i / MULTIPLIER], weight[i], acc[th][tw][i]);
        }
      }
      if (below == (TAPS_H - 1) * DILATION_H) finish_row<V, Y>(args, spot, channel, th, acc[th]);
    }
  }
}

#define SHARED ((TAPS * FILTERS + 3) / 4 * 16 + FILTERS * (int)sizeof(Channel))

KERNEL(THREADS, AT_ONCE(BLOCKS, SHARED)) {
  begin_grid();
  __shared__ Vector<float, 4> storage[(TAPS * FILTERS + 3) / 4];
  float* weights = (float*)storage;
  __shared__ Channel table[FILTERS];
  const Shape& s = args.shape;
  const idx rest = s.block_columns.divide(blockIdx.x), column = blockIdx.x - rest * s.block_columns.value;
  const idx rows = s.block_strips.divide(rest), strips = rest - rows * s.block_strips.value;
  const idx images = s.block_rows.divide(rows);
  const idx first_k = column * FILTERS;
  bring<TAPS * FILTERS, THREADS, 8>(
      [&](int i) {
        const int t = i % TAPS;
        const idx k = first_k + i / TAPS < s.out_k ? first_k + i / TAPS : s.out_k - 1;
        return ((const T*)args.op[0].p[0])[k * s.w_k + t / TAPS_W * s.w_h + t % TAPS_W * s.w_w];
      },
      [&](int i, T weight) { weights[i % TAPS * FILTERS + i / TAPS] = to_float(weight); });
#pragma unroll 1
  for (int j = threadIdx.x; j < FILTERS && first_k + j < s.out_k; j += THREADS)
    table[j] = channel_of(args, first_k + j);
  __syncthreads();

  const int position = CHANNELS_LAST ? threadIdx.x / CHANNEL_THREADS : threadIdx.x, other = position / (STRIPS * ROWS);
  Spot spot;
  spot.h = ((rows - images * s.block_rows.value) * ROWS + position / STRIPS % ROWS) * TILE_H;
  spot.w = (strips * STRIPS + position % STRIPS) * TILE_W;
  if (CHANNELS_LAST) {
    spot.n = images * PLANES + other;
    spot.filter = threadIdx.x % CHANNEL_THREADS * V_MAX;
  } else {
    spot.n = images;
    spot.filter = other;
  }
  spot.k = first_k + spot.filter;
  spot.c = spot.k / MULTIPLIER;
  if (spot.h >= s.out_h || spot.w >= s.out_w || spot.k >= s.out_k) return;
  constexpr int X_BYTES = (CHANNELS_LAST ? channels_of(V_MAX) : X_VECTOR) * (int)sizeof(T);
  constexpr int Y_BYTES = (CHANNELS_LAST ? V_MAX : Y_VECTOR) * (int)sizeof(T);
  const bool aligned = is_aligned(args.x, X_BYTES) && is_aligned(args.y, Y_BYTES);
#pragma unroll 1
  for (; spot.n < s.images; spot.n += s.image_step) {
    if (aligned) {
      tile<V_MAX, X_VECTOR, Y_VECTOR, UNROLLED(ROWS_UNROLLED, TAPS)>(args, spot, weights, table);
      continue;
    }
    Spot one = spot;
#pragma unroll 1
    for (int v = 0; v < V_MAX; v++) {
      tile<1, 1, 1, 1>(args, one, weights, table);
      one.filter++;
      one.c = ++one.k / MULTIPLIER;
    }
  }
}
