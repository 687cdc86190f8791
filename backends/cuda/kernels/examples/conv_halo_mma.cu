// cuda.conv_halo_mma.v1 on sm_80: mma.sync, tile 8x14 x 1 groups x 32 filters, 32 x 32 at a time, image read in 16 bytes, 8 outputs at a time
// Geometry { grid: [300, 1, 1], block: 128, shared: 64448 }
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
constexpr int GROUPS{1};
constexpr int FILTERS{64};
constexpr int CHANNELS{64};
constexpr int TILE_H{8};
constexpr int TILE_W{14};
constexpr int TILE_P{128};
constexpr int TILE_G{1};
constexpr int TILE_F{32};
constexpr int ITEM_P{32};
constexpr int ITEM_F{32};
constexpr int WINDOW_D{1};
constexpr int WINDOW_H{10};
constexpr int WINDOW_W{16};
constexpr int X_PITCH{160};
constexpr int X_ROW{2560};
constexpr int ACC_PITCH{40};
constexpr int WEIGHTS_AT{25600};
constexpr int ACC_AT{62464};
constexpr int CHANNELS_AT{62464};
constexpr int SPOTS_AT{62592};
constexpr int OFFSETS_AT{63872};
constexpr int OFFSETS{144};
constexpr int SHARED{64448};
constexpr int COPIES_ASYNC{1};
constexpr int THREADS{128};
constexpr int OCCUPANCY{5};
constexpr int X_VECTOR{8};
constexpr int Y_VECTOR{8};
constexpr int Y_ALONG_K{1};
constexpr int DIRECT{1};
constexpr int W_K{576};
constexpr int W_C{1};
constexpr int TAPS_D{1};
constexpr int TAPS_H{3};
constexpr int TAPS_W{3};
constexpr int PAD_D{0};
constexpr int PAD_H{1};
constexpr int PAD_W{1};
constexpr int OUTSIDE_D{0};
constexpr int STRIDE_D{1};
constexpr int STRIDE_H{1};
constexpr int STRIDE_W{1};
constexpr int DILATION_D{1};
constexpr int DILATION_H{1};
constexpr int DILATION_W{1};
constexpr int W_D{0};
constexpr int W_H{192};
constexpr int W_W{64};
constexpr int OPS = 1;
constexpr int POINTERS = 1;
struct Shape {
  Size out_h;
  Size out_w;
  Size x_n;
  Size x_c;
  Size x_d;
  Size x_h;
  Size x_w;
  Size y_n;
  Size y_c;
  Size y_d;
  Size y_h;
  Size y_w;
  Size in_d;
  Size in_h;
  Size in_w;
  Size out_d;
  Size tiles;
  Size tiles_h;
  Size tiles_w;
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


constexpr int TAPS = TAPS_D * TAPS_H * TAPS_W;
constexpr int QUADS = (CHANNELS + 3) / 4, DEPTH = TAPS * QUADS;
constexpr int QUAD_BYTES = 4 * (int)sizeof(T);
constexpr int COLUMNS = TILE_G * TILE_F;
constexpr int WARPS = THREADS / 32;
constexpr int PARTS_P = TILE_P / ITEM_P, PARTS_F = (TILE_F + ITEM_F - 1) / ITEM_F;
constexpr int ITEMS = TILE_G * PARTS_F, ITEMS_AT_ONCE = WARPS / PARTS_P;
static_assert(WARPS % PARTS_P == 0, "a warp has one part of the pixels");
constexpr int FILTER_TILES = (FILTERS + TILE_F - 1) / TILE_F;
constexpr int BLOCK_COLUMNS = (GROUPS + TILE_G - 1) / TILE_G * FILTER_TILES;
constexpr int WINDOW_P = WINDOW_D * WINDOW_H * WINDOW_W;
static_assert(OFFSETS_AT + OFFSETS * 4 == SHARED, "as the launch was planned");
static_assert(FILTER_TILES == 1 || TILE_G == 1, "filters of a block follow each other");

struct Column {
  int group, filter;
  DEVICE int first() const { return group * FILTERS + filter; }
  DEVICE int count() const {
    const int left = FILTER_TILES > 1 ? FILTERS - filter : (GROUPS - group) * FILTERS;
    return left < COLUMNS ? left : COLUMNS;
  }
};

struct Corner {
  int n, d, h, w;
};
DEVICE Corner corner_of(const Shape& s, int tile) {
  const int w = tile % s.tiles_w, rows = tile / s.tiles_w;
  const int h = rows % s.tiles_h, planes = rows / s.tiles_h;
  return {planes / (int)s.out_d, planes % (int)s.out_d, h * TILE_H, w * TILE_W};
}

DEVICE T zero() { return from_float<T>(0.f); }
typedef Vector<T, 4> Quad;

DEVICE T operand_of(T v);

struct alignas(8) Spot {
  int distance;
  unsigned short h, w;
};
DEVICE Spot spot_of(const Shape& s, int pixel) {
  const int d = pixel / (WINDOW_H * WINDOW_W), h = pixel / WINDOW_W % WINDOW_H, w = pixel % WINDOW_W;
  return {(int)(d * s.x_d + h * s.x_h + w * s.x_w), (unsigned short)h, (unsigned short)w};
}

DEVICE void copy_async(char* to, const T* from, bool inside);
DEVICE void wait_for_copies();

struct Loader {
  const Args& args;
  char* const window;
  const Spot* const spots;
  const int group;
  int d, h, w;
  const T* image;

