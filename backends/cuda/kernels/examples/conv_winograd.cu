// cuda.conv_winograd.v1 on sm_80: FFMA, F(4x4), 16 tiles x 64 filters x 4, 2 stages of filters, image read in 16 bytes, 4 outputs at a time
// Geometry { grid: [784, 1, 1], block: 384, shared: 147456 }
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
constexpr int CHANNELS{64};
constexpr int FILTERS{128};
constexpr int STEP_C{4};
constexpr int FILTER_STAGES{2};
constexpr int IN_H{56};
constexpr int IN_W{56};
constexpr int OUT_H{56};
constexpr int OUT_W{56};
constexpr int PAD_H{1};
constexpr int PAD_W{1};
constexpr int X_ALONG_C{0};
constexpr int X_VECTOR{4};
constexpr int X_N{200704};
constexpr int X_C{3136};
constexpr int X_H{56};
constexpr int X_W{1};
constexpr int W_K{576};
constexpr int W_C{9};
constexpr int W_H{3};
constexpr int W_W{1};
constexpr int Y_ALONG_K{0};
constexpr int Y_PARTS{1};
constexpr int Y_VECTOR{4};
constexpr int OPS = 5;
constexpr int POINTERS = 4;
struct Shape {
  Size tiles;
  Size y_n;
  Size y_c;
  Size y_h;
  Size y_w;
  Size bias1_c;
  double* scratch;
  Size launch;
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
};

struct Channel {
  float term, factor, shift;
};

DEVICE Numbers numbers_of(const Args& args, idx k) {
  Numbers n;
  n.bias1 = param<T>(args.op[1], BiasForward::bias, k * args.shape.bias1_c);
  n.norm2 = norm_of<T>(args.op[2], k);
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
  return c;
}

DEVICE float affine(const Args& args, const Channel& c, float v) {
  return fmaf(fmaf(v, args.op[0].alpha * args.op[1].alpha, c.term), c.factor, c.shift);
}

template <int V> struct Residuals {
  Packed<V> of3;
};

template <int V> DEVICE Residuals<V> residuals_of(const Args& args, idx y) {
  Residuals<V> r;
  r.of3 = elements<V>(args.op[3], y);
  return r;
}

template <class F> DEVICE void each_residual(const Args& args, F visit) {
  visit((const T*)args.op[3].p[0]);
}

template <int V>
DEVICE float chain(const Args& args, const Channel& c, const Residuals<V>& r, int e, float v, const Coord& at) {
  v += r.of3.at(e);
  v *= args.op[3].alpha;
  v = act_relu(v, args.op[4]);
  v *= args.op[4].alpha;
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


constexpr int POINTS = 36, TILES = 16, TILE_F = 64, WARPS = 12, THREADS = WARPS * 32;
constexpr int IMAGE_STAGES = 4, LEAD = 2, SLOTS = LEAD + 2;
constexpr int TILES_H = (OUT_H + 3) / 4, TILES_W = (OUT_W + 3) / 4;
constexpr int FILTER_TILES = (FILTERS + TILE_F - 1) / TILE_F, STEPS = (CHANNELS + STEP_C - 1) / STEP_C;
constexpr int TASKS = STEP_C * TILES / 32, PERIOD = WARPS / TASKS;
static_assert(STEP_C * TILES % 32 == 0 && WARPS % TASKS == 0 && SLOTS <= PERIOD && sizeof(T) == 4, "warps take turns");
constexpr int OWN = 3 * STEP_C * TILE_F, PITCH = X_ALONG_C && STEP_C == 4 ? TILES + 4 : TILES,
              STAGE = POINTS * STEP_C * PITCH, SLOT = POINTS * 32;
constexpr int IMAGE_AT = WARPS * FILTER_STAGES * OWN, SLOTS_AT = IMAGE_AT + IMAGE_STAGES * STAGE;
constexpr int PART_F = TILE_F / Y_PARTS, SUM_PITCH = Y_ALONG_K ? TILES + 4 : TILES;
constexpr float NEAR = 0.70710678118654752440f, FAR = 1.41421356237309504880f;

DEVICE unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
DEVICE void mbarrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
DEVICE void mbarrier_arrive(unsigned barrier) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(barrier) : "memory");
}
DEVICE void mbarrier_wait(unsigned barrier, unsigned parity) {
#if __CUDA_ARCH__ >= 900
#define TEST "mbarrier.try_wait.parity.shared::cta.b64"
#else
#define TEST "mbarrier.test_wait.parity.shared.b64"
#endif
  asm volatile("{\n.reg .pred done;\nWAIT_%=:\n" TEST " done, [%0], %1;\n@!done bra WAIT_%=;\n}" ::"r"(barrier),
               "r"(parity)
               : "memory");
}

