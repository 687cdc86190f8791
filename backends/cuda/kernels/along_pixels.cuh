// The epilogue where columns of the product are pixels and results are written along them.
//
// needs macros: DEVICE, READS_ELEMENTS
// needs constants: ATOMS, COOPERATIVE, FILTERS, PART, PARTS_ALONG, PARTS_DOWN, PART_ROWS, PITCH, PRODUCERS, RESIDUALS_AHEAD,
//   RESIDUALS_EARLY, ROWS, SPLIT, TF32X3, TILE_F, VECTORS_OF_TILE, WIDTH, Y_VECTOR
// needs sizes: y_c
// needs types: Args, Channel, Column, Coord, Early, Pixels, Residuals, Shape, Vector, idx
// needs functions: are_finite, column_of, coord_of, finish_to, make_plain, part_address, part_at, pixel_at, pixels_of,
//   residuals_of, stage_accumulators, sum_of_products, write_vector

// Whether this epilogue's residuals have been read before, and else, whether a thread has those of its next vectors on their way while
// it finishes some.
constexpr bool ARE_EARLY = RESIDUALS_EARLY && SPLIT == 1, ARE_AHEAD = RESIDUALS_AHEAD && !ARE_EARLY;

// A part's vectors are dealt out row by row, so that those of a lane have only COORDS different pixels. A lane takes
// TOGETHER of them at a time, those of DOWN rows.
constexpr int VECTORS = PART / Y_VECTOR, COORDS = VECTORS > 32 ? VECTORS / 32 : 1;
constexpr int TOGETHER = VECTORS < 16 ? VECTORS / 4 : 4, DOWN = TOGETHER * 32 / VECTORS;
static_assert(PART_ROWS == 8 && 8 % DOWN == 0 && TOGETHER % COORDS == 0, "a lane's vectors come in whole parts");
static_assert(PARTS_ALONG * PARTS_DOWN * (8 / DOWN) * TOGETHER == VECTORS_OF_TILE || !ARE_EARLY, "all of them");

// The first of a tile's filters that a lane has in a part that lies so far down.
DEVICE int part_filter(int down) {
  const int consumer = (threadIdx.x / 128 - PRODUCERS) % COOPERATIVE;
  return consumer * ROWS + threadIdx.x / 32 % 4 * 16 + down / 2 * 64 + down % 2 * 8;
}

// The pixels of a lane's vectors in a part that lies so far along, and whether they are the tile's.
struct PartPixels {
  Coord coords[COORDS];
  bool inside[COORDS];
  DEVICE PartPixels(const Shape& s, const Pixels& pixels, int along) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < COORDS; i++) {
      const int pixel = pixel_at(s, pixels, along * PART + (i * 32 + lane) % VECTORS * Y_VECTOR);
      inside[i] = pixel < pixels.end;
      coords[i] = coord_of(s, pixel, 0);
    }
  }
};

// Reads the residuals of the vectors that a lane takes together.
DEVICE void load_residuals(const Args& args, const Column& column, const PartPixels& at, int down, int top,
                           Residuals<Y_VECTOR>* residuals) {
#pragma unroll
  for (int j = 0; j < TOGETHER; j++) {
    const int f = column.filter + part_filter(down) + threadIdx.x % 32 / VECTORS + top + j * 32 / VECTORS;
    if (at.inside[j % COORDS] && (FILTERS % TILE_F == 0 || f < FILTERS))
      residuals[j] =
          residuals_of<Y_VECTOR>(args, at.coords[j % COORDS].y + (column.group * FILTERS + f) * args.shape.y_c);
  }
}

DEVICE void read_residuals(const Args& args, Early& early, int tile) {
  if constexpr (ARE_EARLY) {
    const Column column = column_of(tile);
    const Pixels pixels = pixels_of(args.shape, tile);
#pragma unroll
    for (int along = 0; along < PARTS_ALONG; along++) {
      const PartPixels at(args.shape, pixels, along);
#pragma unroll
      for (int down = 0; down < PARTS_DOWN; down++)
#pragma unroll
        for (int top = 0; top < 8; top += DOWN)
          load_residuals(args, column, at, down, top,
                         early.of + ((along * PARTS_DOWN + down) * (8 / DOWN) + top / DOWN) * TOGETHER);
    }
  }
}

