// cuda.conv_wgmma_transposed.v1 on sm_90a: wgmma, pixels by TMA from planes, transposed, tile 240 pixels x 64 filters x 32, 2 ping-pong x 1 cooperative warpgroups, 3 stages, 8 outputs at a time, filters streamed
// Geometry { grid: [132, 1, 1], block: 384, shared: 221672 }
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
constexpr int DIMS{2};
constexpr int GROUPS{1};
constexpr int FILTERS{128};
constexpr int CHANNELS{128};
constexpr int CHANNEL_VALUES{3};
constexpr int STEPS{4};
constexpr int SPLIT{1};
constexpr int PRODUCERS{1};
constexpr int FILTER_ROOM{12};
constexpr int FILTER_STAGES{4};
constexpr int RAW_STAGES{3};
constexpr int RAW_BYTES{28672};
constexpr int RECTANGLE{40};
constexpr int FULL_ARRIVALS{2};
constexpr int CHANNEL_PRODUCERS{64};
constexpr int TABLE_BYTES{0};
constexpr int PINGPONG{2};
constexpr int COOPERATIVE{1};
constexpr int CHANNEL_STAGES{3};
constexpr int ATOMS{1};
constexpr int PIXELS_ARE_ROWS{0};
constexpr int MOVES_BACK{0};
constexpr int RESIDUALS_EARLY{0};
constexpr int PIXELS_INNERMOST{0};
constexpr int INTERLEAVED{1};
constexpr int BLOCK_P{64};
constexpr int LINES{5};
constexpr int LOADED_P{336};
constexpr int TILE_P{240};
constexpr int COVERED_P{240};
constexpr int OVERLAP{0};
constexpr int TILE_F{64};
constexpr int TILE_K{32};
constexpr int ROW{64};
constexpr int ROW_LOADED{64};
constexpr int STAGES{3};
constexpr int OCCUPANCY{1};
constexpr int RESIDENT{0};
constexpr int REARRANGED{0};
constexpr int STREAMED{1};
constexpr int PREFETCHED{0};
constexpr int FILTERS_BY_LANE{0};
constexpr int TF32X3{0};
constexpr int PASSED{18432};
constexpr int SHARED{221672};
constexpr int PRODUCER_REGISTERS{56};
constexpr int CONSUMER_REGISTERS{224};
constexpr int Y_VECTOR{8};
constexpr int TAPS_D{1};
constexpr int TAPS_H{3};
constexpr int TAPS_W{3};
constexpr int FILTER_STEPS{36};
constexpr int STREAMED_TAPS{3};
constexpr int BY_PLANES{1};
constexpr int SLOTTED{0};
constexpr int PHASES{1};
constexpr int BOXES{1};
constexpr int PAD_D{0};
constexpr int PAD_H{1};
constexpr int PAD_W{1};
constexpr int Y_LINEAR{0};
constexpr int Y_PLANAR{1};
constexpr int OPS = 5;
constexpr int POINTERS = 4;
struct Shape {
  Divisor out_h;
  Divisor out_w;
  Divisor out_plane;
  Divisor image_tiles;
  Size pixels;
  Size y_p;
  Size y_n;
  Size y_c;
  Size y_d;
  Size y_h;
  Size y_w;
  Size w_k;
  Size bias1_c;
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
  n.norm2 = norm_of<float>(args.op[2], k);
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


struct alignas(64) TensorMap {
  unsigned long long words[16];
};

DEVICE unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

DEVICE void mbarrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
DEVICE void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
DEVICE void mbarrier_expect_tx(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
DEVICE void mbarrier_wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\nWAIT_%=:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra WAIT_%=;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

DEVICE bool is_elected() {
  unsigned elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
  return elected != 0;
}

DEVICE void prefetch_l2(const T* from, int count) {
  const unsigned long long first = (unsigned long long)from / 16 * 16;
  const unsigned bytes = (unsigned)(((unsigned long long)(from + count) + 15) / 16 * 16 - first);
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(first), "r"(bytes) : "memory");
}

DEVICE void bulk_load(unsigned to, const T* from, unsigned bytes, unsigned barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

DEVICE void tma_prefetch_map(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

DEVICE void tma_load_im2col_5d(unsigned to, const TensorMap* map, unsigned barrier, int a, int b, int c, int d, int n,
                               unsigned short ob, unsigned short oc, unsigned short od) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10};" ::"r"(to),
      "l"(map), "r"(barrier), "r"(a), "r"(b), "r"(c), "r"(d), "r"(n), "h"(ob), "h"(oc), "h"(od)
      : "memory");
}
DEVICE void tma_load_im2col(unsigned to, const TensorMap* map, unsigned barrier, int c, int w, int h, int d, int n,
                            int tap_w, int tap_h, int tap_d) {
  const unsigned short ow = tap_w, oh = tap_h, od = tap_d;
  if (DIMS == 3) {
    tma_load_im2col_5d(to, map, barrier, c, w, h, d, n, ow, oh, od);
  } else {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(to),
        "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(n), "h"(ow), "h"(oh)
        : "memory");
  }
}
DEVICE void tma_load_box_5d(unsigned to, const TensorMap* map, unsigned barrier, int a, int b, int c, int d, int e) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(a), "r"(b), "r"(c), "r"(d), "r"(e)
      : "memory");
}
DEVICE void tma_load_box(unsigned to, const TensorMap* map, unsigned barrier, int c, int w, int h, int d, int n) {
  if (DIMS == 3) {
    tma_load_box_5d(to, map, barrier, c, w, h, d, n);
  } else {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(n)
        : "memory");
  }
}

DEVICE void tma_load_rows(unsigned to, const TensorMap* map, unsigned barrier, int depth, int k) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(depth), "r"(k)
      : "memory");
}

DEVICE void tma_load_part(unsigned to, const TensorMap* map, unsigned barrier, int at) {
  asm volatile(
      "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3}], [%2];" ::"r"(
          to),
      "l"(map), "r"(barrier), "r"(at)
      : "memory");
}

DEVICE void tma_load_planes(unsigned to, const TensorMap* map, unsigned barrier, int p, int c, int n) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(p), "r"(c), "r"(n)
      : "memory");
}

DEVICE void tma_load_lines(unsigned to, const TensorMap* map, unsigned barrier, int c, int h, int n) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %3, %5, %6}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(0), "r"(c), "r"(h), "r"(n)
      : "memory");
}

DEVICE unsigned long long wgmma_descriptor(unsigned at) {
  constexpr unsigned long long SWIZZLE = ROW == 128 ? 1 : ROW == 64 ? 2 : 3, EIGHT_ROWS = 8 * ROW >> 4;
  return (unsigned long long)((at & 0x3FFFF) >> 4) | 1ull << 16 | EIGHT_ROWS << 32 | SWIZZLE << 62;
}
DEVICE unsigned long long wgmma_descriptor_lines(unsigned at, unsigned eight_rows) {
  constexpr unsigned long long SWIZZLE = ROW == 128 ? 1 : ROW == 64 ? 2 : 3;
  return (unsigned long long)((at & 0x3FFFF) >> 4) | 1ull << 16 | (unsigned long long)(eight_rows >> 4) << 32 |
         SWIZZLE << 62;
}
DEVICE unsigned long long wgmma_descriptor_innermost(unsigned at) {
  constexpr unsigned long long SWIZZLE = BLOCK_P == 64 ? 1 : BLOCK_P == 32 ? 2 : 3;
  constexpr unsigned long long BLOCK = TILE_K * BLOCK_P * 2 >> 4, EIGHT_ROWS = 8 * BLOCK_P * 2 >> 4;
  return (unsigned long long)((at & 0x3FFFF) >> 4) | BLOCK << 16 | EIGHT_ROWS << 32 | SWIZZLE << 62;
}
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
template <int N> DEVICE void wgmma_fence_accumulators(float (&acc)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(acc[i])::"memory");
}
template <int N> DEVICE void wgmma_fence_rows(unsigned (&rows)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; i++)
#pragma unroll
    for (int e = 0; e < 4; e++) asm volatile("" : "+r"(rows[i][e])::"memory");
}

