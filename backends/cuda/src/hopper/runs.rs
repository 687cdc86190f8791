//! What a tile of neighbouring pixels sees of an image: a run of each channel's plane.

use fuseplan_api::{DataType, Problem};
use fuseplan_gpu::{Volume, spatial};

/// The fewest elements of a box, such that it is not swizzled, the most, and boxes that a run comes in.
const SHORTEST_BOX: usize = 40;
const LONGEST_BOX: usize = 256;
const MOST_BOXES: usize = 4;
/// The most images of a tile.
const MOST_IMAGES: usize = 6;
/// Elements at whose multiples a box lies in shared memory, and of 16 bytes.
const ALIGNED: usize = 32;
const CHUNK: usize = 4;

/// How what a tile's pixels see comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// Runs of all channels of a step.
    Boxes,
    /// Runs of a channel.
    Channels,
    /// Whole planes, as they follow one another.
    Planes,
}

/// The pixels of a tile, and how they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Runs {
    pub(crate) pixels: usize,
    pub(crate) by: By,
    /// The most images that a tile has pixels of; with one, it stays within an image.
    pub(crate) images: usize,
    /// Elements of a box along a plane, and boxes one behind the other, of a step, a channel or an image.
    pub(crate) columns: usize,
    pub(crate) boxes: usize,
    /// Elements from a channel to the next in a stage, and in front of whole planes.
    pub(crate) pitch: usize,
    pub(crate) guard: usize,
    pub(crate) filter_stages: usize,
}

impl Runs {
    /// Pixels of a stage, which has as many words of `depth` channels.
    pub(crate) fn loaded(self, depth: usize) -> usize {
        let run = self.images * self.boxes * self.columns;
        if self.by == By::Planes { (run + self.guard).div_ceil(depth) } else { run }
    }
}

/// Planes of the image and of the output, and how taps lie: depth, height, width.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sight {
    pub(crate) image: [usize; 3],
    pub(crate) output: [usize; 3],
    pub(crate) taps: [usize; 3],
    pub(crate) pads: [usize; 3],
    /// Whether any tap of an output is padding.
    pub(crate) padded: bool,
    pub(crate) strides: [usize; 3],
    pub(crate) dilations: [usize; 3],
    /// Whether TMA can address the planes of all channels.
    pub(crate) boxed: bool,
}

impl Sight {
    /// `None` where planes have gaps, an output does not see a run, or taps are too many.
    pub(crate) fn of(problem: &Problem) -> Option<Sight> {
        let (conv, weights) = problem.conv()?;
        let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
        let dims = |volume: &Volume| [volume.lens[2], volume.lens[3], volume.lens[4]];
        let [pads, after] = [conv.pads_before(), conv.pads_after()].map(|pads| spatial(pads, 0));
        let [strides, dilations] = [conv.strides(), conv.dilations()].map(|list| spatial(list, 1));
        let multiple = |d: usize| x.lens[d] == 1 || x.strides[d].is_multiple_of(CHUNK);
        let follow = x.lens[1] == 1 || x.strides[1] == x.plane();
        let sight = Sight {
            image: dims(&x),
            output: dims(&y),
            taps: dims(&w),
            pads,
            padded: pads.iter().chain(&after).any(|&pad| pad > 0),
            strides,
            dilations,
            boxed: multiple(0) && multiple(1) && x.plane().is_multiple_of(CHUNK),
        };
        let planar = x.position_stride() == Some(1) && !x.is_channels_last();
        let [_, h, w] = sight.taps;
        let [line, plane] = [sight.reach(1), sight.reach(2)];
        let in_order =
            line <= strides[1] * sight.image[2] && plane <= strides[0] * sight.image[1] * sight.image[2];
        let float = problem.output.data_type() == DataType::Float;
        (float && planar && in_order && h * w <= 32 && (sight.boxed || follow && multiple(0)))
            .then_some(sight)
    }

    /// Elements from the first pixel of an output's line to its last, or of a plane.
    fn reach(&self, dims: usize) -> usize {
        let columns = (self.output[2] - 1) * self.strides[2];
        if dims == 1 { columns } else { (self.output[1] - 1) * self.strides[1] * self.image[2] + columns }
    }

