// The epilogue where rows of the product are pixels and results are written along channels.
//
// needs macros: DEVICE
// needs constants: ATOMS, COLUMNS, COOPERATIVE, FILTERS, HALF, PART, PARTS_ALONG, PARTS_DOWN, PART_ROWS, PITCH,
//   PRODUCERS, RESIDUALS_EARLY, ROWS, SPLIT, TF32X3, TILE_F, TILE_P, VECTORS_OF_TILE, WIDTH, Y_VECTOR
// needs sizes: pixels
// needs types: Args, Channel, Column, Coord, Early, Rectangle, Residuals, T, Vector
// needs functions: affine, affine_columns, are_finite, chain_vector, column_of, coord_of, each_residual, make_plain,
//   part_address, part_at, prefetch_l2, rectangle_of, residuals_of, row_pixel, stage_accumulators, sum_of_products,
//   write_vector

// Whether this epilogue's residuals have been read before.
constexpr bool ARE_EARLY = RESIDUALS_EARLY && SPLIT == 1;
// Whether a thread has the residuals of a part on their way while it finishes the part before.
constexpr bool ARE_AHEAD = sizeof(Residuals<1>) > 1 && Y_VECTOR * sizeof(T) >= 8 && !RESIDUALS_EARLY;

// One pixel's channels of the tile a thread.
DEVICE void prefetch_residuals(const Args& args, int tile, int thread, int count) {
  each_residual(args, [&](const T* residual) {
    const Column column = column_of(tile);
    const Rectangle rectangle = rectangle_of(args.shape, tile);
    const int left = FILTERS - column.filter;
#pragma unroll 1
    for (int i = thread; i < TILE_P; i += count) {
      const int pixel = row_pixel(args.shape, rectangle, tile / COLUMNS * TILE_P, i);
      if (pixel >= args.shape.pixels) continue;
      prefetch_l2(residual + coord_of(args.shape, pixel, column.group * FILTERS + column.filter).y,
                  left < TILE_F ? left : TILE_F);
    }
  });
}

// A lane finishes eight channels of PIXELS pixels in each part, by vectors. The lanes of a warp have PIXELS_AT_ONCE pixels.
constexpr int VECTORS = 8 / Y_VECTOR, LANES_ALONG = PART / 8;
constexpr int PIXELS_AT_ONCE = 32 / LANES_ALONG, PIXELS = PART_ROWS / PIXELS_AT_ONCE;
static_assert(VECTORS * Y_VECTOR == 8 && PIXELS * PIXELS_AT_ONCE == PART_ROWS, "whole vectors and pixels");
// Which of them is a lane's. Eight lanes read shared memory at a time: where they have two rows of a part, these are every
// other one, which lie in different banks.
DEVICE int lane_pixel(int lane) {
  const int pixel = lane / LANES_ALONG;
  return PART == 32 ? pixel / 4 * 4 + pixel % 2 * 2 + pixel / 2 % 2 : pixel;
}

// Reads the residuals of eight channels of a pixel.
DEVICE void load_residuals(const Args& args, Residuals<Y_VECTOR>* residuals, const Column& column, int f, int pixel) {
  if (pixel >= args.shape.pixels) return;
  const Coord at = coord_of(args.shape, pixel, column.group * FILTERS + column.filter + f);
#pragma unroll
  for (int e = 0; e < 8; e += Y_VECTOR) {
    if (f + e >= TILE_F || column.filter + f + e >= FILTERS) break;
    residuals[e / Y_VECTOR] = residuals_of<Y_VECTOR>(args, at.y + e);
  }
}