DEVICE void wgmma(float (&acc)[120], unsigned long long rows, unsigned long long columns, bool add, f16 = f16()) {
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %122, 0;\n"
    "wgmma.mma_async.sync.aligned.m64n240k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119}, %120, %121, add, 1, 1, 0, 0;\n}"
    : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]), "+f"(acc[7]), "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]), "+f"(acc[12]), "+f"(acc[13]), "+f"(acc[14]), "+f"(acc[15]), "+f"(acc[16]), "+f"(acc[17]), "+f"(acc[18]), "+f"(acc[19]), "+f"(acc[20]), "+f"(acc[21]), "+f"(acc[22]), "+f"(acc[23]), "+f"(acc[24]), "+f"(acc[25]), "+f"(acc[26]), "+f"(acc[27]), "+f"(acc[28]), "+f"(acc[29]), "+f"(acc[30]), "+f"(acc[31]), "+f"(acc[32]), "+f"(acc[33]), "+f"(acc[34]), "+f"(acc[35]), "+f"(acc[36]), "+f"(acc[37]), "+f"(acc[38]), "+f"(acc[39]), "+f"(acc[40]), "+f"(acc[41]), "+f"(acc[42]), "+f"(acc[43]), "+f"(acc[44]), "+f"(acc[45]), "+f"(acc[46]), "+f"(acc[47]), "+f"(acc[48]), "+f"(acc[49]), "+f"(acc[50]), "+f"(acc[51]), "+f"(acc[52]), "+f"(acc[53]), "+f"(acc[54]), "+f"(acc[55]), "+f"(acc[56]), "+f"(acc[57]), "+f"(acc[58]), "+f"(acc[59]), "+f"(acc[60]), "+f"(acc[61]), "+f"(acc[62]), "+f"(acc[63]), "+f"(acc[64]), "+f"(acc[65]), "+f"(acc[66]), "+f"(acc[67]), "+f"(acc[68]), "+f"(acc[69]), "+f"(acc[70]), "+f"(acc[71]), "+f"(acc[72]), "+f"(acc[73]), "+f"(acc[74]), "+f"(acc[75]), "+f"(acc[76]), "+f"(acc[77]), "+f"(acc[78]), "+f"(acc[79]), "+f"(acc[80]), "+f"(acc[81]), "+f"(acc[82]), "+f"(acc[83]), "+f"(acc[84]), "+f"(acc[85]), "+f"(acc[86]), "+f"(acc[87]), "+f"(acc[88]), "+f"(acc[89]), "+f"(acc[90]), "+f"(acc[91]), "+f"(acc[92]), "+f"(acc[93]), "+f"(acc[94]), "+f"(acc[95]), "+f"(acc[96]), "+f"(acc[97]), "+f"(acc[98]), "+f"(acc[99]), "+f"(acc[100]), "+f"(acc[101]), "+f"(acc[102]), "+f"(acc[103]), "+f"(acc[104]), "+f"(acc[105]), "+f"(acc[106]), "+f"(acc[107]), "+f"(acc[108]), "+f"(acc[109]), "+f"(acc[110]), "+f"(acc[111]), "+f"(acc[112]), "+f"(acc[113]), "+f"(acc[114]), "+f"(acc[115]), "+f"(acc[116]), "+f"(acc[117]), "+f"(acc[118]), "+f"(acc[119]) : "l"(rows), "l"(columns), "r"((int)add));
}


struct Launch {
  TensorMap x, w;
  Args args;
};

constexpr int TAPS = TAPS_D * TAPS_H * TAPS_W;
constexpr int ROWS = ATOMS * 64, WIDTH = PIXELS_ARE_ROWS ? TILE_F : TILE_P;
static_assert((PIXELS_ARE_ROWS ? TILE_P : TILE_F) == COOPERATIVE * ROWS,
              "a set of consumer warpgroups computes a tile");
constexpr int FILTER_TILES = (FILTERS + TILE_F - 1) / TILE_F;
constexpr int COLUMNS = GROUPS * FILTER_TILES;
static_assert(LINES == 0 || TILE_P % LINES == 0, "lines are whole");
constexpr int LINE = LINES == 0 ? TILE_P : TILE_P / LINES;
constexpr bool FILTERS_IN_PARTS = TF32X3 && PIXELS_ARE_ROWS;
constexpr unsigned X_LOADED = LOADED_P * ROW_LOADED, X_PART = (LOADED_P * ROW + 1023) / 1024 * 1024;
constexpr unsigned X_BYTES = X_PART * (TF32X3 && !PIXELS_ARE_ROWS ? 2 : 1);
constexpr unsigned W_LOADED = TILE_F * ROW_LOADED, W_BYTES = TILE_F * ROW * (FILTERS_IN_PARTS ? 2 : 1);
static_assert(X_LOADED <= X_PART && W_LOADED <= W_BYTES, "rows have room");
DEVICE int tile_stride() { return gridDim.x / SPLIT; }

constexpr int PART = WIDTH > 32 ? 64 : WIDTH > 16 ? 32 : 16, PART_ROWS = PART == 64 ? 8 : 16;
constexpr int PARTS_ALONG = (WIDTH + PART - 1) / PART, PITCH = PART + 8, PART_FLOATS = PART_ROWS * PITCH;

constexpr unsigned W_AT = STAGES * X_BYTES;
constexpr unsigned RAW_AT = W_AT + FILTER_ROOM * W_BYTES, ACC_AT = RAW_AT + RAW_STAGES * RAW_BYTES;
constexpr int ACC_PITCH = WIDTH + 4;
constexpr unsigned CHANNELS_AT = ACC_AT + PASSED;
static_assert(PASSED == 0 ||
                  PASSED == (SPLIT > 1 ? COOPERATIVE * ROWS * ACC_PITCH : PINGPONG * COOPERATIVE * 4 * PART_FLOATS) * 4,
              "what accumulators pass through is counted");
constexpr unsigned TABLE_AT = (CHANNELS_AT + CHANNEL_STAGES * TILE_F * CHANNEL_VALUES * 4 + 15) / 16 * 16;
constexpr unsigned BARRIERS_AT = TABLE_AT + TABLE_BYTES;
static_assert(CHANNEL_VALUES == 0 || sizeof(Channel) == CHANNEL_VALUES * 4, "a channel's numbers are counted");
constexpr int PARTS_BARRIERS = !FILTERS_IN_PARTS || STREAMED ? 0 : RESIDENT ? 1 : STAGES;
static_assert(BARRIERS_AT +
                      (2 * (STAGES + CHANNEL_STAGES + FILTER_STAGES + RAW_STAGES) + PINGPONG + 1 + PARTS_BARRIERS) * 8 +
                      1024 <=
                  SHARED,
              "shared memory is large enough");

struct Barriers {
  unsigned first;
  DEVICE unsigned full(int stage) const { return first + stage * 8; }
  DEVICE unsigned empty(int stage) const { return first + (STAGES + stage) * 8; }
  DEVICE unsigned channels_full(int stage) const { return first + (2 * STAGES + stage) * 8; }
  DEVICE unsigned channels_empty(int stage) const { return first + (2 * STAGES + CHANNEL_STAGES + stage) * 8; }
  DEVICE unsigned order(int set) const { return first + (2 * STAGES + 2 * CHANNEL_STAGES + set) * 8; }
  DEVICE unsigned filters() const { return order(PINGPONG); }
  DEVICE unsigned sent() const { return order(PINGPONG); }
  DEVICE unsigned parts(int stage) const { return order(PINGPONG + 1 + stage); }
  DEVICE unsigned filters_full(int stage) const { return parts(PARTS_BARRIERS + stage); }
  DEVICE unsigned filters_empty(int stage) const { return parts(PARTS_BARRIERS + FILTER_STAGES + stage); }
  DEVICE unsigned raw_full(int stage) const { return filters_empty(FILTER_STAGES + stage); }
  DEVICE unsigned raw_empty(int stage) const { return filters_empty(FILTER_STAGES + RAW_STAGES + stage); }
};