    /// Pixels of an output's planes.
    pub(crate) fn pixels(&self) -> usize {
        self.output.iter().product()
    }

    /// Where an output's first tap is.
    fn first_tap(&self, pixel: usize) -> usize {
        let [_, height, width] = self.output;
        let at = [pixel / width / height, pixel / width % height, pixel % width];
        let [d, h, w] = [0, 1, 2].map(|i| at[i] * self.strides[i]);
        (d * self.image[1] + h) * self.image[2] + w
    }

    /// Elements of the longest run that so many neighbouring pixels see, wherever in an image they begin, or at a multiple of
    /// their number.
    fn longest(&self, pixels: usize, anywhere: bool) -> usize {
        let all = self.pixels();
        let of = |first: usize| self.first_tap((first + pixels).min(all) - 1) - self.first_tap(first);
        let taps =
            (self.taps[1] - 1) * self.dilations[1] * self.image[2] + (self.taps[2] - 1) * self.dilations[2];
        // Lines are alike.
        let longest = if anywhere {
            (0..self.output[2]).map(of).max()
        } else {
            (0..all.div_ceil(pixels)).map(|tile| of(tile * pixels)).max()
        };
        longest.unwrap_or(0) + taps + 1
    }

    /// The ways in which tiles of so many rows of so many images may come, in steps of `depth` channels.
    pub(crate) fn tiles(&self, images: usize, rows: usize, depth: usize) -> Vec<Runs> {
        let all = self.pixels();
        let spanned = (rows + all - 2) / all + 1;
        let mut tiles = vec![];
        tiles.extend(self.runs(rows.min(all), 1));
        // Planes that tiles of one image would leave rows of without a pixel.
        if images > 1 && self.output[0] == 1 && spanned <= MOST_IMAGES && !all.is_multiple_of(rows) {
            tiles.extend(self.runs(rows, spanned));
        }
        let whole = rows / all;
        if !self.boxed && self.is_odd() && self.taps[0] == 1 && self.image[0] == 1 {
            tiles.extend(
                [(whole * all, whole), (rows, spanned)]
                    .into_iter()
                    .filter(|&(pixels, images)| pixels > 0 && images <= MOST_IMAGES)
                    .map(|(pixels, images)| self.planes(pixels, images, depth)),
            );
        }
        tiles
    }

    /// Whether four channels that follow one another begin at different distances behind multiples of 16 bytes.
    pub(crate) fn is_odd(&self) -> bool {
        self.image.iter().product::<usize>() % 2 == 1
    }

    /// Runs of as many images.
    fn runs(&self, pixels: usize, images: usize) -> Option<Runs> {
        // A box begins at a multiple of 16 bytes.
        let run = self.longest(pixels, images > 1) + CHUNK - 1;
        let (by, columns, boxes) = if self.boxed {
            // Threads of a warp read eight neighbouring pixels of four channels from all banks.
            let columns = |boxes: usize| {
                (run.div_ceil(boxes).max(SHORTEST_BOX)..=LONGEST_BOX)
                    .find(|columns| matches!(columns % 32, 8 | 24))
            };
            let (boxes, columns) = (1..=MOST_BOXES).find_map(|boxes| Some((boxes, columns(boxes)?)))?;
            (By::Boxes, columns, boxes)
        } else {
            let boxes = run.div_ceil(LONGEST_BOX);
            (By::Channels, run.div_ceil(boxes).max(SHORTEST_BOX).next_multiple_of(ALIGNED), boxes)
        };
        let pitch = if self.boxed { columns } else { boxes * columns };
        let runs = Runs { pixels, by, images, columns, boxes, pitch, guard: 0, filter_stages: 0 };
        (boxes <= MOST_BOXES).then_some(runs)
    }

    /// Planes of as many images.
    fn planes(&self, pixels: usize, images: usize, depth: usize) -> Runs {
        let pitch = self.image.iter().product::<usize>();
        Runs {
            pixels,
            by: By::Planes,
            images,
            columns: LONGEST_BOX,
            boxes: (depth * pitch).div_ceil(LONGEST_BOX),
            pitch,
            guard: (self.pads[1] * self.image[2] + self.pads[2]).next_multiple_of(ALIGNED),
            filter_stages: 0,
        }
    }
}