template <int V> DEVICE void copy(unsigned to, const float* from, bool valid) {
  const int bytes = valid ? V * 4 : 0;
  if (V == 4) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(V * 4), "r"(bytes)
                 : "memory");
}
DEVICE void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void wait_for_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

DEVICE void to_points(float& x0, float& x1, float& x2, float& x3, float& x4, float& x5) {
  const float ea = fmaf(-2.f, x2, x4), oa = fmaf(-2.f, x1, x3), eb = fmaf(-.5f, x2, x4), ob = fmaf(-.5f, x1, x3);
  x0 = fmaf(-2.5f, x2, x0 + x4);
  x5 = fmaf(-2.5f, x3, x1 + x5);
  x1 = fmaf(NEAR, oa, ea);
  x2 = fmaf(-NEAR, oa, ea);
  x3 = fmaf(FAR, ob, eb);
  x4 = fmaf(-FAR, ob, eb);
}
DEVICE void taps_to_points(float x0, float x1, float x2, float* y) {
  const float ea = fmaf(.5f, x2, x0) * (-1.f / 1.5f), oa = x1 * (-NEAR / 1.5f), eb = fmaf(2.f, x2, x0) * (1.f / 6.f),
              ob = x1 * (FAR / 6.f);
  y[0] = x0;
  y[1] = ea + oa;
  y[2] = ea - oa;
  y[3] = eb + ob;
  y[4] = eb - ob;
  y[5] = x2;
}
DEVICE void to_results(const float* x, float* y, int step) {
  const float sa = x[1] + x[2], da = x[1] - x[2], sb = x[3] + x[4], db = x[3] - x[4];
  y[0] = x[0] + (sa + sb);
  y[step] = fmaf(FAR, db, NEAR * da);
  y[2 * step] = fmaf(2.f, sb, .5f * sa);
  y[3 * step] = fmaf(2.f * FAR, db, fmaf(.5f * NEAR, da, x[5]));
}

DEVICE void prepare(const Args& args, float* to) {
  constexpr int ALL = FILTER_TILES * STEPS * STEP_C * TILE_F;
#pragma unroll 1
  for (int i = blockIdx.x * THREADS + threadIdx.x; i < ALL; i += gridDim.x * THREADS) {
    const int f = i % TILE_F, c = i / TILE_F % (STEPS * STEP_C), tile = i / TILE_F / (STEPS * STEP_C),
              k = tile * TILE_F + f;
    const float* const from = (const float*)args.op[0].p[0] + ((idx)k * W_K + c * W_C);
    float rows[3][6];
#pragma unroll
    for (int r = 0; r < 3; r++) {
      float taps[3];
#pragma unroll
      for (int q = 0; q < 3; q++) taps[q] = k < FILTERS && c < CHANNELS ? from[r * W_H + q * W_W] : 0.f;
      taps_to_points(taps[0], taps[1], taps[2], rows[r]);
    }
    float* const at = to + ((long long)(tile * STEPS + c / STEP_C) * POINTS * STEP_C + c % STEP_C) * TILE_F + f;
#pragma unroll
    for (int q = 0; q < 6; q++) {
      float column[6];
      taps_to_points(rows[0][q], rows[1][q], rows[2][q], column);
#pragma unroll
      for (int r = 0; r < 6; r++) at[(r * 6 + q) * STEP_C * TILE_F] = column[r];
    }
  }
}

