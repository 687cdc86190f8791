// Convolutions of narrow groups in 16 bits or TF32, channels innermost, whose windows go by. A warp computes 16 filters of the channels of
// their groups for 16 columns of the output, and goes down some lines of it; columns of all images follow each other. A line of the image is
// multiplied by every line of taps that sees it: sums of as many lines of the output are in registers. The warps of a block have neighbouring
// channels and share the lines of the image, of which some are on their way to shared memory: so a request to the second-level cache is for a
// line of it, as there are more requests than it takes where each is for the sector that a group has of a pixel.
//
// A fragment's depth is channels of one group along a line of taps: whatever is in another's, also what is not finite, stays there. f32 is
// rounded to TF32 in registers.
//
// needs macros: AT_ONCE, DEVICE, DYNAMIC_SHARED, KERNEL
// needs constants: BLOCKS, CHANNELS, PAD_H, PAD_W, SEGMENTS, SHARED, STAGES, STRIDE_H, STRIDE_W, TAPS_H, TAPS_W, WARPS
// needs sizes: across, images, in_h, in_w, lines, out_c, out_h, out_w, parts, strips, x_h, x_n, x_w, y_h, y_n, y_w
// needs types: Args, Channel, Coord, Shape, T, idx
// needs functions: begin_grid, channel_of, copy_async, finish_to, from_float, is_aligned, is_plain, make_plain, mma_sync, round_to_tf32,
//   write_vector

constexpr int COLUMNS = 16, OF_WARP = 16, THREADS = WARPS * 32;
// Elements of 16 bytes, of a word, and of a fragment's depth.
constexpr int CHUNK = 16 / (int)sizeof(T), WORD = CHUNK / 4, DEEP = CHUNK * 2;
// Groups of a warp, steps of a line of taps, and fragments of filters.
constexpr int GROUPS = OF_WARP / CHANNELS, DEPTH = TAPS_W * CHANNELS, STEPS = (DEPTH + DEEP - 1) / DEEP,
              FRAGMENTS = GROUPS == 1 ? 2 : GROUPS;
// Lines of the output that a line of the image is seen by, at most.
constexpr int SUMS = (TAPS_H + STRIDE_H - 1) / STRIDE_H;
// Pixels of a line of the window, where columns of so many images follow each other. Those that neighbouring columns see through one tap
// follow each other, 128 bytes as memory has them, twice that or a part: with a gap behind each, and with lines that begin elsewhere, copies take
// longer. A pixel's 16 bytes are exchanged with each other by its place instead, so that eight pixels meet no bank twice.
constexpr int WINDOW = COLUMNS * STRIDE_W + (TAPS_W - STRIDE_W) * SEGMENTS, APART = (WINDOW + STRIDE_W - 1) / STRIDE_W;
constexpr int PIXEL = WARPS * OF_WARP * (int)sizeof(T), LINE = (STRIDE_W * APART * PIXEL + 127) / 128 * 128,
              STAGE = STRIDE_H * LINE, EXCHANGED = PIXEL < 128 ? PIXEL : 128;
DEVICE constexpr int exchange(int place) { return (place * EXCHANGED / 128 * 16) & (EXCHANGED - 1); }
DEVICE int spot(int pixel, int byte) {
  const int place = pixel % STRIDE_W * APART + pixel / STRIDE_W;
  return place * PIXEL + (byte ^ exchange(place));
}
// Copies of 16 bytes of a pixel, and what threads copy of a line, one after the other, so many places apart.
constexpr int ACROSS = WARPS * OF_WARP / CHUNK, AT_A_TIME = THREADS / ACROSS,
              COPIES = (WINDOW + AT_A_TIME - 1) / AT_A_TIME, PLACES = AT_A_TIME / STRIDE_W;
