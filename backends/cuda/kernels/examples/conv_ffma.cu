// cuda.conv_ffma.v1 on sm_80: FFMA, tile 128 pixels x 64 filters x 16, image read in 4 pixels at a time, filters in 16 bytes, 4 outputs at a time
// Geometry { grid: [6272, 1, 1], block: 128, shared: 33792 }
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
typedef float T;
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
constexpr int TILE_P{128};
constexpr int TILE_F{64};
constexpr int TILE_K{16};
constexpr int PART_P{128};
constexpr int SLICES{1};
constexpr int SPLIT{1};
constexpr int ACC_AT{0};
constexpr int THREADS{128};
constexpr int FILTERS{1024};
constexpr int CHANNELS{256};
constexpr int TAPS_D{1};
constexpr int TAPS_H{1};
constexpr int TAPS_W{1};
constexpr int PAD_D{0};
constexpr int PAD_H{0};
constexpr int PAD_W{0};
constexpr int OUTSIDE_D{0};
constexpr int OUTSIDE_H{0};
constexpr int OUTSIDE_W{0};
constexpr int STRIDE_D{1};
constexpr int STRIDE_H{1};
constexpr int STRIDE_W{1};
constexpr int DILATION_D{1};
constexpr int DILATION_H{1};
constexpr int DILATION_W{1};
constexpr int W_D{0};
constexpr int W_H{0};
constexpr int W_W{0};
constexpr int W_K{256};
constexpr int W_C{1};
constexpr int CHANNEL_INNER{0};
constexpr int X_VECTOR{0};
constexpr int X_RUN{4};
constexpr int ONE_TAP{1};
constexpr int X_LINEAR{0};
constexpr int W_VECTOR{1};
constexpr int W_LINEAR{1};
constexpr int Y_ALONG_K{0};
constexpr int Y_VECTOR{4};
constexpr int OCCUPANCY{3};
constexpr int UNROLL{16};
constexpr int Y_LINEAR{0};
constexpr int Y_PLANAR{1};
constexpr int OPS = 1;
constexpr int POINTERS = 1;
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


constexpr int X_PITCH = TILE_P + 4, W_PITCH = TILE_F + 4;
constexpr int BUFFER = TILE_K * (X_PITCH + W_PITCH);
constexpr int COLUMN_THREADS = TILE_F / 8, SLICE_THREADS = TILE_P * TILE_F / 64, SLICE_K = TILE_K / SLICES;
static_assert(SLICE_THREADS * SLICES == THREADS && SLICE_K * SLICES == TILE_K, "threads sum all");

constexpr int X_PART = X_VECTOR ? CHUNK : X_RUN;
constexpr int X_ACROSS = X_VECTOR ? CHUNKS : TILE_P / X_RUN;
constexpr int X_DOWN = THREADS / X_ACROSS;
constexpr int X_PARTS = (X_VECTOR ? TILE_P : TILE_K) / X_DOWN;
constexpr int TABLE = X_VECTOR ? CHUNKS : TILE_K;
static_assert(X_DOWN > 0 && X_PARTS > 0 && X_DOWN * X_PARTS * X_ACROSS * X_PART == TILE_P * TILE_K, "threads load all");

constexpr int W_DOWN = THREADS / CHUNKS;

