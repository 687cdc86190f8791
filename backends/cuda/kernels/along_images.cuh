// The epilogue of 16 bits where rows of the product are pixels, a lane may have NEIGHBOURS of them side by side, and results lie as far apart
// in memory as is known: they pass through shared memory by parts of all pixels and some filters. Of WHOLE_IMAGES a set of warpgroups puts a
// part's results of an image together as they lie in memory, one behind the other, and its threads copy them by 16 bytes, so that all
// sectors but the first and the last one are whole. Else a filter's pixels lie side by side, those of a warpgroup, or of a set where
// vectors have more pixels than a lane, and its threads copy as many at a time as a vector has.
//
// needs macros: DEVICE, READS_ELEMENTS
// needs constants: ATOMS, COOPERATIVE, COVERED_P, FILTERS, NEIGHBOURS, PART_FLOATS, PRODUCERS, ROWS, TILE_F, WHOLE_IMAGES, WIDTH, Y_PITCH,
//   Y_PLANE, Y_VECTOR
// needs sizes: y_n
// needs types: Args, Channel, Column, Coord, Early, Pixels, Residuals, Shape, T, Vector, idx
// needs functions: affine_columns, chain, column_of, make_plain, pair_of, pixel_of_row, pixels_of, shared_address, to_float

static_assert(sizeof(T) == 2 && !READS_ELEMENTS, "what lanes have of a part is finished where it is summed");
static_assert(WHOLE_IMAGES
                  ? Y_VECTOR == 8 && COVERED_P % Y_PLANE == 0 && Y_PITCH == Y_PLANE && FILTERS * Y_PLANE % 8 == 0
                  : Y_VECTOR % NEIGHBOURS == 0 && NEIGHBOURS > 1 && COVERED_P % Y_VECTOR == 0,
              "vectors are aligned");
// Warpgroups that put results together: all of a set, where vectors have more pixels than a lane.
constexpr int GROUP = WHOLE_IMAGES || Y_VECTOR > NEIGHBOURS ? COOPERATIVE : 1, THREADS = GROUP * 128;
constexpr int IMAGES_OF_TILE = WHOLE_IMAGES ? COVERED_P / Y_PLANE : 1;
// Elements from a filter's pixels to the next one's, and from an image's to the next one's. Filters come by eight: a part has as many as there
// is room for, and parts are about equal.
constexpr int ROW_PITCH = WHOLE_IMAGES ? Y_PLANE : GROUP * ROWS + 8, EIGHTS = WIDTH / 8,
              ROOM_EIGHTS = GROUP * 4 * PART_FLOATS * 4 / (IMAGES_OF_TILE * ROW_PITCH * 16);
// Parts of images that neighbours fill, or of pixels of a set, take turns in two areas, so that threads meet once for a part.
constexpr int AREAS = NEIGHBOURS > 1 && (WHOLE_IMAGES || GROUP > 1) && ROOM_EIGHTS > 1 ? 2 : 1;
constexpr int MOST_EIGHTS = ROOM_EIGHTS / AREAS, PARTS = (EIGHTS + MOST_EIGHTS - 1) / MOST_EIGHTS,
              PART_EIGHTS = (EIGHTS + PARTS - 1) / PARTS, IMAGE_PITCH = PART_EIGHTS * 8 * ROW_PITCH,
              AREA = IMAGES_OF_TILE * IMAGE_PITCH;

