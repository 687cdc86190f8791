// The epilogue where rows of the product are pixels and results are written along channels.
//
// needs macros: DEVICE
// needs constants: ATOMS, COOPERATIVE, FILTERS, FILTERS_BY_LANE, FOURS, LANE_RUN, OF_FOUR, PRODUCERS,
//   RESIDUALS_AHEAD, RESIDUALS_EARLY, ROWS, SPLIT, TF32X3, TILE_F, TILE_P, UNROLLED_PARTS, VECTORS_OF_TILE, WIDTH, Y_VECTOR
// needs sizes: pixels
// needs types: Args, Channel, Column, Coord, Early, Rectangle, Residuals, T
// needs functions: affine, affine_columns, are_finite, chain_vector, column_of, coord_of, each_residual, exchange,
//   make_plain, of_eight, prefetch_l2, rectangle_of, residuals_of, row_pixel, sum_of_products, take, write_vector

// Whether this epilogue's residuals have been read before.
constexpr bool ARE_EARLY = RESIDUALS_EARLY && SPLIT == 1;
// Whether a thread has the residuals of other parts on their way while it finishes a part.
constexpr bool ARE_AHEAD = RESIDUALS_AHEAD && Y_VECTOR * sizeof(T) >= 8 && !RESIDUALS_EARLY;

// One pixel's channels of the tile a thread.
DEVICE void prefetch_residuals(const Args& args, int tile, int thread, int count) {
  each_residual(args, [&](const T* residual) {
    const Column column = column_of(tile);
    const Rectangle rectangle = rectangle_of(args.shape, tile);
    const int left = FILTERS - column.filter;
#pragma unroll 1
    for (int i = thread; i < TILE_P; i += count) {
      const int pixel = row_pixel(args.shape, rectangle, tile, i);
      if (pixel >= args.shape.pixels) continue;
      prefetch_l2(residual + coord_of(args.shape, pixel, column.group * FILTERS + column.filter).y,
                  left < TILE_F ? left : TILE_F);
    }
  });
}

// A lane finishes eight channels of two pixels at a time, eight rows apart, by vectors: LANE_RUN neighbours, and those
// as far behind as four lanes have of them, so that the four write whole sectors.
constexpr int VECTORS = 8 / Y_VECTOR;
static_assert(VECTORS * Y_VECTOR == 8 && LANE_RUN % Y_VECTOR == 0, "whole vectors");

// A lane's first channel of 32, and how far behind it one of its eight is.
DEVICE int first_channel() {
  const int lane = threadIdx.x % 4;
  return FILTERS_BY_LANE || LANE_RUN == 8 ? lane * LANE_RUN : lane % 2 * 8 + lane / 2 * 4;
}
DEVICE constexpr int behind_first(int e) { return e / LANE_RUN * (4 * LANE_RUN) + e % LANE_RUN; }

// Reads the residuals of a lane's eight channels of a pixel.
DEVICE void load_residuals(const Args& args, Residuals<Y_VECTOR>* residuals, const Column& column, int f, int pixel) {
  if (pixel >= args.shape.pixels) return;
  const Coord at = coord_of(args.shape, pixel, column.group * FILTERS + column.filter + f);
#pragma unroll
  for (int e = 0; e < 8; e += Y_VECTOR) {
    const int on = behind_first(e);
    if (f + on >= TILE_F || column.filter + f + on >= FILTERS) break;
    residuals[e / Y_VECTOR] = residuals_of<Y_VECTOR>(args, at.y + on);
  }
}

