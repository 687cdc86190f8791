// Elements, vectors and arguments. The vendor's text before this defines DEVICE, KERNEL, f16, bf16 and
// their conversions; the generated text between defines T, idx, Shape and OPS.

// Elements that are loaded or stored at once.
template <class E, int V> struct alignas(sizeof(E) * V) Vector { E at[V]; };

DEVICE float to_float(float v) { return v; }
template <class E> DEVICE E from_float(float v);
template <> DEVICE float from_float<float>(float v) { return v; }
template <> DEVICE f16 from_float<f16>(float v) { return f16_from_float(v); }
template <> DEVICE bf16 from_float<bf16>(float v) { return bf16_from_float(v); }

// V elements as they are read: whole words, which take no instructions to take apart and half the registers of
// elements of 16 bits.
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
  // Into a place that is zero.
  DEVICE void set(int i, T v) { words[i / A_WORD] |= bits_of(v) << 16 * (i % A_WORD); }
};
template <int V> struct Packed<V, false> {
  T element;
  DEVICE float at(int) const { return to_float(element); }
  DEVICE void set(int, T v) { element = v; }
};

// Arguments of one operator: its pointers in the order of its kind, its alpha, its scalars.
struct Op {
  const void* p[4];
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

// An element of the output: its offset, image, channel and place in the image or volume.
struct Place {
  idx y, n, k, p;
};

// Pointers are aligned to their element at least: what takes elements one by one has no second form.
DEVICE bool is_aligned(const void* p, int bytes) {
  return bytes <= (int)sizeof(T) || ((unsigned long long)p & (bytes - 1)) == 0;
}

// Blends V elements in a row of memory that lies at a multiple of its size with what is there, and writes them.
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

// MIOpen's activations. min and max give the other operand for a NaN.
DEVICE float act_pasthru(float x, const Op&) { return x; }
DEVICE float act_logistic(float x, const Op&) { return 1.f / (1.f + expf(-x)); }
DEVICE float act_tanh(float x, const Op& o) { return o.b * tanhf(o.a * x); }
DEVICE float act_relu(float x, const Op&) { return x > 0.f ? x : 0.f; }
DEVICE float act_softrelu(float x, const Op&) { return fmaxf(x, 0.f) + log1pf(expf(-fabsf(x))); }
DEVICE float act_abs(float x, const Op&) { return fabsf(x); }
DEVICE float act_power(float x, const Op& o) {
  const float base = fmaf(o.b, x, o.a);
  return base <= (sizeof(T) == 4 ? 1e-6f : 1e-4f) ? 0.f : powf(base, o.c);
}
DEVICE float act_clippedrelu(float x, const Op& o) { return fminf(o.a, fmaxf(x, 0.f)); }
DEVICE float act_leakyrelu(float x, const Op& o) { return x > 0.f ? x : o.a * x; }
DEVICE float act_elu(float x, const Op& o) { return x > 0.f ? x : o.a * expm1f(x); }
DEVICE float act_clamp(float x, const Op& o) { return fmaxf(o.a, fminf(o.b, x)); }

DEVICE float param(const Op& o, int which, idx i) { return ((const float*)o.p[which])[i]; }
// Keeps the compiler from moving reads down to where they are used, behind calls, or up to where they would need registers for long.
#define KEEP_ORDER asm volatile("" ::: "memory")

// Parameters of a batch-norm.
struct Norm {
  float scale, bias, mean, variance, epsilon;
};
DEVICE Norm norm_of(const Op& o, idx i) { return {param(o, 0, i), param(o, 1, i), param(o, 2, i), param(o, 3, i), o.a}; }
DEVICE float factor_of(const Norm& norm) { return norm.scale / sqrtf(norm.variance + norm.epsilon); }
DEVICE float batch_norm(float x, float mean, float factor, float bias) { return fmaf(x - mean, factor, bias); }
DEVICE float element(const Op& o, idx i) { return to_float(((const T*)o.p[0])[i]); }
// V elements in a row, from a multiple of V on: at once where the operator's pointer allows it.
template <int V> DEVICE Packed<V> elements(const Op& o, idx i) {
  const T* from = (const T*)o.p[0] + i;
  if (is_aligned(o.p[0], V * (int)sizeof(T))) return *(const Packed<V>*)from;
  Packed<V> v = {};
#pragma unroll
  for (int e = 0; e < V; e++) v.set(e, from[e]);
  return v;
}