// Finishes this lane's results of a part, and hands them on: those of a filter and an atom, for which it is told whether these are of the
// lane's first filter of eight or its second one. As in `affine_columns` a lane has the same two of every eight. The compiler must know which
// registers accumulators are in, so the part is found by comparing, and the comment in the instruction keeps the compiler from merging what
// is done for several parts.
template <int AT, class F, class S>
DEVICE void finish_part(const float (&acc)[ATOMS][WIDTH / 2], int part, F finished, S store) {
  if constexpr (AT < PARTS) {
    if (part != AT) return finish_part<AT + 1>(acc, part, finished, store);
#pragma unroll
    for (int i = 0; i < PART_EIGHTS; i++) {
      if (AT * PART_EIGHTS + i >= EIGHTS) break;
#pragma unroll
      for (int e = 0; e < 2; e++) {
        unsigned pairs[ATOMS];
#pragma unroll
        for (int atom = 0; atom < ATOMS; atom++) {
          const int at = (AT * PART_EIGHTS + i) * 4 + e;
          float v[2];
          asm volatile("mov.b32 %0, %2; // part %4\nmov.b32 %1, %3;"
                       : "=f"(v[0]), "=f"(v[1])
                       : "f"(acc[atom][at % (WIDTH / 2)]), "f"(acc[atom][(at + 2) % (WIDTH / 2)]), "n"(AT));
          const int filter = (AT * PART_EIGHTS + i) * 8 + threadIdx.x % 4 * 2 + e;
#pragma unroll
          for (int row = 0; row < 2; row++) v[row] = finished(filter, atom, row, v[row]);
          pairs[atom] = pair_of<T>(v[0], v[1]);
        }
        store((i * 8 + e) * (ROW_PITCH * (int)sizeof(T)), pairs);
      }
    }
  }
}

DEVICE void store_half(unsigned to, unsigned short bits) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"(bits) : "memory");
}
// Stores neighbours.
DEVICE void store_words(unsigned to, const unsigned (&words)[1]) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(words[0]) : "memory");
}
DEVICE void store_words(unsigned to, const unsigned (&words)[2]) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(words[0]), "r"(words[1]) : "memory");
}

