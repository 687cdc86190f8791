// Elements, vectors and arguments. The vendor's text before this defines DEVICE, KERNEL, f16, bf16 and
// their conversions; the generated text between defines T, idx, Shape, OPS and POINTERS.
//
// needs macros: DEVICE
// needs constants: OPS, POINTERS
// needs types: BatchNormInference, Shape, T, bf16, f16, idx
// needs functions: bf16_from_float, f16_from_float, float_of_bits

// Elements that are loaded or stored at once.
template <class E, int V> struct alignas(sizeof(E) * V) Vector {
  E at[V];
};

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
  // Sets an element that is zero.
  DEVICE void set(int i, T v) { words[i / A_WORD] |= bits_of(v) << 16 * (i % A_WORD); }
};
template <int V> struct Packed<V, false> {
  T element;
  DEVICE float at(int) const { return to_float(element); }
  DEVICE void set(int, T v) { element = v; }
};

// Arguments of one operator: its pointers, of which each kind of operator has a struct with their numbers, its alpha,
// its scalars in their order.
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

// Whether every alpha is 1 and beta is 0, as usual.
DEVICE bool is_plain(const Args& args) {
  bool plain = args.beta == 0.f;
#pragma unroll
  for (int i = 0; i < OPS; i++) plain = plain && args.op[i].alpha == 1.f;
  return plain;
}

// Tells the compiler so, of arguments that are.
DEVICE void make_plain(Args& args) {
  args.beta = 0.f;
#pragma unroll
  for (int i = 0; i < OPS; i++) args.op[i].alpha = 1.f;
}

// The coordinates of an element of the output: its offset in memory, image, channel, and position in the plane or volume.
struct Coord {
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

// A number of an operand that lies as E: as T, or as float beside it.
template <class E> DEVICE float param(const Op& o, int which, idx i) { return to_float(((const E*)o.p[which])[i]); }
// Keeps the compiler from moving reads down to where they are used, behind calls, or up to where they would need registers for long.
#define KEEP_ORDER asm volatile("" ::: "memory")

// Parameters of a batch-norm.
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
// V elements of a residual in a row, from a multiple of V on: at once where the operator's pointer allows it.
template <int V> DEVICE Packed<V> elements(const Op& o, idx i) {
  const T* from = (const T*)o.p[0] + i;
  if (is_aligned(o.p[0], V * (int)sizeof(T))) return *(const Packed<V>*)from;
  Packed<V> v = {};
#pragma unroll
  for (int e = 0; e < V; e++) v.set(e, from[e]);
  return v;
}