  DEVICE Loader(const Args& args, char* window, const Spot* spots, int group)
      : args(args), window(window), spots(spots), group(group) {}

  DEVICE bool find(int pixel, const T*& from, int& to) const {
    const Shape& s = args.shape;
    const Spot spot = spots[pixel];
    const int pd = WINDOW_D == 1 ? 0 : pixel / (WINDOW_H * WINDOW_W);
    from = image + spot.distance;
    to = (pd * WINDOW_H + spot.h) * X_ROW + spot.w * X_PITCH;
    return (!OUTSIDE_D || (unsigned)(d + pd) < (unsigned)s.in_d) && (unsigned)(h + spot.h) < (unsigned)s.in_h &&
           (unsigned)(w + spot.w) < (unsigned)s.in_w;
  }

  template <int TOGETHER> DEVICE void load_vectors() const {
    constexpr int ACROSS = TILE_G * CHANNELS / X_VECTOR, LOADS = WINDOW_P * ACROSS;
#pragma unroll 1
    for (int first = threadIdx.x; first < LOADS; first += THREADS * TOGETHER) {
      Vector<T, X_VECTOR> v[TOGETHER];
      int to[TOGETHER];
#pragma unroll
      for (int i = 0; i < TOGETHER; i++) {
        const int load = first + i * THREADS, across = load % ACROSS;
        if (load >= LOADS) break;
        const T* from;
        bool inside = find(load / ACROSS, from, to[i]);
        if (GROUPS % TILE_G != 0) inside = inside && group * CHANNELS + across * X_VECTOR < GROUPS * CHANNELS;
        to[i] += across * X_VECTOR * (int)sizeof(T);
        if constexpr (COPIES_ASYNC) {
          copy_async(window + to[i], from + across * X_VECTOR, inside);
        } else {
#pragma unroll
          for (int e = 0; e < X_VECTOR; e++) v[i].at[e] = zero();
          if (inside) v[i] = *(const Vector<T, X_VECTOR>*)(from + across * X_VECTOR);
        }
      }
      if constexpr (!COPIES_ASYNC) {
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
          if (first + i * THREADS >= LOADS) break;
#pragma unroll
          for (int q = 0; q < X_VECTOR / 4; q++) {
            Quad quad;
#pragma unroll
            for (int e = 0; e < 4; e++) quad.at[e] = operand_of(v[i].at[q * 4 + e]);
            *(Quad*)(window + to[i] + q * QUAD_BYTES) = quad;
          }
        }
      }
    }
  }

