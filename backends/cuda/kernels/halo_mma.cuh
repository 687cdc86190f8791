// Products on tensor cores (sm_80 and later): mma.sync of 16 pixels, 8 filters and four quads of channels, a quad a
// lane of four. Which positions along the depth a fragment's registers stand for is free, as long as both operands agree.
// So a lane reads whole quads of one group, wherever their taps lie, and no fragment has channels of two groups. f32 is
// rounded to TF32; a quad of it is two instructions deep.
//
// needs macros: DEVICE
// needs constants: COPIES_ASYNC, DEPTH, DIRECT, ITEMS, ITEMS_AT_ONCE, ITEM_F, ITEM_P, OFFSETS, OFFSETS_AT, PARTS_F, PARTS_P,
//   QUADS, QUAD_BYTES, THREADS, TILE_F, TILE_H, TILE_W, WEIGHTS_AT, WORDS, Y_ALONG_K,
//   Y_VECTOR
// needs sizes: out_h, out_w, y_c, y_d, y_h, y_n, y_w
// needs types: Args, Channel, Column, Coord, Corner, Quad, Shape, T, Vector, Words, bf16, f16, idx
// needs functions: acc_at, bring, filter_quad, finish_to, make_plain, mma, offset_of, pixel_at, round_to_tf32, write_vector

constexpr int STEPS = (DEPTH + 3) / 4;
constexpr int BLOCKS_P = ITEM_P / 16, BLOCKS_F = ITEM_F / 8;
static_assert(ITEM_P % 16 == 0 && ITEM_F % 8 == 0, "whole fragments");

DEVICE f16 operand_of(f16 v) { return v; }
DEVICE bf16 operand_of(bf16 v) { return v; }
DEVICE float operand_of(float v) {
  unsigned bits = __float_as_uint(v);
  round_to_tf32(bits);
  return __uint_as_float(bits);
}

// Whether a step is a tap, of which there are few enough that all of them are unrolled: then offsets are constants, but for that of the lane's
// quad, which is added to each step's, or, where a warp's pixels leave no registers for that, to each pixel's. Otherwise lanes keep the offsets
// of every step's quads in registers, or shared memory has a table of them.
constexpr bool OF_TAPS = QUADS == 4 && STEPS <= 9, OF_PIXELS = OF_TAPS && BLOCKS_P > 2, KEPT = OFFSETS == 0 && !OF_TAPS;
static_assert(OFFSETS == 0 || OFFSETS == STEPS * 4, "an entry for each quad of a step");

// How many results of a pixel a lane writes at once where they are written from where they are summed: the power of two that these have in
// common. Then the four lanes of a pixel have neighbouring vectors of them.
constexpr int LANE_F = 2 * BLOCKS_F, LANE_POWERS = Y_VECTOR | LANE_F | TILE_F, LANE_VECTOR = LANE_POWERS & -LANE_POWERS;
// The filter of an item that is number `e` of a lane's.
DEVICE int filter_of_lane(int lane, int e) {
  return DIRECT ? (e / LANE_VECTOR * 4 + lane) * LANE_VECTOR + e % LANE_VECTOR : e / 2 * 8 + lane * 2 + e % 2;
}

DEVICE void load_filters(const Args& args, char* shared, const Column& column) {
#pragma unroll 1
  for (int q = threadIdx.x; !OF_TAPS && q < OFFSETS; q += THREADS)
    ((int*)(shared + OFFSETS_AT))[q] = q < DEPTH ? offset_of(q) : 0;
  bring<ITEMS * STEPS * BLOCKS_F * 32, THREADS, 8>(
      [&](int i) {
        const int lane = i % 32, block = i / 32 % BLOCKS_F, step = i / 32 / BLOCKS_F % STEPS,
                  part = i / (32 * BLOCKS_F * STEPS);
        return filter_quad(args, column, part / PARTS_F,
                           part % PARTS_F * ITEM_F + filter_of_lane(lane / 8, block * 2 + lane / 4 % 2),
                           step * 4 + lane % 4);
      },
      [&](int i, const Quad& quad) { *(Quad*)(shared + WEIGHTS_AT + i * QUAD_BYTES) = quad; });
}