// The first of a tile's rows that a warp has.
DEVICE int first_row_of_warp() {
  return (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE * ROWS + threadIdx.x / 32 % 4 * 16;
}
// The pixel of number `i` of a lane's rows in the part that lies so far down.
DEVICE int part_pixel(const Args& args, const Rectangle& rectangle, int tile, int first_row, int lane, int down,
                      int i) {
  const int below = down * PART_ROWS;
  const int row = first_row + below / 16 * 64 + below % 16 + lane_pixel(lane) + i * PIXELS_AT_ONCE;
  return row_pixel(args.shape, rectangle, tile / COLUMNS * TILE_P, row);
}

DEVICE void read_residuals(const Args& args, Early& early, int tile) {
  if constexpr (ARE_EARLY) {
    static_assert(PARTS_ALONG * PARTS_DOWN * PIXELS * VECTORS == VECTORS_OF_TILE || !ARE_EARLY, "all of them");
    const int lane = threadIdx.x % 32;
    const Column column = column_of(tile);
    const Rectangle rectangle = rectangle_of(args.shape, tile);
#pragma unroll
    for (int along = 0; along < PARTS_ALONG; along++)
#pragma unroll
      for (int down = 0; down < PARTS_DOWN; down++)
#pragma unroll
        for (int i = 0; i < PIXELS; i++)
          load_residuals(args, early.of + ((along * PARTS_DOWN + down) * PIXELS + i) * VECTORS, column,
                         along * PART + lane % LANES_ALONG * 8,
                         part_pixel(args, rectangle, tile, first_row_of_warp(), lane, down, i));
  }
}

template <bool PLAIN>
DEVICE void epilogue(Args args, float (&acc)[ATOMS][WIDTH / 2], float* part, const Channel* channels,
                     const Early& early, int tile) {
  if (PLAIN) make_plain(args);
  affine_columns(args, acc, channels);
  const Column column = column_of(tile);
  const int lane = threadIdx.x % 32, first_row = first_row_of_warp();
  const Rectangle rectangle = rectangle_of(args.shape, tile);
  const unsigned to = part_address(part);
  const float* from = part + part_at(lane_pixel(lane), lane % LANES_ALONG * 8);
  const auto pixel_of = [&](int down, int i) { return part_pixel(args, rectangle, tile, first_row, lane, down, i); };
  Residuals<Y_VECTOR> ahead[PIXELS][VECTORS];
  if constexpr (ARE_AHEAD)
#pragma unroll
    for (int i = 0; i < PIXELS; i++) load_residuals(args, ahead[i], column, lane % LANES_ALONG * 8, pixel_of(0, i));
  // Early residuals are in registers, whose numbers are constants.
#pragma unroll(ARE_EARLY ? PARTS_ALONG : 1)
  for (int along = 0; along < PARTS_ALONG; along++) {
    const int f = along * PART + lane % LANES_ALONG * 8;
    Channel channel[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (f + i < TILE_F) channel[i] = channels[f + i];
#pragma unroll(ARE_EARLY ? PARTS_DOWN : 1)
    for (int down = 0; down < PARTS_DOWN; down++) {
      __syncwarp();
      stage_accumulators<0>(acc, to, along * PARTS_DOWN + down);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < PIXELS; i++) {
        const int pixel = pixel_of(down, i);
        const Vector<float, 4> low = *(const Vector<float, 4>*)(from + i * PIXELS_AT_ONCE * PITCH);
        const Vector<float, 4> high = *(const Vector<float, 4>*)(from + i * PIXELS_AT_ONCE * PITCH + HALF);
        float v[8];
#pragma unroll
        for (int e = 0; e < 4; e++) v[e] = low.at[e], v[4 + e] = high.at[e];
        if (TF32X3 && !are_finite(v) && pixel < args.shape.pixels) {
          float* const at = part + (from - part) + i * PIXELS_AT_ONCE * PITCH;
#pragma unroll 1
          for (int e = 0; e < 8 && f + e < TILE_F && column.filter + f + e < FILTERS; e++)
            at[part_at(0, e)] =
                affine(args, channels[f + e], sum_of_products(args, column.group, column.filter + f + e, pixel));
#pragma unroll
          for (int e = 0; e < 8; e++) v[e] = at[part_at(0, e)];
        }
        if (pixel < args.shape.pixels) {
          const Coord at = coord_of(args.shape, pixel, column.group * FILTERS + column.filter + f);
#pragma unroll
          for (int e = 0; e < 8; e += Y_VECTOR) {
            if (f + e >= TILE_F || column.filter + f + e >= FILTERS) break;
            Coord here = at;
            here.y += e;
            here.k += e;
            float out[Y_VECTOR];
            if constexpr (ARE_EARLY)
              chain_vector<Y_VECTOR, true>(
                  args, channel + e, early.of[((along * PARTS_DOWN + down) * PIXELS + i) * VECTORS + e / Y_VECTOR],
                  v + e, here, out);
            else if constexpr (ARE_AHEAD)
              chain_vector<Y_VECTOR, true>(args, channel + e, ahead[i][e / Y_VECTOR], v + e, here, out);
            else
              chain_vector<Y_VECTOR, true>(args, channel + e, residuals_of<Y_VECTOR>(args, here.y), v + e, here, out);
            write_vector<Y_VECTOR>(args, here.y, out);
          }
        }
        if constexpr (ARE_AHEAD) {
          if (down + 1 < PARTS_DOWN) load_residuals(args, ahead[i], column, f, pixel_of(down + 1, i));
          else if (along + 1 < PARTS_ALONG) load_residuals(args, ahead[i], column, f + PART, pixel_of(0, i));
        }
      }
    }
  }
}