  template <int TOGETHER> DEVICE void load_elements() const {
    constexpr int LOADS = WINDOW_P * TILE_G * QUADS;
    const int x_c = args.shape.x_c;
#pragma unroll 1
    for (int first = threadIdx.x; first < LOADS; first += THREADS * TOGETHER) {
      Quad v[TOGETHER];
      int to[TOGETHER];
#pragma unroll
      for (int i = 0; i < TOGETHER; i++) {
        const int load = first + i * THREADS, across = load / WINDOW_P;
#pragma unroll
        for (int e = 0; e < 4; e++) v[i].at[e] = zero();
        if (load >= LOADS) break;
        const int g = across / QUADS, c = across % QUADS * 4;
        const T* from;
        bool inside = find(load % WINDOW_P, from, to[i]);
        if (GROUPS % TILE_G != 0) inside = inside && group + g < GROUPS;
        to[i] += across * QUAD_BYTES;
        from += (g * CHANNELS + c) * x_c;
        if (inside)
#pragma unroll
          for (int e = 0; e < 4; e++)
            if (CHANNELS % 4 == 0 || c + e < CHANNELS) v[i].at[e] = from[e * x_c];
      }
#pragma unroll
      for (int i = 0; i < TOGETHER; i++) {
        if (first + i * THREADS >= LOADS) break;
#pragma unroll
        for (int e = 0; e < 4; e++) v[i].at[e] = operand_of(v[i].at[e]);
        *(Quad*)(window + to[i]) = v[i];
      }
    }
  }

  DEVICE void load(const Corner& corner, bool aligned) {
    const Shape& s = args.shape;
    d = corner.d * STRIDE_D - PAD_D, h = corner.h * STRIDE_H - PAD_H, w = corner.w * STRIDE_W - PAD_W;
    image = (const T*)args.x + (corner.n * s.x_n + group * CHANNELS * s.x_c + d * s.x_d + h * s.x_h + w * s.x_w);
    if constexpr (X_VECTOR > 1) {
      if (aligned) return load_vectors<4>();
    }
    load_elements<(X_VECTOR > 1 ? 1 : 4)>();
  }
};

DEVICE Quad filter_quad(const Args& args, const Column& column, int group, int filter, int q) {
  const int tap = q / QUADS, c = q % QUADS * 4;
  const bool inside = q < DEPTH && filter < TILE_F && column.filter + filter < FILTERS && column.group + group < GROUPS;
  const T* const from = (const T*)args.op[0].p[0] +
                        (inside ? ((column.group + group) * FILTERS + column.filter + filter) * W_K + c * W_C +
                                      tap / (TAPS_H * TAPS_W) * W_D + tap / TAPS_W % TAPS_H * W_H + tap % TAPS_W * W_W
                                : 0);
  Quad quad;
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const bool is_channel = CHANNELS % 4 == 0 || c + e < CHANNELS;
    const T element = operand_of(from[inside && is_channel ? e * W_C : 0]);
    quad.at[e] = inside && is_channel ? element : zero();
  }
  return quad;
}

DEVICE int offset_of(int q) {
  const int tap = q / QUADS;
  const int d = tap / (TAPS_H * TAPS_W) * DILATION_D, h = tap / TAPS_W % TAPS_H * DILATION_H,
            w = tap % TAPS_W * DILATION_W;
  return (d * WINDOW_H + h) * X_ROW + w * X_PITCH + q % QUADS * QUAD_BYTES;
}
DEVICE int pixel_at(int p) {
  return p < TILE_H * TILE_W ? p / TILE_W * STRIDE_H * X_ROW + p % TILE_W * STRIDE_W * X_PITCH : 0;
}

DEVICE int acc_at(int p, int column) { return Y_ALONG_K ? p * ACC_PITCH + column : column * ACC_PITCH + p; }

