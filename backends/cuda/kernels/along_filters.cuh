// The epilogue of 16 bits where rows of the product are filters, results are written along pixels, several at once, and no operator reads a
// number for each: a lane finishes what it has summed, and a warp passes it through shared memory as it is written, by parts of 16 filters.
//
// needs macros: DEVICE, READS_ELEMENTS
// needs constants: ATOMS, COOPERATIVE, FILTERS, PART, PARTS_ALONG, PART_FLOATS, PRODUCERS, RESIDUALS_EARLY, ROWS, TILE_F, WIDTH, Y_VECTOR
// needs sizes: y_c
// needs types: Args, Channel, Column, Coord, Early, Pixels, Residuals, Shape, T, Vector
// needs functions: affine, chain, column_of, coord_of, make_plain, pair_of, pixel_at, pixels_of, shared_address, to_float

static_assert(sizeof(T) == 2 && !READS_ELEMENTS && Y_VECTOR > 1,
              "what lanes have of a part is finished where it is summed");
// Elements from a filter's pixels to the next one's: `stmatrix` writes those of eight to all banks. Lanes that write a filter's pixels, and
// filters that a warp writes at once.
constexpr int ROW_PITCH = PART + 8, LANES_ACROSS = PART / Y_VECTOR, FILTERS_AT_ONCE = 32 / LANES_ACROSS,
              VECTORS_OF_LANE = 16 / FILTERS_AT_ONCE;
static_assert(16 * ROW_PITCH * (int)sizeof(T) <= PART_FLOATS * 4, "a part has room in that of a warp");

// Finishes this lane's results of a part, by pairs of pixels, and stores them to shared memory. The compiler must know which registers
// accumulators are in, so the part is found by comparing, and the comment in the instruction keeps the compiler from merging the stores of
// several parts.
template <int AT, class F> DEVICE void stage_part(const float (&acc)[ATOMS][WIDTH / 2], unsigned to, int part,
                                                  F pair_of_pixels) {
  if constexpr (AT < ATOMS * PARTS_ALONG) {
    if (part != AT) return stage_part<AT + 1>(acc, to, part, pair_of_pixels);
#pragma unroll
    for (int eight = 0; eight < PART / 8; eight += 2) {
      unsigned pairs[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int column = AT / ATOMS * PART + (eight + i / 2) * 8, at = column / 2 + i % 2 * 2;
        float taken[2] = {};
        // What is finished of other parts is not kept.
        if (column < WIDTH)
          asm volatile("mov.b32 %0, %2; // part %4\nmov.b32 %1, %3;"
                       : "=f"(taken[0]), "=f"(taken[1])
                       : "f"(acc[AT % ATOMS][at % (WIDTH / 2)]), "f"(acc[AT % ATOMS][(at + 1) % (WIDTH / 2)]), "n"(AT));
        pairs[i] = column < WIDTH ? pair_of_pixels(column + threadIdx.x % 4 * 2, i % 2, taken[0], taken[1]) : 0;
      }
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4}; // part %5" ::"r"(
                       to + eight * 8 * (int)sizeof(T)),
                   "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3]), "n"(AT)
                   : "memory");
    }
  }
}

DEVICE void read_residuals(const Args&, Early&, int) { static_assert(!RESIDUALS_EARLY, "there are none"); }

template <bool PLAIN>
DEVICE void epilogue(Args args, float (&acc)[ATOMS][WIDTH / 2], float* part, const Channel* channels, const Early&,
                     int tile) {
  if (PLAIN) make_plain(args);
  const Shape& s = args.shape;
  const Column column = column_of(tile);
  const Pixels pixels = pixels_of(s, tile);
  const int lane = threadIdx.x % 32, consumer = (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE;
  const int first = consumer * ROWS + threadIdx.x / 32 % 4 * 16, across = lane % LANES_ACROSS * Y_VECTOR,
            below = lane / LANES_ACROSS;
  // Of the four matrices that are stored at once the second and the fourth have the lower rows, the last two the next eight pixels.
  const unsigned to = shared_address((const T*)part + lane % 16 * ROW_PITCH + lane / 16 * 8);
  const T* const from = (const T*)part + below * ROW_PITCH + across;
  T* const y = (T*)args.y + (column.group * FILTERS + column.filter) * s.y_c;
  T* vectors = y;
  bool inside = false;
#pragma unroll(PLAIN ? ATOMS* PARTS_ALONG : 1)
  for (int at = 0; at < ATOMS * PARTS_ALONG; at++) {
    const int filter = first + at % ATOMS * 64, along = at / ATOMS * PART;
    if (at % ATOMS == 0) {
      const int pixel = pixel_at(s, pixels, along + across);
      inside = pixel < pixels.end;
      vectors = y + (coord_of(s, pixel, 0).y + (first + below) * s.y_c);
    }
    // All of a warp may be beyond the last filter.
    if (FILTERS % TILE_F != 0 && column.filter + filter >= FILTERS) continue;
    const Channel of_rows[2] = {channels[filter + lane / 4], channels[filter + lane / 4 + 8]};
    const auto pair_of_pixels = [&](int pixel, int row, float low, float high) {
      float v[2] = {low, high};
#pragma unroll
      for (int e = 0; e < 2; e++) {
        v[e] = chain(args, of_rows[row], Residuals<2>(), e, affine(args, of_rows[row], v[e]), Coord());
        if (!PLAIN && args.beta != 0.f) {
          int f = filter + lane / 4 + row * 8;
          // Known here alone, such that no addresses are kept in registers.
          asm volatile("" : "+r"(f));
          const int here = pixel_at(s, pixels, pixel + e);
          if (here < pixels.end && column.filter + f < FILTERS)
            v[e] = fmaf(args.beta, to_float(y[coord_of(s, here, 0).y + f * s.y_c]), v[e]);
        }
      }
      return pair_of<T>(v[0], v[1]);
    };
    __syncwarp();
    stage_part<0>(acc, to, at, pair_of_pixels);
    __syncwarp();
    Vector<T, Y_VECTOR> some[VECTORS_OF_LANE];
#pragma unroll
    for (int i = 0; i < VECTORS_OF_LANE; i++)
      some[i] = *(const Vector<T, Y_VECTOR>*)(from + i * FILTERS_AT_ONCE * ROW_PITCH);
#pragma unroll
    for (int i = 0; i < VECTORS_OF_LANE; i++)
      if (inside && (FILTERS % TILE_F == 0 || column.filter + filter + i * FILTERS_AT_ONCE + below < FILTERS))
        *(Vector<T, Y_VECTOR>*)(vectors + (at % ATOMS * 64 + i * FILTERS_AT_ONCE) * s.y_c) = some[i];
  }
}
