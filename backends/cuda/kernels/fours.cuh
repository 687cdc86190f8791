// A lane's accumulators of four eights of columns. A lane has pairs of neighbours in every eight; four lanes have those
// of a row, and exchange them such that each has longer runs: by one exchange half of every other eight, by two all of
// one eight. Where filters come in the order in which lanes have columns, pairs are such runs as they are. So
// accumulators need not pass through shared memory.
//
// needs macros: DEVICE
// needs constants: ATOMS, WIDTH

// Numbers of a lane in four eights of columns: of each eight two neighbours in a row, and two in the other. How many fours a row has.
constexpr int OF_FOUR = 16, FOURS = (WIDTH + 31) / 32;

// Takes a lane's accumulators of a four of an atom, counted atom by atom. The compiler must know which registers these are, so they
// are found by comparing, and the comment in the instruction keeps the compiler from merging all of these moves into one with a
// computed index.
template <int AT> DEVICE void take(const float (&acc)[ATOMS][WIDTH / 2], int four, float (&taken)[OF_FOUR]) {
  if constexpr (AT < ATOMS * FOURS) {
    if (four != AT) return take<AT + 1>(acc, four, taken);
#pragma unroll
    for (int i = 0; i < OF_FOUR; i++)
      if (AT % FOURS * OF_FOUR + i < WIDTH / 2)
        asm volatile("mov.b32 %0, %1; // four %2"
                     : "=f"(taken[i])
                     : "f"(acc[AT / FOURS][AT % FOURS * OF_FOUR + i]), "n"(AT));
  }
}

// Exchanges with the lane whose number differs in this bit: a lane keeps the eights whose number has the bit as its own has it,
// and gets the other lane's share of these for what it had of the others.
template <int BIT> DEVICE void exchange(float (&v)[OF_FOUR]) {
  const bool has = (threadIdx.x & BIT) != 0;
#pragma unroll
  for (int i = 0; i < OF_FOUR; i++) {
    if ((i / 4 & BIT) != 0) continue;
    float &without = v[i], &with = v[i + 4 * BIT];
    float got;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(got) : "f"(has ? without : with), "n"(BIT));
    without = has ? got : without;
    with = has ? with : got;
  }
}

// One of the eight numbers that a lane has of a row, in the order of its columns.
DEVICE float of_eight(const float (&v)[OF_FOUR], int row, int i) { return v[i / 2 * 4 + row * 2 + i % 2]; }