template <int Y> DEVICE void read_accumulators(const float* acc, int at, float* v) {
  constexpr int PART = Y < 4 ? Y : 4;
  const bool odd = Y == 8 && (at >> 5 & 1);
  Vector<float, PART> parts[Y / PART];
#pragma unroll
  for (int i = 0; i < Y / PART; i++) parts[i] = *(const Vector<float, PART>*)(acc + at + (odd ? 1 - i : i) * PART);
#pragma unroll
  for (int e = 0; e < Y; e++) {
    const float here = parts[e / PART].at[e % PART], there = parts[Y / PART - 1 - e / PART].at[e % PART];
    v[e] = odd ? there : here;
  }
}

template <bool PLAIN, int Y>
DEVICE void write_tile(Args args, const float* acc, const Channel* channels, const Corner& corner,
                       const Column& block) {
  if (PLAIN) {
    args.beta = 0.f;
#pragma unroll
    for (int i = 0; i < OPS; i++) args.op[i].alpha = 1.f;
  }
  const Shape& s = args.shape;
  const int count = block.count();
  const idx first = corner.n * s.y_n + corner.d * s.y_d + block.first() * s.y_c;
  constexpr int ACROSS = Y_ALONG_K ? COLUMNS / Y : TILE_H * TILE_W / Y, LANES = ACROSS < THREADS ? ACROSS : THREADS;
  constexpr int DOWN = Y_ALONG_K ? TILE_H * TILE_W : COLUMNS, ROWS = THREADS / LANES, KEPT_CHANNELS = Y_ALONG_K ? Y : 1;
  if ((int)threadIdx.x >= ROWS * LANES) return;
#pragma unroll 1
  for (int across = threadIdx.x % LANES * Y; across < ACROSS * Y; across += LANES * Y) {
    if (Y_ALONG_K && across >= count) break;
    Channel channel[KEPT_CHANNELS];
    if (Y_ALONG_K)
#pragma unroll
      for (int e = 0; e < KEPT_CHANNELS; e++) channel[e] = channels[across + e];
#pragma unroll 1
    for (int row = threadIdx.x / LANES; row < DOWN; row += ROWS) {
      const int p = Y_ALONG_K ? row : across, column = Y_ALONG_K ? across : row;
      const int h = corner.h + p / TILE_W, w = corner.w + p % TILE_W;
      if (column >= count || h >= s.out_h || w >= s.out_w) continue;
      const Coord at = {first + column * s.y_c + h * s.y_h + w * s.y_w, corner.n, block.first() + column,
                        (corner.d * s.out_h + h) * s.out_w + w};
      float v[Y];
      read_accumulators<Y>(acc, acc_at(p, column), v);
      if (!Y_ALONG_K) channel[0] = channels[column];
      finish_vector<Y, Y_ALONG_K != 0>(args, channel, v, at);
    }
  }
}

DEVICE void load_filters(const Args& args, char* shared, const Column& column);


#define MMA(shape, type)                                                         \
  asm volatile("mma.sync.aligned." shape ".row.col.f32." type "." type           \
               ".f32 "                                                           \
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                  \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
DEVICE void mma_sync(float* c, const unsigned* a, const unsigned* b, f16) { MMA("m16n8k16", "f16"); }
DEVICE void mma_sync(float* c, const unsigned* a, const unsigned* b, bf16) { MMA("m16n8k16", "bf16"); }
DEVICE void mma_sync(float* c, const unsigned* a, const unsigned* b, float) { MMA("m16n8k8", "tf32"); }


constexpr int WORDS = (int)sizeof(T);
struct alignas(4 * WORDS) Words {
  unsigned at[WORDS];
};

DEVICE void round_to_tf32(unsigned& v) { asm("cvt.rna.tf32.f32 %0, %0;" : "+r"(v)); }

DEVICE void mma(float* c, const Words& low, const Words& high, const Words& b) {
#pragma unroll
  for (int i = 0; i < WORDS; i += 2) {
    const unsigned a[] = {low.at[i], high.at[i], low.at[i + 1], high.at[i + 1]};
    mma_sync(c, a, b.at + i, T());
  }
}

DEVICE void copy_async(unsigned at, const T* from, bool inside) {
  constexpr int BYTES = X_VECTOR * (int)sizeof(T);
  const int size = inside ? BYTES : 0;
  if (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(size) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(at), "l"(from), "r"(size) : "memory");
}
DEVICE void copy_async(char* to, const T* from, bool inside) {
  copy_async((unsigned)__cvta_generic_to_shared(to), from, inside);
}
DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }


