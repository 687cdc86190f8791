// The end of every kernel: operators behind the convolution, blend with the output's previous contents.

DEVICE void finish(const Args& args, const Channel& channel, float v, const Place& at) {
  T* y = (T*)args.y + at.y;
  v = chain(args, channel, residuals_of<1>(args, at.y), 0, v, at);
  if (args.beta != 0.f) v = fmaf(args.beta, to_float(*y), v);
  *y = from_float<T>(v);
}

// The same for V elements in a row of memory that lies at a multiple of its size. `ALONG_K` says whether they are
// of consecutive channels (one Channel each) or places (one Channel for all).
template <int V, bool ALONG_K>
DEVICE void finish_vector(const Args& args, const Channel* channel, const float* v, Place at) {
  const idx first = at.y;
  const Residuals<V> residuals = residuals_of<V>(args, first);
  float out[V];
#pragma unroll
  for (int i = 0; i < V; i++) {
    out[i] = chain(args, channel[ALONG_K ? i : 0], residuals, i, v[i], at);
    at.y++;
    if (ALONG_K) at.k++; else at.p++;
  }
  write_vector<V>(args, first, out);
}