struct Place {
  int n, h, w;
};
DEVICE Place place_of(int tile) {
  return {tile / (TILES_W * TILES_H), tile / TILES_W % TILES_H * 4, tile % TILES_W * 4};
}

struct Errand {
  int offset;
  unsigned inside;
};
constexpr int ROWS_OF_LANE = STEP_C == 4 ? 3 : 6, MIDDLE = 6, LEFT = 16, RIGHT = 24;
DEVICE unsigned bit(bool is_set, int at) { return (unsigned)is_set << at; }
DEVICE Errand errand_of(int first_tile, int tiles, int task, int lane) {
  constexpr int TILES_OF_TASK = 32 / STEP_C;
  const int tile = X_ALONG_C ? task * TILES_OF_TASK + lane % TILES_OF_TASK : lane % TILES;
  const Place at = place_of(first_tile + tile);
  const int row = at.h - PAD_H, column = at.w - PAD_W;
  const auto has_row = [&](int r) { return (unsigned)(row + r) < (unsigned)IN_H && first_tile + tile < tiles; };
  const auto has_column = [&](int q) { return (unsigned)(column + q) < (unsigned)IN_W; };
  Errand errand = {at.n * X_N + row * X_H + column * X_W, 0};
  if (X_ALONG_C) {
    const int part = lane / TILES_OF_TASK, r0 = STEP_C == 4 ? part / 2 * 3 : 0, q0 = part % 2 * 3;
    errand.offset += r0 * X_H + q0 * X_W;
#pragma unroll
    for (int i = 0; i < ROWS_OF_LANE * 3; i++) errand.inside |= bit(has_row(r0 + i / 3) && has_column(q0 + i % 3), i);
    return errand;
  }
  errand.offset += (lane / TILES + task * 2) * X_C;
  const bool left = (tile == 0 || at.w == 0) && has_column(0);
  const bool right = (tile == TILES - 1 || at.w == TILES_W * 4 - 4) && has_column(5);
#pragma unroll
  for (int r = 0; r < 6; r++)
    errand.inside |= bit(has_row(r), r) | bit(has_row(r) && left, LEFT + r) | bit(has_row(r) && right, RIGHT + r);
#pragma unroll
  for (int q = 0; q < 4; q++) errand.inside |= bit(has_column(1 + q), MIDDLE + q);
  return errand;
}

DEVICE void copy_patch(const float* x, const Errand* errands, unsigned slot, int task, int stage, int lane) {
  const Errand errand = *errands;
  const float* from = x + (errand.offset + stage * STEP_C * X_C);
  asm volatile("" : "+l"(from));
  unsigned inside = errand.inside;
  if (X_ALONG_C) {
    constexpr int TILES_OF_TASK = 32 / STEP_C;
    const int part = lane / TILES_OF_TASK, r0 = STEP_C == 4 ? part / 2 * 3 : 0, q0 = part % 2 * 3;
    const unsigned to = slot + ((r0 * 6 + q0) * 32 + lane % TILES_OF_TASK * STEP_C) * 4;
#pragma unroll
    for (int r = 0; r < ROWS_OF_LANE; r++)
#pragma unroll
      for (int q = 0; q < 3; q++)
#pragma unroll
        for (int c = 0; c < STEP_C; c += X_VECTOR)
          copy<X_VECTOR>(to + ((r * 6 + q) * 32 + c) * 4, from + r * X_H + q * X_W + c,
                         inside >> (r * 3 + q) & 1 && (CHANNELS % STEP_C == 0 || stage * STEP_C + c < CHANNELS));
    return;
  }
  if (CHANNELS % STEP_C != 0 && stage * STEP_C + task * 2 + lane / TILES >= CHANNELS) inside = 0;
#pragma unroll
  for (int r = 0; r < 6; r++)
#pragma unroll
    for (int q = 0; q < 4; q += X_VECTOR)
      copy<X_VECTOR>(slot + (r * 192 + lane * 4 + q) * 4, from + r * X_H + (1 + q) * X_W,
                     inside >> r & inside >> (MIDDLE + q) & 1);
  if (errand.inside >> LEFT & 63)
#pragma unroll
    for (int r = 0; r < 6; r++) copy<1>(slot + (r * 192 + 128 + lane) * 4, from + r * X_H, inside >> (LEFT + r) & 1);
  if (errand.inside >> RIGHT & 63)
#pragma unroll
    for (int r = 0; r < 6; r++)
      copy<1>(slot + (r * 192 + 160 + lane) * 4, from + r * X_H + 5 * X_W, inside >> (RIGHT + r) & 1);
}

