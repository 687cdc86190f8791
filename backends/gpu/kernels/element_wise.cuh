// One pass over packed tensors, input and output alike. V elements at a time where the pointers allow it.
// A block has UNROLL vectors for each of its threads, most of which lie side by side. It asks for the numbers of their channels,
// then for their elements, makes a table of the channels, and finishes the elements. An element is read and written by one thread
// only, so the output may be the input, or a residual. PLAIN says that nothing is scaled or blended.
//
// needs macros: AT_ONCE, DEVICE, DYNAMIC_SHARED, KEEP_ORDER, KERNEL
// needs constants: BLOCKS, CHANNELS_LAST, CHANNEL_TABLE, CHANNEL_THREADS, CROSSING_WARPS, EARLY_BLOCKS, LONG_PLANES,
//   PLANE_PART, THREADS, UNROLL, V_MAX, WHOLE_VECTORS
// needs sizes: channels, columns, outputs, pixels, plane
// needs types: Args, Channel, Coord, Numbers, Packed, Residuals, Shape, T, idx
// needs functions: affine, begin_grid, chain, channel_of, finish, finish_vector, is_aligned, is_plain,
//   make_plain, numbers_of, one_of, prefetch_sector, residuals_of, to_float, write_vector

template <int V> DEVICE void widen(const Packed<V>& from, float* v) {
#pragma unroll
  for (int i = 0; i < V; i++) v[i] = from.at(i);
}

// Elements of a block where channels come first, and, where they come last, its pixels that it takes at a time.
constexpr int TILE = THREADS * UNROLL * V_MAX, PIXELS = THREADS / CHANNEL_THREADS;

// Channels last: a block's threads stand for neighbouring vectors of channels (CHANNEL_THREADS) of neighbouring pixels (PIXELS).
// It takes UNROLL times as many pixels; blocks of the same ones follow each other.
struct Column {
  // The block's first channel, the thread's first channel, its first pixel, and where its pixels end. A thread without work has
  // none.
  idx first_k, k, pixel, end;
  DEVICE Column(const Shape& s) {
    const idx rows = s.columns.divide((idx)blockIdx.x), column = (idx)blockIdx.x - rows * s.columns.value;
    const int row = threadIdx.x / CHANNEL_THREADS;
    first_k = column * CHANNEL_THREADS * V_MAX;
    k = first_k + threadIdx.x % CHANNEL_THREADS * V_MAX;
    pixel = rows * PIXELS * UNROLL + row;
    end = row < PIXELS && k < s.channels.value ? s.pixels : 0;
  }
};

// Starts to bring the thread's vectors into L2, in blocks that may be there while the grid before still runs: others have no time
// for it.
DEVICE void prefetch_vectors(const Args& args) {
  if (blockIdx.x >= EARLY_BLOCKS) return;
  const Shape& s = args.shape;
  const Column column(s);
  const idx first = (idx)blockIdx.x * TILE;
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    const int offset = (u * THREADS + (int)threadIdx.x) * V_MAX;
    const idx pixel = column.pixel + u * PIXELS;
    const bool exists = CHANNELS_LAST ? pixel < column.end : s.outputs - first > offset;
    const idx at = CHANNELS_LAST ? pixel * s.channels.value + column.k : first + offset;
    if (exists) prefetch_sector((const T*)args.x + at);
  }
}

// Makes the table of a block's channels, `count` of them, which `channel` names, and has `load` ask for elements meanwhile.
// Numbers of channels are asked for first: behind elements they would come as late as these, and all threads wait for them.
template <class Name, class Load>
DEVICE void make_table(const Args& args, Channel* table, int count, Name channel, Load load) {
  int j = threadIdx.x;
  Numbers numbers;
  if (j < count) numbers = numbers_of(args, channel(j));
  KEEP_ORDER;
  load();
#pragma unroll 1
  while (j < count) {
    table[j] = channel_of(args, numbers);
    j += THREADS;
    if (j < count) numbers = numbers_of(args, channel(j));
  }
  __syncthreads();
}