template <bool PLAIN>
DEVICE void epilogue(Args args, float (&acc)[ATOMS][WIDTH / 2], float* part, const Channel* channels,
                     const Early& early, int tile) {
  if (PLAIN) make_plain(args);
  const Shape& s = args.shape;
  const Column column = column_of(tile);
  const Pixels pixels = pixels_of(s, tile);
  const int lane = threadIdx.x % 32;
  const unsigned to = part_address(part);
  const float* from = part + part_at(lane / VECTORS, lane % VECTORS * Y_VECTOR);
  Residuals<Y_VECTOR> ahead[TOGETHER];
  // Early residuals are in registers, whose numbers are constants.
#pragma unroll(ARE_EARLY ? PARTS_ALONG : 1)
  for (int along = 0; along < PARTS_ALONG; along++) {
    const PartPixels at(s, pixels, along);
    if constexpr (ARE_AHEAD) load_residuals(args, column, at, 0, 0, ahead);
#pragma unroll(ARE_EARLY ? PARTS_DOWN : 1)
    for (int down = 0; down < PARTS_DOWN; down++) {
      // All of a warp may be beyond the last filter.
      const int first = part_filter(down);
      if (FILTERS % TILE_F != 0 && column.filter + first >= FILTERS) break;
      __syncwarp();
      stage_accumulators<0>(acc, to, along * PARTS_DOWN + down);
      __syncwarp();
      const int below = first + lane / VECTORS;
#pragma unroll(ARE_EARLY ? 8 / DOWN : 1)
      for (int top = 0; top < 8; top += DOWN) {
        float out[TOGETHER][Y_VECTOR];
        idx y[TOGETHER];
        bool writes[TOGETHER];
        // Elements beyond the output are computed too, unless that would read memory: this takes no branch.
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) {
          const int row = j * 32 / VECTORS, column_of_row = j * 32 % VECTORS, f = below + top + row;
          Coord here = at.coords[j % COORDS];
          here.k = column.group * FILTERS + column.filter + f;
          y[j] = here.y += here.k * s.y_c;
          writes[j] = at.inside[j % COORDS] && (FILTERS % TILE_F == 0 || column.filter + f < FILTERS);
          if ((!PLAIN || READS_ELEMENTS) && !writes[j]) continue;
          float v[Y_VECTOR];
#pragma unroll
          for (int e = 0; e < Y_VECTOR; e += 4) {
            constexpr int SOME = Y_VECTOR < 4 ? Y_VECTOR : 4;
            const float* at_part = from + top * PITCH + part_at(row, column_of_row * Y_VECTOR + e);
            const Vector<float, SOME> some = *(const Vector<float, SOME>*)at_part;
#pragma unroll
            for (int i = 0; i < SOME; i++) v[e + i] = some.at[i];
          }
          if (TF32X3 && writes[j] && !are_finite(v)) {
            const int pixel = pixel_at(s, pixels, along * PART + (j * 32 + lane) % VECTORS * Y_VECTOR);
            float* const at_part = part + (from - part) + top * PITCH;
#pragma unroll 1
            for (int e = 0; e < Y_VECTOR; e++)
              at_part[part_at(row, column_of_row * Y_VECTOR + e)] =
                  sum_of_products(args, column.group, column.filter + f, pixel + e);
#pragma unroll
            for (int e = 0; e < Y_VECTOR; e++) v[e] = at_part[part_at(row, column_of_row * Y_VECTOR + e)];
          }
          const Channel channel = channels[f];
          if constexpr (ARE_EARLY)
            finish_to<Y_VECTOR, false>(args, &channel,
                                       early.of[((along * PARTS_DOWN + down) * (8 / DOWN) + top / DOWN) * TOGETHER + j],
                                       v, here, out[j]);
          else if constexpr (ARE_AHEAD) finish_to<Y_VECTOR, false>(args, &channel, ahead[j], v, here, out[j]);
          else finish_to<Y_VECTOR, false>(args, &channel, v, here, out[j]);
        }
        if constexpr (ARE_AHEAD) {
          if (top + DOWN < 8) load_residuals(args, column, at, down, top + DOWN, ahead);
          else if (down + 1 < PARTS_DOWN) load_residuals(args, column, at, down + 1, 0, ahead);
        }
#pragma unroll
        for (int j = 0; j < TOGETHER; j++)
          if (writes[j]) write_vector<Y_VECTOR>(args, y[j], out[j]);
      }
    }
  }
}