constexpr int STEPS = (DEPTH + 3) / 4;
constexpr int BLOCKS_P = ITEM_P / 16, BLOCKS_F = ITEM_F / 8;
static_assert(ITEM_P % 16 == 0 && ITEM_F % 8 == 0, "whole fragments");

DEVICE f16 operand_of(f16 v) { return v; }
DEVICE bf16 operand_of(bf16 v) { return v; }
DEVICE float operand_of(float v) {
  unsigned bits = __float_as_uint(v);
  round_to_tf32(bits);
  return __uint_as_float(bits);
}

constexpr bool OF_TAPS = QUADS == 4 && STEPS <= 9, OF_PIXELS = OF_TAPS && BLOCKS_P > 2, KEPT = OFFSETS == 0 && !OF_TAPS;
static_assert(OFFSETS == 0 || OFFSETS == STEPS * 4, "an entry for each quad of a step");

constexpr int LANE_F = 2 * BLOCKS_F, LANE_POWERS = Y_VECTOR | LANE_F | TILE_F, LANE_VECTOR = LANE_POWERS & -LANE_POWERS;
DEVICE int filter_of_lane(int lane, int e) {
  return DIRECT ? (e / LANE_VECTOR * 4 + lane) * LANE_VECTOR + e % LANE_VECTOR : e / 2 * 8 + lane * 2 + e % 2;
}

DEVICE void load_filters(const Args& args, char* shared, const Column& column) {
#pragma unroll 1
  for (int q = threadIdx.x; !OF_TAPS && q < OFFSETS; q += THREADS)
    ((int*)(shared + OFFSETS_AT))[q] = q < DEPTH ? offset_of(q) : 0;
  bring<ITEMS * STEPS * BLOCKS_F * 32, THREADS, 8>(
      [&](int i) {
        const int lane = i % 32, block = i / 32 % BLOCKS_F, step = i / 32 / BLOCKS_F % STEPS,
                  part = i / (32 * BLOCKS_F * STEPS);
        return filter_quad(args, column, part / PARTS_F,
                           part % PARTS_F * ITEM_F + filter_of_lane(lane / 8, block * 2 + lane / 4 % 2),
                           step * 4 + lane % 4);
      },
      [&](int i, const Quad& quad) { *(Quad*)(shared + WEIGHTS_AT + i * QUAD_BYTES) = quad; });
}

struct Multiplier {
  int pixels[BLOCKS_P][2];
  int offsets[KEPT ? STEPS : 1];

  static DEVICE int pixel() { return threadIdx.x / 32 % PARTS_P * ITEM_P + threadIdx.x % 32 / 4; }
  static DEVICE int quad_at(int step) {
    const int q = step * 4 + threadIdx.x % 4;
    return offset_of(DEPTH % 4 == 0 || q < DEPTH ? q : 0);
  }

  DEVICE Multiplier() {
#pragma unroll
    for (int i = 0; i < BLOCKS_P; i++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        pixels[i][half] = pixel_at(pixel() + i * 16 + half * 8) + (OF_PIXELS ? threadIdx.x % 4 * QUAD_BYTES : 0);
      }
    if (KEPT)
#pragma unroll
      for (int step = 0; step < STEPS; step++) offsets[step] = quad_at(step);
  }

  DEVICE unsigned pixels_inside(const Shape& s, const Corner& corner) const {
    unsigned inside = 0;
#pragma unroll
    for (int i = 0; i < BLOCKS_P * 2; i++) {
      const int p = pixel() + i * 8;
      const bool is = p < TILE_H * TILE_W && corner.h + p / TILE_W < s.out_h && corner.w + p % TILE_W < s.out_w;
      inside |= (unsigned)is << i;
    }
    return inside;
  }

