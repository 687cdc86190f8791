// What a block keeps in shared memory for all of its tiles.
//
// needs macros: DEVICE

// Brings COUNT values to where a block keeps them: each of its LANES threads reads as many as MOST before it writes the first, as it waits for
// one as long as for all. What is beyond the last is the last once more, so that no read has a condition.
template <int COUNT, int LANES, int MOST, class Read, class Write>
DEVICE void bring(const Read& read, const Write& write) {
  constexpr int EACH = (COUNT + LANES - 1) / LANES, TIMES = (EACH + MOST - 1) / MOST,
                TOGETHER = (EACH + TIMES - 1) / TIMES;
#pragma unroll 1
  for (int first = threadIdx.x; first < COUNT; first += LANES * TOGETHER) {
    decltype(read(0)) v[TOGETHER];
#pragma unroll
    for (int u = 0; u < TOGETHER; u++) v[u] = read(first + u * LANES < COUNT ? first + u * LANES : COUNT - 1);
#pragma unroll
    for (int u = 0; u < TOGETHER; u++)
      if (first + u * LANES < COUNT) write(first + u * LANES, v[u]);
  }
}
