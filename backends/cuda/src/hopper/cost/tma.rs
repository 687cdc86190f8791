//! What bounds a kernel whose pixels TMA loads, or threads copy.

use fuseplan_gpu::common_power;

use super::super::tiling::{Load, SHORT_LOOP, Tiling};
use super::{PRODUCTS, Work, added_up};

/// Microseconds in which a warpgroup rearranges a byte of filters.
const REARRANGED: f64 = 0.76e-4;

/// Microseconds until filters of 16 bits that stay are there, which a block's only tile of a group waits for: with them it took 0.42 to
/// 0.48 more than with streamed ones in nine pairs of three convolutions of 16 channels a group on an H200, 0.19 to 0.56 in 13 of five
/// others. Windows of groups in TF32 wait as well: with that, and without what a second block's sets take to begin elsewhere, 27
/// convolutions on H200s are chosen at 1.027 (1.13) of the fastest timed tile instead of 1.072 (1.32), 26 others at 1.033 (1.17)
/// instead of 1.059 (1.31).
const KEPT_BY_GROUP: f64 = 0.45;

/// Bytes of filters that stay which a multiprocessor brings in a microsecond, however many warpgroups do, and microseconds of a launch
/// besides, where writes of few results bound a kernel of lines: none of these is written before the filters are there. Where eight are
/// written at once other rates have it.
const BROUGHT: f64 = 15.8e3;
const BEFORE_WRITES: f64 = 1.0;

/// Microseconds of a pixel that TMA walks to where groups are a dimension: it goes over the end of that dimension for each, in a tap's
/// last step of channels, which takes so much more than a row of a box. Of 53 convolutions of groups for which other tiles are chosen
/// where it counts for the last step alone, in TF32, f16 and f32 on an H200, what is chosen takes 0.76 of the time (0.56 to 1.04).
const WALKED: f64 = 4.5e-3;

/// The same of a filter of a window that leaves its group, for each tile of a multiprocessor but its first, whose filters are waited for as
/// those that stay are: in 16 bits 64 images of 14x14 by 24 channels a group take 26 microseconds with streamed filters on an H200 where
/// they take 12 with those that stay, in TF32 by 56 channels 68 and 51, one image of either about the same.
const FILTERS_WALKED: f64 = 1.5e-3;

/// How many times as long windows of 16 bits that leave their groups take where two blocks of one set of consumers share a multiprocessor:
/// 1.21 of what two sets of one block take in the mean of 22 pairs of tiles of ten convolutions on H200s (1.08 to 1.33), 0.97 to 1.06 in
/// four of 22 blocks, and of whole groups 0.89 to 1.0 in four.
const BESIDE_LEAVING: f64 = 1.2;

/// What bounds a kernel whose pixels TMA loads.
#[derive(Clone, Copy)]
struct Rates {
    /// Of a multiprocessor in a microsecond: bytes into and out of shared memory, outputs finished.
    bytes_in: f64,
    bytes_out: f64,
    outputs: f64,
    /// Bytes of the device's memory in a microsecond.
    memory: f64,
    /// Microseconds of a launch, more for every group of a multiprocessor; of a step; of 64 pixels times 64 filters in
    /// the epilogue of a set of consumers, and of these where filters come in the order in which lanes have columns; of an epilogue besides,
    /// however small its tile; from asking for a stage until it is there.
    launch: f64,
    group: f64,
    step: f64,
    part: f64,
    by_lane: f64,
    tile: f64,
    latency: f64,
    /// How much longer all of these take where a tile's filters are no multiple of the 32 of a part.
    ragged: f64,
    /// As `part`, of a residual, and of one that was read before the main loop, or came to the second-level cache during a long
    /// one; how much longer all of these take of elements of 32 bits; how much of the last tile's epilogue overlaps with nothing.
    residual: f64,
    early: f64,
    wide: f64,
    last: f64,
    /// The power of the parts whose residuals are on their way by which one of them takes less, and how much longer it takes where blocks
    /// share a multiprocessor.
    ahead: f64,
    beside: f64,
    /// As `residual`, `part` and an output of `outputs`, what they take more over the results that are written at once.
    read: f64,
    write: f64,
    written: f64,
    /// Bytes that the loads of a block bring in a microsecond, how much longer they take for each other block of the multiprocessor,
    /// and stages that are not on their way meanwhile.
    block: f64,
    crowded: f64,
    held: f64,
    /// Of a tile of pixels, in which others want the same filters of the second-level cache: few lines come from few of its slices.
    hot: f64,
    /// Bytes that all multiprocessors have of the second-level cache in a microsecond, and what part of the lines of residuals that
    /// tiles have in common comes more than once.
    second: f64,
    common: f64,
    /// How often the memory moves the sectors of results of which columns of tiles write a part each.
    torn: f64,
    /// Bytes of shared memory in a microsecond, and microseconds of a row of a box that TMA loads.
    shared: f64,
    row: f64,
    /// Of a channel that threads copy, and of each of its pixels.
    channel: f64,
    pixel: f64,
    /// Of the sums of 64 pixels and 64 filters by a pixel.
    moved: f64,
    /// Of an instruction of 3xTF32, for the rows in registers, whatever its width; of a promotion, from an interval that ends until the next begins.
    instruction: f64,
    promotion: f64,
    /// Resident filters are waited for: for how often the time that they take, and how many microseconds besides.
    kept: f64,
    resident: f64,
    /// How far what a multiprocessor does and what the memory does overlap.
    overlap: f64,
}

