// One pass over packed tensors, input and output alike. V elements at a time where the pointers allow it.
// An element is read and written by one thread only, so the output may be the input.

template <int V> DEVICE void load(const T* from, float* v) {
  const Vector<T, V> vector = *(const Vector<T, V>*)from;
#pragma unroll
  for (int i = 0; i < V; i++) v[i] = to_float(vector.at[i]);
}

// Channels last: threads of a block stand for vectors of channels (CHANNEL_THREADS) and pixels; a thread
// keeps its channels and walks over pixels.
template <int V> DEVICE void channels_last(const Args& args) {
  constexpr int PIXELS = THREADS / CHANNEL_THREADS;
  const Shape& s = args.shape;
  const idx k = ((idx)blockIdx.y * CHANNEL_THREADS + threadIdx.x % CHANNEL_THREADS) * V_MAX;
  if (k >= s.out_k || threadIdx.x >= PIXELS * CHANNEL_THREADS) return;
#pragma unroll 1
  for (int part = 0; part < V_MAX; part += V) {
    Channel channel[V];
#pragma unroll
    for (int i = 0; i < V; i++) channel[i] = channel_of(args, k + part + i);
    const idx step = (idx)gridDim.x * PIXELS;
    for (idx first = (idx)blockIdx.x * PIXELS + threadIdx.x / CHANNEL_THREADS; first < s.pixels;
         first += UNROLL * step) {
      float v[UNROLL][V];
#pragma unroll
      for (int u = 0; u < UNROLL; u++)
        if (first + u * step < s.pixels)
          load<V>((const T*)args.x + (first + u * step) * s.out_k + k + part, v[u]);
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        const idx pixel = first + u * step;
        if (pixel >= s.pixels) break;
        const Place at = {pixel * s.out_k + k + part, pixel / s.out_plane, k + part, pixel % s.out_plane};
        finish_vector<V, true>(args, channel, v[u], at);
      }
    }
  }
}

// Channels first: the tensor as one row of elements; a vector may cross into the next channel.
template <int V> DEVICE void channels_first(const Args& args) {
  const Shape& s = args.shape;
  const idx step = (idx)gridDim.x * THREADS * V;
  for (idx first = ((idx)blockIdx.x * THREADS + threadIdx.x) * V; first < s.outputs; first += UNROLL * step) {
    float v[UNROLL][V];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const idx i = first + u * step;
      if (i + V <= s.outputs) {
        load<V>((const T*)args.x + i, v[u]);
      } else {
#pragma unroll
        for (int e = 0; e < V; e++) v[u][e] = i + e < s.outputs ? to_float(((const T*)args.x)[i + e]) : 0.f;
      }
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const idx i = first + u * step;
      if (i >= s.outputs) break;
      const idx plane = i / s.out_plane;
      Place at = {i, plane / s.out_k, plane % s.out_k, i % s.out_plane};
      Channel channel = channel_of(args, at.k);
      if (V > 1 && i + V <= s.outputs && at.p + V <= s.out_plane) {
        finish_vector<V, false>(args, &channel, v[u], at);
        continue;
      }
#pragma unroll
      for (int e = 0; e < V; e++) {
        if (i + e >= s.outputs) break;
        finish(args, channel, v[u][e], at);
        at.y++;
        if (++at.p == s.out_plane) {
          at.p = 0;
          if (++at.k == s.out_k) at.k = 0, at.n++;
          if (e + 1 < V) channel = channel_of(args, at.k);
        }
      }
    }
  }
}

template <int V> DEVICE void all(const Args& args) {
  if (CHANNELS_LAST) channels_last<V>(args); else channels_first<V>(args);
}

KERNEL(THREADS) {
  constexpr int BYTES = V_MAX * (int)sizeof(T);
  if (is_aligned(args.x, BYTES) && is_aligned(args.y, BYTES)) all<V_MAX>(args); else all<1>(args);
}