KERNEL(THREADS, OCCUPANCY) {
  begin_grid();
  DYNAMIC_SHARED(float, shared);
  DepthEntry* const table = (DepthEntry*)(shared + 2 * BUFFER);
  const int first_filter = tile_number() % FILTER_TILES * TILE_F, first_pixel = tile_number() / FILTER_TILES * TILE_P;
  const int group = blockIdx.z, begin = first_step<STEPS>(), steps = step_count<STEPS>(), end = depth_end();
  float* const tile = shared + ACC_AT / (int)sizeof(float);
  if (finish_tile(args, tile, first_pixel, first_filter, group)) return;
  const Shape& shape = args.shape;
  const T* const image = (const T*)args.x;
  const T* const weights = (const T*)args.op[0].p[0];
  const bool x_aligned = X_PART == 1 || is_aligned(image, X_PART * (int)sizeof(T));
  const bool w_chunks = W_VECTOR && is_aligned(weights, 16);

  const int across = threadIdx.x % X_ACROSS, down = threadIdx.x / X_ACROSS;
  constexpr int ROWS = X_VECTOR ? X_PARTS : 1;
  Row rows[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; i++)
    rows[i] = row_of(shape, first_pixel + (X_VECTOR ? down + i * X_DOWN : across * X_RUN), group);
  const int w_chunk = threadIdx.x % CHUNKS, w_row = threadIdx.x / CHUNKS;

  const auto plan = [&](int step) {
    if (threadIdx.x < TABLE)
      table[step % 2 * TABLE + threadIdx.x] =
          depth_entry(shape, (begin + step) * TILE_K + threadIdx.x * (X_VECTOR ? CHUNK : 1), end);
  };
  Vector<T, X_PART> x[X_PARTS];
  T w[W_LOADS][CHUNK];
  const auto fetch = [&](int step) {
    const DepthEntry* const here = table + step % 2 * TABLE + (X_VECTOR ? across : down * X_PARTS);
#pragma unroll
    for (int i = 0; i < X_PARTS; i++)
#pragma unroll
      for (int e = 0; e < X_PART; e++) x[i].at[e] = zero();
    if (x_aligned) {
#pragma unroll
      for (int i = 0; i < X_PARTS; i++) {
        const Row& row = rows[X_VECTOR ? i : 0];
        const DepthEntry at = here[X_VECTOR ? 0 : i];
        const T* const from = image + (row.pixel.offset + at.offset);
        if (!missing(shape, row, at)) x[i] = *(const Vector<T, X_PART>*)from;
      }
    } else {
#pragma unroll
      for (int i = 0; i < X_PARTS; i++) {
        const Row& row = rows[X_VECTOR ? i : 0];
        const DepthEntry at = here[X_VECTOR ? 0 : i];
        const T* const from = image + (row.pixel.offset + at.offset);
        if (!missing(shape, row, at))
#pragma unroll
          for (int e = 0; e < X_PART; e++) x[i].at[e] = from[e];
      }
    }
    const int depth = (begin + step) * TILE_K + w_chunk * CHUNK;
    if (w_chunks) {
#pragma unroll
      for (int i = 0; i < W_LOADS; i++)
        load_vector(weights, filter_at(first_filter + w_row + i * W_DOWN, group, depth), w[i]);
    } else {
#pragma unroll
      for (int i = 0; i < W_LOADS; i++) gather_filter(args, first_filter + w_row + i * W_DOWN, group, depth, w[i]);
    }
  };
  const auto store = [&](int buffer) {
    float* const x_rows = shared + buffer * BUFFER;
    float* const w_rows = x_rows + TILE_K * X_PITCH;
#pragma unroll
    for (int i = 0; i < X_PARTS; i++) {
      if constexpr (X_VECTOR) {
#pragma unroll
        for (int e = 0; e < CHUNK; e++)
          x_rows[(across * CHUNK + e) * X_PITCH + down + i * X_DOWN] = to_float(x[i].at[e]);
      } else {
        constexpr int PART = X_RUN < 4 ? X_RUN : 4;
#pragma unroll
        for (int e = 0; e < X_RUN; e += PART) {
          Vector<float, PART> part;
#pragma unroll
          for (int j = 0; j < PART; j++) part.at[j] = to_float(x[i].at[e + j]);
          *(Vector<float, PART>*)(x_rows + (down * X_PARTS + i) * X_PITCH + across * X_RUN + e) = part;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < W_LOADS; i++)
#pragma unroll
      for (int e = 0; e < CHUNK; e++) w_rows[(w_chunk * CHUNK + e) * W_PITCH + w_row + i * W_DOWN] = to_float(w[i][e]);
  };

  const int slice = SLICES == 1 ? 0 : threadIdx.x / SLICE_THREADS, thread = threadIdx.x % SLICE_THREADS;
  const int p = thread / COLUMN_THREADS * 4, f = thread % COLUMN_THREADS * 4;
  float acc[8][8] = {};
  plan(0);
  plan(1);
  __syncthreads();
  fetch(0);
  store(0);
  __syncthreads();
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    if (step + 1 < steps) fetch(step + 1);
    plan(step + 2);
    const float* x = shared + step % 2 * BUFFER + slice * SLICE_K * X_PITCH;
    const float* w = shared + step % 2 * BUFFER + TILE_K * X_PITCH + slice * SLICE_K * W_PITCH;
#pragma unroll UNROLL
    for (int k = 0; k < SLICE_K; k++) {
      float a[8], b[8];
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const Vector<float, 4> pa = *(const Vector<float, 4>*)(x + k * X_PITCH + half * (TILE_P / 2) + p);
        const Vector<float, 4> pb = *(const Vector<float, 4>*)(w + k * W_PITCH + half * (TILE_F / 2) + f);
#pragma unroll
        for (int i = 0; i < 4; i++) a[half * 4 + i] = pa.at[i], b[half * 4 + i] = pb.at[i];
      }
#pragma unroll
      for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) acc[i][j] = fmaf(a[i], b[j], acc[i][j]);
    }
    if (step + 1 < steps) store((step + 1) % 2);
    __syncthreads();
  }

  constexpr int PARTS = TILE_P / PART_P;
  static_assert(PARTS == 1 || PARTS == 2, "parts are halves");
#pragma unroll 1
  for (int part = 0; part < PARTS; part++) {
#pragma unroll
    for (int i = 0; i < 8 / PARTS; i++)
#pragma unroll
      for (int j = 0; j < 8; j++)
        tile[slice * SLICE + tile_at(i / 4 * (TILE_P / 2) + p + i % 4, j / 4 * (TILE_F / 2) + f + j % 4)] =
            part == 0 ? acc[i][j] : acc[4 + i % 4][j];
    cluster_sync();
    write_tile(args, tile, first_pixel + part * PART_P, first_filter, group);
    if (PARTS > 1) __syncthreads();
  }
}
