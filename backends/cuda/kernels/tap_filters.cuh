// How TMA brings the filters of one tap, where columns of the product are filters of channels last.
//
// needs macros: DEVICE
// needs constants: FILTERS_BY_LANE, LANE_RUN, ROW, TAPS_H, TAPS_W, TILE_F
// needs types: Launch
// needs functions: tma_load_box, tma_load_box_5d

// Loads the filters of a tap from one filter on, TILE_K channels of each. Where they are FILTERS_BY_LANE, the map's
// dimensions put them in the order in which lanes have columns, those of four lanes' runs at a time.
DEVICE void load_filters_of(unsigned to, const Launch& launch, unsigned barrier, int c, int tap, int filter) {
  if constexpr (!FILTERS_BY_LANE)
    tma_load_box(to, &launch.w, barrier, c, tap % TAPS_W, tap / TAPS_W % TAPS_H, tap / (TAPS_W * TAPS_H), filter);
  else
#pragma unroll
    for (int f = 0; f < TILE_F; f += 4 * LANE_RUN)
      tma_load_box_5d(to + f * ROW, &launch.w, barrier, c, 0, (filter + f) / LANE_RUN, 0, tap);
}
