// The epilogue of every kernel: the operators behind the convolution, and the blend with the output's previous contents.
//
// needs macros: DEVICE
// needs types: Args, Channel, Coord, Residuals, T
// needs functions: affine, chain, from_float, residuals_of, to_float, write_vector

DEVICE void finish(const Args& args, const Channel& channel, float v, const Coord& at) {
  T* y = (T*)args.y + at.y;
  v = chain(args, channel, residuals_of<1>(args, at.y), 0, affine(args, channel, v), at);
  if (args.beta != 0.f) v = fmaf(args.beta, to_float(*y), v);
  *y = from_float<T>(v);
}

// Takes V neighbouring elements of the output through the operators, to `out`. `ALONG_K` says whether they are of consecutive
// channels (one Channel each) or of consecutive positions of one channel (one Channel for all). `affine` has been at them, and
// their residuals were read before.
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

// The same from sums on, which `affine` has not been at.
template <int V, bool ALONG_K>
DEVICE void finish_to(const Args& args, const Channel* channel, const Residuals<V>& residuals, const float* v,
                      const Coord& at, float* out) {
#pragma unroll
  for (int i = 0; i < V; i++) out[i] = affine(args, channel[ALONG_K ? i : 0], v[i]);
  chain_vector<V, ALONG_K>(args, channel, residuals, out, at, out);
}

// The same, whose residuals are read behind `affine`, when its parameters need no registers any more.
template <int V, bool ALONG_K>
DEVICE void finish_to(const Args& args, const Channel* channel, const float* v, const Coord& at, float* out) {
#pragma unroll
  for (int i = 0; i < V; i++) out[i] = affine(args, channel[ALONG_K ? i : 0], v[i]);
  chain_vector<V, ALONG_K>(args, channel, residuals_of<V>(args, at.y), out, at, out);
}

// The same as either, and writes them to the output, where they lie at a multiple of their size.
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