/// What costs nothing and bounds nothing.
const NOTHING: Rates = Rates {
    bytes_in: f64::INFINITY,
    bytes_out: f64::INFINITY,
    outputs: f64::INFINITY,
    memory: f64::INFINITY,
    launch: 0.0,
    group: 0.0,
    step: 0.0,
    part: 0.0,
    by_lane: 0.0,
    tile: 0.0,
    ragged: 1.0,
    latency: 0.0,
    residual: 0.0,
    early: 0.0,
    wide: 0.0,
    last: 0.0,
    ahead: 0.0,
    beside: 1.0,
    read: 0.0,
    write: 0.0,
    written: 0.0,
    block: f64::INFINITY,
    crowded: 0.0,
    held: 0.0,
    hot: 0.0,
    second: f64::INFINITY,
    common: 0.0,
    torn: 0.0,
    shared: f64::INFINITY,
    row: 0.0,
    channel: 0.0,
    pixel: 0.0,
    moved: 0.0,
    instruction: 0.0,
    promotion: 0.0,
    kept: 0.0,
    resident: 0.0,
    overlap: 1.0,
};

/// Fitted to 578 timings of 43 convolutions of networks to fit to on an H100, of 16 bits and of TF32. What a part of the epilogue, torn
/// sectors and a byte of shared memory take was chosen since, by 10,900 timings of 695 convolutions on H200s, from one image to 4,096: of
/// the 376 of 16 bits of networks to fit to the choice is 2.4 % slower than the fastest timed tile in the mean, 21 % at worst; of 133 others
/// 3.3 and 35 %. By the fit alone (`part` 0.443, `shared` 177e3) these were 3.9, 96, 4.6 and 35 %.
const CHANNELS: Rates = Rates {
    bytes_in: 127e3,
    bytes_out: 44e3,
    outputs: 18.2e3,
    memory: 3.09e6,
    launch: 0.735,
    group: 0.243,
    step: 0.00507,
    part: 1.0,
    by_lane: 1.0,
    latency: 0.884,
    residual: 0.876,
    early: 0.224,
    wide: 1.0,
    last: 1.0,
    block: 69.1e3,
    crowded: 0.592,
    held: 1.03,
    hot: 0.00641,
    second: 15.7e6,
    common: 0.239,
    torn: 2.0,
    shared: 170e3,
    row: 0.00115,
    kept: 3.39,
    overlap: 1.92,
    ..NOTHING
};

/// The same of 16 bits, whose epilogues take less since lanes have neighbouring filters. Chosen by 4,738 timings of 369 convolutions on
/// H200s, from one image to 64: of the 247 of networks to fit to the choice is 2.7 % slower than the fastest timed tile in the mean, 20 % at
/// worst, instead of 3.1 and 17; of 112 others 2.9 and 29 % instead of 4.1 and 35. A fit of all rates had 3.9 % there, and 68 % at worst.
///
/// What residuals take by the parts that are on their way and by blocks is chosen by 1,229 timings on H200s of 106 convolutions with a
/// residual and ReLU, of 64, 8 images and one: of the 50 of networks to fit to the choice is 1.9 % slower than the fastest timed tile in the
/// mean, 10 % at worst; of 56 others 3.7 %, 19 % at worst with 64 images and 30 % with eight.
const OF_16_BITS: Rates =
    Rates { memory: 3.4e6, by_lane: 0.7, tile: 0.5, ahead: 0.25, beside: 2.0, ..CHANNELS };

