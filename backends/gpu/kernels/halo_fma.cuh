// Products in f32 multiply-adds: a lane has ITEM_P / 32 pixels, 32 apart, times ITEM_F filters, which all lanes read
// together as floats.
//
// needs macros: DEVICE
// needs constants: DEPTH, DIRECT, DILATION_D, DILATION_H, DILATION_W, ITEMS, ITEMS_AT_ONCE, ITEM_F, ITEM_P, PARTS_F, PARTS_P,
//   QUADS, QUAD_BYTES, TAPS_D, TAPS_H, TAPS_W, THREADS, TILE_F, WEIGHTS_AT, WINDOW_H, X_PITCH, X_ROW
// needs types: Args, Channel, Column, Corner, Quad, T, Vector
// needs functions: acc_at, bring, filter_quad, pixel_at, to_float

constexpr int LANE_P = ITEM_P / 32;
static_assert(!DIRECT, "results pass through shared memory");
static_assert(ITEM_P % 32 == 0, "every lane has as many pixels");

DEVICE T operand_of(T v) { return v; }

DEVICE void load_filters(const Args& args, char* shared, const Column& column) {
  Vector<float, 4>* const to = (Vector<float, 4>*)(shared + WEIGHTS_AT);
  bring<ITEMS * DEPTH * ITEM_F, THREADS, 2>(
      [&](int i) {
        const int f = i % ITEM_F, q = i / ITEM_F % DEPTH, part = i / (ITEM_F * DEPTH);
        return filter_quad(args, column, part / PARTS_F, part % PARTS_F * ITEM_F + f, q);
      },
      [&](int i, const Quad& quad) {
        Vector<float, 4> v;
#pragma unroll
        for (int e = 0; e < 4; e++) v.at[e] = to_float(quad.at[e]);
        to[i] = v;
      });
}

DEVICE void copy_async(char*, const T*, bool) {}
DEVICE void wait_for_copies() {}

struct Multiplier {
  // Offsets of the lane's pixels in the window.
  int pixels[LANE_P];

  DEVICE Multiplier() {
#pragma unroll
    for (int i = 0; i < LANE_P; i++) pixels[i] = pixel_at(pixel(i));
  }
  static DEVICE int pixel(int i) { return threadIdx.x / 32 % PARTS_P * ITEM_P + threadIdx.x % 32 + i * 32; }

  DEVICE void multiply(const Args&, const char* shared, float* to, const Channel*, const Corner&, const Column&, bool,
                       bool) const {
#pragma unroll 1
    for (int item = threadIdx.x / 32 / PARTS_P; item < ITEMS; item += ITEMS_AT_ONCE) {
      const int group = item / PARTS_F, first_f = item % PARTS_F * ITEM_F;
      const Vector<float, 4>* filters = (const Vector<float, 4>*)(shared + WEIGHTS_AT) + item * (DEPTH * ITEM_F);
      const char* const image = shared + group * (QUADS * QUAD_BYTES);
      float acc[LANE_P][ITEM_F] = {};
#pragma unroll 1
      for (int d = 0; d < TAPS_D; d++)
#pragma unroll 1
        for (int h = 0; h < TAPS_H; h++)
#pragma unroll 1
          for (int w = 0; w < TAPS_W; w++) {
            const char* const tap =
                image + (d * DILATION_D * WINDOW_H + h * DILATION_H) * X_ROW + w * DILATION_W * X_PITCH;
#pragma unroll 1
            for (int q = 0; q < QUADS; q++, filters += ITEM_F) {
              float v[LANE_P][4];
#pragma unroll
              for (int i = 0; i < LANE_P; i++) {
                const Quad quad = *(const Quad*)(tap + pixels[i] + q * QUAD_BYTES);
#pragma unroll
                for (int e = 0; e < 4; e++) v[i][e] = to_float(quad.at[e]);
              }
#pragma unroll
              for (int f = 0; f < ITEM_F; f++) {
                const Vector<float, 4> filter = filters[f];
#pragma unroll
                for (int i = 0; i < LANE_P; i++)
#pragma unroll
                  for (int e = 0; e < 4; e++) acc[i][f] = fmaf(v[i][e], filter.at[e], acc[i][f]);
              }
            }
          }
#pragma unroll
      for (int i = 0; i < LANE_P; i++)
#pragma unroll
        for (int f = 0; f < ITEM_F; f++)
          if (TILE_F % ITEM_F == 0 || first_f + f < TILE_F)
            to[acc_at(pixel(i), group * TILE_F + first_f + f)] = acc[i][f];
    }
  }
};