template <int N> struct PipelineState {
  int stage;
  unsigned phase;
  DEVICE explicit PipelineState(unsigned count) : stage(count % (N > 0 ? N : 1)), phase(count / (N > 0 ? N : 1) & 1) {}
  DEVICE void next() {
    if (++stage == N) stage = 0, phase ^= 1;
  }
};

struct Column {
  int group, filter;
};
DEVICE Column column_of(int tile) {
  const int column = tile % COLUMNS;
  return {column / FILTER_TILES, column % FILTER_TILES * TILE_F};
}
constexpr int RECTANGLE_COLUMNS = RECTANGLE > 0 ? RECTANGLE : 8,
              RECTANGLE_LINES = LINES > 0 ? LINES : TILE_P / RECTANGLE_COLUMNS, SQUARES = RECTANGLE_COLUMNS / 8;
DEVICE unsigned rectangles_across(const Shape& s) {
  return ((unsigned)s.out_w + RECTANGLE_COLUMNS - 1) / RECTANGLE_COLUMNS;
}
DEVICE unsigned rectangles_down(const Shape& s) { return ((unsigned)s.out_h + RECTANGLE_LINES - 1) / RECTANGLE_LINES; }
struct Rectangle {
  int plane, h, w;
};
DEVICE Rectangle rectangle_of(const Shape& s, int tile) {
  const unsigned across = rectangles_across(s), all = across * rectangles_down(s);
  const unsigned number = (unsigned)tile / COLUMNS, plane = number / all, within = number - plane * all;
  const unsigned line = within / across, column = within - line * across;
  return {(int)plane, (int)line * RECTANGLE_LINES, (int)column * RECTANGLE_COLUMNS};
}
DEVICE int pixels_of_tile(const Shape& s) { return LINES == 0 ? COVERED_P : LINES * (int)s.out_w; }
DEVICE int tiles_along(const Shape& s, int pixels) {
  return (pixels - OVERLAP + pixels_of_tile(s) - 1) / pixels_of_tile(s);
}
DEVICE int tiles_of(const Shape& s) {
  if (RECTANGLE > 0) return s.pixels / (s.out_h * s.out_w) * rectangles_across(s) * rectangles_down(s) * COLUMNS;
  if (!PIXELS_INNERMOST) return tiles_along(s, s.pixels) * COLUMNS;
  if (PIXELS_ARE_ROWS) return s.pixels / (int)s.out_plane * tiles_along(s, s.out_plane) * COLUMNS;
  return s.pixels / s.out_plane * s.image_tiles * COLUMNS;
}

struct Pixels {
  int first, end;
  int columns, lines;
};
DEVICE Pixels pixels_of(const Shape& s, int tile) {
  if (RECTANGLE > 0) {
    const Rectangle at = rectangle_of(s, tile);
    const int columns = (int)s.out_w - at.w, lines = (int)s.out_h - at.h;
    return {(at.plane * (int)s.out_h + at.h) * (int)s.out_w + at.w, (int)s.pixels,
            columns < RECTANGLE_COLUMNS ? columns : RECTANGLE_COLUMNS,
            lines < RECTANGLE_LINES ? lines : RECTANGLE_LINES};
  }
  const int number = tile / COLUMNS, of_image = PIXELS_INNERMOST ? tiles_along(s, s.out_plane) : 0;
  const int images = !PIXELS_INNERMOST ? 0 : PIXELS_ARE_ROWS ? number / of_image : number / s.image_tiles;
  const int image = images * s.out_plane, first = image + (number - images * of_image) * pixels_of_tile(s);
  const int end = PIXELS_INNERMOST ? image + s.out_plane : (int)s.pixels;
  const int behind = first + pixels_of_tile(s) + OVERLAP;
  return {first, behind < end ? behind : end, 0, 0};
}
DEVICE int pixel_at(const Shape& s, const Pixels& pixels, int column) {
  if (LINES == 0) return pixels.first + column;
  if (RECTANGLE > 0) {
    const bool inside = column % LINE < pixels.columns && column / LINE < pixels.lines;
    return inside ? pixels.first + column / LINE * (int)s.out_w + column % LINE : pixels.end;
  }
  return column % LINE < s.out_w ? pixels.first + column / LINE * s.out_w + column % LINE : pixels.end;
}

DEVICE int first_loaded(const Shape& s, int tile) {
  const int first = tile / COLUMNS * TILE_P, last = (int)s.pixels - TILE_P;
  return MOVES_BACK && first > last && last > 0 ? last : first;
}
DEVICE int row_pixel(const Shape& s, const Rectangle& rectangle, int tile, int row) {
  if (RECTANGLE == 0) {
    const int pixel = first_loaded(s, tile) + row;
    return pixel < tile / COLUMNS * TILE_P ? (int)s.pixels : pixel;
  }
  const int square = row / 64;
  const int h = rectangle.h + square / SQUARES * 8 + row % 64 / 8, w = rectangle.w + square % SQUARES * 8 + row % 8;
  return h < s.out_h && w < s.out_w ? (rectangle.plane * (int)s.out_h + h) * (int)s.out_w + w : (int)s.pixels;
}

DEVICE int interleaved(int row) {
  return row / (INTERLEAVED * 8) * (INTERLEAVED * 8) + row % 8 * INTERLEAVED + row / 8 % INTERLEAVED;
}
DEVICE int row_of_pixel(int pixel) {
  return pixel / (INTERLEAVED * 8) * (INTERLEAVED * 8) + pixel % INTERLEAVED * 8 + pixel / INTERLEAVED % 8;
}

DEVICE void load_channels(const Args& args, Channel* channels, const Barriers& barriers,
                          PipelineState<CHANNEL_STAGES>& pipe, int tile, int thread, int count) {
  const Column column = column_of(tile);
  mbarrier_wait(barriers.channels_empty(pipe.stage), pipe.phase ^ 1);
#pragma unroll 1
  for (int f = thread; f < TILE_F; f += count)
    channels[pipe.stage * TILE_F + f] =
        column.filter + f < FILTERS ? channel_of(args, column.group * FILTERS + column.filter + f) : Channel();
  mbarrier_arrive(barriers.channels_full(pipe.stage));
  pipe.next();
}

DEVICE void rearrange_filters(const Args& args, char* memory, float* part);

DEVICE void write_words(char* to, const unsigned (&words)[1]) { *(unsigned*)to = words[0]; }
DEVICE void write_words(char* to, const unsigned (&words)[4]) {
  *(uint4*)to = make_uint4(words[0], words[1], words[2], words[3]);
}

DEVICE bool prepares(const Launch& launch);
DEVICE void prepare(const Launch& launch);

DEVICE void wait_for_image(const Launch& launch);

DEVICE void stream_filters(const Launch& launch, unsigned shared, const Barriers& barriers);

DEVICE void produce(const Launch& launch, char* memory, const Barriers& barriers);

struct Early;

template <bool PLAIN>
DEVICE void epilogue(Args args, float (&acc)[ATOMS][WIDTH / 2], float* part, const Channel* channels,
                     const Early& early, int tile);

DEVICE void mainloop(float (&acc)[ATOMS][WIDTH / 2], unsigned shared, const Barriers& barriers, unsigned count);

constexpr int LANE_RUN = 16 / (int)sizeof(T);

