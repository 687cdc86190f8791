// The end of every kernel: operators behind the convolution, blend with the output's previous contents.

DEVICE void finish(const Args& args, const Channel& channel, float v, const Place& at) {
  T* y = (T*)args.y + at.y;
  v = chain(args, channel, residuals_of<1>(args, at.y), 0, v, at);
  if (args.beta != 0.f) v = fmaf(args.beta, to_float(*y), v);
  *y = from_float<T>(v);
}

// V elements in a row of memory through the operators, to `out`. `ALONG_K` says whether they are of consecutive
// channels (one Channel each) or places (one Channel for all).
template <int V, bool ALONG_K>
DEVICE void chain_vector(const Args& args, const Channel* channel, const float* v, Place at, float* out) {
  const Residuals<V> residuals = residuals_of<V>(args, at.y);
#pragma unroll
  for (int i = 0; i < V; i++) {
    out[i] = chain(args, channel[ALONG_K ? i : 0], residuals, i, v[i], at);
    at.y++;
    if (ALONG_K) at.k++; else at.p++;
  }
}

// The same to a row of memory that lies at a multiple of its size.
template <int V, bool ALONG_K>
DEVICE void finish_vector(const Args& args, const Channel* channel, const float* v, const Place& at) {
  float out[V];
  chain_vector<V, ALONG_K>(args, channel, v, at, out);
  write_vector<V>(args, at.y, out);
}