/// The same of windows, whose bytes come faster from the second-level cache but each stage later, and whose filters are waited for less where
/// they are resident. Chosen, with which windows blocks may share, by 1,903 timings on an H200 of convolutions of one image and eight and by
/// the 1,229 of `OF_16_BITS`: of 140 convolutions of networks to fit to that have three timed tiles or more the choice is 2.3 % slower than the
/// fastest in the mean, 18 % at worst, instead of 2.6 and 26; of 138 others 2.6 and 24 % instead of 3.5 and 31.
const WINDOWS_OF_16_BITS: Rates =
    Rates { latency: 1.15, second: 25e6, kept: 1.0, resident: 0.25, ..OF_16_BITS };

/// TF32 of a single tap, which waits for an H200's memory less than an H100's. Chosen by 121 timings of 11 convolutions
/// of networks to fit to on an H200, most of 64 images and six with a residual: the choice is 5.4 % slower than the
/// fastest timed tile in the mean, 18 % at worst, instead of 10 and 24 %; of 11 others 5.0 and 18 % instead of 7.8 and
/// 18. A fit of sixteen rates had 3.4 % for the former and 8.1 for the others. Since lanes write whole sectors times
/// are about 0.7 of the estimates, to which windows of fewer than 16 filters are compared as they are; of 19
/// convolutions the choice is 2.6 % slower than the fastest of up to seven timed tiles, 26 % at worst, and rates fitted
/// to half of these chose worse for the other half.
const TF32_POINTS: Rates = Rates { memory: 3.6e6, tile: 0.25, ragged: 1.3, ..CHANNELS };

/// TF32 of several taps, whose memory is waited for less: chosen by the 137 of these convolutions of 3x3 in networks to fit to, for which
/// the choice is 3.2 % slower than the fastest tile in the mean instead of 4.1; of 36 others 2.5 % instead of 3.9, 12 instead of 38 % at
/// worst. Of 16 bits it makes no difference to 3x3, and is worse for 1x1.
const TF32_TAPS: Rates = Rates { overlap: 3.84, ..CHANNELS };

/// How many times as long windows of groups in TF32 take where more than two sets of consumers of a block take turns: 1.0 to 1.43 of
/// what as many of two blocks take, of five convolutions on an H200.
const FOUR_SETS: f64 = 1.25;

/// 3xTF32, channels last. Fitted to 309 timings of 25 convolutions on an H100, of which the choice is 2.1 % slower than the
/// fastest tile in the mean, 14 % at worst; of 22 others 3.3 and 15 %.
const TF32X3: Rates = Rates {
    bytes_in: 130e3,
    bytes_out: 45.7e3,
    outputs: 15.6e3,
    memory: 5.4e6,
    launch: 2.56,
    group: 0.34,
    step: 0.0051,
    part: 0.46,
    latency: 0.9,
    block: 64e3,
    held: 1.0,
    shared: 161e3,
    row: 0.001,
    instruction: 0.004,
    promotion: 0.13,
    kept: 4.1,
    residual: 0.9,
    ..NOTHING
};

/// Fitted to 156 timings of 13 convolutions of networks on an H100, to 9 % in the mean square, of which the choice is 3.4 % slower than the
/// fastest of up to twelve tiles in the mean, 13 % at worst; of 13 others to 13 %, 5.5 and 37 %, and of 35 more to 19 %, 6.2 and 29 %. By
/// rates of an H200, whose memory is faster, and without the second-level cache these were 26, 4.7 and 23; 26, 11.9 and 58; 25, 7.1 and
/// 53 %. What residuals take was chosen between earlier rates and the fit's, as the 35 have many.
const PLANES: Rates = Rates {
    bytes_in: 277e3,
    bytes_out: 23.1e3,
    outputs: 18.8e3,
    memory: 2.91e6,
    launch: 1.83,
    group: 0.0258,
    step: 0.0534,
    part: 0.387,
    latency: 1.42,
    residual: 2.0,
    early: 0.6,
    hot: 0.00465,
    second: 9.63e6,
    kept: 1.32,
    overlap: 2.12,
    ..NOTHING
};

/// Planes that threads copy. Fitted to 68 timings of 4 convolutions on an H100, of which the choice is 0.5 % slower than the
/// fastest tile in the mean; of 4 others 3.9 %.
const COPIED: Rates = Rates {
    bytes_in: 268e3,
    bytes_out: 22.6e3,
    outputs: 20.9e3,
    memory: 2.7e6,
    launch: 2.21,
    group: 0.3,
    step: 0.0695,
    part: 0.0178,
    latency: 0.034,
    residual: 1.25,
    early: 0.4,
    channel: 0.0022,
    pixel: 2.86e-5,
    kept: 1.53,
    overlap: 1.54,
    ..NOTHING
};