DEVICE int pair_of_filters(int i) {
  constexpr int EIGHTS = LANE_RUN / 2;
  const int eight = i / 4, lane = threadIdx.x % 4;
  return FILTERS_BY_LANE ? eight / EIGHTS * (4 * LANE_RUN) + lane * LANE_RUN + eight % EIGHTS * 2
                         : eight * 8 + lane * 2;
}

DEVICE void affine_columns(const Args& args, float (&acc)[ATOMS][WIDTH / 2], const Channel* channels) {
  struct alignas(8) Pair {
    Channel at[2];
  };
#pragma unroll
  for (int i = 0; i < WIDTH / 2; i += 4) {
    if (i % 8 == 0) __syncwarp();
    const Pair pair = *(const Pair*)(channels + pair_of_filters(i));
#pragma unroll
    for (int atom = 0; atom < ATOMS; atom++)
#pragma unroll
      for (int e = 0; e < 4; e++) acc[atom][i + e] = affine(args, pair.at[e % 2], acc[atom][i + e]);
  }
}

constexpr int UNIT = Y_VECTOR < 4 ? 4 : Y_VECTOR, UNITS_ACROSS = WIDTH / UNIT,
              SHARE_ROWS = (COOPERATIVE * ROWS + SPLIT - 1) / SPLIT;
constexpr int UNITS_OF_THREAD = (SHARE_ROWS * UNITS_ACROSS + COOPERATIVE * 128 - 1) / (COOPERATIVE * 128);
constexpr int COLUMNS_OF_PARTS = PIXELS_ARE_ROWS ? (WIDTH + 31) / 32 * 32 : PARTS_ALONG * PART;
constexpr int VECTORS_OF_TILE = (SPLIT > 1 ? UNITS_OF_THREAD * UNIT : ATOMS * COLUMNS_OF_PARTS / 2) / Y_VECTOR;
struct Early {
  Residuals<Y_VECTOR> of[RESIDUALS_EARLY ? VECTORS_OF_TILE : 1];
};

DEVICE void read_residuals(const Args& args, Early& early, int tile);
DEVICE void read_residuals_split(const Args& args, Early& early);

DEVICE void prefetch_residuals(const Args& args, int tile, int thread, int count);

DEVICE void epilogue_split(const Args& args, const float (&acc)[ATOMS][WIDTH / 2], char* memory,
                           const Barriers& barriers, const Channel* channels, const Early& early);

DEVICE void prefetch_filters(const Args& args) {
  constexpr int SECTOR = 32 / (int)sizeof(T), THREADS = PINGPONG * COOPERATIVE * 128;
  const T* const filters = (const T*)args.op[0].p[0];
#pragma unroll 1
  for (int at = (blockIdx.x * THREADS + threadIdx.x - PRODUCERS * 128) * SECTOR; at < PREFETCHED;
       at += gridDim.x * THREADS * SECTOR)
    prefetch_sector(filters + at);
}

extern "C" __global__ void __launch_bounds__((PRODUCERS + PINGPONG * COOPERATIVE) * 128, OCCUPANCY) CLUSTER
    fuseplan_kernel(const __grid_constant__ Launch launch) {
  DYNAMIC_SHARED(char, memory);
  if (prepares(launch)) return prepare(launch);
  const Args& args = launch.args;
  const unsigned start = shared_address(memory), shared = (start + 1023) / 1024 * 1024;
  char* aligned = memory + (shared - start);
  const Barriers barriers = {shared + BARRIERS_AT};
  if (threadIdx.x == 0) {
    if (!STREAMED) tma_prefetch_map(&launch.w);
    for (int i = 0; i < STAGES; i++)
      mbarrier_init(barriers.full(i), FULL_ARRIVALS), mbarrier_init(barriers.empty(i), COOPERATIVE * 4);
    for (int i = 0; i < CHANNEL_STAGES; i++)
      mbarrier_init(barriers.channels_full(i), CHANNEL_PRODUCERS),
          mbarrier_init(barriers.channels_empty(i), COOPERATIVE * 128);
    for (int i = 0; i < PINGPONG; i++) mbarrier_init(barriers.order(i), COOPERATIVE * 4);
    mbarrier_init(barriers.filters(), 1);
    for (int i = 0; i < PARTS_BARRIERS; i++) mbarrier_init(barriers.parts(i), RESIDENT ? 3 * STEPS : 3);
    for (int i = 0; i < FILTER_STAGES; i++)
      mbarrier_init(barriers.filters_full(i), 1), mbarrier_init(barriers.filters_empty(i), COOPERATIVE * 4);
    for (int i = 0; i < RAW_STAGES; i++)
      mbarrier_init(barriers.raw_full(i), 1), mbarrier_init(barriers.raw_empty(i), FULL_ARRIVALS);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  launch_next_grid();
  if (SPLIT > 1) cluster_arrive();
  if (threadIdx.x < PRODUCERS * 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(PRODUCER_REGISTERS));
    produce(launch, aligned, barriers);
    if (SPLIT > 1) cluster_wait();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CONSUMER_REGISTERS));
    const Channel* channels = (const Channel*)(aligned + CHANNELS_AT);
    float* part = (float*)(aligned + ACC_AT) + (threadIdx.x / 32 - PRODUCERS * 4) * PART_FLOATS;
    float acc[ATOMS][WIDTH / 2];
    if (PREFETCHED > 0) prefetch_filters(args);
    wait_for_grids();
    if (REARRANGED) rearrange_filters(args, aligned, part);
    else if (RESIDENT && tile_number() < tiles_of(args.shape))
      mbarrier_wait(FILTERS_IN_PARTS ? barriers.parts(0) : barriers.filters(), 0);
    const bool plain = is_plain(args);
    const int tiles = TAPS == 1 ? tiles_of(args.shape) : 0;
    unsigned count = PINGPONG > 1 ? __shfl_sync(0xffffffff, (threadIdx.x / 128 - PRODUCERS) / COOPERATIVE, 0) : 0;
#pragma unroll 1
    for (int tile = tile_number() + count * tile_stride(); tile < (TAPS == 1 ? tiles : tiles_of(args.shape));
         tile += PINGPONG * tile_stride()) {
      Early early;
      if (RESIDUALS_EARLY && SPLIT > 1) read_residuals_split(args, early);
      else if (RESIDUALS_EARLY) read_residuals(args, early, tile);
      else prefetch_residuals(args, tile, threadIdx.x % (COOPERATIVE * 128), COOPERATIVE * 128);
      mainloop(acc, shared, barriers, count);
      const PipelineState<CHANNEL_STAGES> channel_pipe(count);
      mbarrier_wait(barriers.channels_full(channel_pipe.stage), channel_pipe.phase);
      if (SPLIT > 1) epilogue_split(args, acc, aligned, barriers, channels, early);
      else if (plain) epilogue<true>(args, acc, part, channels + channel_pipe.stage * TILE_F, early, tile);
      else epilogue<false>(args, acc, part, channels + channel_pipe.stage * TILE_F, early, tile);
      mbarrier_arrive(barriers.channels_empty(channel_pipe.stage));
      count += PINGPONG;
    }
  }
}

template <class E> DEVICE unsigned low_word_of(const E*) { return 0; }
template <int N> DEVICE bool are_finite(const float (&)[N]) { return true; }
DEVICE float sum_of_products(const Args&, int, int, int) { return 0.f; }


DEVICE void rearrange_filters(const Args&, char*, float*) {}


static_assert(STREAMED && SPLIT == 1 && W_LOADED == TILE_F * ROW, "as the launch was planned");

constexpr unsigned long long PREPARE = 1, JUST_PREPARED = 2;

DEVICE bool prepares(const Launch& launch) { return launch.w.words[1] == PREPARE; }

constexpr int STREAMED_STEPS = FILTER_STEPS / STREAMED_TAPS;
constexpr unsigned STREAMED_BYTES = STREAMED_TAPS * W_BYTES;

