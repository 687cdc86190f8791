// rocm.conv_wmma.v1 on gfx1100: WMMA, tile 128 pixels x 64 filters x 32, image read in 16 bytes along channels, filters in 16 bytes, 8 outputs at a time
// Geometry { grid: [49, 1, 1], block: 128, shared: 12800 }
// Made by `UPDATE=1 cargo test -p fuseplan-rocm --test kernels`, which `cargo test` compares with what is made now.


#if defined(__GFX9__)
#define WAVE 64
#else
#define WAVE 32
#endif

#define DEVICE __device__ inline __attribute__((always_inline))
#define KERNEL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__) fuseplan_kernel(const Args args)
DEVICE void begin_grid() {}
DEVICE void prefetch_sector(const void*) {}
template <class Hint> DEVICE void begin_grid(Hint) {}
#define AT_ONCE(blocks, shared) (((blocks) < 65536 / (shared) ? (blocks) : 65536 / (shared)) * THREADS / WAVE + 3) / 4
#define UNROLLED(rounds, products) ((products) > 9 ? 1 : (rounds))
#define WIDE_ROUNDS 1
#define DYNAMIC_SHARED(type, name) extern __shared__ __attribute__((aligned(128))) type name[]

template <class Args> DEVICE const Args& reread(const Args& args) {
#if defined(__AMDGCN__)
  auto segment = __builtin_amdgcn_kernarg_segment_ptr();
  asm volatile("" : "+s"(segment));
  return *(const Args*)segment;
#else
  return args;
#endif
}

DEVICE float float_of_bits(unsigned v) { return __builtin_bit_cast(float, v); }
DEVICE unsigned bits_of(float v) { return __builtin_bit_cast(unsigned, v); }

struct f16 {
  unsigned short bits;
};
struct bf16 {
  unsigned short bits;
};

