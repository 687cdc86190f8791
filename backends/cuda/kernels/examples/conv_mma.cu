// cuda.conv_mma.v1 on sm_80: mma.sync, tile 64 pixels x 128 filters x 64, image read in 16 bytes along channels, filters in 16 bytes, 8 outputs at a time
// Geometry { grid: [1568, 1, 1], block: 128, shared: 75264 }
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
constexpr int TILE_P{64};
constexpr int TILE_F{128};
constexpr int TILE_K{64};
constexpr int PART_P{64};
constexpr int SLICES{1};
constexpr int SPLIT{1};
constexpr int ACC_AT{0};
constexpr int THREADS{128};
constexpr int FILTERS{128};
constexpr int CHANNELS{64};
constexpr int TAPS_D{1};
constexpr int TAPS_H{3};
constexpr int TAPS_W{3};
constexpr int PAD_D{0};
constexpr int PAD_H{1};
constexpr int PAD_W{1};
constexpr int OUTSIDE_D{0};
constexpr int OUTSIDE_H{1};
constexpr int OUTSIDE_W{1};
constexpr int STRIDE_D{1};
constexpr int STRIDE_H{1};
constexpr int STRIDE_W{1};
constexpr int DILATION_D{1};
constexpr int DILATION_H{1};
constexpr int DILATION_W{1};
constexpr int W_D{0};
constexpr int W_H{192};
constexpr int W_W{64};
constexpr int W_K{576};
constexpr int W_C{1};
constexpr int CHANNEL_INNER{1};
constexpr int X_VECTOR{1};
constexpr int X_RUN{1};
constexpr int ONE_TAP{0};
constexpr int X_LINEAR{0};
constexpr int W_VECTOR{1};
constexpr int W_LINEAR{1};
constexpr int Y_ALONG_K{1};
constexpr int Y_VECTOR{8};
constexpr int STAGES{3};
constexpr int OCCUPANCY{1};
constexpr int WARPS_P{2};
constexpr int WARPS_F{2};
constexpr int Y_LINEAR{1};
constexpr int Y_PLANAR{1};
constexpr int OPS = 6;
constexpr int POINTERS = 4;
struct Shape {
  Size out_h;
  Size out_w;
  Size out_plane;
  Size pixels;
  Size y_p;
  Size y_n;
  Size y_c;
  Size y_d;
  Size y_h;
  Size y_w;
  Size in_d;
  Size in_h;
  Size in_w;
  Size x_n;
  Size x_c;
  Size x_d;
  Size x_h;
  Size x_w;
  Size x_p;
  Size bias1_c;
  Size slope3_c;
  Size slope5_c;
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

#define READS_ELEMENTS true

struct Numbers {
  float bias1;
  Norm norm2;
  float slope3;
  float slope5;
};

struct Channel {
  float term, factor, shift, slope3, slope5;
};

DEVICE Numbers numbers_of(const Args& args, idx k) {
  Numbers n;
  n.bias1 = param<float>(args.op[1], BiasForward::bias, k * args.shape.bias1_c);
  n.norm2 = norm_of<T>(args.op[2], k);
  n.slope3 = param<float>(args.op[3], PReluForward::slope, k * args.shape.slope3_c);
  n.slope5 = param<T>(args.op[5], PReluForward::slope, k * args.shape.slope5_c);
  return n;
}

DEVICE Channel channel_of(const Args& args, const Numbers& n) {
  Channel c;
  c.shift = n.bias1;
  c.shift *= args.op[1].alpha;
  c.term = c.shift - n.norm2.mean;
  c.factor = factor_of(n.norm2);
  c.shift = n.norm2.bias;
  c.shift *= args.op[2].alpha;
  c.factor *= args.op[2].alpha;
  c.slope3 = n.slope3;
  c.slope5 = n.slope5;
  return c;
}

DEVICE Channel channel_of(const Args& args, idx k) {
  const Numbers n = numbers_of(args, k);
  KEEP_ORDER;
  return channel_of(args, n);
}

DEVICE Channel one_of(bool first, const Channel& a, const Channel& b) {
  Channel c;
  c.term = first ? a.term : b.term;
  c.factor = first ? a.factor : b.factor;
  c.shift = first ? a.shift : b.shift;
  c.slope3 = first ? a.slope3 : b.slope3;
  c.slope5 = first ? a.slope5 : b.slope5;
  return c;
}

DEVICE float affine(const Args& args, const Channel& c, float v) {
  return fmaf(fmaf(v, args.op[0].alpha * args.op[1].alpha, c.term), c.factor, c.shift);
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
  v = prelu(v, c.slope3);
  v *= args.op[3].alpha;
  {
    const Norm norm = norm_of<T>(args.op[4], at.k * args.shape.out_plane + at.p);
    v = batch_norm(v, norm.mean, factor_of(norm), norm.bias);
  }
  v *= args.op[4].alpha;
  v = prelu(v, c.slope5);
  v *= args.op[5].alpha;
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


DEVICE Coord coord_of(const Shape& s, int m, int k) {
  Coord at;
  at.n = m / s.out_plane;
  at.p = m % s.out_plane;
  at.k = k;
  at.y = k * s.y_c;
  if (Y_LINEAR) {
    at.y += m * s.y_p;
  } else if (Y_PLANAR) {
    at.y += at.n * s.y_n + at.p * s.y_p;
  } else {
    const int row = at.p / s.out_w;
    at.y += at.n * s.y_n + row / s.out_h * s.y_d + row % s.out_h * s.y_h + at.p % s.out_w * s.y_w;
  }
  return at;
}


static_assert(SPLIT == 1, "blocks that share a tile are a cluster");
DEVICE void cluster_sync() { __syncthreads(); }
DEVICE void cluster_arrive() {}
DEVICE void cluster_wait() {}
DEVICE Vector<float, 4> cluster_load(int, const float* at) { return *(const Vector<float, 4>*)at; }
DEVICE double cluster_load(int, const double* at) { return *at; }


DEVICE int tile_number() { return blockIdx.x / SPLIT; }
DEVICE int cluster_rank() { return SPLIT == 1 ? 0 : blockIdx.x % SPLIT; }
template <int STEPS> DEVICE int first_step() { return SPLIT == 1 ? 0 : STEPS * cluster_rank() / SPLIT; }
template <int STEPS> DEVICE int step_count() {
  return SPLIT == 1 ? STEPS : STEPS * (cluster_rank() + 1) / SPLIT - first_step<STEPS>();
}

struct Rows {
  int first, end;
};
DEVICE Rows share_of(int rows, int rank = cluster_rank()) {
  const int share = (rows + SPLIT - 1) / SPLIT, first = rank * share;
  return {first, first + share < rows ? first + share : rows};
}


constexpr int CHUNK = 16 / (int)sizeof(T);
constexpr int CHUNKS = TILE_K / CHUNK;
constexpr int TAPS = TAPS_D * TAPS_H * TAPS_W;
constexpr int DEPTH = CHANNELS * TAPS;
constexpr int FILTER_TILES = (FILTERS + TILE_F - 1) / TILE_F;
constexpr int STEPS = (DEPTH + TILE_K - 1) / TILE_K;
[[maybe_unused]] constexpr int X_LOADS = TILE_P * CHUNKS / THREADS;
[[maybe_unused]] constexpr int W_LOADS = TILE_F * CHUNKS / THREADS;

constexpr int PITCH = Y_ALONG_K ? TILE_F + 8 : PART_P + 4;
constexpr int SLICE = PITCH * (Y_ALONG_K ? PART_P : TILE_F);
DEVICE int tile_at(int p, int f) { return Y_ALONG_K ? p * PITCH + f : f * PITCH + p; }

DEVICE int depth_end() {
  const int end = SPLIT == 1 ? STEPS * TILE_K : (first_step<STEPS>() + step_count<STEPS>()) * TILE_K;
  return end < DEPTH ? end : DEPTH;
}

template <bool VECTOR, int ROWS> DEVICE int load_row(int i) {
  static_assert(VECTOR || THREADS >= ROWS, "a thread gathers for one row");
  return VECTOR ? (int)threadIdx.x / CHUNKS + i * (THREADS / CHUNKS) : (int)threadIdx.x % ROWS;
}
template <bool VECTOR, int ROWS> DEVICE int load_chunk(int i) {
  return VECTOR ? (int)threadIdx.x % CHUNKS : (int)threadIdx.x / ROWS + i * (THREADS / ROWS);
}

struct Tap {
  int c, d, h, w;
};
DEVICE Tap tap_of(int depth) {
  const int t = CHANNEL_INNER ? depth / CHANNELS : depth % TAPS;
  return {CHANNEL_INNER ? depth % CHANNELS : depth / TAPS, t / (TAPS_H * TAPS_W), t / TAPS_W % TAPS_H, t % TAPS_W};
}

struct Pixel {
  int offset, d, h, w;
  bool inside;
};
DEVICE Pixel pixel_of(const Shape& s, int m, int group) {
  Pixel pixel = {};
  pixel.inside = m < s.pixels;
  if (X_LINEAR) {
    pixel.offset = m * s.x_p;
  } else {
    const int n = m / s.out_plane, p = m % s.out_plane;
    pixel.offset = n * s.x_n;
    if (ONE_TAP) {
      pixel.offset += p * s.x_p;
    } else {
      const int row = p / s.out_w;
      pixel.d = row / s.out_h * STRIDE_D - PAD_D;
      pixel.h = row % s.out_h * STRIDE_H - PAD_H;
      pixel.w = p % s.out_w * STRIDE_W - PAD_W;
      pixel.offset += pixel.d * s.x_d + pixel.h * s.x_h + pixel.w * s.x_w;
    }
  }
  pixel.offset += group * CHANNELS * s.x_c;
  return pixel;
}

DEVICE int image_at(const Shape& s, const Pixel& pixel, int depth) {
  const Tap t = tap_of(depth);
  const int d = t.d * DILATION_D, h = t.h * DILATION_H, w = t.w * DILATION_W;
  bool inside = pixel.inside && depth < DEPTH;
  if (OUTSIDE_D) inside = inside && (unsigned)(pixel.d + d) < (unsigned)s.in_d;
  if (OUTSIDE_H) inside = inside && (unsigned)(pixel.h + h) < (unsigned)s.in_h;
  if (OUTSIDE_W) inside = inside && (unsigned)(pixel.w + w) < (unsigned)s.in_w;
  return inside ? pixel.offset + t.c * s.x_c + d * s.x_d + h * s.x_h + w * s.x_w : -1;
}

DEVICE int filter_at(int filter, int group, int depth) {
  const Tap t = tap_of(depth);
  const bool inside = filter < FILTERS && depth < DEPTH;
  const int at = W_LINEAR ? depth : t.c * W_C + t.d * W_D + t.h * W_H + t.w * W_W;
  return inside ? (group * FILTERS + filter) * W_K + at : -1;
}

constexpr bool MASKED = TAPS_D + TAPS_H + TAPS_W < 32;

struct Row {
  Pixel pixel;
  unsigned lacks;
};
struct DepthEntry {
  int offset;
  unsigned needs;
};

DEVICE unsigned lacks(int first, int taps, int dilation, int length) {
  unsigned mask = 0;
#pragma unroll
  for (int t = 0; t < taps; t++) mask |= (unsigned)((unsigned)(first + t * dilation) >= (unsigned)length) << t;
  return mask;
}
DEVICE Row row_of(const Shape& s, int m, int group) {
  Row row;
  row.pixel = pixel_of(s, m, group);
  row.lacks = ~0u;
  if (MASKED && row.pixel.inside)
    row.lacks = 1u << 31 | lacks(row.pixel.d, TAPS_D, DILATION_D, s.in_d) |
                lacks(row.pixel.h, TAPS_H, DILATION_H, s.in_h) << TAPS_D |
                lacks(row.pixel.w, TAPS_W, DILATION_W, s.in_w) << (TAPS_D + TAPS_H);
  return row;
}
DEVICE DepthEntry depth_entry(const Shape& s, int depth, int end = DEPTH) {
  const Tap t = tap_of(depth);
  DepthEntry entry;
  entry.offset = t.c * s.x_c + t.d * DILATION_D * s.x_d + t.h * DILATION_H * s.x_h + t.w * DILATION_W * s.x_w;
  entry.needs = depth < end ? 1u << t.d | 1u << (TAPS_D + t.h) | 1u << (TAPS_D + TAPS_H + t.w) : 1u << 31;
  if (!MASKED) entry.needs = depth < end ? depth : DEPTH;
  return entry;
}
DEVICE unsigned missing(const Shape& s, const Row& row, const DepthEntry& entry) {
  return MASKED ? row.lacks & entry.needs : image_at(s, row.pixel, entry.needs) < 0;
}

DEVICE T zero() { return from_float<T>(0.f); }

DEVICE void load_vector(const T* from, int at, T* chunk) {
  Vector<T, CHUNK> v;
  if (at >= 0) {
    v = *(const Vector<T, CHUNK>*)(from + at);
  } else {
#pragma unroll
    for (int e = 0; e < CHUNK; e++) v.at[e] = zero();
  }
#pragma unroll
  for (int e = 0; e < CHUNK; e++) chunk[e] = v.at[e];
}
DEVICE void gather_image(const Args& args, const Pixel& pixel, int depth, T* chunk) {
#pragma unroll
  for (int e = 0; e < CHUNK; e++) {
    const int at = image_at(args.shape, pixel, depth + e);
    chunk[e] = at >= 0 ? ((const T*)args.x)[at] : zero();
  }
}
DEVICE void gather_filter(const Args& args, int filter, int group, int depth, T* chunk) {
#pragma unroll
  for (int e = 0; e < CHUNK; e++) {
    const int at = filter_at(filter, group, depth + e);
    chunk[e] = at >= 0 ? ((const T*)args.op[0].p[0])[at] : zero();
  }
}

template <bool ALONG_K, bool ALIGNED>
DEVICE void epilogue(const Args& args, const Channel* channel, const float* acc, const Coord& at) {
  constexpr int PART = Y_VECTOR < 4 ? Y_VECTOR : 4;
  float v[Y_VECTOR];
#pragma unroll
  for (int i = 0; i < Y_VECTOR; i += PART) {
    const Vector<float, PART> part = *(const Vector<float, PART>*)(acc + i);
#pragma unroll
    for (int j = 0; j < PART; j++) v[i + j] = part.at[j];
  }
  if (ALIGNED) {
    finish_vector<Y_VECTOR, ALONG_K>(args, channel, v, at);
  } else {
    Coord here = at;
#pragma unroll
    for (int i = 0; i < Y_VECTOR; i++) {
      finish(args, channel[ALONG_K ? i : 0], v[i], here);
      here.y++;
      if (ALONG_K) here.k++;
      else here.p++;
    }
  }
}

template <bool ALIGNED>
DEVICE void write_rows(const Args& args, const float* tile, int first_pixel, int first_filter, int group, Rows rows) {
  const Shape& s = args.shape;
  constexpr int COLUMNS = (Y_ALONG_K ? TILE_F : PART_P) / Y_VECTOR;
  constexpr int ROWS_AT_ONCE = THREADS / COLUMNS;
  const int column = threadIdx.x % COLUMNS;
  if (Y_ALONG_K) {
    const int f = first_filter + column * Y_VECTOR, k = group * FILTERS + f;
    if (f >= FILTERS) return;
    Channel channels[Y_VECTOR];
#pragma unroll
    for (int i = 0; i < Y_VECTOR; i++) channels[i] = channel_of(args, k + i);
#pragma unroll 1
    for (int row = rows.first + threadIdx.x / COLUMNS; row < rows.end; row += ROWS_AT_ONCE) {
      const float* acc = tile + tile_at(row, column * Y_VECTOR);
      epilogue<true, ALIGNED>(args, channels, acc, coord_of(s, first_pixel + row, k));
    }
  } else {
    const int m = first_pixel + column * Y_VECTOR;
    if (m >= s.pixels) return;
    const Coord first = coord_of(s, m, 0);
    const int first_k = group * FILTERS + first_filter;
    constexpr int TOGETHER = !ALIGNED || sizeof(Channel) > 16 ? 1 : Y_VECTOR > 1 ? 4 : 8;
#pragma unroll 1
    for (int top = rows.first + threadIdx.x / COLUMNS; top < rows.end; top += ROWS_AT_ONCE * TOGETHER) {
      Channel channels[TOGETHER];
#pragma unroll
      for (int i = 0; i < TOGETHER; i++) {
        const int row = top + i * ROWS_AT_ONCE;
        channels[i] = channel_of(args, first_k + (row < rows.end ? row : top));
      }
#pragma unroll
      for (int i = 0; i < TOGETHER; i++) {
        const int row = top + i * ROWS_AT_ONCE;
        if (row >= rows.end) break;
        Coord at = first;
        at.k = first_k + row;
        at.y += at.k * s.y_c;
        epilogue<false, ALIGNED>(args, &channels[i], tile + tile_at(column * Y_VECTOR, row), at);
      }
    }
  }
}


DEVICE bool finish_tile(const Args&, float*, int, int, int) { return false; }

DEVICE void add_up(float* tile, Rows rows) {
#pragma unroll 1
  for (int i = rows.first * PITCH + threadIdx.x * 4; i < rows.end * PITCH; i += THREADS * 4) {
    Vector<float, 4> sum = {};
#pragma unroll 1
    for (int slice = 0; slice < SLICES; slice++) {
      Vector<float, 4> parts[SPLIT];
#pragma unroll
      for (int rank = 0; rank < SPLIT; rank++) parts[rank] = cluster_load(rank, tile + slice * SLICE + i);
#pragma unroll
      for (int rank = 0; rank < SPLIT; rank++)
#pragma unroll
        for (int e = 0; e < 4; e++) sum.at[e] += parts[rank].at[e];
    }
    *(Vector<float, 4>*)(tile + i) = sum;
  }
}

DEVICE void write_tile(const Args& args, float* tile, int first_pixel, int first_filter, int group) {
  const int left = Y_ALONG_K ? args.shape.pixels - first_pixel : FILTERS - first_filter,
            most = Y_ALONG_K ? PART_P : TILE_F;
  const int there = !Y_ALONG_K && FILTERS % TILE_F == 0 ? most : left < most ? left : most;
  const Rows rows = share_of(there);
  if (SPLIT * SLICES > 1) {
    add_up(tile, rows);
    __syncthreads();
    cluster_arrive();
  }
  if (is_aligned(args.y, Y_VECTOR * (int)sizeof(T)))
    write_rows<true>(args, tile, first_pixel, first_filter, group, rows);
  else write_rows<false>(args, tile, first_pixel, first_filter, group, rows);
  if (SPLIT * SLICES > 1) cluster_wait();
}


#define MMA(shape, type)                                                         \
  asm volatile("mma.sync.aligned." shape ".row.col.f32." type "." type           \
               ".f32 "                                                           \
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                  \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
DEVICE void mma_sync(float* c, const unsigned* a, const unsigned* b, f16) { MMA("m16n8k16", "f16"); }
DEVICE void mma_sync(float* c, const unsigned* a, const unsigned* b, bf16) { MMA("m16n8k16", "bf16"); }
DEVICE void mma_sync(float* c, const unsigned* a, const unsigned* b, float) { MMA("m16n8k8", "tf32"); }


constexpr int BYTES = (int)sizeof(T);
DEVICE unsigned bits(f16 v) { return v.bits; }
DEVICE unsigned bits(bf16 v) { return v.bits; }
DEVICE unsigned bits(float v) { return __float_as_uint(v); }
constexpr int ROW = TILE_K * BYTES;
static_assert(ROW == 64 || ROW == 128, "a row of a tile is 4 or 8 chunks");
constexpr int PLANE_ROW = BYTES == 2 ? TILE_P * 2 : (TILE_P + 8) * 4;
constexpr int X_BYTES = X_VECTOR ? TILE_P * ROW : TILE_K * PLANE_ROW;
constexpr int STAGE = X_BYTES + TILE_F * ROW;
constexpr int WARP_P = TILE_P / WARPS_P, WARP_F = TILE_F / WARPS_F;
static_assert(WARP_P % 16 == 0 && WARP_F % 16 == 0 && THREADS == WARPS_P * WARPS_F * SLICES * 32, "whole fragments");
constexpr int SLICE_K = ROW / 32 / SLICES;
static_assert(SLICE_K * SLICES * 32 == ROW, "slices have the same share of a row");

constexpr bool SINGLE = !X_VECTOR && X_RUN * BYTES == 2;
constexpr int RUN = SINGLE ? 2 : X_RUN;
constexpr int X_ACROSS = X_VECTOR ? CHUNKS : TILE_P / RUN;
constexpr int X_DOWN = THREADS / X_ACROSS;
constexpr int X_PARTS = (X_VECTOR ? TILE_P : TILE_K) / X_DOWN;
constexpr int TABLE = X_VECTOR ? CHUNKS : TILE_K;
static_assert(X_DOWN > 0 && X_PARTS > 0 && THREADS >= TABLE, "threads suit the image's part of a stage");
constexpr int W_DOWN = THREADS / CHUNKS;

DEVICE unsigned swizzle(int row, int chunk) {
  return ROW == 64 ? row * 64 + ((chunk ^ (row >> 1 & 3)) << 4) : row * 128 + ((chunk ^ (row & 7)) << 4);
}
DEVICE unsigned swizzle_plane(int depth, int pixel) {
  return depth * PLANE_ROW + (BYTES == 2 ? (pixel >> 3 ^ (depth & 7)) << 4 | (pixel & 7) << 1 : pixel * 4);
}

template <int SIZE> DEVICE void copy_async(unsigned to, const T* from, unsigned missing) {
  const int size = missing ? 0 : SIZE;
  if (SIZE == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(SIZE), "r"(size) : "memory");
}
DEVICE void put_word(unsigned to, unsigned word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}
template <int SIZE> DEVICE void copy_elements(unsigned to, const T* from, unsigned missing) {
#pragma unroll
  for (int i = 0; i < SIZE; i += 4) {
    unsigned word = 0;
    if (!missing) {
      const T* const part = from + i / BYTES;
      word = BYTES == 4 ? *(const unsigned*)part : bits(part[0]) | bits(part[BYTES == 2]) << 16;
    }
    put_word(to + i, word);
  }
}
DEVICE unsigned short load_single(const T* from, unsigned missing) {
  unsigned short v;
  asm volatile(
      "{\n .reg .pred there;\n setp.eq.u32 there, %2, 0;\n mov.b16 %0, 0;\n"
      " @there ld.global.b16 %0, [%1];\n}"
      : "=h"(v)
      : "l"(from), "r"(missing));
  return v;
}
DEVICE void put_singles(unsigned to, unsigned short low, unsigned short high) {
  asm volatile("{\n .reg .b32 word;\n mov.b32 word, {%1, %2};\n st.shared.b32 [%0], word;\n}" ::"r"(to), "h"(low),
               "h"(high)
               : "memory");
}

template <bool TRANSPOSE> DEVICE void load_matrices(unsigned from, unsigned* v) {
  if (TRANSPOSE)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(from)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(from)
                 : "memory");
}
DEVICE unsigned load_word(unsigned from) {
  unsigned v;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
  return v;
}
DEVICE void round_to_tf32(unsigned* v, int count) {
  if (BYTES == 4)
#pragma unroll
    for (int i = 0; i < count; i++) asm("cvt.rna.tf32.f32 %0, %0;" : "+r"(v[i]));
}

KERNEL(THREADS, OCCUPANCY) {
  begin_grid();
  DYNAMIC_SHARED(char, shared);
  const unsigned base = (unsigned)__cvta_generic_to_shared(shared);
  DepthEntry* const table = (DepthEntry*)(shared + STAGES * STAGE);
  const Shape& shape = args.shape;
  const int first_filter = tile_number() % FILTER_TILES * TILE_F, first_pixel = tile_number() / FILTER_TILES * TILE_P;
  const int group = blockIdx.z, begin = first_step<STEPS>(), steps = step_count<STEPS>(), end = depth_end();
  float* const tile = (float*)(shared + ACC_AT);
  if (finish_tile(args, tile, first_pixel, first_filter, group)) return;
  const T* const image = (const T*)args.x;
  const T* const weights = (const T*)args.op[0].p[0];
  const bool x_aligned = is_aligned(image, SINGLE ? 2 : X_VECTOR ? 16 : RUN * BYTES);
  const bool w_aligned = is_aligned(weights, 16);

  const int across = threadIdx.x % X_ACROSS, down = threadIdx.x / X_ACROSS;
  constexpr int ROWS = X_VECTOR ? X_PARTS : SINGLE ? 2 : 1;
  Row rows[ROWS];
  const T* firsts[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; i++) {
    rows[i] = row_of(shape, first_pixel + (X_VECTOR ? down + i * X_DOWN : across * RUN + i), group);
    firsts[i] = image + rows[i].pixel.offset;
    if (!X_VECTOR) asm volatile("" : "+l"(firsts[i]));
  }
  const unsigned x_at = X_VECTOR ? swizzle(down, across) : swizzle_plane(down * X_PARTS, across * RUN);
  const auto x_address = [&](int i, unsigned stage) {
    if (X_VECTOR) return stage + x_at + i * X_DOWN * ROW;
    return ((stage + x_at) ^ (BYTES == 2 ? (i & 7) << 4 : 0)) + i * PLANE_ROW;
  };
  const int w_chunk = threadIdx.x % CHUNKS, w_row = threadIdx.x / CHUNKS;
  const int w_first = (group * FILTERS + first_filter + w_row) * W_K + w_chunk * CHUNK;
  const unsigned w_at = X_BYTES + swizzle(w_row, w_chunk);
  const auto w_address = [&](int i, unsigned stage) { return stage + w_at + i * W_DOWN * ROW; };

  const auto plan = [&](int step) {
    if (threadIdx.x < TABLE)
      table[step % STAGES * TABLE + threadIdx.x] =
          depth_entry(shape, (begin + step) * TILE_K + threadIdx.x * (X_VECTOR ? CHUNK : 1), end);
  };

  unsigned short singles[SINGLE ? X_PARTS : 1][2];
  const auto fetch_image = [&](int step, unsigned stage) {
    const DepthEntry* const here = table + step % STAGES * TABLE + (X_VECTOR ? across : down * X_PARTS);
    constexpr int SIZE = X_VECTOR ? 16 : RUN * BYTES;
    if constexpr (SINGLE) {
#pragma unroll
      for (int i = 0; i < X_PARTS; i++)
#pragma unroll
        for (int j = 0; j < 2; j++)
          singles[i][j] = load_single(firsts[j] + here[i].offset, missing(shape, rows[j], here[i]));
    } else if (x_aligned) {
#pragma unroll
      for (int i = 0; i < X_PARTS; i++) {
        const DepthEntry at = here[X_VECTOR ? 0 : i];
        const Row& row = rows[X_VECTOR ? i : 0];
        const T* const from = X_VECTOR ? image + (row.pixel.offset + at.offset) : firsts[0] + at.offset;
        copy_async<SIZE>(x_address(i, stage), from, missing(shape, row, at));
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < X_PARTS; i++) {
        const DepthEntry at = here[X_VECTOR ? 0 : i];
        const Row row = row_of(shape, first_pixel + (X_VECTOR ? down + i * X_DOWN : across * RUN), group);
        copy_elements<SIZE>(x_address(i, stage), image + (row.pixel.offset + at.offset), missing(shape, row, at));
      }
    }
  };
  const auto store_singles = [&](unsigned stage) {
    if constexpr (SINGLE) {
#pragma unroll
      for (int i = 0; i < X_PARTS; i++) put_singles(x_address(i, stage), singles[i][0], singles[i][1]);
    }
  };
  const auto fetch_filters = [&](int step, unsigned stage) {
    const int depth = (begin + step) * TILE_K + w_chunk * CHUNK;
    if (W_VECTOR && w_aligned) {
#pragma unroll
      for (int i = 0; i < W_LOADS; i++) {
        const int filter = first_filter + w_row + i * W_DOWN;
        const bool there = depth < end && (FILTERS % TILE_F == 0 || filter < FILTERS);
        const T* const from = W_LINEAR ? weights + (w_first + (begin + step) * TILE_K) + i * W_DOWN * W_K
                                       : weights + (there ? filter_at(filter, group, depth) : 0);
        copy_async<16>(w_address(i, stage), from, !there);
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < W_LOADS; i++) {
        T chunk[CHUNK];
        gather_filter(args, first_filter + w_row + i * W_DOWN, group, depth, chunk);
        copy_elements<16>(w_address(i, stage), chunk, 0);
      }
    }
  };
  const auto commit = [] { asm volatile("cp.async.commit_group;" ::: "memory"); };

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % (WARPS_P * WARPS_F);
  const int slice = SLICES == 1 ? 0 : threadIdx.x / 32 / (WARPS_P * WARPS_F);
  const int warp_p = warp % WARPS_P * WARP_P, warp_f = warp / WARPS_P * WARP_F;
  float acc[WARP_P / 16][WARP_F / 8][4] = {};
  const unsigned a_at = X_VECTOR     ? swizzle(warp_p + lane % 16, lane / 16)
                        : BYTES == 2 ? swizzle_plane(lane / 16 * 8 + lane % 8, warp_p + lane / 8 % 2 * 8)
                                     : swizzle_plane(lane % 4, warp_p + lane / 4);
  const unsigned b_at = X_BYTES + swizzle(warp_f + lane % 8 + lane / 16 * 8, lane / 8 % 2);
  const auto load_pixels = [&](unsigned stage, int i, int k, unsigned* a) {
    if (X_VECTOR) {
      load_matrices<false>(((stage + a_at) ^ k << 5) + i * 16 * ROW, a);
    } else if (BYTES == 2) {
      load_matrices<true>(((stage + a_at) ^ i << 5) + k * 16 * PLANE_ROW, a);
    } else {
#pragma unroll
      for (int e = 0; e < 4; e++) a[e] = load_word(stage + a_at + swizzle_plane(k * 8 + e / 2 * 4, i * 16 + e % 2 * 8));
    }
    round_to_tf32(a, 4);
  };
  const auto load_filters = [&](unsigned stage, int j, int k, unsigned* b) {
    load_matrices<false>(((stage + b_at) ^ k << 5) + j * 16 * ROW, b);
    round_to_tf32(b, 4);
  };

  constexpr int AHEAD = SINGLE ? 1 : STAGES - 1;
#pragma unroll
  for (int step = 0; step <= AHEAD; step++) plan(step);
  __syncthreads();
#pragma unroll
  for (int step = 0; step < STAGES - 1; step++) {
    if (step < AHEAD) fetch_image(step, base + step * STAGE);
    fetch_filters(step, base + step * STAGE);
    commit();
  }
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    const auto stage_of = [&](int step) { return base + step % STAGES * STAGE; };
    const unsigned stage = stage_of(step);
    store_singles(stage);
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();
    fetch_image(step + AHEAD, stage_of(step + AHEAD));
    fetch_filters(step + STAGES - 1, stage_of(step + STAGES - 1));
    commit();
    plan(step + AHEAD + 1);
#pragma unroll
    for (int part = 0; part < SLICE_K; part++) {
      const int k = slice * SLICE_K + part;
      unsigned a[WARP_P / 16][4], b[WARP_F / 16][4];
#pragma unroll
      for (int i = 0; i < WARP_P / 16; i++) load_pixels(stage, i, k, a[i]);
#pragma unroll
      for (int j = 0; j < WARP_F / 16; j++) load_filters(stage, j, k, b[j]);
#pragma unroll
      for (int i = 0; i < WARP_P / 16; i++)
#pragma unroll
        for (int j = 0; j < WARP_F / 8; j++) mma_sync(acc[i][j], a[i], b[j / 2] + j % 2 * 2, T());
    }
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();

  float* own = tile + slice * SLICE;
#pragma unroll
  for (int i = 0; i < WARP_P / 16; i++)
#pragma unroll
    for (int j = 0; j < WARP_F / 8; j++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int p = warp_p + i * 16 + lane / 4 + half * 8, f = warp_f + j * 8 + lane % 4 * 2;
        const float* two = acc[i][j] + half * 2;
        if (Y_ALONG_K) *(Vector<float, 2>*)(own + tile_at(p, f)) = {two[0], two[1]};
        else own[tile_at(p, f)] = two[0], own[tile_at(p, f + 1)] = two[1];
      }
  cluster_sync();
  write_tile(args, tile, first_pixel, first_filter, group);
}