DEVICE int channel_at(int place) {
  constexpr int OF_PHASE = TILE_K / PHASES;
  if (!SLOTTED) return place;
  const int slot = (place / 16 * 4 + place % 2 * 2 + place / 8 % 2) * 4 + place % 8 / 2;
  return slot % OF_PHASE * PHASES + slot / OF_PHASE;
}

template <class E> DEVICE unsigned filter_word(const E* from, int c, int second, int end) {
  return (c < end ? from[c * TAPS].bits : 0) | (unsigned)(second < end ? from[second * TAPS].bits : 0) << 16;
}
DEVICE unsigned filter_word(const float* from, int c, int, int end) {
  unsigned word = 0;
  if (c < end) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(from[c * TAPS]));
  return word;
}

constexpr int PREPARING_WARPS = (PRODUCERS + PINGPONG * COOPERATIVE) * 4;
constexpr unsigned BROUGHT_BYTES = TILE_K * TAPS * sizeof(T), BROUGHT_ROOM = SHARED / (PREPARING_WARPS * BROUGHT_BYTES);
constexpr int BROUGHT = TAPS == 1 ? 0 : BROUGHT_ROOM < 4 ? BROUGHT_ROOM : 4;
constexpr int SOME_TAPS = TAPS_H * TAPS_W <= 9 ? TAPS_H * TAPS_W : TAPS_W, PREPARED_PARTS = TAPS / SOME_TAPS,
              OF_WORD = 4 / (int)sizeof(T), RUN = SOME_TAPS == 1 ? 4 : 1, RUNS = TILE_K / OF_WORD / RUN;
constexpr int PADDED_STEPS = (CHANNELS + TILE_K - 1) / TILE_K;
constexpr bool LOW = W_BYTES > W_LOADED;

struct PreparedRow {
  int row, chunk, column, filter, channels;
  DEVICE explicit PreparedRow(int number)
      : row(number % TILE_F),
        chunk(number / TILE_F % PADDED_STEPS),
        column(number / TILE_F / PADDED_STEPS),
        filter(column % FILTER_TILES * TILE_F + row) {
    const int left = CHANNELS - chunk * TILE_K;
    channels = column < COLUMNS && filter < FILTERS ? left < TILE_K ? left : TILE_K : 0;
  }
  DEVICE const T* from(const Launch& launch) const {
    return (const T*)launch.args.op[0].p[0] +
           ((column / FILTER_TILES * FILTERS + filter) * launch.args.shape.w_k + chunk * (TILE_K * TAPS));
  }
};
constexpr int PREPARED_ROWS = COLUMNS * PADDED_STEPS * TILE_F;

struct PreparedWords {
  unsigned words[SOME_TAPS][RUN], low[LOW ? SOME_TAPS : 1][RUN];

  DEVICE void read(const T* from, int channels, int part, int run) {
#pragma unroll
    for (int w = 0; w < RUN; w++) {
      const int place = (run * RUN + w) * OF_WORD;
      const int c = channel_at(place), second = channel_at(place + OF_WORD - 1);
#pragma unroll
      for (int i = 0; i < SOME_TAPS; i++) {
        const T* const tap = from + part * SOME_TAPS + i;
        words[i][w] = filter_word(tap, c, second, channels);
        if (LOW) low[LOW ? i : 0][w] = c < channels ? low_word_of(tap + c * TAPS) : 0u;
      }
    }
  }

  DEVICE void write(const Launch& launch, const PreparedRow& at, int part, int run) const {
    const unsigned offset = at.row * ROW + run * RUN * 4, mask = ROW == 128 ? 7 : ROW == 64 ? 3 : 1;
    char* const to = (char*)launch.w.words[0] + (offset ^ (offset >> 7 & mask) << 4);
#pragma unroll
    for (int i = 0; i < SOME_TAPS; i++) {
      const int line = part * (SOME_TAPS / TAPS_W) + i / TAPS_W, tap = i % TAPS_W;
      const int of_tile = BY_PLANES
                              ? ((line / TAPS_H * PADDED_STEPS + at.chunk) * TAPS_H + line % TAPS_H) * TAPS_W + tap
                              : (tap * PADDED_STEPS + at.chunk) * TAPS_H + line;
      char* const written = to + (at.column * FILTER_STEPS + of_tile) * (long long)W_BYTES;
      write_words(written, words[i]);
      if (LOW) write_words(written + W_LOADED, low[LOW ? i : 0]);
    }
  }
};