/// Pixels that are reordered before. Fitted with the rates of that launch to up to 15 tiles of each of 24 convolutions of 16 bits and of
/// TF32 on an H100, to 11 % in the mean square, with a choice that is 2.2 % slower than the fastest tile in the mean; of 24 others 18 and 3.6 %.
/// What results and residuals take more where few are neighbours was fitted to half of 49 others of 16 bits, to 13 %, and 15 % of the other
/// half, where it was 16 and 20.
const REORDERED: Rates = Rates {
    bytes_in: 87.9e3,
    bytes_out: 62.6e3,
    outputs: 43.2e3,
    memory: 4.86e6,
    launch: 1.86,
    group: 0.302,
    step: 0.0115,
    part: 0.398,
    latency: 1.1,
    residual: 2.0,
    early: 1.0,
    block: 67.1e3,
    held: 1.0,
    shared: 201e3,
    row: 0.00166,
    kept: 0.957,
    read: 4.5,
    write: 0.95,
    written: 2e-5,
    overlap: 1.29,
    ..NOTHING
};

/// The same of 16 bits and several taps of few pixels of several images, without a residual. Bytes, rows of boxes, how fast a block's stages
/// come, and how far the memory overlaps, were chosen by 70 timings of 7 convolutions of 3x3 on an H200: to 8 % in the mean square, each
/// weighed by how near it is to the fastest, with a choice that is 1.1 % slower than the fastest tile in the mean; of 7 others 12 and 1.6 %.
/// [`REORDERED`] errs by up to 43 % for these, and by at most 18 % of more than 4,096 pixels.
const REORDERED_FEW: Rates = Rates { bytes_in: 120e3, block: 80e3, row: 0.00115, overlap: 1.92, ..REORDERED };

/// The same of 16 bits of a single tap in strides: chosen with what gathered pixels take of these.
const REORDERED_STRIDED: Rates = Rates { residual: 2.65, early: 0.7, read: 3.0, write: 0.39, ..REORDERED };

/// The same of TF32, whose residuals have twice as many bytes: fitted to four convolutions with one. What bytes and rows of boxes take was fitted
/// with the rates of the launch that reorders to the chosen tiles of 35 convolutions without one on an H200: to 10 % in the mean square where it
/// was 26, and 14 % of 19 others where it was 29.
///
/// What a launch takes, and filters of several taps to be reordered, with a share of a tile's rows for each block to finish, was chosen by
/// 115 timings of 23 convolutions of up to 17x17 pixels in networks to fit to: to 12 % in the mean square, as without it, of 105 timings of
/// 21 others 9 % where it is 13 without.
const REORDERED_TF32: Rates =
    Rates { bytes_in: 110e3, launch: 2.15, row: 0.0008, residual: 5.0, early: 2.0, read: 2.0, ..REORDERED };

/// The same in strides: fitted with what the launch that reorders takes there.
const REORDERED_TF32_STRIDED: Rates =
    Rates { residual: 3.4, early: 0.78, read: 1.7, write: 0.77, ..REORDERED_TF32 };

/// Microseconds that an execution which reorders TF32 would save if all multiprocessors were free. Chosen by 1,119 timings of 109
/// convolutions on H200s: to 8 % in the mean square where it was 9; of 973 of 100 others 10 where it was 11.
const BEGUN: f64 = 3.1;

/// Planes that come as a whole.
const PACKED: Rates = Rates {
    bytes_in: 146e3,
    bytes_out: 53.9e3,
    outputs: 5.77e3,
    memory: 4.39e6,
    launch: 1.8,
    group: 0.456,
    step: 0.0,
    part: 0.728,
    latency: 1.03,
    residual: 3.0,
    early: 1.0,
    shared: 188e3,
    kept: 2.26,
    overlap: 1.0,
    ..NOTHING
};

/// The same where results are written as words. `part`, `memory` and `overlap` were chosen by 65 timings of 6 convolutions on an H200: the
/// choice is 1.1 % slower than the fastest timed tile in the mean, 6.7 % at worst; of 8 others 0.7 and 3.2 %. Of two choices that fit as well
/// the other one was worse for these 8.
const PACKED_WORDS: Rates = Rates { part: 0.5, memory: 3.4e6, overlap: 1.3, ..PACKED };

/// The same where results of whole images are put together as they lie in memory. These rates, those of neighbours, and
/// those of copied planes whose results are passed on as they are written, were chosen by 143 timings of 11
/// convolutions on an H200, each weighed by how near it is to the fastest: to 10 % in the mean square, with a choice
/// that is 3.2 % slower than the fastest timed tile in the mean, 8 % at worst; of six of MIOpen's thirteen 11, 1.1 and
/// 2.8 %. What bytes take of neighbours was chosen, among values of which these are as good, by the latter too.
const PACKED_IMAGES: Rates = Rates { bytes_in: 108e3, part: 0.4, overlap: 1.65, ..PACKED_WORDS };

