// One pass over packed tensors, input and output alike. V elements at a time where the pointers allow it.
// A block asks for its elements, then makes a table of the channels that they are of, then finishes them. An
// element is read and written by one thread only, so the output may be the input.
//
// needs macros: DEVICE, DYNAMIC_SHARED, KERNEL
// needs constants: CHANNELS_LAST, CHANNEL_TABLE, CHANNEL_THREADS, CROSSING_WARPS, LONG_PLANES, PLANE_PART, THREADS, UNROLL,
//   V_MAX, WHOLE_VECTORS
// needs sizes: channels, outputs, pixels, plane
// needs types: Args, Channel, Coord, Packed, Residuals, Shape, T, idx
// needs functions: affine, begin_grid, chain, channel_of, finish, finish_vector, is_aligned, one_of, residuals_of,
//   to_float, write_vector

template <int V> DEVICE void widen(const Packed<V>& from, float* v) {
#pragma unroll
  for (int i = 0; i < V; i++) v[i] = from.at(i);
}

// Channels last: threads of a block stand for vectors of channels (CHANNEL_THREADS) and pixels; a thread
// keeps its channels and walks over pixels.
template <int V> DEVICE void channels_last(const Args& args, Channel* table) {
  constexpr int PIXELS = THREADS / CHANNEL_THREADS;
  const Shape& s = args.shape;
  const idx first_k = ((idx)blockIdx.z * gridDim.y + blockIdx.y) * CHANNEL_THREADS * V_MAX;
  const idx step = (idx)gridDim.x * PIXELS;
  const int column = threadIdx.x % CHANNEL_THREADS * V_MAX, row = threadIdx.x / CHANNEL_THREADS;
  // A thread without work has no pixels.
  const idx end = row < PIXELS && first_k + column < s.channels.value ? s.pixels : 0;
#pragma unroll 1
  for (int part = 0; part < V_MAX; part += V) {
    const idx k = first_k + column + part;
    idx first = (idx)blockIdx.x * PIXELS + row;
    Packed<V> x[UNROLL];
    const auto load = [&] {
#pragma unroll
      for (int u = 0; u < UNROLL; u++)
        if (first + u * step < end)
          x[u] = *(const Packed<V>*)((const T*)args.x + (first + u * step) * s.channels.value + k);
    };
    load();
    if (part == 0) {
      for (int j = threadIdx.x; j < CHANNEL_THREADS * V_MAX && first_k + j < s.channels.value; j += THREADS)
        table[j] = channel_of(args, first_k + j);
      __syncthreads();
    }
    if (first >= end) continue;
    Channel channel[V];
#pragma unroll
    for (int i = 0; i < V; i++) channel[i] = table[column + part + i];
    for (;;) {
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        const idx pixel = first + u * step;
        if (pixel >= end) break;
        const idx n = s.plane.divide(pixel);
        const Coord at = {pixel * s.channels.value + k, n, k, pixel - n * s.plane.value};
        float v[V];
        widen(x[u], v);
        finish_vector<V, true>(args, channel, v, at);
      }
      first += UNROLL * step;
      if (first >= end) break;
      load();
    }
  }
}

// Channels first: the tensor as one row of elements, of which a block takes THREADS * UNROLL vectors. A
// vector may cross into the next plane.
template <int V> DEVICE void channels_first(const Args& args, Channel* table) {
  constexpr int TILE = THREADS * UNROLL * V_MAX;
  const Shape& s = args.shape;
  const idx first = (idx)blockIdx.x * TILE;
  const int count = s.outputs - first < TILE ? (int)(s.outputs - first) : TILE;
  // Planes count from the tile's first; `within` elements of that one are before the tile.
  const idx plane = s.plane.divide(first), within = first - plane * s.plane.value;
  // What belongs to the element `offset` of the tile.
  const auto coord_of = [&](int offset) {
    const idx j = s.plane.divide(within + offset), n = s.channels.divide(plane + j);
    return Coord{first + offset, n, plane + j - n * s.channels.value, within + offset - j * s.plane.value};
  };
  const auto channel_of_plane = [&](idx j) {
    const idx n = s.channels.divide(plane + j);
    return channel_of(args, plane + j - n * s.channels.value);
  };
  const auto channel_at = [&](int offset) {
    const idx j = s.plane.divide(within + offset);
    if (CHANNEL_TABLE) return table[j];
    return channel_of_plane(j);
  };
#pragma unroll 1
  for (int part = 0; part < V_MAX / V; part++) {
    const auto offset_of = [&](int u) { return ((part * UNROLL + u) * THREADS + (int)threadIdx.x) * V; };
    const T* from = (const T*)args.x + first;
    Packed<V> x[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
      if (offset_of(u) + V <= count) x[u] = *(const Packed<V>*)(from + offset_of(u));
    if (CHANNEL_TABLE && part == 0) {
      const int planes = (int)s.plane.divide(within + count - 1) + 1;
      for (int j = threadIdx.x; j < planes; j += THREADS) table[j] = channel_of_plane(j);
      __syncthreads();
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const int offset = offset_of(u);
      if (offset + V > count) {
        // The end of the tensor.
#pragma unroll 1
        for (int i = offset; i < count; i++) finish(args, channel_at(i), to_float(from[i]), coord_of(i));
        break;
      }
      Coord at = coord_of(offset);
      Channel channel = channel_at(offset);
      float v[V];
      widen(x[u], v);
      if (WHOLE_VECTORS || (!CROSSING_WARPS && at.p + V <= s.plane.value)) {
        finish_vector<V, false>(args, &channel, v, at);
        continue;
      }
      const Residuals<V> residuals = residuals_of<V>(args, at.y);
      constexpr int OF_PLANE = PLANE_PART < V ? PLANE_PART : V;
      if (OF_PLANE > 1) {
        // Parts of one plane each.
#pragma unroll
        for (int e = 0; e < V; e += OF_PLANE) {
          const Channel of = channel_at(offset + e);
          Coord here = coord_of(offset + e);
#pragma unroll
          for (int i = e; i < e + OF_PLANE; i++, here.y++, here.p++)
            v[i] = chain(args, of, residuals, i, affine(args, of, v[i]), here);
        }
      } else if (LONG_PLANES) {
        // Of this plane and the next.
        const Channel next = channel_at(offset + V - 1);
        const Coord last = coord_of(offset + V - 1);
#pragma unroll
        for (int e = 0; e < V; e++) {
          const bool beyond = at.p + e >= s.plane.value;
          const Coord here = {at.y + e, beyond ? last.n : at.n, beyond ? last.k : at.k,
                              at.p + e - (beyond ? (idx)s.plane.value : 0)};
          const Channel of = one_of(beyond, next, channel);
          v[e] = chain(args, of, residuals, e, affine(args, of, v[e]), here);
        }
      } else {
#pragma unroll
        for (int e = 0; e < V; e++) {
          const Channel of = channel_at(offset + e);
          v[e] = chain(args, of, residuals, e, affine(args, of, v[e]), coord_of(offset + e));
        }
      }
      write_vector<V>(args, first + offset, v);
    }
  }
}

template <int V> DEVICE void all(const Args& args, Channel* table) {
  if (CHANNELS_LAST) channels_last<V>(args, table);
  else channels_first<V>(args, table);
}

KERNEL(THREADS, 4) {
  begin_grid();
  DYNAMIC_SHARED(char, shared);
  Channel* table = (Channel*)shared;
  constexpr int BYTES = V_MAX * (int)sizeof(T);
  if (is_aligned(args.x, BYTES) && is_aligned(args.y, BYTES)) all<V_MAX>(args, table);
  else all<1>(args, table);
}