DEVICE void copy_vector(unsigned to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

DEVICE void bring_row(const Launch& launch, const PreparedRow& at, T* to, bool aligned) {
  const int lane = threadIdx.x % 32, count = at.channels * TAPS;
  constexpr int VECTOR = 16 / (int)sizeof(T);
  const T* const from = at.from(launch);
  if (aligned) {
#pragma unroll 1
    for (int i = lane * VECTOR; i < count; i += 32 * VECTOR) copy_vector(shared_address(to + i), from + i);
  } else {
#pragma unroll 4
    for (int i = lane; i < count; i += 32) to[i] = from[i];
  }
}

DEVICE int first_row_of_warp() { return threadIdx.x / 32 * gridDim.x + blockIdx.x; }
DEVICE int row_stride() { return gridDim.x * PREPARING_WARPS; }

DEVICE void prefetch_rows(const Launch& launch) {
  constexpr int SECTOR = 32;
#pragma unroll 1
  for (int t = 0; t < BROUGHT; t++) {
    const PreparedRow at(first_row_of_warp() + t * row_stride());
#pragma unroll 1
    for (int i = threadIdx.x % 32 * SECTOR; i < at.channels * TAPS * (int)sizeof(T); i += 32 * SECTOR)
      prefetch_sector((const char*)at.from(launch) + i);
  }
}

DEVICE void prepare_brought(const Launch& launch) {
  DYNAMIC_SHARED(T, brought);
  constexpr int ITEMS = RUNS * PREPARED_PARTS;
  const int lane = threadIdx.x % 32, stride = row_stride();
  T* const rows = brought + threadIdx.x / 32 * (BROUGHT * TILE_K * TAPS);
  const bool aligned = CHANNELS * TAPS * sizeof(T) % 16 == 0 && TILE_K * TAPS * sizeof(T) % 16 == 0 &&
                       ((unsigned long long)launch.args.op[0].p[0] | launch.args.shape.w_k * sizeof(T)) % 16 == 0;
#pragma unroll 1
  for (int first = first_row_of_warp(); first < PREPARED_ROWS; first += BROUGHT * stride) {
    __syncwarp();
#pragma unroll 1
    for (int t = 0; t < BROUGHT; t++)
      bring_row(launch, PreparedRow(first + t * stride), rows + t * (TILE_K * TAPS), aligned);
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();
#pragma unroll 1
    for (int t = 0; t < BROUGHT && first + t * stride < PREPARED_ROWS; t++) {
      const PreparedRow at(first + t * stride);
#pragma unroll 1
      for (int item = lane; item < ITEMS; item += 32) {
        PreparedWords of;
        of.read(rows + t * (TILE_K * TAPS), at.channels, item % PREPARED_PARTS, item / PREPARED_PARTS);
        of.write(launch, at, item % PREPARED_PARTS, item / PREPARED_PARTS);
      }
    }
  }
}

DEVICE void prepare(const Launch& launch) {
  if constexpr (BROUGHT > 0) prefetch_rows(launch);
  wait_for_grids();
  launch_next_grid();
  if constexpr (BROUGHT > 0) return prepare_brought(launch);
  constexpr int ALL = PREPARED_ROWS * RUNS * PREPARED_PARTS, TOGETHER = SOME_TAPS * RUN < 8 ? 8 / (SOME_TAPS * RUN) : 1;
  const int stride = gridDim.x * blockDim.x;
#pragma unroll 1
  for (int first = blockIdx.x * blockDim.x + threadIdx.x; first < ALL; first += TOGETHER * stride) {
    PreparedWords of[TOGETHER];
#pragma unroll
    for (int t = 0; t < TOGETHER; t++) {
      const int item = first + t * stride;
      const PreparedRow at(item / PREPARED_PARTS / RUNS);
      of[t].read(at.from(launch), at.channels, item % PREPARED_PARTS, item / PREPARED_PARTS % RUNS);
    }
#pragma unroll
    for (int t = 0; t < TOGETHER; t++) {
      const int item = first + t * stride;
      if (item >= ALL) continue;
      const PreparedRow at(item / PREPARED_PARTS / RUNS);
      of[t].write(launch, at, item % PREPARED_PARTS, item / PREPARED_PARTS % RUNS);
    }
  }
}

DEVICE void wait_for_image(const Launch& launch) {
  if (launch.w.words[1] != JUST_PREPARED) wait_for_grids();
}

DEVICE void stream_filters(const Launch& launch, unsigned shared, const Barriers& barriers) {
  if (launch.w.words[1] == JUST_PREPARED) wait_for_grids();
  const char* const first = (const char*)launch.w.words[0];
  PipelineState<FILTER_STAGES> pipe(0);
#pragma unroll 1
  for (int tile = tile_number(); tile < tiles_of(launch.args.shape); tile += tile_stride()) {
    const char* from = first + (long long)(tile % COLUMNS) * STREAMED_STEPS * STREAMED_BYTES;
#pragma unroll 1
    for (int step = 0; step < STREAMED_STEPS; step++, from += STREAMED_BYTES) {
      const unsigned full = barriers.filters_full(pipe.stage);
      mbarrier_wait(barriers.filters_empty(pipe.stage), pipe.phase ^ 1);
      mbarrier_expect_tx(full, STREAMED_BYTES);
      bulk_load(shared + W_AT + pipe.stage * STREAMED_BYTES, (const T*)from, STREAMED_BYTES, full);
      pipe.next();
    }
  }
}



constexpr int CHANNEL_STEPS = (CHANNELS + TILE_K - 1) / TILE_K, LINES_IN = LINES + TAPS_H - 1;
static_assert(STEPS == CHANNEL_STEPS * TAPS_D && STREAMED && PRODUCERS == 1 && TILE_K == 32 && ROW == 64 &&
                  LOADED_P == LINES_IN * LINE && CHANNEL_PRODUCERS == 64 && LINE >= RECTANGLE + TAPS_W - 1,
              "as the launch was planned");
constexpr int BOX = 64, SHIFT = (8 - PAD_W % 8) % 8;
constexpr unsigned BOX_LINE = TILE_K * BOX * 2, BOX_BYTES = LINES_IN * BOX_LINE;
static_assert(RAW_BYTES == BOXES * BOX_BYTES && BOXES * BOX >= SHIFT + LINE, "a stage has what a tile sees");

DEVICE void load_operands(const Launch& launch, unsigned shared, const Barriers& barriers) {
  const Shape& s = launch.args.shape;
  tma_prefetch_map(&launch.x);
  wait_for_image(launch);
  const int planes = s.out_plane / (s.out_h * s.out_w);
  PipelineState<RAW_STAGES> pipe(0);
#pragma unroll 1
  for (int tile = tile_number(); tile < tiles_of(s); tile += tile_stride()) {
    const Rectangle at = rectangle_of(s, tile);
    const int n = at.plane / planes, d = at.plane % planes - PAD_D, c = column_of(tile).group * CHANNELS;
#pragma unroll 1
    for (int step = 0; step < STEPS; step++) {
      const unsigned full = barriers.raw_full(pipe.stage), to = shared + RAW_AT + pipe.stage * RAW_BYTES;
      mbarrier_wait(barriers.raw_empty(pipe.stage), pipe.phase ^ 1);
      mbarrier_expect_tx(full, RAW_BYTES);
#pragma unroll
      for (int i = 0; i < BOXES; i++)
        tma_load_box(to + i * BOX_BYTES, &launch.x, full, at.w - PAD_W - SHIFT + i * BOX,
                     c + step % CHANNEL_STEPS * TILE_K, at.h - PAD_H, d + step / CHANNEL_STEPS, n);
      pipe.next();
    }
  }
}

DEVICE void transpose(unsigned from, unsigned to) {
  constexpr int WARPS = CHANNEL_PRODUCERS / 32, EIGHTS = (SHIFT + LINE + 7) / 8, MOST = (EIGHTS + 1) / 2, SOME = 4;
  static_assert(WARPS == 2 && LINE % 8 == 0, "a line's columns are swizzled as the first's");
  const int lane = threadIdx.x % 32, column = lane / 4 - SHIFT;
  const unsigned warp = threadIdx.x / 32 % WARPS;
  const unsigned row = from + lane * (BOX * 2) + (lane % 8 << 4), swizzle = (column >> 1 & 3) << 4;
  const unsigned pixel = to + column * ROW + lane % 4 * 4;
#pragma unroll 1
  for (int line = 0; line < LINES_IN; line++) {
    const unsigned odd = EIGHTS % 2 == 0 ? warp : (warp + line) % 2;
    const unsigned rows = row + line * BOX_LINE ^ odd << 4, pixels = pixel + (line * LINE + odd * 8) * ROW;
#pragma unroll
    for (int first = 0; first < MOST; first += SOME) {
      unsigned v[SOME][4];
#pragma unroll
      for (int i = 0; i < SOME; i++) {
        const int eight = (first + i) * 2;
        const unsigned at = eight + odd < EIGHTS ? (rows ^ eight % 8 << 4) + eight / 8 * BOX_BYTES : rows;
        if (first + i < MOST)
          asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                       : "=r"(v[i][0]), "=r"(v[i][1]), "=r"(v[i][2]), "=r"(v[i][3])
                       : "r"(at)
                       : "memory");
      }
#pragma unroll
      for (int i = 0; i < SOME; i++) {
        const int eight = (first + i) * 2;
        const bool inside =
            (eight > 0 || odd > 0 || column >= 0) && (eight + 2 < EIGHTS || (int)(eight + odd) * 8 + column < LINE);
#pragma unroll
        for (int j = 0; j < 4; j++)
          if (first + i < MOST && inside)
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(pixels + (j << 4 ^ swizzle) + eight * (8 * ROW)), "r"(v[i][j])
                         : "memory");
      }
    }
  }
}

DEVICE void produce(const Launch& launch, char* memory, const Barriers& barriers) {
  const unsigned shared = shared_address(memory);
  if (threadIdx.x < 64) {
    if (!is_elected()) return;
    if (threadIdx.x < 32) load_operands(launch, shared, barriers);
    else stream_filters(launch, shared, barriers);
    return;
  }
  wait_for_grids();
  PipelineState<CHANNEL_STAGES> channel_pipe(0);
  PipelineState<RAW_STAGES> raw(0);
  PipelineState<STAGES> pipe(0);
#pragma unroll 1
  for (int tile = tile_number(); tile < tiles_of(launch.args.shape); tile += tile_stride()) {
    load_channels(launch.args, (Channel*)(memory + CHANNELS_AT), barriers, channel_pipe, tile, threadIdx.x - 64,
                  CHANNEL_PRODUCERS);
#pragma unroll 1
    for (int step = 0; step < STEPS; step++) {
      mbarrier_wait(barriers.raw_full(raw.stage), raw.phase);
      mbarrier_wait(barriers.empty(pipe.stage), pipe.phase ^ 1);
      transpose(shared + RAW_AT + raw.stage * RAW_BYTES, shared + pipe.stage * X_BYTES);
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncwarp();
      if (threadIdx.x % 32 == 0)
        mbarrier_arrive(barriers.full(pipe.stage)), mbarrier_arrive(barriers.raw_empty(raw.stage));
      raw.next();
      pipe.next();
    }
  }
}