static_assert(AT_A_TIME % STRIDE_W == 0, "a thread's pixels are seen through one tap");
static_assert(PLACES % 4 == 0, "and are exchanged as the first is, or by one bit more");
// A block's filters follow each other behind the windows.
constexpr int FILTER = TAPS_H * DEPTH, FILTERS_AT = STAGES * STAGE;
static_assert(FILTERS_AT + WARPS * OF_WARP * FILTER * (int)sizeof(T) == SHARED, "as the launch was planned");
static_assert(TAPS_H >= STRIDE_H && TAPS_W >= STRIDE_W, "every line is seen");

// The filter of a warp that is column `n` of a fragment. The four lanes of a pixel have four filters each that follow each other, or, where
// they have sums of several groups, have them by exchanging halves.
DEVICE int filter_at(int fragment, int n) {
  const int lane = n / 2, e = n % 2;
  if (GROUPS == 1) return lane * 4 + fragment * 2 + e;
  return GROUPS == 2 ? fragment * 8 + lane % 2 * 4 + lane / 2 * 2 + e : fragment * 4 + lane % 2 * 2 + e;
}
// A lane's four filters of its first or second pixel.
DEVICE void take_sums(const float (&sums)[FRAGMENTS][4], int half, float* v) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int e = 0; e < 2; e++) {
    const auto of = [&](int fragment) { return sums[fragment < FRAGMENTS ? fragment : 0][half * 2 + e]; };
    if (GROUPS == 1) {
      v[e] = of(0), v[2 + e] = of(1);
    } else {
      constexpr int OTHER = GROUPS == 2 ? 2 : 1;
      const bool odd = lane & OTHER, behind = GROUPS == 4 && lane & 2;
      const float even_sum = behind ? of(2) : of(0), odd_sum = behind ? of(3) : of(1);
      const float own = odd ? odd_sum : even_sum;
      const float other = __shfl_xor_sync(~0u, odd ? even_sum : odd_sum, OTHER);
      v[e] = odd ? other : own, v[2 + e] = odd ? own : other;
    }
  }
}

// Addresses of shared memory, and a word there.
DEVICE unsigned address_of(const char* at) { return (unsigned)__cvta_generic_to_shared(at); }
DEVICE unsigned read_word(unsigned at) {
  unsigned v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
  return v;
}
// Four matrices of eight lines of 16 bytes, whose places are the lanes'.
DEVICE void read_matrices(unsigned from, unsigned* v) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(from)
               : "memory");
}