struct Multiplier {
  // Offsets in the window of the lane's two rows of each block of pixels, and of its quads of a step, if these are few.
  int pixels[BLOCKS_P][2];
  int offsets[KEPT ? STEPS : 1];

  static DEVICE int pixel() { return threadIdx.x / 32 % PARTS_P * ITEM_P + threadIdx.x % 32 / 4; }
  // Beyond the depth a lane reads what is there, and drops it.
  static DEVICE int quad_at(int step) {
    const int q = step * 4 + threadIdx.x % 4;
    return offset_of(DEPTH % 4 == 0 || q < DEPTH ? q : 0);
  }

  DEVICE Multiplier() {
#pragma unroll
    for (int i = 0; i < BLOCKS_P; i++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        pixels[i][half] = pixel_at(pixel() + i * 16 + half * 8) + (OF_PIXELS ? threadIdx.x % 4 * QUAD_BYTES : 0);
      }
    if (KEPT)
#pragma unroll
      for (int step = 0; step < STEPS; step++) offsets[step] = quad_at(step);
  }

  // Which of the lane's pixels are of the output, a bit for each.
  DEVICE unsigned pixels_inside(const Shape& s, const Corner& corner) const {
    unsigned inside = 0;
#pragma unroll
    for (int i = 0; i < BLOCKS_P * 2; i++) {
      const int p = pixel() + i * 8;
      const bool is = p < TILE_H * TILE_W && corner.h + p / TILE_W < s.out_h && corner.w + p % TILE_W < s.out_w;
      inside |= (unsigned)is << i;
    }
    return inside;
  }

  // Takes the sums of an item, whose first of the block's filters is given, through the operators and writes them. PLAIN says that
  // nothing is scaled or blended, and that vectors of results are aligned.
  template <bool PLAIN>
  DEVICE void write_sums(Args args, const float (&sums)[BLOCKS_P][BLOCKS_F][4], const Channel* channels,
                         const Corner& corner, const Column& block, int first, int left, unsigned inside,
                         bool aligned) const {
    if (PLAIN) make_plain(args);
    const Shape& s = args.shape;
    const int of_block = block.count() - first, count = left < of_block ? left : of_block;
    const idx begin = corner.n * s.y_n + corner.d * s.y_d + corner.h * s.y_h + corner.w * s.y_w;
#pragma unroll
    for (int e = 0; e < LANE_F; e += LANE_VECTOR) {
      const int filter = filter_of_lane(threadIdx.x % 4, e), column = first + filter;
      if (filter >= count) break;
      Channel channel[LANE_VECTOR];
#pragma unroll
      for (int i = 0; i < LANE_VECTOR; i++) channel[i] = channels[column + i];
#pragma unroll
      for (int row = 0; row < BLOCKS_P * 2; row++) {
        if (!(inside >> row & 1)) continue;
        const int p = pixel() + row * 8, h = p / TILE_W, w = p % TILE_W;
        const Coord at = {begin + h * s.y_h + w * s.y_w + (block.first() + column) * s.y_c, corner.n,
                          block.first() + column, (corner.d * s.out_h + corner.h + h) * s.out_w + corner.w + w};
        float v[LANE_VECTOR];
#pragma unroll
        for (int i = 0; i < LANE_VECTOR; i++) v[i] = sums[row / 2][(e + i) / 2][row % 2 * 2 + (e + i) % 2];
        finish_to<LANE_VECTOR, true>(args, channel, v, at, v);
        if (PLAIN || aligned) {
          write_vector<LANE_VECTOR>(args, at.y, v);
        } else {
#pragma unroll
          for (int i = 0; i < LANE_VECTOR; i++) write_vector<1>(args, at.y + i, v + i);
        }
      }
    }
  }