template <bool PLAIN, int V> DEVICE void channels_last(Args args, Channel* table) {
  if (PLAIN) make_plain(args);
  const Shape& s = args.shape;
  const Column column(s);
#pragma unroll 1
  for (int part = 0; part < V_MAX; part += V) {
    const idx k = column.k + part;
    Packed<V> x[UNROLL];
    Residuals<V> residuals[UNROLL];
    const auto load = [&] {
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        const idx pixel = column.pixel + u * PIXELS;
        if (pixel < column.end) {
          const idx at = pixel * s.channels.value + k;
          x[u] = *(const Packed<V>*)((const T*)args.x + at);
          residuals[u] = residuals_of<V>(args, at);
        }
      }
    };
    if (CHANNEL_TABLE && part == 0) {
      constexpr int MOST = CHANNEL_THREADS * V_MAX;
      const idx left = s.channels.value - column.first_k;
      make_table(args, table, left < MOST ? (int)left : MOST, [&](int j) { return column.first_k + j; }, load);
    } else {
      load();
    }
    if (column.pixel >= column.end) continue;
    Channel channel[V];
#pragma unroll
    for (int i = 0; i < V; i++) channel[i] = table[(int)(k - column.first_k) + i];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const idx pixel = column.pixel + u * PIXELS;
      if (pixel >= column.end) break;
      const idx n = s.plane.divide(pixel);
      const Coord at = {pixel * s.channels.value + k, n, k, pixel - n * s.plane.value};
      float v[V];
      widen(x[u], v);
      finish_vector<V, true>(args, channel, residuals[u], v, at);
    }
  }
}

// Channels first: the tensor as one row of elements, of which a block takes THREADS * UNROLL vectors. A
// vector may cross into the next plane.
template <bool PLAIN, int V> DEVICE void channels_first(Args args, Channel* table) {
  if (PLAIN) make_plain(args);
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
    return plane + j - n * s.channels.value;
  };
  const auto channel_at = [&](int offset) {
    const idx j = s.plane.divide(within + offset);
    if (CHANNEL_TABLE) return table[j];
    return channel_of(args, channel_of_plane(j));
  };
#pragma unroll 1
  for (int part = 0; part < V_MAX / V; part++) {
    const auto offset_of = [&](int u) { return ((part * UNROLL + u) * THREADS + (int)threadIdx.x) * V; };
    const T* from = (const T*)args.x + first;
    Packed<V> x[UNROLL];
    Residuals<V> residuals[UNROLL];
    const auto load = [&] {
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        if (offset_of(u) + V <= count) {
          x[u] = *(const Packed<V>*)(from + offset_of(u));
          residuals[u] = residuals_of<V>(args, first + offset_of(u));
        }
      }
    };
    if (CHANNEL_TABLE && part == 0)
      make_table(args, table, (int)s.plane.divide(within + count - 1) + 1, channel_of_plane, load);
    else load();
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
        finish_vector<V, false>(args, &channel, residuals[u], v, at);
        continue;
      }
      constexpr int OF_PLANE = PLANE_PART < V ? PLANE_PART : V;
      if (OF_PLANE > 1) {
        // Parts of one plane each.
#pragma unroll
        for (int e = 0; e < V; e += OF_PLANE) {
          const Channel of = channel_at(offset + e);
          Coord here = coord_of(offset + e);
#pragma unroll
          for (int i = e; i < e + OF_PLANE; i++, here.y++, here.p++)
            v[i] = chain(args, of, residuals[u], i, affine(args, of, v[i]), here);
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
          v[e] = chain(args, of, residuals[u], e, affine(args, of, v[e]), here);
        }
      } else {
#pragma unroll
        for (int e = 0; e < V; e++) {
          const Channel of = channel_at(offset + e);
          v[e] = chain(args, of, residuals[u], e, affine(args, of, v[e]), coord_of(offset + e));
        }
      }
      write_vector<V>(args, first + offset, v);
    }
  }
}

template <bool PLAIN, int V> DEVICE void all(const Args& args, Channel* table) {
  if (CHANNELS_LAST) channels_last<PLAIN, V>(args, table);
  else channels_first<PLAIN, V>(args, table);
}

// Most tables are small; registers are for as many blocks where others leave room for fewer.
KERNEL(THREADS, AT_ONCE(BLOCKS, 1)) {
  begin_grid([&] { prefetch_vectors(args); });
  DYNAMIC_SHARED(char, shared);
  Channel* table = (Channel*)shared;
  constexpr int BYTES = V_MAX * (int)sizeof(T);
  if (!is_aligned(args.x, BYTES) || !is_aligned(args.y, BYTES)) all<false, 1>(args, table);
  else if (is_plain(args)) all<true, V_MAX>(args, table);
  else all<false, V_MAX>(args, table);
}