/// The same where a lane reads and writes neighbouring pixels.
const PACKED_NEIGHBOURS: Rates = Rates {
    bytes_in: 90e3,
    outputs: 7.93e3,
    memory: 4.34e6,
    launch: 1.2,
    group: 0.278,
    part: 0.235,
    shared: 248e3,
    overlap: 1.85,
    ..PACKED_WORDS
};

/// The same as [`PLANES`] where results are passed on as they are written, whose last epilogue overlaps with less.
/// Fitted to timings of 37 convolutions of 1, 8 and 64 images on an H200, two to 14 tiles each: the choice over the
/// fastest timed tile is 1.004 with one image, 1.032 with 8 and 1.014 with 64, where these were 1.036, 1.049 and 1.014;
/// of 36 others 1.007 (1.03), 1.031 (1.17) and 1.017 (1.16) where they were 1.056 (1.13), 1.072 (1.25) and 1.027
/// (1.16). By a fit to those of 8 images alone the choice with 64 takes 1.06 (1.18) of the fastest.
const PLANES_PASSED_ON: Rates = Rates {
    bytes_in: 258e3,
    bytes_out: 52.2e3,
    memory: 4.07e6,
    launch: 1.42,
    group: 0.345,
    step: 0.0506,
    part: 0.173,
    latency: 1.38,
    kept: 1.69,
    last: 0.283,
    overlap: 2.42,
    ..PLANES
};

/// The same as [`COPIED`], chosen with [`PACKED_IMAGES`].
const COPIED_PASSED_ON: Rates = Rates { bytes_out: 29.3e3, memory: 3.8e6, launch: 1.96, ..COPIED };

/// Fitted to 68 timings of 8 convolutions on an H100, of which the choice is 0.6 % slower than the fastest tile in the mean, 4.9 %
/// at worst; of 8 others 1.2 and 8.4 %. Among rates that fit as well, those whose choices for all 16 were timed.
const LINES: Rates = Rates {
    bytes_in: 163e3,
    bytes_out: 155e3,
    outputs: 78e3,
    memory: 1.65e6,
    launch: 1.03,
    group: 0.016,
    step: 0.122,
    part: 0.241,
    latency: 0.305,
    shared: 118e3,
    moved: 0.268,
    overlap: 4.0,
    ..NOTHING
};

/// The most pixels of which a block's only tile has rates of its own. Where channels are not innermost eight images of
/// 14x14 (1,568) have no more, eight of 17x17 (2,312) have; where they are eight of 17x17 have no more, eight of 19x19
/// (2,888) have. The second bound lies next above the largest layers that its rates are fitted to, and is not judged by
/// others.
const ONCE: [usize; 2] = [2048, 2560];

/// The most results of a group, of the same: 8-1024-7-7-2048 has more (802,816), and took 1.4 times as long in NCHW by
/// what these rates choose; 1024 filters of the same pixels have fewer (401,408).
const RESULTS_ONCE: usize = 1 << 19;

impl Work {
    /// Bytes of the runs of so many bytes of an output, or of a residual, that several columns of tiles have a part of, as often as
    /// others have it before.
    fn in_common(&self, tiling: &Tiling, run: usize) -> f64 {
        let width = tiling.filters() * self.element;
        if self.columns(tiling) == 1 {
            return 0.0;
        }
        let outputs = (self.bytes - self.read) / (1 + self.residuals);
        outputs as f64 * (run - common_power(run, width)) as f64 / width as f64
    }

    /// Output pixels of all images.
    fn pixels(&self) -> usize {
        self.images * self.planes * self.lines * self.columns
    }

    /// Whether filters of 16 bits of one group see several pixels of several images, without strides along lines.
    /// Strides of another dimension alone, and dilations, are not asked for: none were timed.
    fn sees_several(&self) -> bool {
        self.element == 2 && self.taps != [1; 3] && self.images > 1 && self.groups == 1 && self.stride == 1
    }

    /// Whether what is reordered is what [`REORDERED_FEW`] was chosen by.
    fn reorders_few(&self) -> bool {
        const FEW: usize = 4096;

        let is_plain = self.element == 2 && self.residuals == 0 && self.planes == 1;
        is_plain && self.taps != [1; 3] && self.images > 1 && self.pixels() <= FEW
    }