  // Sums are left in `to`, or are written where they are DIRECT: then the pointers say how.
  DEVICE void multiply(const Args& args, const char* shared, float* to, const Channel* channels, const Corner& corner,
                       const Column& block, bool aligned, bool plain) const {
    const int lane = threadIdx.x % 32;
    const unsigned inside = DIRECT ? pixels_inside(args.shape, corner) : 0;
#pragma unroll 1
    for (int item = threadIdx.x / 32 / PARTS_P; item < ITEMS; item += ITEMS_AT_ONCE) {
      const int group = item / PARTS_F, first_f = item % PARTS_F * ITEM_F;
      const char* const image = shared + group * (QUADS * QUAD_BYTES);
      const char* const filters = shared + WEIGHTS_AT + (item * (STEPS * BLOCKS_F * 32) + lane) * QUAD_BYTES;
      float acc[BLOCKS_P][BLOCKS_F][4] = {};
      const auto step_of = [&](int step, int offset, bool there) {
        Words b[BLOCKS_F];
#pragma unroll
        for (int j = 0; j < BLOCKS_F; j++) b[j] = *(const Words*)(filters + (step * BLOCKS_F + j) * (32 * QUAD_BYTES));
#pragma unroll
        for (int i = 0; i < BLOCKS_P; i++) {
          Words a[2];
#pragma unroll
          for (int half = 0; half < 2; half++) {
            a[half] = *(const Words*)(image + pixels[i][half] + offset);
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
              if (COPIES_ASYNC && sizeof(T) == 4) round_to_tf32(a[half].at[w]);
              if (!there) a[half].at[w] = 0;
            }
          }
#pragma unroll
          for (int j = 0; j < BLOCKS_F; j++) mma(acc[i][j], a[0], a[1], b[j]);
        }
      };
      // Beyond the depth both operands are zeros: what a filter's zero would be multiplied with might not be finite.
      constexpr int WHOLE = DEPTH / 4;
      const bool there = DEPTH % 4 == 0 || lane % 4 < DEPTH % 4;
      if constexpr (OF_TAPS) {
        const int quad = OF_PIXELS ? 0 : lane % 4 * QUAD_BYTES;
#pragma unroll
        for (int step = 0; step < STEPS; step++) step_of(step, offset_of(step * 4) + quad, true);
      } else if constexpr (KEPT) {
#pragma unroll
        for (int step = 0; step < STEPS; step++) step_of(step, offsets[step], step < WHOLE || there);
      } else {
        const int* const table = (const int*)(shared + OFFSETS_AT) + lane % 4;
#pragma unroll 2
        for (int step = 0; step < WHOLE; step++) step_of(step, table[step * 4], true);
        if (DEPTH % 4 != 0) step_of(WHOLE, table[WHOLE * 4], there);
      }
      if constexpr (DIRECT) {
        const int first = group * TILE_F + first_f, left = TILE_F - first_f;
        if (aligned && plain) write_sums<true>(args, acc, channels, corner, block, first, left, inside, true);
        else write_sums<false>(args, acc, channels, corner, block, first, left, inside, aligned);
      } else {
#pragma unroll
        for (int i = 0; i < BLOCKS_P; i++)
#pragma unroll
          for (int j = 0; j < BLOCKS_F; j++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
              const int p = pixel() + i * 16 + half * 8, f = first_f + j * 8 + lane % 4 * 2;
              float* const at = to + acc_at(p, group * TILE_F + f);
              const float* const two = acc[i][j] + half * 2;
              if (Y_ALONG_K && TILE_F % 2 == 0) {
                if (TILE_F % ITEM_F == 0 || f < TILE_F) *(Vector<float, 2>*)at = {two[0], two[1]};
              } else {
                if (TILE_F % ITEM_F == 0 || f < TILE_F) at[0] = two[0];
                if (TILE_F % ITEM_F == 0 || f + 1 < TILE_F) to[acc_at(p, group * TILE_F + f + 1)] = two[1];
              }
            }
      }
    }
  }
};