DEVICE void mainloop(float (&acc)[ATOMS][WIDTH / 2], unsigned shared, const Barriers& barriers, unsigned count) {
  const int consumer = (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE, lane = threadIdx.x % 32, set = count % PINGPONG;
  PipelineState<STAGES> pipe(count * STEPS);
  PipelineState<FILTER_STAGES> filter_pipe(count * (STEPS * TAPS_H));
  if (PINGPONG > 1) mbarrier_wait(barriers.order(set), (count / PINGPONG & 1) ^ (set == 0));
  int last = 0, last_filters = 0;
#pragma unroll 1
  for (int step = 0; step < STEPS; step++) {
    mbarrier_wait(barriers.full(pipe.stage), pipe.phase);
#pragma unroll 1
    for (int h = 0; h < TAPS_H; h++) {
      mbarrier_wait(barriers.filters_full(filter_pipe.stage), filter_pipe.phase);
      const bool ends = step == STEPS - 1 && h == TAPS_H - 1;
      if (PINGPONG > 1 && ends && lane == 0) mbarrier_arrive(barriers.order((set + 1) % PINGPONG));
      const auto rows = wgmma_descriptor(shared + W_AT + filter_pipe.stage * STREAMED_BYTES + consumer * (ROWS * ROW));
      const auto columns = wgmma_descriptor(shared + pipe.stage * X_BYTES + h * (LINE * ROW));
#pragma unroll
      for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
      wgmma_fence();
#pragma unroll
      for (int w = 0; w < TAPS_W; w++)
#pragma unroll
        for (int k = 0; k < ROW / 32; k++)
#pragma unroll
          for (int atom = 0; atom < ATOMS; atom++)
            wgmma(acc[atom], rows + (w * W_BYTES + atom * (64 * ROW) >> 4) + k * 2, columns + (w * ROW >> 4) + k * 2,
                  step + h + w + k != 0, T());
      wgmma_commit();
#pragma unroll
      for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
      wgmma_wait<1>();
      if (step + h > 0 && lane == 0) mbarrier_arrive(barriers.filters_empty(last_filters));
      if (step > 0 && h == 0 && lane == 0) mbarrier_arrive(barriers.empty(last));
      last_filters = filter_pipe.stage;
      filter_pipe.next();
    }
    last = pipe.stage;
    pipe.next();
  }
  wgmma_wait<0>();
#pragma unroll
  for (int atom = 0; atom < ATOMS; atom++) wgmma_fence_accumulators(acc[atom]);
  if (lane == 0) mbarrier_arrive(barriers.empty(last)), mbarrier_arrive(barriers.filters_empty(last_filters));
}


DEVICE void prefetch_residuals(const Args& args, int tile, int thread, int count) {
  each_residual(args, [&](const T* residual) {
    const Shape& s = args.shape;
    const Column column = column_of(tile);
    const Pixels pixels = pixels_of(s, tile);
#pragma unroll 1
    for (int f = thread; f < TILE_F && column.filter + f < FILTERS; f += count)
      if (RECTANGLE > 0) {
#pragma unroll 1
        for (int line = 0; line < pixels.lines; line++)
          prefetch_l2(residual + coord_of(s, pixels.first + line * s.out_w, 0).y +
                          (column.group * FILTERS + column.filter + f) * s.y_c,
                      pixels.columns);
      } else
#pragma unroll 1
        for (int pixel = pixels.first; pixel < pixels.end;) {
          const int left = s.out_plane - pixel % s.out_plane,
                    some = left < pixels.end - pixel ? left : pixels.end - pixel;
          prefetch_l2(residual + coord_of(s, pixel, 0).y + (column.group * FILTERS + column.filter + f) * s.y_c, some);
          pixel += some;
        }
  });
}


constexpr int OF_FOUR = 16, FOURS = (WIDTH + 31) / 32;

template <int AT> DEVICE void take(const float (&acc)[ATOMS][WIDTH / 2], int four, float (&taken)[OF_FOUR]) {
  if constexpr (AT < ATOMS * FOURS) {
    if (four != AT) return take<AT + 1>(acc, four, taken);
#pragma unroll
    for (int i = 0; i < OF_FOUR; i++)
      if (AT % FOURS * OF_FOUR + i < WIDTH / 2)
        asm volatile("mov.b32 %0, %1; // four %2"
                     : "=f"(taken[i])
                     : "f"(acc[AT / FOURS][AT % FOURS * OF_FOUR + i]), "n"(AT));
  }
}

template <int BIT> DEVICE void exchange(float (&v)[OF_FOUR]) {
  const bool has = (threadIdx.x & BIT) != 0;
#pragma unroll
  for (int i = 0; i < OF_FOUR; i++) {
    if ((i / 4 & BIT) != 0) continue;
    float &without = v[i], &with = v[i + 4 * BIT];
    float got;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(got) : "f"(has ? without : with), "n"(BIT));
    without = has ? got : without;
    with = has ? with : got;
  }
}

DEVICE float of_eight(const float (&v)[OF_FOUR], int row, int i) { return v[i / 2 * 4 + row * 2 + i % 2]; }

static_assert(!RESIDUALS_EARLY, "residuals are read where they are used");
DEVICE void read_residuals(const Args&, Early&, int) {}


static_assert(ATOMS == 1, "a lane has two filters of a tile");

DEVICE Coord coord_behind(const Shape& s, const Coord& origin, int first, int pixel) {
  if (!Y_LINEAR && !Y_PLANAR) return coord_of(s, pixel, 0);
  Coord at = origin;
  at.p += pixel - first;
  at.y += (pixel - first) * s.y_p;
  return at;
}

template <bool PLAIN>
DEVICE void epilogue(Args args, float (&acc)[ATOMS][WIDTH / 2], float*, const Channel* channels, const Early&,
                     int tile) {
  if (PLAIN) make_plain(args);
  const Shape& s = args.shape;
  const Column column = column_of(tile);
  const Pixels pixels = pixels_of(s, tile);
  const int lane = threadIdx.x % 32, consumer = (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE;
  const int first_filter = consumer * ROWS + threadIdx.x / 32 % 4 * 16 + lane / 4;
  if (FILTERS % TILE_F != 0 && column.filter + first_filter / 16 * 16 >= FILTERS) return;
  constexpr int VECTORS = 8 / Y_VECTOR;
  const Coord origin = coord_of(s, pixels.first, 0);
#pragma unroll(PLAIN ? FOURS : 1)
  for (int four = 0; four < FOURS; four++) {
    float v[OF_FOUR] = {};
    take<0>(acc, four, v);
    exchange<1>(v);
    exchange<2>(v);
    const int first = four * 32 + lane % 4 * 8;
    Coord coords[VECTORS];
    bool inside[VECTORS];
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
      const int pixel = first < WIDTH ? pixel_at(s, pixels, first + i * Y_VECTOR) : pixels.end;
      inside[i] = pixel < pixels.end;
      coords[i] = coord_behind(s, origin, pixels.first, pixel);
    }
#pragma unroll
    for (int row = 0; row < 2; row++) {
      const int f = first_filter + row * 8;
      const Channel channel = channels[f];
#pragma unroll
      for (int i = 0; i < VECTORS; i++) {
        const bool writes = inside[i] && (FILTERS % TILE_F == 0 || column.filter + f < FILTERS);
        if ((!PLAIN || READS_ELEMENTS) && !writes) continue;
        Coord at = coords[i];
        at.k = column.group * FILTERS + column.filter + f;
        at.y += at.k * s.y_c;
        float some[Y_VECTOR], out[Y_VECTOR];
#pragma unroll
        for (int e = 0; e < Y_VECTOR; e++) some[e] = of_eight(v, row, i * Y_VECTOR + e);
        finish_to<Y_VECTOR, false>(args, &channel, some, at, out);
        if (writes) write_vector<Y_VECTOR>(args, at.y, out);
      }
    }
  }
}