template <bool PLAIN>
DEVICE void epilogue(Args args, float (&acc)[ATOMS][WIDTH / 2], float* part, const Channel* channels, const Early&,
                     int tile) {
  if (PLAIN) make_plain(args);
  const Shape& s = args.shape;
  const Column column = column_of(tile);
  const Pixels pixels = pixels_of(s, tile);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int warpgroup = threadIdx.x / 128 - PRODUCERS, consumer = warpgroup % COOPERATIVE;
  const int filters = FILTERS - column.filter < TILE_F ? FILTERS - column.filter : TILE_F;
  T* const y = (T*)args.y + (column.group * FILTERS + column.filter) * (idx)Y_PITCH;
  const auto finished = [&](int filter, int atom, int row, float v) {
    v = chain(args, channels[filter], Residuals<2>(), 0, v, Coord());
    if (!PLAIN && args.beta != 0.f) {
      // Known here alone, such that no addresses are kept in registers.
      asm volatile("" : "+r"(filter));
      const int mine = pixel_of_row(atom, row), pixel = pixels.first + mine, image = pixel / Y_PLANE;
      if (mine < COVERED_P && pixel < pixels.end && filter < filters)
        v = fmaf(args.beta, to_float(y[image * s.y_n + filter * (idx)Y_PITCH + (pixel - image * Y_PLANE)]), v);
    }
    return v;
  };
  affine_columns(args, acc, channels);
  if constexpr (WHOLE_IMAGES) {
    const int set = warpgroup / COOPERATIVE, thread = consumer * 128 + threadIdx.x % 128;
    const auto meet = [&] { asm volatile("bar.sync %0, %1;" ::"r"(set + 3), "n"(THREADS) : "memory"); };
    const T* const results = (const T*)(part - (consumer * 4 + warp) * PART_FLOATS);
    const int image = pixels.first / Y_PLANE, images = (pixels.end - pixels.first) / Y_PLANE;
    // Where the first result of each of a lane's rows, or of neighbours, goes.
    constexpr int PLACES = NEIGHBOURS > 1 ? 1 : 2 * ATOMS;
    unsigned places[PLACES];
    bool exist[PLACES];
#pragma unroll
    for (int i = 0; i < PLACES; i++) {
      const int pixel = pixel_of_row(i / 2, i % 2);
      exist[i] = pixel < COVERED_P;
      places[i] = shared_address(results + pixel / Y_PLANE * IMAGE_PITCH + lane % 4 * 2 * Y_PLANE + pixel % Y_PLANE);
    }
    const auto store = [&](int on, const unsigned(&pairs)[ATOMS]) {
      if constexpr (NEIGHBOURS > 1) {
        if (exist[0]) store_words(places[0] + on, pairs);
      } else {
#pragma unroll
        for (int i = 0; i < 2 * ATOMS; i++)
          if (exist[i % PLACES]) store_half(places[i % PLACES] + on, pairs[i / 2] >> i % 2 * 16);
      }
    };
#pragma unroll(PLAIN ? PARTS : 1)
    for (int at = 0; at < PARTS; at++) {
      const int first = at * PART_EIGHTS * 8, left = filters - first;
      if (left <= 0) break;
      // All threads have copied what was in the part's area before.
      if (AREAS == 1 || at == 0) meet();
      const int area = at % AREAS * AREA;
      finish_part<0>(acc, at, finished,
                     [&](int on, const unsigned(&pairs)[ATOMS]) { store(on + area * (int)sizeof(T), pairs); });
      meet();
      const int vectors = (left < PART_EIGHTS * 8 ? left : PART_EIGHTS * 8) * Y_PLANE / 8;
      constexpr int ROUNDS = (PART_EIGHTS * Y_PLANE + THREADS - 1) / THREADS;
#pragma unroll(IMAGES_OF_TILE > 8 ? 1 : IMAGES_OF_TILE)
      for (int i = 0; i < IMAGES_OF_TILE; i++) {
        if (i >= images) break;
        const uint4* const from = (const uint4*)(results + area + i * IMAGE_PITCH) + thread;
        uint4* const to = (uint4*)(y + ((image + i) * s.y_n + first * (idx)Y_PITCH)) + thread;
        uint4 some[ROUNDS];
#pragma unroll
        for (int j = 0; j < ROUNDS; j++)
          if (j * THREADS + thread < vectors) some[j] = from[j * THREADS];
#pragma unroll
        for (int j = 0; j < ROUNDS; j++)
          if (j * THREADS + thread < vectors) to[j * THREADS] = some[j];
      }
    }
  } else {
    using Neighbours = Vector<T, Y_VECTOR>;
    const int group = warpgroup / GROUP, thread = (warpgroup - group * GROUP) * 128 + threadIdx.x % 128;
    const auto meet = [&] { asm volatile("bar.sync %0, %1;" ::"r"(group + 3), "n"(THREADS) : "memory"); };
    constexpr int ACROSS = GROUP == 1 ? ROWS / Y_VECTOR : (COVERED_P + Y_VECTOR - 1) / Y_VECTOR,
                  DOWN = THREADS / ACROSS, ROUNDS = (PART_EIGHTS * 8 + DOWN - 1) / DOWN;
    const int begin = GROUP == 1 ? consumer * ROWS : 0, across = thread % ACROSS * Y_VECTOR, down = thread / ACROSS;
    const T* const rows = (const T*)(part - thread / 32 * PART_FLOATS);
    const unsigned to = shared_address(rows + lane % 4 * 2 * ROW_PITCH + (pixel_of_row(0, 0) - begin));
    const T* const from = rows + down * ROW_PITCH + across;
    const int mine = begin + across, pixel = pixels.first + mine, image = pixel / Y_PLANE;
    const bool exists = mine < COVERED_P && pixel < pixels.end && (THREADS % ACROSS == 0 || down < DOWN);
    T* const vectors = y + (image * s.y_n + down * (idx)Y_PITCH + (pixel - image * Y_PLANE));
#pragma unroll(PLAIN ? PARTS : 1)
    for (int at = 0; at < PARTS; at++) {
      const int first = at * PART_EIGHTS * 8;
      if (filters <= first) break;
      // All warps have read what was in the part's area before.
      if (AREAS == 1 || at == 0) meet();
      const int area = at % AREAS * AREA;
      finish_part<0>(acc, at, finished, [&](int on, const unsigned(&pairs)[ATOMS]) {
        store_words(to + on + area * (int)sizeof(T), pairs);
      });
      meet();
      Neighbours some[ROUNDS];
#pragma unroll
      for (int j = 0; j < ROUNDS; j++)
        if (PART_EIGHTS * 8 % DOWN == 0 || j * DOWN + down < PART_EIGHTS * 8)
          some[j] = *(const Neighbours*)(from + area + j * DOWN * ROW_PITCH);
#pragma unroll
      for (int j = 0; j < ROUNDS; j++)
        if (exists && j * DOWN + down < PART_EIGHTS * 8 && first + j * DOWN + down < filters)
          *(Neighbours*)(vectors + (first + j * DOWN) * (idx)Y_PITCH) = some[j];
    }
  }
}