DEVICE float to_float(f16 v) { return (float)__builtin_bit_cast(_Float16, v.bits); }
DEVICE float to_float(bf16 v) { return __builtin_bit_cast(float, (unsigned)v.bits << 16); }
DEVICE f16 f16_from_float(float v) { return {__builtin_bit_cast(unsigned short, (_Float16)v)}; }
DEVICE bf16 bf16_from_float(float v) {
  const unsigned u = __builtin_bit_cast(unsigned, v);
  return {(unsigned short)(v != v ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16)};
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
constexpr int TILE_P{128};
constexpr int TILE_F{64};
constexpr int TILE_K{32};
constexpr int PART_P{32};
constexpr int SLICES{1};
constexpr int SPLIT{1};
constexpr int ACC_AT{0};
constexpr int THREADS{128};
constexpr int FILTERS{64};
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
constexpr int WAVES_P{2};
constexpr int WAVES_F{2};
constexpr int OCCUPANCY{1};
constexpr int AHEAD{1};
constexpr int Y_LINEAR{1};
constexpr int Y_PLANAR{1};
constexpr int OPS = 5;
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


typedef unsigned Words __attribute__((ext_vector_type(4), may_alias));
typedef float Accumulators __attribute__((ext_vector_type(8)));
constexpr int BLOCK = 16, ACCUMULATORS = 8, XCDS = 1;

DEVICE Words* swizzled(char* rows, int row, int chunk);

#if defined(__GFX12__)
typedef Words Fragment;
DEVICE Fragment fragment(char* rows, int row, int k, int lane) {
  return *swizzled(rows, row + lane % 16, 2 * k + lane / 16);
}
DEVICE int acc_row(int r, int lane) { return r + lane / 16 * 8; }
#define LANE_DEPTH 8
#define WMMA(name) name##_w32_gfx12
#else
struct Fragment {
  Words low, high;
};
DEVICE Fragment fragment(char* rows, int row, int k, int lane) {
  return {*swizzled(rows, row + lane % 16, 2 * k), *swizzled(rows, row + lane % 16, 2 * k + 1)};
}
DEVICE int acc_row(int r, int lane) { return 2 * r + lane / 16; }
#define LANE_DEPTH 16
#define WMMA(name) name##_w32
#endif

DEVICE Accumulators mma(Fragment a, Fragment b, Accumulators c, f16) {
  typedef _Float16 Row __attribute__((ext_vector_type(LANE_DEPTH)));
  return WMMA(__builtin_amdgcn_wmma_f32_16x16x16_f16)(__builtin_bit_cast(Row, a), __builtin_bit_cast(Row, b), c);
}
DEVICE Accumulators mma(Fragment a, Fragment b, Accumulators c, bf16) {
  typedef short Row __attribute__((ext_vector_type(LANE_DEPTH)));
  return WMMA(__builtin_amdgcn_wmma_f32_16x16x16_bf16)(__builtin_bit_cast(Row, a), __builtin_bit_cast(Row, b), c);
}


static_assert(TILE_K * sizeof(T) == 64, "a row of a tile is 64 bytes");
constexpr int WAVE_P = TILE_P / WAVES_P, WAVE_F = TILE_F / WAVES_F;
constexpr int BLOCKS_P = WAVE_P / BLOCK, BLOCKS_F = WAVE_F / BLOCK;
static_assert(WAVE_P % PART_P == 0 && PART_P % BLOCK == 0, "a part is of one row of waves");

constexpr int X_ACROSS = X_VECTOR ? CHUNKS : TILE_P / X_RUN;
constexpr int X_DOWN = THREADS / X_ACROSS;
constexpr int X_COUNT = TILE_P / X_RUN * CHUNKS / THREADS;
DEVICE int x_row(int i) {
  return X_VECTOR ? (int)threadIdx.x / X_ACROSS + i * X_DOWN : (int)threadIdx.x % X_ACROSS * X_RUN;
}
DEVICE int x_chunk(int i) { return X_VECTOR ? (int)threadIdx.x % X_ACROSS : (int)threadIdx.x / X_ACROSS + i * X_DOWN; }

template <bool VECTOR, int COUNT> struct Staged {
  Words chunk[VECTOR ? COUNT : 1];
  T element[VECTOR ? 1 : COUNT][CHUNK];
  unsigned inside;
  static_assert((VECTOR ? COUNT : COUNT * CHUNK) <= 32, "a bit for each load");

  DEVICE void load(int i, const T* from, int offset, bool is_inside) {
    __builtin_memcpy(&chunk[i], from + (unsigned)(is_inside ? offset : 0), sizeof(Words));
    inside |= (unsigned)is_inside << i;
  }
  DEVICE void load(int i, int e, const T* from, int offset, bool is_inside) {
    element[i][e] = from[(unsigned)(is_inside ? offset : 0)];
    inside |= (unsigned)is_inside << (i * CHUNK + e);
  }
  DEVICE Words arrived(int i) const {
    if constexpr (VECTOR) {
      return inside >> i & 1 ? chunk[i] : (Words)0u;
    } else {
      Vector<T, CHUNK> v;
#pragma unroll
      for (int e = 0; e < CHUNK; e++) v.at[e] = inside >> (i * CHUNK + e) & 1 ? element[i][e] : zero();
      return __builtin_bit_cast(Words, v);
    }
  }
};

constexpr int TABLE = X_VECTOR ? CHUNKS : TILE_K;

constexpr bool BITS = TAPS < 32;
constexpr bool LEAVES = OUTSIDE_D + OUTSIDE_H + OUTSIDE_W > 0;
typedef Vector<unsigned, sizeof(T) == 4 ? X_RUN : 1> Run;
constexpr int PACKED = sizeof(T) == 4 ? 1 : X_RUN;

DEVICE DepthEntry pixel_entry(const Shape& s, int depth) {
  DepthEntry entry = depth_entry(s, depth < DEPTH ? depth : DEPTH - 1);
  if (BITS) entry.needs = depth >= DEPTH ? 31 : CHANNEL_INNER ? depth / CHANNELS : depth % TAPS;
  else if (depth >= DEPTH) entry.needs = depth_entry(s, depth).needs;
  return entry;
}
DEVICE unsigned all_of_bit(unsigned bits, unsigned at) {
#if defined(__AMDGCN__)
  return __builtin_amdgcn_sbfe((int)bits, at, 1);
#else
  return bits >> at & 1 ? ~0u : 0;
#endif
}
DEVICE unsigned has_of(const Shape& s, const Pixel& pixel) {
  unsigned has = 0;
#pragma unroll
  for (int t = 0; t < (BITS ? TAPS : 0); t++) {
    const int d = t / (TAPS_H * TAPS_W) * DILATION_D, h = t / TAPS_W % TAPS_H * DILATION_H, w = t % TAPS_W * DILATION_W;
    bool inside = true;
    if (OUTSIDE_D) inside = inside && (unsigned)(pixel.d + d) < (unsigned)s.in_d;
    if (OUTSIDE_H) inside = inside && (unsigned)(pixel.h + h) < (unsigned)s.in_h;
    if (OUTSIDE_W) inside = inside && (unsigned)(pixel.w + w) < (unsigned)s.in_w;
    has |= (unsigned)inside << t;
  }
  return has;
}

struct PixelRun {
  int offset;
  unsigned has[X_RUN];
  Row row[BITS ? 1 : X_RUN];

  DEVICE PixelRun(const Shape& s, int m, int group) {
    if (m > (int)s.pixels - X_RUN) m = (int)s.pixels - X_RUN;
#pragma unroll
    for (int p = 0; p < X_RUN; p++) {
      const Pixel pixel = pixel_of(s, m + p, group);
      if (p == 0) offset = pixel.offset;
      has[p] = has_of(s, pixel);
      if constexpr (!BITS) row[p] = row_of(s, m + p, group);
    }
  }
  DEVICE unsigned mask(const Shape& s, int p, const DepthEntry& entry) const {
    if constexpr (BITS) return all_of_bit(has[p], entry.needs);
    else return missing(s, row[p], entry) ? 0 : ~0u;
  }
};

struct Bounds {
  int below, above, last;

  DEVICE Bounds(const Shape& s, int first, int group) {
    int end = first + TILE_P;
    if (end > (int)s.pixels) end = s.pixels;
    const int plane = s.out_plane, area = s.out_h * s.out_w, image = group * CHANNELS * s.x_c;
    const int top_d = OUTSIDE_D ? (plane / area - 1) * STRIDE_D - PAD_D + (TAPS_D - 1) * DILATION_D : s.in_d - 1;
    const int top_h = OUTSIDE_H ? ((int)s.out_h - 1) * STRIDE_H - PAD_H + (TAPS_H - 1) * DILATION_H : s.in_h - 1;
    const int top_w = OUTSIDE_W ? ((int)s.out_w - 1) * STRIDE_W - PAD_W + (TAPS_W - 1) * DILATION_W : s.in_w - 1;
    last = ((int)s.pixels / plane - 1) * s.x_n + ((int)gridDim.z * CHANNELS - 1) * s.x_c + (s.in_d - 1) * s.x_d +
           (s.in_h - 1) * s.x_h + (s.in_w - 1) * s.x_w;
    below = first / plane * s.x_n + image - PAD_D * s.x_d - PAD_H * s.x_h - PAD_W * s.x_w;
    above = last - ((end - 1) / plane * s.x_n + image + top_d * s.x_d + top_h * s.x_h + top_w * s.x_w);
  }
  DEVICE bool holds(const Shape& s, int step) const {
    if (!LEAVES) return true;
    const int first = CHANNEL_INNER ? 0 : step * TILE_K / TAPS;
    int end = CHANNEL_INNER ? CHANNELS - 1 : (step * TILE_K + TILE_K - 1) / TAPS;
    if (end > CHANNELS - 1) end = CHANNELS - 1;
    return below + first * s.x_c >= 0 && above - end * s.x_c >= 0;
  }
};

template <int COUNT> struct StagedPixels {
  Run run[COUNT][CHUNK];

  DEVICE void load(int i, int e, const T* from, int offset) {
    const char* const at = (const char*)from + (unsigned)offset * (unsigned)sizeof(T);
    if constexpr (sizeof(T) * X_RUN == 2) {
      unsigned short half;
      __builtin_memcpy(&half, at, 2);
      run[i][e].at[0] = half;
    } else {
      __builtin_memcpy(&run[i][e], at, sizeof(T) * X_RUN);
    }
  }
  DEVICE void load_within(int i, int e, const T* from, int offset, int last) {
#pragma unroll
    for (int p = 0; p < X_RUN; p++) {
      const int here = offset + p, at = here < 0 ? 0 : here > last ? last : here;
      unsigned word = 0;
      __builtin_memcpy(&word, (const char*)from + (unsigned)at * (unsigned)sizeof(T), sizeof(T));
      unsigned& to = run[i][e].at[p / PACKED];
      to = p % PACKED == 0 ? word : to | word << 16;
    }
  }
  DEVICE void mask(int i, int e, unsigned low, unsigned high) {
    if constexpr (PACKED == 2) run[i][e].at[0] &= (low & 0xffffu) | (high & 0xffff0000u);
    else run[i][e].at[0] &= low;
    if constexpr (sizeof(Run) == 8) run[i][e].at[1] &= high;
  }
  DEVICE Words arrived(int i, int p) const {
    Words v;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      if constexpr (sizeof(T) == 4) {
        v[j] = run[i][j].at[p];
      } else {
        typedef unsigned short Halves __attribute__((ext_vector_type(2)));
        const Halves first = __builtin_bit_cast(Halves, run[i][2 * j].at[0]);
        const Halves second = __builtin_bit_cast(Halves, run[i][2 * j + 1].at[0]);
        const Halves both = p == 0 ? (Halves){first.x, second.x} : (Halves){first.y, second.y};
        v[j] = __builtin_bit_cast(unsigned, both);
      }
    }
    return v;
  }
};

