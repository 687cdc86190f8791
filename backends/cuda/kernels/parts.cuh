// How a warp passes its accumulators through shared memory by parts of its rows, part by part.
//
// needs macros: DEVICE
// needs constants: ATOMS, PART, PARTS_ALONG, PART_ROWS, PITCH, WIDTH
// needs functions: shared_address

constexpr int PARTS_DOWN = ATOMS * 16 / PART_ROWS;
// A row of a part has the first four of every 8 columns, and behind them the other four of every 8 columns, so that
// accesses of 16 bytes have no bank conflicts.
constexpr int HALF = PITCH / 2;
DEVICE int part_at(int row, int column) { return row * PITCH + column % 8 / 4 * HALF + column / 8 * 4 + column % 4; }

// Stores this thread's accumulators of a part to shared memory. The compiler must know which registers these are, so the
// part is found by comparing, and the comment in the instruction keeps the compiler from merging all of these stores into
// one with a computed index.
template <int AT> DEVICE void stage_accumulators(const float (&acc)[ATOMS][WIDTH / 2], unsigned to, int part) {
  if constexpr (AT < PARTS_ALONG * PARTS_DOWN) {
    if (part != AT) return stage_accumulators<AT + 1>(acc, to, part);
#pragma unroll
    for (int row = 0; row < PART_ROWS; row += 8) {
      const int below = AT % PARTS_DOWN * PART_ROWS + row;
#pragma unroll
      for (int j = 0; j < PART / 8; j++) {
        const int at = AT / PARTS_DOWN * (PART / 2) + j * 4 + below % 16 / 4;
        if (at < WIDTH / 2)
          asm volatile("st.shared.v2.f32 [%0], {%1, %2}; // part %3" ::"r"(to + (row * PITCH + j * 4) * 4),
                       "f"(acc[below / 16][at]), "f"(acc[below / 16][at + 1]), "n"(AT)
                       : "memory");
      }
    }
  }
}

// The address of a lane's first pair of accumulators in a part.
DEVICE unsigned part_address(const float* part) {
  const int lane = threadIdx.x % 32;
  return shared_address(part + part_at(lane / 4, lane % 4 * 2));
}