    /// The same rates of few pixels of 16 bits where a block has one tile. In planes filters that stay are waited for
    /// no more than others, and packed planes take time by the stage. Chosen by 120 timings of 15 convolutions of 8
    /// images on an H200, all of networks to fit to: the choice is 2 % slower than the fastest timed tile in the mean,
    /// 13 % at worst, instead of 13 and 32 %. With one image and a residual filters that stay took 1.2 times as long
    /// for three of five.
    ///
    /// With channels innermost several taps of several images take less than elsewhere, windows least: fitted to 112
    /// timings of 7 convolutions of 8 images by 1x7, 7x1 and 1x3 on an H200, to 10 % in the mean square, each weighed
    /// by how near it is to the fastest, with a choice that takes as long as the fastest timed tile, where it was 30 %
    /// and 12 % slower, 32 at worst; of 9 others 13 % and 0.7 (6.0) where they were 30 and 9.3 (30).
    fn once(&self, tiling: &Tiling, rates: Rates) -> Rates {
        match tiling.load {
            Load::Planes if tiling.copied && (self.residuals == 0 || self.images > 1) => {
                Rates { bytes_in: 103e3, launch: 1.75, step: 0.054, channel: 0.00192, kept: 0.07, ..rates }
            }
            Load::Packed if self.writes_images(tiling) && self.neighbours(tiling) > 1 => {
                Rates { launch: 0.87, step: 0.052, latency: 0.53, ..rates }
            }
            Load::Packed if self.writes_images(tiling) => {
                Rates { launch: 0.78, step: 0.01, latency: 3.4, ..rates }
            }
            Load::Packed => Rates { launch: 0.9, step: 0.12, latency: 0.39, ..rates },
            Load::Tma if self.sees_several() => Rates {
                bytes_in: 163e3,
                launch: 0.445,
                tile: 0.37,
                latency: 0.754,
                block: 73.2e3,
                second: 21.4e6,
                shared: 226e3,
                row: 0.00069,
                overlap: 2.8,
                ..rates
            },
            Load::Halo if self.sees_several() => Rates {
                launch: 0.42,
                latency: 0.973,
                block: 70.6e3,
                shared: 224e3,
                row: 0.000875,
                kept: 0.89,
                ..rates
            },
            _ => rates,
        }
    }