  template <bool PLAIN>
  DEVICE void write_sums(Args args, const float (&sums)[BLOCKS_P][BLOCKS_F][4], const Channel* channels,
                         const Corner& corner, const Column& block, int first, int left, unsigned inside,
                         bool aligned) const {
    if (PLAIN) make_plain(args);
    const Shape& s = args.shape;
    const int of_block = block.count() - first, count = left < of_block ? left : of_block;
    const idx begin = corner.n * s.y_n + corner.d * s.y_d + corner.h * s.y_h + corner.w * s.y_w;
#pragma unroll
    for (int e = 0; e < LANE_F; e += LANE_VECTOR) {
      const int filter = filter_of_lane(threadIdx.x % 4, e), column = first + filter;
      if (filter >= count) break;
      Channel channel[LANE_VECTOR];
#pragma unroll
      for (int i = 0; i < LANE_VECTOR; i++) channel[i] = channels[column + i];
#pragma unroll
      for (int row = 0; row < BLOCKS_P * 2; row++) {
        if (!(inside >> row & 1)) continue;
        const int p = pixel() + row * 8, h = p / TILE_W, w = p % TILE_W;
        const Coord at = {begin + h * s.y_h + w * s.y_w + (block.first() + column) * s.y_c, corner.n,
                          block.first() + column, (corner.d * s.out_h + corner.h + h) * s.out_w + corner.w + w};
        float v[LANE_VECTOR];
#pragma unroll
        for (int i = 0; i < LANE_VECTOR; i++) v[i] = sums[row / 2][(e + i) / 2][row % 2 * 2 + (e + i) % 2];
        finish_to<LANE_VECTOR, true>(args, channel, v, at, v);
        if (PLAIN || aligned) {
          write_vector<LANE_VECTOR>(args, at.y, v);
        } else {
#pragma unroll
          for (int i = 0; i < LANE_VECTOR; i++) write_vector<1>(args, at.y + i, v + i);
        }
      }
    }
  }

  DEVICE void multiply(const Args& args, const char* shared, float* to, const Channel* channels, const Corner& corner,
                       const Column& block, bool aligned, bool plain) const {
    const int lane = threadIdx.x % 32;
    const unsigned inside = DIRECT ? pixels_inside(args.shape, corner) : 0;
#pragma unroll 1
    for (int item = threadIdx.x / 32 / PARTS_P; item < ITEMS; item += ITEMS_AT_ONCE) {
      const int group = item / PARTS_F, first_f = item % PARTS_F * ITEM_F;
      const char* const image = shared + group * (QUADS * QUAD_BYTES);
      const char* const filters = shared + WEIGHTS_AT + (item * (STEPS * BLOCKS_F * 32) + lane) * QUAD_BYTES;
      float acc[BLOCKS_P][BLOCKS_F][4] = {};
      const auto step_of = [&](int step, int offset, bool there) {
        Words b[BLOCKS_F];
#pragma unroll
        for (int j = 0; j < BLOCKS_F; j++) b[j] = *(const Words*)(filters + (step * BLOCKS_F + j) * (32 * QUAD_BYTES));
#pragma unroll
        for (int i = 0; i < BLOCKS_P; i++) {
          Words a[2];
#pragma unroll
          for (int half = 0; half < 2; half++) {
            a[half] = *(const Words*)(image + pixels[i][half] + offset);
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
              if (COPIES_ASYNC && sizeof(T) == 4) round_to_tf32(a[half].at[w]);
              if (!there) a[half].at[w] = 0;
            }
          }
#pragma unroll
          for (int j = 0; j < BLOCKS_F; j++) mma(acc[i][j], a[0], a[1], b[j]);
        }
      };
      constexpr int WHOLE = DEPTH / 4;
      const bool there = DEPTH % 4 == 0 || lane % 4 < DEPTH % 4;
      if constexpr (OF_TAPS) {
        const int quad = OF_PIXELS ? 0 : lane % 4 * QUAD_BYTES;
#pragma unroll
        for (int step = 0; step < STEPS; step++) step_of(step, offset_of(step * 4) + quad, true);
      } else if constexpr (KEPT) {
#pragma unroll
        for (int step = 0; step < STEPS; step++) step_of(step, offsets[step], step < WHOLE || there);
      } else {
        const int* const table = (const int*)(shared + OFFSETS_AT) + lane % 4;
#pragma unroll 2
        for (int step = 0; step < WHOLE; step++) step_of(step, table[step * 4], true);
        if (DEPTH % 4 != 0) step_of(WHOLE, table[WHOLE * 4], there);
      }
      if constexpr (DIRECT) {
        const int first = group * TILE_F + first_f, left = TILE_F - first_f;
        if (aligned && plain) write_sums<true>(args, acc, channels, corner, block, first, left, inside, true);
        else write_sums<false>(args, acc, channels, corner, block, first, left, inside, aligned);
      } else {
#pragma unroll
        for (int i = 0; i < BLOCKS_P; i++)
#pragma unroll
          for (int j = 0; j < BLOCKS_F; j++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
              const int p = pixel() + i * 16 + half * 8, f = first_f + j * 8 + lane % 4 * 2;
              float* const at = to + acc_at(p, group * TILE_F + f);
              const float* const two = acc[i][j] + half * 2;
              if (Y_ALONG_K && TILE_F % 2 == 0) {
                if (TILE_F % ITEM_F == 0 || f < TILE_F) *(Vector<float, 2>*)at = {two[0], two[1]};
              } else {
                if (TILE_F % ITEM_F == 0 || f < TILE_F) at[0] = two[0];
                if (TILE_F % ITEM_F == 0 || f + 1 < TILE_F) to[acc_at(p, group * TILE_F + f + 1)] = two[1];
              }
            }
      }
    }
  }
};