static_assert(SPLIT == 1 || (PINGPONG == 1 && !RESIDENT), "a block has one tile");
static_assert(SPLIT == 1 || COOPERATIVE * ROWS * ACC_PITCH * 4 <= ACC_AT, "accumulators fit where the operands were");

DEVICE void cluster_copy(int rank, unsigned to, unsigned from, unsigned bytes, unsigned barrier) {
  unsigned there, counted;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(to), "r"(rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(counted) : "r"(barrier), "r"(rank));
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(there),
      "r"(from), "r"(bytes), "r"(counted)
      : "memory");
}

DEVICE void operands_end() { asm volatile("bar.sync 2, %0;" ::"n"(COOPERATIVE * 128) : "memory"); }

DEVICE int rows_there(const Pixels& pixels, const Column& column) {
  if (PIXELS_ARE_ROWS && RECTANGLE > 0) return COOPERATIVE * ROWS;
  const int left = PIXELS_ARE_ROWS ? pixels.end - pixels.first : FILTERS - column.filter;
  return left < COOPERATIVE * ROWS ? left : COOPERATIVE * ROWS;
}

template <class F> DEVICE void each_unit(const Shape& s, const Rows& rows, F visit) {
  const bool down = PIXELS_ARE_ROWS && Y_VECTOR == 1 && s.y_c != 1;
  const int thread = threadIdx.x - PRODUCERS * 128, count = rows.end - rows.first;
#pragma unroll(RESIDUALS_EARLY ? UNITS_OF_THREAD : 1)
  for (int i = 0; i < UNITS_OF_THREAD; i++) {
    const int at = thread + i * COOPERATIVE * 128;
    if (at < count * UNITS_ACROSS)
      visit(i, rows.first + (down ? at % count : at / UNITS_ACROSS), (down ? at / count : at % UNITS_ACROSS) * UNIT);
  }
}

DEVICE int pixel_of_element(const Shape& s, const Pixels& pixels, const Rectangle& rectangle, int row, int from) {
  if (PIXELS_ARE_ROWS && RECTANGLE > 0) return row_pixel(s, rectangle, tile_number(), row);
  const int pixel = pixels.first + (PIXELS_ARE_ROWS ? row : from);
  return pixel < pixels.end ? pixel : (int)s.pixels;
}

template <class F>
DEVICE void each_vector(const Shape& s, const Pixels& pixels, const Rectangle& rectangle, const Column& column, int row,
                        int from, F visit) {
#pragma unroll
  for (int e = 0; e < UNIT; e += Y_VECTOR) {
    const int pixel = pixel_of_element(s, pixels, rectangle, row, from + e), filter = PIXELS_ARE_ROWS ? from + e : row;
    if (pixel >= s.pixels || column.filter + filter >= FILTERS) break;
    visit(e, coord_of(s, pixel, column.group * FILTERS + column.filter + filter));
  }
}

DEVICE void read_residuals_split(const Args& args, Early& early) {
  const Column column = column_of(tile_number());
  const Pixels pixels = pixels_of(args.shape, tile_number());
  const Rectangle rectangle = rectangle_of(args.shape, tile_number());
  each_unit(args.shape, share_of(rows_there(pixels, column)), [&](int i, int row, int from) {
    each_vector(args.shape, pixels, rectangle, column, row, from, [&](int e, const Coord& at) {
      if constexpr (RESIDUALS_EARLY) early.of[(i * UNIT + e) / Y_VECTOR] = residuals_of<Y_VECTOR>(args, at.y);
    });
  });
}

DEVICE void epilogue_split(const Args& args, const float (&acc)[ATOMS][WIDTH / 2], char* memory,
                           const Barriers& barriers, const Channel* channels, const Early& early) {
  const Shape& s = args.shape;
  const Column column = column_of(tile_number());
  const Pixels pixels = pixels_of(s, tile_number());
  const Rectangle rectangle = rectangle_of(s, tile_number());
  const int thread = threadIdx.x - PRODUCERS * 128, lane = thread % 32;
  operands_end();
  float* own = (float*)memory;
#pragma unroll
  for (int atom = 0; atom < ATOMS; atom++)
#pragma unroll
    for (int i = 0; i < WIDTH / 2; i += 2) {
      const int row = thread / 128 * ROWS + atom * 64 + thread / 32 % 4 * 16 + i / 2 % 2 * 8 + lane / 4;
      const int column = PIXELS_ARE_ROWS ? pair_of_filters(i) : i / 4 * 8 + lane % 4 * 2;
      *(Vector<float, 2>*)(own + interleaved(row) * ACC_PITCH + column) = {acc[atom][i], acc[atom][i + 1]};
    }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("bar.sync 2, %0;" ::"n"(COOPERATIVE * 128) : "memory");
  if (MOVES_BACK) own += (pixels.first - first_loaded(s, tile_number())) * ACC_PITCH;

  const int there = rows_there(pixels, column), share = (there + SPLIT - 1) / SPLIT;
  const Rows rows = share_of(there);
  const float* sent = (const float*)(memory + ACC_AT);
  cluster_wait();
  if (thread == 0 && rows.first < rows.end)
    mbarrier_expect_tx(barriers.sent(), (SPLIT - 1) * (rows.end - rows.first) * ACC_PITCH * 4);
  if (thread < SPLIT && thread != cluster_rank()) {
    const Rows of = share_of(there, thread);
    if (of.first < of.end)
      cluster_copy(thread, shared_address(sent + cluster_rank() * share * ACC_PITCH),
                   shared_address(own + of.first * ACC_PITCH), (of.end - of.first) * ACC_PITCH * 4, barriers.sent());
  }
  if (rows.first < rows.end) mbarrier_wait(barriers.sent(), 0);
  cluster_arrive();

  each_unit(s, rows, [&](int i, int row, int from) {
    float v[UNIT] = {};
#pragma unroll
    for (int e = 0; e < UNIT; e += 4) {
      Vector<float, 4> parts[SPLIT];
#pragma unroll
      for (int rank = 0; rank < SPLIT; rank++) {
        const float* of =
            rank == cluster_rank() ? own + row * ACC_PITCH : sent + (rank * share + row - rows.first) * ACC_PITCH;
        parts[rank] = *(const Vector<float, 4>*)(of + from + e);
      }
#pragma unroll
      for (int rank = 0; rank < SPLIT; rank++)
#pragma unroll
        for (int n = 0; n < 4; n++) v[e + n] += parts[rank].at[n];
    }
    if (TF32X3 && !are_finite(v)) {
#pragma unroll 1
      for (int e = 0; e < UNIT; e++) {
        const int pixel = pixel_of_element(s, pixels, rectangle, row, from + e),
                  filter = PIXELS_ARE_ROWS ? from + e : row;
        if (pixel < s.pixels && column.filter + filter < FILTERS)
          own[row * ACC_PITCH + from + e] = sum_of_products(args, column.group, column.filter + filter, pixel);
      }
#pragma unroll
      for (int e = 0; e < UNIT; e++) v[e] = own[row * ACC_PITCH + from + e];
    }
    Channel channel[UNIT];
#pragma unroll
    for (int e = 0; e < UNIT; e++) channel[e] = channels[PIXELS_ARE_ROWS ? from + e : row];
    each_vector(s, pixels, rectangle, column, row, from, [&](int e, const Coord& at) {
      float out[Y_VECTOR];
      if constexpr (RESIDUALS_EARLY)
        finish_to<Y_VECTOR, PIXELS_ARE_ROWS != 0>(args, channel + e, early.of[(i * UNIT + e) / Y_VECTOR], v + e, at,
                                                  out);
      else finish_to<Y_VECTOR, PIXELS_ARE_ROWS != 0>(args, channel + e, v + e, at, out);
      write_vector<Y_VECTOR>(args, at.y, out);
    });
  });
  cluster_wait();
}