DEVICE void transform(const float* slot, int left, int right, float* to, int task, int lane) {
  float d[6][6];
#pragma unroll
  for (int r = 0; r < 6; r++) {
    if (X_ALONG_C) {
#pragma unroll
      for (int q = 0; q < 6; q++) d[r][q] = slot[(r * 6 + q) * 32 + lane];
    } else {
      const float4 middle = *(const float4*)(slot + r * 192 + lane * 4);
      d[r][0] = slot[r * 192 + left], d[r][5] = slot[r * 192 + right];
      d[r][1] = middle.x, d[r][2] = middle.y, d[r][3] = middle.z, d[r][4] = middle.w;
    }
  }
#pragma unroll
  for (int q = 0; q < 6; q++) to_points(d[0][q], d[1][q], d[2][q], d[3][q], d[4][q], d[5][q]);
  const int c = X_ALONG_C ? lane % STEP_C : task * 2 + lane / TILES;
  const int tile = X_ALONG_C ? task * (32 / STEP_C) + lane / STEP_C : lane % TILES;
  to += c * PITCH + tile;
#pragma unroll
  for (int r = 0; r < 6; r++) {
    to_points(d[r][0], d[r][1], d[r][2], d[r][3], d[r][4], d[r][5]);
#pragma unroll
    for (int q = 0; q < 6; q++) to[(r * 6 + q) * STEP_C * PITCH] = d[r][q];
  }
}

DEVICE void load4(float* to, unsigned from) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(from)
               : "memory");
}
template <int N> DEVICE void multiply(float (&sums)[8][N], const float* filters, const float* tiles) {
#pragma unroll
  for (int i = 0; i < 8; i++)
#pragma unroll
    for (int j = 0; j < N; j++) {
      const int t = i % 2 ? N - 1 - j : j;
      asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(sums[i][t]) : "f"(filters[i]), "f"(tiles[t]));
    }
}

DEVICE int sums_at(int point, int f, int four) {
  const int row = Y_ALONG_K ? f : f % 4 * (PART_F / 4) + f / 4;
  return (point * PART_F + row) * SUM_PITCH + (Y_ALONG_K ? four : four ^ row / 2 % 2 * 2) * 4;
}

DEVICE void write_results(const Args& args, const float* sums, int first_filter, int first_tile, int one, int lane) {
  constexpr int EIGHTS = PART_F / 8;
  const int f = Y_ALONG_K ? one % EIGHTS * 8 + lane % 8 : one % 4 + one / 4 * 8 + lane / TILES * 4;
  const int t = Y_ALONG_K ? one / EIGHTS * 4 + lane / 8 : lane % TILES;
  const int k = first_filter + f, tile = first_tile + t;
  if (k >= FILTERS || tile >= args.shape.tiles) return;
  const Channel channel = channel_of(args, k);
  const float* const from = sums + sums_at(0, f, t / 4) + t % 4;
  float half[4][6];
#pragma unroll
  for (int q = 0; q < 6; q++) {
    float column[6];
#pragma unroll
    for (int r = 0; r < 6; r++) column[r] = from[(r * 6 + q) * PART_F * SUM_PITCH];
    to_results(column, &half[0][q], 6);
  }
  const Place place = place_of(tile);
  Coord at;
  at.n = place.n, at.k = k;
#pragma unroll
  for (int r = 0; r < 4; r++) {
    if (OUT_H % 4 != 0 && place.h + r >= OUT_H) break;
    float results[4];
    to_results(half[r], results, 1);
#pragma unroll
    for (int q = 0; q < 4; q += Y_VECTOR) {
      if (OUT_W % 4 != 0 && place.w + q >= OUT_W) break;
      at.p = (place.h + r) * OUT_W + place.w + q;
      at.y = place.n * args.shape.y_n + k * args.shape.y_c + (place.h + r) * args.shape.y_h +
             (place.w + q) * args.shape.y_w;
      finish_vector<Y_VECTOR, false>(args, &channel, results + q, at);
    }
  }
}