KERNEL(THREADS, AT_ONCE(OCCUPANCY, SHARED)) {
  begin_grid();
  DYNAMIC_SHARED(char, shared);
  float* const acc = (float*)(shared + ACC_AT);
  Channel* const channels = (Channel*)(shared + CHANNELS_AT);
  Spot* const spots = (Spot*)(shared + SPOTS_AT);
  const Shape& s = args.shape;
  const int at = blockIdx.x % BLOCK_COLUMNS;
  const Column column = {at / FILTER_TILES * TILE_G, at % FILTER_TILES * TILE_F};
  const bool x_aligned = X_VECTOR > 1 && is_aligned(args.x, X_VECTOR * (int)sizeof(T));
  const bool y_aligned = is_aligned(args.y, Y_VECTOR * (int)sizeof(T)), plain = is_plain(args);
  const int walkers = gridDim.x / BLOCK_COLUMNS;
#pragma unroll 1
  for (int i = threadIdx.x; i < WINDOW_P; i += THREADS) spots[i] = spot_of(s, i);
  __syncthreads();
  Loader loader(args, shared, spots, column.group);
  const Multiplier multiplier;
  const int first = blockIdx.x / BLOCK_COLUMNS;
  Corner before = {};
#pragma unroll 1
  for (int tile = first;; tile += walkers) {
    const Corner corner = corner_of(s, tile);
    if (tile < s.tiles) loader.load(corner, x_aligned);
    if (tile == first) {
      load_filters(args, shared, column);
#pragma unroll 1
      for (int i = threadIdx.x; i < column.count(); i += THREADS) channels[i] = channel_of(args, column.first() + i);
    } else if constexpr (!DIRECT) {
      if (!y_aligned) write_tile<false, 1>(args, acc, channels, before, column);
      else if (plain) write_tile<true, Y_VECTOR>(args, acc, channels, before, column);
      else write_tile<false, Y_VECTOR>(args, acc, channels, before, column);
    }
    if (tile >= s.tiles) break;
    if (COPIES_ASYNC) wait_for_copies();
    __syncthreads();
    multiplier.multiply(args, shared, acc, channels, corner, column, y_aligned, plain);
    __syncthreads();
    before = corner;
  }
}