DEVICE Words* swizzled(char* rows, int row, int chunk) {
  return (Words*)(rows + row * 64 + ((chunk ^ (row >> 1 & 3)) << 4));
}

DEVICE void sync_block() {
#if __clang_major__ >= 19
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
#else
  __syncthreads();
#endif
}

struct Work {
  int pixel, filter, group;
};
DEVICE Work work() {
  const int tiles = gridDim.x / SPLIT, blocks = tiles * (int)gridDim.z;
  int b = (int)blockIdx.z * tiles + tile_number();
  if (SPLIT == 1 && XCDS > 1 && b < blocks / XCDS * XCDS) b = b % XCDS * (blocks / XCDS) + b / XCDS;
  return {b % tiles / FILTER_TILES * TILE_P, b % tiles % FILTER_TILES * TILE_F, b / tiles};
}

KERNEL(THREADS, OCCUPANCY) {
  begin_grid();
  DYNAMIC_SHARED(char, shared);
  char* const x_rows = shared;
  char* const w_rows = shared + TILE_P * 64;
  DepthEntry* const table = (DepthEntry*)(w_rows + TILE_F * 64);
  const Shape& s = args.shape;
  const Work at = work();
  float* const tile = (float*)(shared + ACC_AT);
  if (finish_tile(args, tile, at.pixel, at.filter, at.group)) return;
  const int begin = first_step<STEPS>();
  const T* const x = (const T*)args.x;
  const T* const weights = (const T*)args.op[0].p[0];

  Row rows[X_VECTOR ? X_COUNT : 1];
  if constexpr (X_VECTOR)
#pragma unroll
    for (int i = 0; i < X_COUNT; i++) rows[i] = row_of(s, at.pixel + x_row(i), at.group);
  const PixelRun pixels(s, at.pixel + (X_VECTOR ? 0 : x_row(0)), at.group);
  const Bounds bounds(s, at.pixel, at.group);

  const auto plan = [&](int step) {
    if (threadIdx.x < TABLE) {
      const int depth = (begin + step) * TILE_K + (int)threadIdx.x * (X_VECTOR ? CHUNK : 1);
      table[step % 2 * TABLE + threadIdx.x] = X_VECTOR ? depth_entry(s, depth) : pixel_entry(s, depth);
    }
  };
  Staged<true, X_VECTOR ? X_COUNT : 1> chunks_x;
  StagedPixels<X_VECTOR ? 1 : X_COUNT> pixels_x;
  Staged<W_VECTOR, W_LOADS> staged_w;
  const auto fetch = [&](int step) {
    const DepthEntry* const here = table + step % 2 * TABLE;
    chunks_x.inside = staged_w.inside = 0;
    if constexpr (X_VECTOR) {
#pragma unroll
      for (int i = 0; i < X_COUNT; i++) {
        const DepthEntry entry = here[x_chunk(i)];
        chunks_x.load(i, x, rows[i].pixel.offset + entry.offset, !missing(s, rows[i], entry));
      }
    } else if (bounds.holds(s, begin + step)) {
#pragma unroll
      for (int i = 0; i < X_COUNT; i++)
#pragma unroll
        for (int e = 0; e < CHUNK; e++) pixels_x.load(i, e, x, pixels.offset + here[x_chunk(i) * CHUNK + e].offset);
    } else {
#pragma unroll
      for (int i = 0; i < X_COUNT; i++)
#pragma unroll
        for (int e = 0; e < CHUNK; e++)
          pixels_x.load_within(i, e, x, pixels.offset + here[x_chunk(i) * CHUNK + e].offset, bounds.last);
    }
#pragma unroll
    for (int i = 0; i < W_LOADS; i++) {
      const int filter = at.filter + load_row<true, TILE_F>(i);
      const int depth = (begin + step) * TILE_K + load_chunk<true, TILE_F>(i) * CHUNK;
      if constexpr (W_VECTOR) {
        const int offset = filter_at(filter, at.group, depth);
        staged_w.load(i, weights, offset, offset >= 0);
      } else {
#pragma unroll
        for (int e = 0; e < CHUNK; e++) {
          const int offset = filter_at(filter, at.group, depth + e);
          staged_w.load(i, e, weights, offset, offset >= 0);
        }
      }
    }
  };
  const auto store_staged = [&](int step) {
    [[maybe_unused]] const DepthEntry* const here = table + step % 2 * TABLE;
#pragma unroll
    for (int i = 0; i < X_COUNT; i++) {
      if constexpr (X_VECTOR) {
        *swizzled(x_rows, x_row(i), x_chunk(i)) = chunks_x.arrived(i);
      } else {
        if (LEAVES || DEPTH % TILE_K != 0)
#pragma unroll
          for (int e = 0; e < CHUNK; e++) {
            const DepthEntry entry = here[x_chunk(i) * CHUNK + e];
            pixels_x.mask(i, e, pixels.mask(s, 0, entry), pixels.mask(s, X_RUN - 1, entry));
          }
#pragma unroll
        for (int p = 0; p < X_RUN; p++) *swizzled(x_rows, x_row(i) + p, x_chunk(i)) = pixels_x.arrived(i, p);
      }
    }
#pragma unroll
    for (int i = 0; i < W_LOADS; i++)
      *swizzled(w_rows, load_row<true, TILE_F>(i), load_chunk<true, TILE_F>(i)) = staged_w.arrived(i);
  };

  const int lane = threadIdx.x % WAVE, wave = threadIdx.x / WAVE;
  const int wave_p = wave % WAVES_P * WAVE_P, wave_f = wave / WAVES_P * WAVE_F;
  Accumulators acc[BLOCKS_P][BLOCKS_F] = {};

  const int steps = step_count<STEPS>() * (int)gridDim.y;
  plan(0);
  plan(1);
  sync_block();
  fetch(0);
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    store_staged(step);
    sync_block();
    if (step + 1 < steps) fetch(step + 1);
    plan(step + 2);
#pragma unroll
    for (int first = 0; first < CHUNKS / 2; first += AHEAD) {
      Fragment p[AHEAD][BLOCKS_P], f[AHEAD][BLOCKS_F];
#pragma unroll
      for (int k = 0; k < AHEAD; k++) {
#pragma unroll
        for (int i = 0; i < BLOCKS_P; i++) p[k][i] = fragment(x_rows, wave_p + i * BLOCK, first + k, lane);
#pragma unroll
        for (int j = 0; j < BLOCKS_F; j++) f[k][j] = fragment(w_rows, wave_f + j * BLOCK, first + k, lane);
      }
      if (AHEAD > 1) __builtin_amdgcn_sched_barrier(0);
#pragma unroll
      for (int k = 0; k < AHEAD; k++)
#pragma unroll
        for (int i = 0; i < BLOCKS_P; i++)
#pragma unroll
          for (int j = 0; j < BLOCKS_F; j++)
            acc[i][j] = Y_ALONG_K ? mma(p[k][i], f[k][j], acc[i][j], T()) : mma(f[k][j], p[k][i], acc[i][j], T());
    }
    sync_block();
  }

#pragma unroll
  for (int part = 0; part < WAVE_P; part += PART_P)
#pragma unroll 1
    for (int owner = 0; owner < WAVES_P; owner++) {
      if (wave % WAVES_P == owner)
#pragma unroll
        for (int i = 0; i < PART_P / BLOCK; i++)
#pragma unroll
          for (int j = 0; j < BLOCKS_F; j++)
#pragma unroll
            for (int r = 0; r < ACCUMULATORS; r++) {
              const int row = acc_row(r, lane), column = lane % BLOCK;
              const int p = i * BLOCK + (Y_ALONG_K ? row : column), f = j * BLOCK + (Y_ALONG_K ? column : row);
              tile[tile_at(p, wave_f + f)] = acc[part / BLOCK + i][j][r];
            }
      sync_block();
      write_tile(args, tile, at.pixel + owner * WAVE_P + part, at.filter, at.group);
      sync_block();
    }
}