DEVICE void convolve(const Args& args, const float* prepared) {
  DYNAMIC_SHARED(float, shared);
  __shared__ Errand errands[TASKS * 32];
  __shared__ __align__(8) unsigned long long barriers[2 * IMAGE_STAGES];
  const int thread = threadIdx.x, lane = thread % 32, warp = __shfl_sync(0xffffffffu, thread / 32, 0);
  const int filter_tile = blockIdx.x % FILTER_TILES, first_tile = blockIdx.x / FILTER_TILES * TILES;
  const unsigned full = shared_address(barriers), empty = full + 8 * IMAGE_STAGES;
  const int turn = warp / TASKS, task = warp % TASKS;
  const float* const x = (const float*)args.x;
  float* const slots = shared + SLOTS_AT;
  if (turn == 0) errands[thread] = errand_of(first_tile, args.shape.tiles, task, lane);
  if (thread == THREADS - 1) {
#pragma unroll
    for (int i = 0; i < IMAGE_STAGES; i++) mbarrier_init(full + 8 * i, TASKS), mbarrier_init(empty + 8 * i, WARPS);
  }
  if (!X_ALONG_C)
    for (int i = thread; i < SLOTS * TASKS * SLOT; i += THREADS) slots[i] = 0.f;
  __syncthreads();

  const auto slot_of = [&](int stage) { return slots + (stage % SLOTS * TASKS + task) * SLOT; };
  const auto copy_patches = [&](int stage) {
    copy_patch(x, errands + task * 32 + lane, shared_address(slot_of(stage)), task, stage, lane);
  };
  const float* const own = prepared + ((long long)filter_tile * STEPS * POINTS + 3 * warp) * STEP_C * TILE_F + lane * 4;
  const unsigned ring = shared_address(shared + warp * FILTER_STAGES * OWN);
  const auto copy_filters = [&](int stage, unsigned at) {
#pragma unroll
    for (int i = 0; i < OWN; i += 128)
      copy<4>(ring + at + (i + lane * 4) * 4, own + (long long)stage * POINTS * STEP_C * TILE_F + i, true);
  };
  if (turn < SLOTS && turn < STEPS) copy_patches(turn);
#pragma unroll
  for (int stage = 0; stage < FILTER_STAGES; stage++) {
    if (stage < STEPS) copy_filters(stage, stage * OWN * 4);
    end_copies();
  }

  int left = 0, right = 0;
  if (!X_ALONG_C) {
    const int tile = lane % TILES, w = (first_tile + tile) % TILES_W;
    left = tile == 0 || w == 0 ? 128 + lane : lane * 4 - 1;
    right = tile == TILES - 1 || w == TILES_W - 1 ? 160 + lane : lane * 4 + 4;
  }
  const int a = lane / 2 % 8 * 4, b = lane % 2 * 4, half = lane / 16;
  unsigned of_filters = ring + (half * STEP_C * TILE_F + a) * 4, third_filters = ring + (2 * STEP_C * TILE_F + a) * 4;
  const unsigned image = shared_address(shared + IMAGE_AT);
  unsigned of_tiles = image + ((3 * warp + half) * STEP_C * PITCH + b) * 4;
  unsigned third_tiles = image + ((3 * warp + 2) * STEP_C * PITCH + b + half * 8) * 4;
  asm volatile("" : "+r"(of_filters), "+r"(third_filters), "+r"(of_tiles), "+r"(third_tiles));
  float pair[8][8] = {}, third[8][4] = {};
  int mine = turn;
  unsigned filters_at = 0;
#pragma unroll 1
  for (int s = -LEAD; s < STEPS; s++) {
    const int ahead = s + LEAD;
    if (ahead == mine && ahead < STEPS) {
      const int at = ahead % IMAGE_STAGES;
      if (ahead >= IMAGE_STAGES) mbarrier_wait(empty + 8 * at, (ahead / IMAGE_STAGES & 1) ^ 1);
      wait_for_copies<1>();
      __syncwarp();
      transform(slot_of(ahead), left, right, shared + IMAGE_AT + at * STAGE, task, lane);
      __syncwarp();
      if (lane == 0) mbarrier_arrive(full + 8 * at);
      mine += PERIOD;
    }
    if (s < 0) continue;
    const int at = s % IMAGE_STAGES;
    wait_for_copies<FILTER_STAGES - 1>();
    __syncwarp();
    mbarrier_wait(full + 8 * at, s / IMAGE_STAGES & 1);
    const unsigned u = of_filters + filters_at, u3 = third_filters + filters_at;
    const unsigned v = of_tiles + at * STAGE * 4, v3 = third_tiles + at * STAGE * 4;
    float f[8], t[8], f3[8], t3[4];
    load4(f, u), load4(f + 4, u + 128), load4(t, v), load4(t + 4, v + 32);
#pragma unroll
    for (int c = 0; c < STEP_C; c++) {
      load4(f3, u3 + c * TILE_F * 4), load4(f3 + 4, u3 + c * TILE_F * 4 + 128), load4(t3, v3 + c * PITCH * 4);
      multiply(pair, f, t);
      if (c + 1 < STEP_C) {
        const unsigned next_u = u + (c + 1) * TILE_F * 4, next_v = v + (c + 1) * PITCH * 4;
        load4(f, next_u), load4(f + 4, next_u + 128), load4(t, next_v), load4(t + 4, next_v + 32);
      }
      multiply(third, f3, t3);
    }
    __syncwarp();
    if (lane == 0) mbarrier_arrive(empty + 8 * at);
    if (s + FILTER_STAGES < STEPS) copy_filters(s + FILTER_STAGES, filters_at);
    filters_at = filters_at == (FILTER_STAGES - 1) * OWN * 4 ? 0 : filters_at + OWN * 4;
    if (s + SLOTS == mine && mine < STEPS) copy_patches(mine);
    end_copies();
  }

#pragma unroll 1
  for (int part = 0; part < Y_PARTS; part++) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8 / Y_PARTS; i++) {
      const int point = 3 * warp + half, four = b / 4, f = a + i % 4 + i / 4 * 32;
      *(float4*)(shared + sums_at(point, f, four)) = *(const float4*)pair[i];
      *(float4*)(shared + sums_at(point, f, four + 2)) = *(const float4*)(pair[i] + 4);
      *(float4*)(shared + sums_at(3 * warp + 2, f, four + 2 * half)) = *(const float4*)third[i];
    }
    __syncthreads();
#pragma unroll 1
    for (int one = warp; one < PART_F * TILES / 32; one += WARPS)
      write_results(args, shared, filter_tile * TILE_F + part * PART_F, first_tile, one, lane);
#pragma unroll
    for (int i = 0; i < 8 - 8 / Y_PARTS; i++) {
#pragma unroll
      for (int j = 0; j < 8; j++) pair[i][j] = pair[i + 4][j];
#pragma unroll
      for (int j = 0; j < 4; j++) third[i][j] = third[i + 4][j];
    }
  }
}

KERNEL(THREADS, 1) {
  begin_grid();
  float* const prepared = (float*)args.shape.scratch;
  if (args.shape.launch == 0) prepare(args, prepared);
  else convolve(args, prepared);
}
