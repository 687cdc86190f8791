// Load::Runs, for images whose planes have no gaps: pixels of a tile are neighbours in an output's plane, so that of a channel
// they see one run of the input's plane, for a plane of taps. TMA brings it as it lies, for TILE_K channels, CHANNEL_PITCH elements from
// one to the next: BY_BOXES of all channels, which lie APART one behind the other and have zeros where no plane is; or, where TMA cannot
// address planes of f32, as parts of all elements of the tensor, in which what is beyond a plane is another's: BOXES of each channel.
// Small planes come as a WHOLE, all channels of an image as they follow one another. Planes of 16 bits that TMA cannot address are
// lines of PHASES planes to it, of which a box has one phase's, beginning at a multiple of 16 bytes. A tile stays within an image, or
// has pixels of several IMAGES, which lie one behind the other. Rows of the product are pixels.
//
// needs macros: DEVICE
// needs constants: APART, BOXES, BY_BOXES, CHANNELS, CHANNELS_AT, CHANNEL_PRODUCERS, CHANNEL_STAGES, COLUMNS, COLUMNS_OF_BOX, COVERED_P,
//   DILATION_D, DILATION_H, DILATION_W, GUARD, IMAGES, IMAGE_D, IMAGE_H, IMAGE_W, LOADED_P, OUTPUT_D, OUTPUT_H, OUTPUT_W, OVERLAP, PAD_D,
//   PAD_H, PAD_W, PHASES, PRODUCERS, ROW, STAGES, STEPS, STREAMED, STRIDE_D, STRIDE_H, STRIDE_W, TAPS_D, TILE_K, WHOLE, X_BYTES
// needs sizes: pixels, x_n
// needs types: Barriers, Channel, Launch, PipelineState, Shape, T
// needs functions: bulk_load, column_of, is_elected, load_channels, mbarrier_expect_tx, mbarrier_wait, shared_address, stream_filters,
//   tile_number, tile_stride, tiles_of, tma_load_part, tma_load_planes, tma_prefetch_map, wait_for_grids, wait_for_image

constexpr int CHANNEL_STEPS = (CHANNELS + TILE_K - 1) / TILE_K;
static_assert(STEPS == CHANNEL_STEPS * TAPS_D && STREAMED && PRODUCERS == 1 && ROW == TILE_K * (int)sizeof(T) &&
                  CHANNEL_PRODUCERS == 64 && (WHOLE || LOADED_P == IMAGES * BOXES * COLUMNS_OF_BOX),
              "as the launch was planned");
constexpr int IMAGE_PLANE = IMAGE_D * IMAGE_H * IMAGE_W, OUTPUT_PLANE = OUTPUT_D * OUTPUT_H * OUTPUT_W;
// From a tap to the next of each dimension, in elements of a plane.
constexpr int TAP_D = DILATION_D * IMAGE_H * IMAGE_W, TAP_H = DILATION_H * IMAGE_W, TAP_W = DILATION_W;
// Elements of a stage from an image to the next.
constexpr int IMAGE_ELEMENTS = BOXES * COLUMNS_OF_BOX * (WHOLE ? 1 : TILE_K);
// A box begins at a multiple of 16 bytes: how far behind one an element is.
DEVICE constexpr int behind(int element) { return WHOLE ? 0 : element & (16 / (int)sizeof(T) - 1); }

// Whether a pixel's only tap is the same pixel of the image.
constexpr bool SAME = STRIDE_D * STRIDE_H * STRIDE_W == 1 && PAD_D + PAD_H + PAD_W == 0 && OUTPUT_D == IMAGE_D &&
                      OUTPUT_H == IMAGE_H && OUTPUT_W == IMAGE_W;

// Where the first tap of a pixel is, counted within the image's plane.
struct FirstTap {
  int pixel, d, h, w;
  DEVICE explicit FirstTap(int pixel) : pixel(pixel) {
    const int row = pixel / OUTPUT_W;
    d = row / OUTPUT_H * STRIDE_D - PAD_D, h = row % OUTPUT_H * STRIDE_H - PAD_H,
    w = pixel % OUTPUT_W * STRIDE_W - PAD_W;
  }
  DEVICE int at() const { return SAME ? pixel : (d * IMAGE_H + h) * IMAGE_W + w; }
};