KERNEL(THREADS, AT_ONCE(BLOCKS, SHARED)) {
  begin_grid();
  DYNAMIC_SHARED(char, shared);
  const Shape& s = args.shape;
  const int lane = threadIdx.x % 32, quad = lane % 4, warp = threadIdx.x / 32;
  const int first_c = blockIdx.x % s.parts * (WARPS * OF_WARP), rest = blockIdx.x / s.parts;
  const int strip = rest % s.strips * COLUMNS, first_h = rest / s.strips * s.lines;
  const int first_n = strip / s.out_w, first_w = strip % s.out_w;
  const int left_h = s.out_h - first_h, steps = (left_h < s.lines ? left_h : s.lines) + SUMS - 1;

  // A thread copies the same channels of the same pixels of every line. The compiler is kept from finding out in every step which of them
  // are in the image, and where they go.
  const bool x_aligned = is_aligned(args.x, 16);
  const int pixel = threadIdx.x / ACROSS, c = first_c + threadIdx.x % ACROSS * CHUNK;
  int h = (first_h - SUMS + 1) * STRIDE_H + TAPS_H - STRIDE_H - PAD_H, left = steps, put = 0;
  // The first of a step's lines that strides leave over are seen by no line of the output that is the block's.
  const int top = first_h * STRIDE_H - PAD_H, first_line = SUMS * STRIDE_H > TAPS_H && top > 0 ? top : 0;
  const int lines_seen = s.in_h > first_line ? s.in_h - first_line : 0;
  const auto find = [&](int i, bool& is) {
    const int at = first_w * STRIDE_W + pixel + i * AT_A_TIME, n = first_n + at / s.across, w = at % s.across - PAD_W;
    is = pixel + i * AT_A_TIME < WINDOW && n < s.images && (unsigned)w < (unsigned)s.in_w && c < s.out_c;
    return n * s.x_n + w * s.x_w + c;
  };
  idx from[COPIES];
  unsigned inside = 0;
#pragma unroll
  for (int i = 0; i < COPIES; i++) {
    bool is;
    from[i] = find(i, is) + h * s.x_h;
    inside |= (unsigned)is << i;
  }
  asm volatile("" : "+r"(inside));
  unsigned first = address_of(shared) + spot(pixel, threadIdx.x % ACROSS * 16);
  asm volatile("" : "+r"(first));
  const auto load = [&] {
    if (left-- > 0) {
      const int slot = put;
      put = put == (STAGES - 1) * STAGE ? 0 : put + STAGE;
      if (x_aligned) {
#pragma unroll
        for (int line = 0; line < STRIDE_H; line++, h++)
#pragma unroll
          for (int i = 0; i < COPIES; i++) {
            const bool there = (unsigned)(h - first_line) < (unsigned)lines_seen && inside >> i & 1;
            if (pixel + i * AT_A_TIME < WINDOW)
              copy_async((first ^ exchange(i * PLACES)) + slot + line * LINE + i * (PLACES * PIXEL),
                         (const T*)args.x + from[i], there);
            from[i] += s.x_h;
          }
      } else {
#pragma unroll 1
        for (int line = 0; line < STRIDE_H; line++, h++)
#pragma unroll 1
          for (int i = 0; pixel + i * AT_A_TIME < WINDOW; i++) {
            bool there;
            const T* const image = (const T*)args.x + (find(i, there) + h * s.x_h);
            there = there && (unsigned)h < (unsigned)s.in_h;
            T* const to = (T*)(shared + slot + line * LINE + spot(pixel + i * AT_A_TIME, threadIdx.x % ACROSS * 16));
#pragma unroll 1
            for (int e = 0; e < CHUNK; e++) to[e] = there ? image[e] : from_float<T>(0.f);
          }
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  const T* const weights = (const T*)args.op[0].p[0] + first_c * FILTER;
  const int left_c = s.out_c - first_c, numbers = (left_c < WARPS * OF_WARP ? left_c : WARPS * OF_WARP) * FILTER;
  if (is_aligned(weights, 16)) {
#pragma unroll 4
    for (int i = threadIdx.x * CHUNK; i < numbers; i += THREADS * CHUNK)
      copy_async(shared + FILTERS_AT + i * (int)sizeof(T), weights + i, true);
  } else {
#pragma unroll 1
    for (int i = threadIdx.x; i < numbers; i += THREADS) ((T*)(shared + FILTERS_AT))[i] = weights[i];
  }
#pragma unroll 1
  for (int i = 0; i < STAGES - 1; i++) load();

  // Where along the depth a word of a step is.
  const auto depth_of = [&](int step, int word) { return step * DEEP + word * CHUNK + quad * WORD; };
  const auto wait = [&] {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();
  };
  wait();
  unsigned filters[TAPS_H][STEPS][FRAGMENTS][2];
#pragma unroll
  for (int tap = 0; tap < TAPS_H; tap++)
#pragma unroll
    for (int step = 0; step < STEPS; step++)
#pragma unroll
      for (int i = 0; i < FRAGMENTS; i++)
#pragma unroll
        for (int word = 0; word < 2; word++) {
          const int e = depth_of(step, word), filter = warp * OF_WARP + filter_at(i, lane / 4);
          const char* const at = shared + FILTERS_AT + (filter * FILTER + tap * DEPTH + e) * (int)sizeof(T);
          unsigned& to = filters[tap][step][i][word];
          to = e < DEPTH ? *(const unsigned*)at : 0;
          if (sizeof(T) == 4) round_to_tf32(to);
        }

  // Four filters of two pixels of a line are a lane's.
  const int k = first_c + warp * OF_WARP + quad * 4;
  const bool aligned = is_aligned(args.y, 4 * (int)sizeof(T)) && is_plain(args);
  Channel channel[4];
#pragma unroll
  for (int i = 0; i < 4; i++) channel[i] = channel_of(args, k < s.out_c ? k + i : 0);
  Coord to[2];
  unsigned outputs = 0;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int column = lane / 4 + half * 8, n = (first_w + column) / s.out_w, w = (first_w + column) % s.out_w;
    outputs |= (unsigned)(first_n + n < s.images && k < s.out_c) << half;
    to[half] = {(first_n + n) * s.y_n + first_h * s.y_h + w * s.y_w + k, first_n + n, k, first_h * s.out_w + w};
  }
  asm volatile("" : "+r"(outputs));

  // Where a lane reads the image: 16 bytes of a tap for all lanes, or, of fewer channels, a word for itself.
  const auto word_at = [&](int column, int e) {
    const int n = (first_w + column) / s.out_w, tap = e < DEPTH ? e / CHANNELS : 0;
    const int pixel = column * STRIDE_W + n * (TAPS_W - STRIDE_W);
    return address_of(shared) + spot(pixel + tap, (warp * OF_WARP + e % CHANNELS) * (int)sizeof(T));
  };
  constexpr int READS = CHANNELS < CHUNK ? 4 : 1;
  unsigned window[STEPS][READS];
#pragma unroll
  for (int step = 0; step < STEPS; step++)
#pragma unroll
    for (int i = 0; i < READS; i++)
      window[step][i] = READS == 1 ? word_at(lane % 16, step * DEEP + lane / 16 * CHUNK)
                                   : word_at(lane / 4 + i % 2 * 8, depth_of(step, i / 2));

  float sums[SUMS][FRAGMENTS][4] = {};
  const auto write = [&](const Args& args, bool vectors) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float v[4];
      take_sums(sums[0], half, v);
      if (!(outputs >> half & 1)) continue;
      finish_to<4, true>(args, channel, v, to[half], v);
      if (vectors) write_vector<4>(args, to[half].y, v);
      else
        for (int e = 0; e < 4; e++) write_vector<1>(args, to[half].y + e, v + e);
    }
  };
  int slot = 0;
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    wait();
    load();
#pragma unroll
    for (int line = 0; line < STRIDE_H; line++)
#pragma unroll
      for (int deep = 0; deep < STEPS; deep++)
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
          unsigned image[4];
          const auto at = [&](unsigned of) { return (of ^ g * CHANNELS * (int)sizeof(T)) + slot + line * LINE; };
          if (READS == 1) read_matrices(at(window[deep][0]), image);
#pragma unroll
          for (int i = 0; i < 4; i++) {
            if (READS == 4) image[i] = read_word(at(window[deep][i % READS]));
            if (sizeof(T) == 4) round_to_tf32(image[i]);
            // Beyond the depth both operands are zeros: what a filter's zero would be multiplied with might not be finite.
            if (depth_of(deep, i / 2) >= DEPTH) image[i] = 0;
          }
#pragma unroll
          for (int sum = 0; sum < SUMS; sum++) {
            const int tap = TAPS_H - STRIDE_H + line - sum * STRIDE_H;
            if (tap >= 0)
#pragma unroll
              for (int i = g; i < FRAGMENTS; i += GROUPS)
                mma_sync(sums[sum][i], image, filters[tap < 0 ? 0 : tap][deep][i], T());
          }
        }
    slot = slot == (STAGES - 1) * STAGE ? 0 : slot + STAGE;
    if (step >= SUMS - 1) {
      if (aligned) {
        Args plain = args;
        make_plain(plain);
        write(plain, true);
      } else {
        write(args, false);
      }
#pragma unroll
      for (int half = 0; half < 2; half++) to[half].y += s.y_h, to[half].p += s.out_w;
    }
#pragma unroll
    for (int sum = 0; sum < SUMS; sum++)
#pragma unroll
      for (int i = 0; i < FRAGMENTS; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) sums[sum][i][e] = sum + 1 < SUMS ? sums[sum + 1 < SUMS ? sum + 1 : 0][i][e] : 0.f;
  }
}
