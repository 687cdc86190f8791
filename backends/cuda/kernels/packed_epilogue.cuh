// The epilogue where rows of the product are pixels and results are written along them: the accumulators of a warpgroup
// pass through shared memory in parts of 32 filters, of which a warp finishes eight. A lane has Y_VECTOR neighbouring pixels.
//
// needs macros: DEVICE, READS_ELEMENTS
// needs constants: ATOMS, COOPERATIVE, FILTERS, INTERLEAVED, PART_FLOATS, PRODUCERS, ROWS, TF32X3, TILE_F, WIDTH, Y_VECTOR
// needs sizes: y_c
// needs types: Args, Channel, Column, Coord, Early, Pixels, Residuals, Shape, Vector, idx
// needs functions: are_finite, column_of, coord_of, finish_to, make_plain, pixels_of, residuals_of, row_of_pixel, shared_address,
//   sum_of_products, write_vector

static_assert(Y_VECTOR == 1 || (INTERLEAVED == 1 && !TF32X3), "neighbouring pixels are neighbouring rows");
// Filters of a part, and parts of 64 rows. A filter has its rows one after the other; half of them are moved by four, so
// that neither writing the rows of a fragment nor reading the pixels of a warp has bank conflicts.
constexpr int PART_FILTERS = 32, PARTS = (WIDTH + PART_FILTERS - 1) / PART_FILTERS, FILTER_PITCH = 68;
static_assert(PART_FILTERS * FILTER_PITCH <= 4 * PART_FLOATS, "a part has room in those of four warps");
// Whether a lane has the residuals of its next vectors on their way while it finishes some: rows that were in registers leave room.
constexpr bool ARE_AHEAD = sizeof(Residuals<1>) > 1;
DEVICE int place_of_row(int row) { return row + row / 32 * 4; }

// Stores this thread's accumulators of a part to shared memory. As in `stage_accumulators`, the part is found by comparing.
template <int AT> DEVICE void stage_columns(const float (&acc)[ATOMS][WIDTH / 2], unsigned to, int part) {
  if constexpr (AT < ATOMS * PARTS) {
    if (part != AT) return stage_columns<AT + 1>(acc, to, part);
#pragma unroll
    for (int i = 0; i < PART_FILTERS / 2; i++)
      if (AT % PARTS * (PART_FILTERS / 2) + i < WIDTH / 2)
        asm volatile(
            "st.shared.f32 [%0], %1; // part %2" ::"r"(to + ((i / 4 * 8 + i % 2) * FILTER_PITCH + i / 2 % 2 * 8) * 4),
            "f"(acc[AT / PARTS][AT % PARTS * (PART_FILTERS / 2) + i]), "n"(AT)
            : "memory");
  }
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
  float* const parts = part - warp * PART_FLOATS;
  const unsigned to = shared_address(parts + lane % 4 * 2 * FILTER_PITCH + place_of_row(warp * 16 + lane / 4));
  // A lane has vectors of COORDS different pixels, and takes some TOGETHER, those of STEP filters of all lanes: of all that its warp has in
  // a part, where nothing else needs the registers.
  constexpr bool TAKES_FEW = ARE_AHEAD || READS_ELEMENTS || TF32X3 || !PLAIN;
  constexpr int COORDS = Y_VECTOR == 1 ? 2 : 1, ACROSS = 64 / Y_VECTOR / COORDS, DOWN = 32 / ACROSS;
  constexpr int TOGETHER = TAKES_FEW ? (Y_VECTOR > 2 ? 2 : 4) : 8 * COORDS / DOWN;
  constexpr int STEP = TOGETHER / COORDS * DOWN, SOME = Y_VECTOR < 4 ? 1 : 4;
  const int across = lane % ACROSS * Y_VECTOR, down = lane / ACROSS;
  const float* const from = parts + (warp * 8 + down) * FILTER_PITCH;
  const auto meet = [&] { asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 3) : "memory"); };
  Residuals<Y_VECTOR> ahead[TOGETHER];
#pragma unroll 1
  for (int along = 0; along < ATOMS; along++) {
    Coord coords[COORDS];
    bool inside[COORDS];
#pragma unroll
    for (int i = 0; i < COORDS; i++) {
      const int pixel = pixels.first + consumer * ROWS + along * 64 + i * ACROSS + across;
      inside[i] = pixel < pixels.end;
      coords[i] = coord_of(s, pixel, 0);
    }
    const auto load_residuals = [&](int at, int f) {
#pragma unroll
      for (int j = 0; j < TOGETHER; j++) {
        const int filter = at * PART_FILTERS + warp * 8 + f + j / COORDS * DOWN + down;
        if (inside[j % COORDS] && filter < TILE_F && column.filter + filter < FILTERS)
          ahead[j] = residuals_of<Y_VECTOR>(
              args, coords[j % COORDS].y + (column.group * FILTERS + column.filter + filter) * s.y_c);
      }
    };
    if constexpr (ARE_AHEAD) load_residuals(0, 0);
#pragma unroll 1
    for (int at = 0; at < PARTS; at++) {
      // All warps have read the part before.
      meet();
      stage_columns<0>(acc, to, along * PARTS + at);
      meet();
      const int first = at * PART_FILTERS + warp * 8;
#pragma unroll 1
      for (int f = 0; f < 8; f += STEP) {
        if (first + f >= TILE_F || column.filter + first + f >= FILTERS) break;
        float out[TOGETHER][Y_VECTOR];
        idx y[TOGETHER];
        bool writes[TOGETHER];
        // Elements beyond the output are computed too, unless that would read memory: this takes no branch.
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) {
          const int row = j % COORDS * ACROSS + across, below = f + j / COORDS * DOWN, filter = first + below + down;
          Coord coord = coords[j % COORDS];
          coord.k = column.group * FILTERS + column.filter + filter;
          y[j] = coord.y += coord.k * s.y_c;
          writes[j] = inside[j % COORDS] && (FILTERS % STEP == 0 || column.filter + filter < FILTERS);
          if ((!PLAIN || READS_ELEMENTS) && !writes[j]) continue;
          float v[Y_VECTOR];
#pragma unroll
          for (int e = 0; e < Y_VECTOR; e += SOME) {
            const float* const at_row = from + below * FILTER_PITCH + place_of_row(row_of_pixel(row + e));
            const Vector<float, SOME> some = *(const Vector<float, SOME>*)at_row;
#pragma unroll
            for (int i = 0; i < SOME; i++) v[e + i] = some.at[i];
          }
          if (TF32X3 && writes[j] && !are_finite(v))
            v[0] = sum_of_products(args, column.group, column.filter + filter,
                                   pixels.first + consumer * ROWS + along * 64 + row);
          const Channel channel = channels[filter];
          if constexpr (ARE_AHEAD) finish_to<Y_VECTOR, false>(args, &channel, ahead[j], v, coord, out[j]);
          else finish_to<Y_VECTOR, false>(args, &channel, v, coord, out[j]);
        }
        if constexpr (ARE_AHEAD) {
          if (f + STEP < 8) load_residuals(at, f + STEP);
          else if (at + 1 < PARTS) load_residuals(at + 1, 0);
        }
#pragma unroll
        for (int j = 0; j < TOGETHER; j++)
          if (writes[j]) write_vector<Y_VECTOR>(args, y[j], out[j]);
      }
    }
  }
}