// The pixels of a tile: the first of its images, and the first and the last pixel, counted from that image's first on. Where a tile
// spans several, the last ones may be beyond the last image.
constexpr bool SPANS = WHOLE || IMAGES > 1;
struct TilePixels {
  int image, first, last;
  DEVICE explicit TilePixels(int tile) {
    constexpr int TILES = (OUTPUT_PLANE - OVERLAP + COVERED_P - 1) / COVERED_P, HERE = COVERED_P + OVERLAP;
    const int number = tile / COLUMNS;
    image = SPANS ? number * COVERED_P / OUTPUT_PLANE : number / TILES;
    first = SPANS ? number * COVERED_P % OUTPUT_PLANE : number % TILES * COVERED_P;
    last = SPANS || first + HERE < OUTPUT_PLANE ? first + HERE - 1 : OUTPUT_PLANE - 1;
  }
  // Where what the tile sees of its image number `i` begins in a plane.
  DEVICE int begin(int i) const { return WHOLE ? 0 : FirstTap(i == 0 ? first : 0).at(); }
};

// Issues the loads of every step of every tile. One thread calls it.
DEVICE void load_operands(const Launch& launch, unsigned shared, const Barriers& barriers) {
  const Shape& s = launch.args.shape;
  tma_prefetch_map(&launch.x);
  wait_for_image(launch);
  PipelineState<STAGES> pipe(0);
#pragma unroll 1
  for (int tile = tile_number(); tile < tiles_of(s); tile += tile_stride()) {
    const TilePixels pixels(tile);
    const int left = (int)s.pixels / OUTPUT_PLANE - pixels.image, most = SPANS ? pixels.last / OUTPUT_PLANE + 1 : 1;
    const int images = most < left ? most : left, group = column_of(tile).group * CHANNELS;
#pragma unroll 1
    for (int step = 0; step < STEPS; step++) {
      const int c = step % CHANNEL_STEPS * TILE_K, d = step / CHANNEL_STEPS * TAP_D;
      const int channels = CHANNELS - c < TILE_K ? CHANNELS - c : TILE_K;
      const unsigned full = barriers.full(pipe.stage);
      unsigned to = shared + pipe.stage * X_BYTES + GUARD * sizeof(T);
      mbarrier_wait(barriers.empty(pipe.stage), pipe.phase ^ 1);
      const int parts = BY_BOXES ? TILE_K : WHOLE ? 1 : channels;
      mbarrier_expect_tx(full, images * parts * (BOXES * COLUMNS_OF_BOX * (int)sizeof(T)));
#pragma unroll 1
      for (int i = 0; i < images; i++, to += IMAGE_ELEMENTS * sizeof(T)) {
        const int at = pixels.begin(i) + d;
        // Channels that come together, or one by one, and where the first one begins in all elements.
        const int first = (pixels.image + i) * (int)s.x_n + (group + c) * IMAGE_PLANE + at;
        const bool bulk = WHOLE && sizeof(T) == 2;
        if (bulk) bulk_load(to, (const T*)launch.args.x + first, IMAGE_ELEMENTS * sizeof(T), full);
#pragma unroll 1
        for (int part = 0; part < (BY_BOXES ? PHASES : bulk ? 0 : parts); part++) {
          const int before = part * IMAGE_PLANE, from = BY_BOXES ? at - behind(at) + before : first + before;
#pragma unroll
          for (int j = 0; j < BOXES; j++) {
            const int column = from - behind(BY_BOXES ? before : from) + j * APART;
            if (BY_BOXES)
              tma_load_planes(to + (j * PHASES + part) * (COLUMNS_OF_BOX * ROW / PHASES), &launch.x, full, column,
                              (group + c) / PHASES, pixels.image + i);
            else tma_load_part(to + (part * BOXES + j) * (COLUMNS_OF_BOX * 4), &launch.x, full, column);
          }
        }
      }
      pipe.next();
    }
  }
}

DEVICE void produce(const Launch& launch, char* memory, const Barriers& barriers) {
  const unsigned shared = shared_address(memory);
  if (threadIdx.x < 64) {
    if (!is_elected()) return;
    if (threadIdx.x < 32) load_operands(launch, shared, barriers);
    else stream_filters(launch, shared, barriers);
    return;
  }
  wait_for_grids();
  PipelineState<CHANNEL_STAGES> channel_pipe(0);
#pragma unroll 1
  for (int tile = tile_number(); tile < tiles_of(launch.args.shape); tile += tile_stride())
    load_channels(launch.args, (Channel*)(memory + CHANNELS_AT), barriers, channel_pipe, tile, threadIdx.x - 64,
                  CHANNEL_PRODUCERS);
}
