// A lane's accumulators of four eights of columns.
//
// needs macros: DEVICE
// needs constants: WIDTH

// Numbers of a lane in four eights of columns: of each eight two neighbours in a row, and two in the other.
constexpr int OF_FOUR = 16;

// Takes a lane's accumulators of four eights. The compiler must know which registers these are, so they are found by comparing,
// and the comment in the instruction keeps the compiler from merging all of these moves into one with a computed index.
template <int AT> DEVICE void take(const float (&acc)[WIDTH / 2], int four, float (&taken)[OF_FOUR]) {
  if constexpr (AT * OF_FOUR < WIDTH / 2) {
    if (four != AT) return take<AT + 1>(acc, four, taken);
#pragma unroll
    for (int i = 0; i < OF_FOUR; i++)
      if (AT * OF_FOUR + i < WIDTH / 2)
        asm volatile("mov.b32 %0, %1; // four %2" : "=f"(taken[i]) : "f"(acc[AT * OF_FOUR + i]), "n"(AT));
  }
}