    /// About how many microseconds the kernel takes: what bounds it, at these rates.
    pub(super) fn tma_time(&self, tiling: &Tiling) -> f64 {
        let is_reordered_tf32 = tiling.load == Load::Reordered && self.element > 2;
        let rates = match tiling.load {
            _ if tiling.tf32x3 => &TF32X3,
            Load::Planes if tiling.copied && self.writes_filters(tiling) => &COPIED_PASSED_ON,
            Load::Planes if self.writes_filters(tiling) => &PLANES_PASSED_ON,
            Load::Planes if tiling.copied => &COPIED,
            Load::Planes => &PLANES,
            _ if is_reordered_tf32 && self.stride > 1 => &REORDERED_TF32_STRIDED,
            _ if is_reordered_tf32 => &REORDERED_TF32,
            Load::Reordered if self.reorders_few() => &REORDERED_FEW,
            Load::Reordered if self.is_strided_batch() => &REORDERED_STRIDED,
            Load::Reordered => &REORDERED,
            Load::Packed if self.writes_images(tiling) && self.neighbours(tiling) > 1 => &PACKED_NEIGHBOURS,
            Load::Packed if self.writes_images(tiling) => &PACKED_IMAGES,
            Load::Packed if self.writes_words(tiling) => &PACKED_WORDS,
            Load::Packed => &PACKED,
            Load::Lines => &LINES,
            Load::Tma | Load::Halo if self.element > 2 && self.taps != [1; 3] => &TF32_TAPS,
            Load::Tma if self.element > 2 => &TF32_POINTS,
            Load::Halo if self.element == 2 => &WINDOWS_OF_16_BITS,
            Load::Tma if self.element == 2 => &OF_16_BITS,
            Load::Tma | Load::Halo | Load::Transposed | Load::Runs | Load::Gather => &CHANNELS,
        };
        let (steps, columns) = (self.steps(tiling).div_ceil(tiling.split) as f64, self.columns(tiling));
        let tiles = self.tiles(tiling) * tiling.split;
        let slots = self.units * tiling.occupancy;
        let slots = if tiling.resident { slots / columns * columns } else { slots };
        let rounds = tiles.div_ceil(slots.max(1)) as f64;
        let few = ONCE[usize::from(matches!(tiling.load, Load::Tma | Load::Halo))];
        let is_little = self.pixels() <= few && self.pixels() * self.filters <= RESULTS_ONCE;
        let rates = if is_little && rounds <= 1.0 { self.once(tiling, *rates) } else { *rates };
        let row = tiling.row() as f64;
        let outputs = (tiling.rows() * tiling.columns_of_parts()) as f64;
        let filter_steps = self.filter_steps(tiling).div_ceil(tiling.split) as f64;
        let filters = filter_steps * tiling.filters() as f64 * row / rates.bytes_in;
        let pixels = if tiling.copied {
            let channel = rates.channel + rates.pixel * tiling.pixels() as f64;
            steps * tiling.depth as f64 * channel
        } else {
            steps * tiling.loaded_pixels() as f64 * row / rates.bytes_in
        };
        let bytes = pixels
            + if tiling.resident { 0.0 } else { filters }
            + outputs * self.element as f64 / rates.bytes_out;
        let times = tiling.products();
        let instructions = filter_steps * (times * tiling.rows() / 64 * tiling.loaded_row() / 32) as f64;
        let products = filter_steps
            * (times * tiling.pixels() * tiling.filters() * tiling.loaded_row()) as f64
            / PRODUCTS
            + rates.instruction * instructions;
        // Pixels and filters that loads bring, and what products read, with half of what loads write.
        let brought = steps * tiling.loaded_pixels() as f64
            + if tiling.resident { 0.0 } else { filter_steps * tiling.filters() as f64 };
        // Threads read elements of 16 bits, which takes as long as words; that neighbours are read as words is in their rates.
        let rows = if tiling.load == Load::Packed { 128 } else { 64 };
        let reads = filter_steps * (tiling.rows() / 64 * (rows + times * tiling.width)) as f64;
        // Filters that are split are read and written in two parts.
        let split = if tiling.tf32x3 && !tiling.resident {
            3.0 * filter_steps * tiling.filters() as f64
        } else {
            0.0
        };
        let read = reads * tiling.loaded_row() as f64;
        let shared_memory = (read + (split + brought / 2.0) * row) / rates.shared;
        let leaves = tiling.leaves_group(self.groups, self.channels);
        let channel_steps = tiling.channel_steps(self.channels) as f64;
        let walks = tiling.load == Load::Tma && leaves;
        let walked = if walks { steps / channel_steps * tiling.pixels() as f64 * WALKED } else { 0.0 };
        let multiply = products.max(bytes).max(shared_memory).max(brought * rates.row + walked);
        // The memory waits for twice as many bytes.
        let wide = if self.element > 2 { 1.0 + rates.wide } else { 1.0 };
        let waits_less = match tiling.load {
            _ if self.reads_residuals_early(tiling) => true,
            // Threads have residuals on their way where they have registers, or prefetch them along pixels.
            Load::Tma | Load::Halo if tiling.tf32x3 => {
                tiling.residuals_ahead(self.residuals, self.unrolled_parts) > 0
            }
            _ => tiling.tf32x3 || filter_steps > SHORT_LOOP as f64,
        };
        let vector = self.vector as f64;
        let residual = if waits_less { rates.early } else { rates.residual };
        let ahead = if self.reads_residuals_early(tiling) { 1 } else { self.residuals_ahead(tiling).max(1) };
        let beside = if tiling.occupancy > 1 { rates.beside } else { 1.0 };
        let residual = beside * residual / (ahead as f64).powf(rates.ahead) + rates.read / vector;
        let by_lane = self.orders_filters && tiling.takes_filters_by_lane() && !tiling.tf32x3;
        let part = if by_lane { rates.by_lane } else { rates.part };
        let ragged = if tiling.filters().is_multiple_of(32) { 1.0 } else { rates.ragged };
        // Blocks that share a tile finish a share of it each: rates of reordered pixels in TF32 were chosen so, and others stay as they
        // were fitted, as if each finished all of it, unlike those of gathered pixels of 16 bits, which were timed without a refit.
        let shares = if is_reordered_tf32 { tiling.split as f64 } else { 1.0 };
        let part = part + rates.write / vector + residual * self.in_a_share(shares) * self.residuals as f64;
        let parts = (tiling.atoms * tiling.columns_of_parts()) as f64 / 64.0 / shares;
        let short = if tiling.load == Load::Lines { self.short_writes(tiling) } else { 0.0 };
        let finish = wide * ragged * part * parts + rates.tile + short;
        // Sums move to the right, and back.
        let moves = if tiling.load == Load::Lines { 2 * (self.taps[2] - 1) - self.pad } else { 0 };
        let moved = rates.moved * (moves * tiling.atoms * tiling.width) as f64 / 64.0;
        // A set's warpgroups wait for their own promotions.
        let promotions = filter_steps * tiling.row().div_ceil(64) as f64;
        let waits = products / tiling.cooperative as f64 + rates.promotion * promotions;
        let alone = if tiling.tf32x3 { multiply.max(waits) } else { multiply } + rates.step * steps;

        // What all consumers of a multiprocessor share, and what one set of them does one after the other.
        let blocks = tiling.occupancy.min(tiles.div_ceil(self.units)) as f64;
        let written = wide * ragged * outputs / shares * (1.0 / rates.outputs + rates.written / vector);
        let shared = rounds * blocks * multiply.max(written).max(short);
        let last = rates.last * finish;
        let one = (rounds / tiling.pingpong as f64).ceil() * (alone + moved + finish) - last;
        let in_turn = if tiling.pingpong > 1 { rounds * alone + moved + finish - last } else { 0.0 };
        // Stages that a block has in flight come no sooner than they were asked for.
        let filters_of_stage = if tiling.resident { 0 } else { tiling.step_taps() * tiling.filters() };
        let stage = (tiling.loaded_pixels() + filters_of_stage) as f64 * row / rates.block;
        let stage = stage * (1.0 + rates.crowded * (blocks - 1.0));
        let waited = rounds * steps * (rates.latency + stage) / (tiling.stages as f64 - rates.held);
        let is_window = tiling.load == Load::Halo && self.groups > 1;
        let is_window_in_tf32 = is_window && self.element > 2 && !tiling.tf32x3;
        let is_crowded = is_window_in_tf32 && tiling.pingpong > 2;
        let is_left = tiling.load == Load::Halo && leaves;
        let beside_one = tiling.occupancy > 1 && tiling.pingpong == 1;
        let turns = match is_crowded {
            true => FOUR_SETS,
            false if is_left && self.element == 2 && beside_one => BESIDE_LEAVING,
            false => 1.0,
        };
        let filters_walked = if is_left && !tiling.resident {
            let rows = filter_steps / channel_steps * tiling.filters() as f64;
            (rounds * blocks - 1.0) * rows * FILTERS_WALKED
        } else {
            0.0
        };
        let unit = turns * shared.max(one).max(in_turn).max(waited) + filters_walked;
        // Residuals are read by lines, results written by sectors.
        let lines = self.residuals as f64 * self.in_common(tiling, 128);
        let moved_again = rates.common * lines + rates.torn * self.in_common(tiling, 32);
        let memory = (self.bytes as f64 + moved_again) / rates.memory;
        let second = tiles as f64 * brought * row / rates.second;
        let hot = if tiling.resident { 0.0 } else { rates.hot * (self.tiles(tiling) / columns) as f64 };
        let is_group_once = tiling.load == Load::Tma && self.groups > 1 && self.element == 2 && rounds <= 1.0;
        let kept = match (tiling.resident, tiling.rearranged) {
            (true, true) => {
                let bytes = filter_steps * tiling.filters() as f64 * row * blocks;
                let rearranged = REARRANGED * bytes / (tiling.pingpong * tiling.cooperative) as f64;
                if short > 0.0 { BEFORE_WRITES + bytes / BROUGHT } else { rearranged }
            }
            (true, false) if is_group_once || is_window_in_tf32 => rates.kept * filters + KEPT_BY_GROUP,
            (true, false) => rates.kept * filters + rates.resident,
            (false, _) => 0.0,
        };
        // Windows of groups in TF32 have nothing to wait for in a multiprocessor's second block.
        let starting = if is_window_in_tf32 { 1 } else { tiling.occupancy };
        let warpgroups = (tiling.pingpong * tiling.cooperative * starting) as f64;
        let work = [unit, memory, hot, second].map(|time| time.powf(rates.overlap)).iter().sum::<f64>();
        rates.launch
            + rates.group * warpgroups
            + kept
            + work.powf(1.0 / rates.overlap)
            + last
            + added_up(tiling)
            - if is_reordered_tf32 { self.begun(tiling) } else { 0.0 }
    }

    /// Microseconds by which an execution begins sooner, as the launch that reorders finds multiprocessors which the tiles of the execution
    /// before leave free: up to half of them count. Where blocks share a tile, or a multiprocessor, nothing was saved.
    fn begun(&self, tiling: &Tiling) -> f64 {
        let free = self.units.saturating_sub(self.tiles(tiling)).min(self.units / 2);
        let is_alone = tiling.split == 1 && tiling.occupancy == 1;
        if is_alone { BEGUN * free as f64 / self.units as f64 } else { 0.0 }
    }
}