// The pixel of a lane in one of two rows of one of its warp's atoms.
DEVICE int pixel_of_row(const Args& args, const Rectangle& rectangle, int tile, int atom, int row) {
  const int first = (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE * ROWS + threadIdx.x / 32 % 4 * 16;
  return row_pixel(args.shape, rectangle, tile, first + atom * 64 + row * 8 + threadIdx.x % 32 / 4);
}

DEVICE void read_residuals(const Args& args, Early& early, int tile) {
  if constexpr (ARE_EARLY) {
    static_assert(FOURS * ATOMS * 2 * VECTORS == VECTORS_OF_TILE || !ARE_EARLY, "all of them");
    const Column column = column_of(tile);
    const Rectangle rectangle = rectangle_of(args.shape, tile);
#pragma unroll
    for (int four = 0; four < FOURS; four++)
#pragma unroll
      for (int i = 0; i < ATOMS * 2; i++)
        load_residuals(args, early.of + (four * ATOMS * 2 + i) * VECTORS, column, four * 32 + first_channel(),
                       pixel_of_row(args, rectangle, tile, i / 2, i % 2));
  }
}

template <bool PLAIN>
DEVICE void epilogue(Args args, float (&acc)[ATOMS][WIDTH / 2], float*, const Channel* channels, const Early& early,
                     int tile) {
  if (PLAIN) make_plain(args);
  const Column column = column_of(tile);
  const Rectangle rectangle = rectangle_of(args.shape, tile);
  const int first_f = first_channel();
  const auto pixel_of = [&](int atom, int row) { return pixel_of_row(args, rectangle, tile, atom, row); };
  // Early residuals are in registers, whose numbers are constants. A few parts are unrolled too, so that
  // accumulators need not be found.
  constexpr bool UNROLLED = ARE_EARLY || (PLAIN && !TF32X3 && ATOMS * FOURS <= UNROLLED_PARTS);
  // The parts whose residuals are on their way: several of what is unrolled, since one waits about as long as many.
  constexpr int AHEAD = !UNROLLED || RESIDUALS_AHEAD < 2 ? 1 : RESIDUALS_AHEAD;
  Residuals<Y_VECTOR> ahead[AHEAD][2][VECTORS];
  const auto load_ahead = [&](int part, int row) {
    if (part < ATOMS * FOURS)
      load_residuals(args, ahead[part % AHEAD][row], column, part / ATOMS * 32 + first_f, pixel_of(part % ATOMS, row));
  };
  if constexpr (AHEAD == 1) affine_columns(args, acc, channels);
  if constexpr (ARE_AHEAD)
#pragma unroll
    for (int i = 0; i < AHEAD * 2; i++) load_ahead(i / 2, i % 2);
  if constexpr (AHEAD > 1) affine_columns(args, acc, channels);
#pragma unroll(UNROLLED ? FOURS : 1)
  for (int four = 0; four < FOURS; four++) {
    const int f = four * 32 + first_f;
    Channel channel[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (f + behind_first(i) < TILE_F) channel[i] = channels[f + behind_first(i)];
#pragma unroll(UNROLLED ? ATOMS : 1)
    for (int atom = 0; atom < ATOMS; atom++) {
      float numbers[OF_FOUR] = {};
      take<0>(acc, atom * FOURS + four, numbers);
      if (!FILTERS_BY_LANE) exchange<1>(numbers);
      if (!FILTERS_BY_LANE && LANE_RUN == 8) exchange<2>(numbers);
      if (TF32X3 && !are_finite(numbers)) {
#pragma unroll 1
        for (int i = 0; i < OF_FOUR; i++) {
          const int pixel = pixel_of(atom, i / 2 % 2), of = f + behind_first(i / 4 * 2 + i % 2);
          if (pixel >= args.shape.pixels || of >= TILE_F || column.filter + of >= FILTERS) continue;
          const float anew = affine(args, channels[of], sum_of_products(args, column.group, column.filter + of, pixel));
#pragma unroll
          for (int at = 0; at < OF_FOUR; at++) numbers[at] = at == i ? anew : numbers[at];
        }
      }
#pragma unroll
      for (int row = 0; row < 2; row++) {
        const int pixel = pixel_of(atom, row);
        float v[8];
#pragma unroll
        for (int e = 0; e < 8; e++) v[e] = of_eight(numbers, row, e);
        if (pixel < args.shape.pixels) {
          const Coord at = coord_of(args.shape, pixel, column.group * FILTERS + column.filter + f);
#pragma unroll
          for (int e = 0; e < 8; e += Y_VECTOR) {
            const int on = behind_first(e);
            if (f + on >= TILE_F || column.filter + f + on >= FILTERS) break;
            Coord here = at;
            here.y += on;
            here.k += on;
            float out[Y_VECTOR];
            if constexpr (ARE_EARLY)
              chain_vector<Y_VECTOR, true>(args, channel + e,
                                           early.of[((four * ATOMS + atom) * 2 + row) * VECTORS + e / Y_VECTOR], v + e,
                                           here, out);
            else if constexpr (ARE_AHEAD)
              chain_vector<Y_VECTOR, true>(args, channel + e, ahead[(four * ATOMS + atom) % AHEAD][row][e / Y_VECTOR],
                                           v + e, here, out);
            else
              chain_vector<Y_VECTOR, true>(args, channel + e, residuals_of<Y_VECTOR>(args, here.y), v + e, here, out);
            write_vector<Y_VECTOR>(args, here.y, out);
          }
        }
        if constexpr (ARE_AHEAD) load_ahead(four * ATOMS + atom + AHEAD, row);
      }
    }
  }
}
