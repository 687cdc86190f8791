// Operands that TMA cannot load as pixels with all their channels: one launch copies the image to memory with its channels innermost,
// and behind it the filters, and the next one loads them from there. A pixel, and a filter's tap, has IMAGE_CHANNELS and
// FILTER_CHANNELS elements in memory, of which those behind the last channel are not read. There are FILTER_ROWS filters, zeros behind
// the last one.
//
// needs macros: DEVICE, DYNAMIC_SHARED
// needs constants: CHANNELS, COOPERATIVE, FILTERS, FILTERS_AT, FILTER_CHANNELS, FILTER_ROWS, GROUPS, IMAGE_CHANNELS, PINGPONG, PRODUCERS, SHARED, TAPS
// needs sizes: in_plane, images, w_k, x_c, x_n
// needs types: Args, Barriers, Launch, Shape, T
// needs functions: begin_grid, write_words

// A warp copies so many pixels, one a lane, of as many channels as a line of 128 bytes has, by way of shared memory, where a pixel's
// words lie beside those of the next one in another bank.
constexpr int OF_WORD = 4 / (int)sizeof(T), LINE_WORDS = 32, LINE_CHANNELS = LINE_WORDS * OF_WORD,
              WORD_PITCH = LINE_WORDS + 1;
constexpr int LINES_OF_PIXEL = (CHANNELS * GROUPS + LINE_CHANNELS - 1) / LINE_CHANNELS;
constexpr int COPYING_WARPS = (PRODUCERS + PINGPONG * COOPERATIVE) * 4;
static_assert(COPYING_WARPS * 32 * WORD_PITCH * 4 <= SHARED, "shared memory has room for a part of each warp");

// No map that TMA takes has words of zeros alone.
DEVICE bool prepares(const Launch& launch) {
  unsigned long long any = 0;
#pragma unroll
  for (int i = 0; i < 16; i++) any |= launch.x.words[i];
  return any == 0;
}

template <class E> DEVICE unsigned bits_of(const E* from) { return from->bits; }
DEVICE unsigned bits_of(const float* from) { return __float_as_uint(*from); }

DEVICE void reorder_image(const Args& args, unsigned* to, unsigned* part) {
  const Shape& s = args.shape;
  const int lane = threadIdx.x % 32, across = ((int)s.in_plane + 31) / 32;
  const int all = (int)s.images * LINES_OF_PIXEL * across;
#pragma unroll 1
  for (int at = (blockIdx.x * COPYING_WARPS) + threadIdx.x / 32; at < all; at += gridDim.x * COPYING_WARPS) {
    const int first = at % across * 32, line = at / across % LINES_OF_PIXEL, n = at / across / LINES_OF_PIXEL;
    const int left = (int)s.in_plane - first, count = left < 32 ? left : 32, c = line * LINE_CHANNELS;
    const T* const from = (const T*)args.x + (n * (long long)s.x_n + c * (long long)s.x_c + first + lane);
    unsigned words[LINE_WORDS];
#pragma unroll
    for (int word = 0; word < LINE_WORDS; word++) {
      words[word] = 0;
#pragma unroll
      for (int e = 0; e < OF_WORD; e++) {
        const int of = word * OF_WORD + e;
        if (lane < count && c + of < CHANNELS * GROUPS) words[word] |= bits_of(from + of * (long long)s.x_c) << e * 16;
      }
    }
    __syncwarp();
#pragma unroll
    for (int word = 0; word < LINE_WORDS; word++) part[lane * WORD_PITCH + word] = words[word];
    __syncwarp();
    unsigned* const pixel = to + ((n * (long long)s.in_plane + first) * IMAGE_CHANNELS + c) / OF_WORD + lane;
    if (c + lane * OF_WORD >= IMAGE_CHANNELS) continue;
#pragma unroll 8
    for (int p = 0; p < count; p++) pixel[p * (IMAGE_CHANNELS / OF_WORD)] = part[p * WORD_PITCH + lane];
  }
}

// A thread copies a word of a filter's channels, of so many taps at a time: of a single tap four words, and of few taps several times as much, as
// it waits for the memory between reading and writing.
DEVICE void reorder_filters(const Args& args, unsigned* to) {
  constexpr int SOME = TAPS <= 9 ? TAPS : 9, WORDS = FILTER_CHANNELS / OF_WORD, RUN = SOME == 1 ? 4 : 1;
  constexpr int RUNS = WORDS / RUN, ALL = FILTER_ROWS * RUNS, READ = FILTERS * GROUPS * RUNS,
                TOGETHER = SOME * RUN < 8 ? 8 / (SOME * RUN) : 1;
  const int stride = gridDim.x * blockDim.x;
#pragma unroll 1
  for (int first = blockIdx.x * blockDim.x + threadIdx.x; first < ALL; first += TOGETHER * stride) {
#pragma unroll 1
    for (int tap = 0; tap < TAPS; tap += SOME) {
      unsigned words[TOGETHER][SOME][RUN] = {};
#pragma unroll
      for (int t = 0; t < TOGETHER; t++) {
        const int at = first + t * stride, c = at % RUNS * RUN * OF_WORD, k = at / RUNS;
        const T* const from = (const T*)args.op[0].p[0] + k * (long long)args.shape.w_k + c * TAPS;
#pragma unroll
        for (int e = 0; e < RUN * OF_WORD; e++)
#pragma unroll
          for (int i = 0; i < SOME; i++)
            if (at < READ && tap + i < TAPS && c + e < CHANNELS)
              words[t][i][e / OF_WORD] |= bits_of(from + e * TAPS + tap + i) << e % OF_WORD * 16;
      }
#pragma unroll
      for (int t = 0; t < TOGETHER; t++) {
        const int at = first + t * stride, k = at / RUNS;
        unsigned* const filter = to + (long long)k * TAPS * WORDS + at % RUNS * RUN;
#pragma unroll
        for (int i = 0; i < SOME; i++)
          if (at < ALL && tap + i < TAPS) write_words((char*)(filter + (tap + i) * WORDS), words[t][i]);
      }
    }
  }
}

DEVICE void prepare(const Launch& launch) {
  DYNAMIC_SHARED(unsigned, parts);
  begin_grid();
  char* const memory = (char*)launch.w.words[0];
  reorder_filters(launch.args, (unsigned*)(memory + FILTERS_AT));
  reorder_image(launch.args, (unsigned*)memory, parts + threadIdx.x / 32 * 32 * WORD_PITCH);
}

DEVICE void stream_filters(const Launch&, unsigned, const Barriers&) {}
