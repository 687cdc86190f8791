//! What a tile of neighbouring pixels sees of an image: a run of each channel's plane.

use fuseplan_api::Problem;
use fuseplan_gpu::{Volume, common_power, spatial};

/// The fewest elements of a box, such that it is not swizzled, the most, and boxes that a run comes in.
const SHORTEST_BOX: usize = 40;
const LONGEST_BOX: usize = 256;
const MOST_BOXES: usize = 4;
/// The most images of a tile.
const MOST_IMAGES: usize = 6;
/// Elements of f32 at whose multiples a box lies in shared memory.
const ALIGNED: usize = 32;
/// Pixels that a tile computes besides those that it covers, such that it has all of the sector of 32 bytes that its last one may begin.
const OVERLAP: usize = 16;
/// The most elements of 16 bits from the first to the last of a line's taps whose factors come together.
const LONGEST_LINE: usize = 5;

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
    /// Pixels behind those that it covers that a tile computes as well, as the next one does: what whole sectors of results have room in.
    pub(crate) overlap: usize,
    /// Elements of a box along a plane, and boxes one behind the other, of a step, a channel or an image; from where a box begins to
    /// where the next one does.
    pub(crate) columns: usize,
    pub(crate) boxes: usize,
    pub(crate) apart: usize,
    /// Channels of a line of the input as TMA sees it, of which boxes have one each.
    pub(crate) phases: usize,
    /// Taps of a line that a stage of filters has.
    pub(crate) taps: usize,
    /// Whether a thread's two rows are neighbouring pixels, whose first taps are neighbours as well.
    pub(crate) paired: bool,
    /// Elements from a channel to the next in a stage, and in front of whole planes.
    pub(crate) pitch: usize,
    pub(crate) guard: usize,
    pub(crate) filter_stages: usize,
    /// Whether filters are read as they are, as a filter's channels are one row: by TMA, or in 16 bits by each block's threads. Else an
    /// earlier launch prepares them.
    pub(crate) filter_rows: bool,
}

impl Runs {
    /// Words of 16 bits that a thread reads for the two elements of a register, in the mean of a line of taps.
    pub(crate) fn reads(self) -> f64 {
        let (rows, span) = if self.paired { (1, self.taps) } else { (2, self.taps - 1) };
        (rows * (span.div_ceil(2) + 1)) as f64 / self.taps as f64
    }

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
    /// Bytes of an element.
    pub(crate) element: usize,
    /// How many planes TMA can address as a line, such that lines of these have those of all channels, if it can.
    pub(crate) phases: Option<usize>,
    /// Whether the planes of all channels of an image follow one another, at a multiple of 16 bytes.
    pub(crate) packed: bool,
}

impl Sight {
    /// `None` where planes have gaps, an output does not see a run, or taps are too many.
    pub(crate) fn of(problem: &Problem) -> Option<Sight> {
        let (conv, weights) = problem.conv()?;
        let (x, w, y) = (Volume::of(&problem.input), Volume::of(weights), Volume::of(&problem.output));
        let dims = |volume: &Volume| [volume.lens[2], volume.lens[3], volume.lens[4]];
        let [pads, after] = [conv.pads_before(), conv.pads_after()].map(|pads| spatial(pads, 0));
        let [strides, dilations] = [conv.strides(), conv.dilations()].map(|list| spatial(list, 1));
        let element = problem.output.data_type().size();
        let chunk = 16 / element;
        let multiple = |d: usize| x.lens[d] == 1 || x.strides[d].is_multiple_of(chunk);
        let follow = x.lens[1] == 1 || x.strides[1] == x.plane();
        let packed = follow && multiple(0);
        let some = chunk / common_power(chunk, x.plane());
        let phases = match some {
            1 if multiple(0) && multiple(1) => Some(1),
            2.. if element == 2 && packed && x.lens[1].is_multiple_of(some) => Some(some),
            _ => None,
        };
        let sight = Sight {
            image: dims(&x),
            output: dims(&y),
            taps: dims(&w),
            pads,
            padded: pads.iter().chain(&after).any(|&pad| pad > 0),
            strides,
            dilations,
            element,
            phases,
            packed,
        };
        let planar = x.position_stride() == Some(1) && !x.is_channels_last();
        let [_, h, w] = sight.taps;
        let [line, plane] = [sight.reach(1), sight.reach(2)];
        let [_, lines, columns] = sight.image;
        // Strides may be as large as they like where there is nothing to reach.
        let in_order = line <= strides[1].saturating_mul(columns)
            && plane <= strides[0].saturating_mul(lines).saturating_mul(columns);
        let comes = phases.is_some() || element == 4 && packed;
        (planar && in_order && h * w <= 32 && comes).then_some(sight)
    }

    /// Taps of a line that a stage of filters has: all of them, where a thread reads pixels of all at once.
    fn line_of_taps(&self) -> usize {
        let taps = self.taps[2];
        if self.element == 2 && (taps - 1) * self.dilations[2] < LONGEST_LINE { taps } else { 1 }
    }

    /// Whether of tiles of 16 bits that have pixels of so many images every second pixel is the next one's neighbour in the image.
    fn pairs(&self, images: usize) -> bool {
        let [image, output] = [self.image, self.output];
        let even = |dims: usize| output[3 - dims..].iter().product::<usize>().is_multiple_of(2);
        let lines = even(1) || image[2] == output[2] && self.strides[1] == 1;
        let planes = even(2) || output[0] == 1;
        let of_images = images == 1 || even(3);
        self.element == 2 && self.strides[2] == 1 && lines && planes && of_images
    }

    /// Elements from the first pixel of an output's line to its last, or of a plane.
    fn reach(&self, dims: usize) -> usize {
        let columns = (self.output[2] - 1) * self.strides[2];
        let lines = (self.output[1] - 1) * self.strides[1];
        if dims == 1 { columns } else { lines.saturating_mul(self.image[2]).saturating_add(columns) }
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

    /// Elements of the longest run that so many neighbouring pixels and the `overlap` behind them see, wherever in an image they begin, or
    /// at a multiple of their number.
    fn longest(&self, pixels: usize, overlap: usize, anywhere: bool) -> usize {
        let all = self.pixels();
        let of =
            |first: usize| self.first_tap((first + pixels + overlap).min(all) - 1) - self.first_tap(first);
        let [_, lines, columns] = [0, 1, 2].map(|d| (self.taps[d] - 1).saturating_mul(self.dilations[d]));
        let taps = lines.saturating_mul(self.image[2]).saturating_add(columns);
        // Lines are alike, or planes where there are several: tiles that begin at the same place of one see
        // as much, but for the last, which may see less.
        let longest = if anywhere {
            (0..self.output[2]).map(of).max()
        } else {
            let alike = if self.output[0] == 1 { self.output[2] } else { self.output[1] * self.output[2] };
            let firsts = (0..all).step_by(pixels);
            firsts.take_while(|&first| first == 0 || !first.is_multiple_of(alike)).map(of).max()
        };
        // More than any box has is as good as what is longer still.
        longest.unwrap_or(0).saturating_add(taps).min(u32::MAX as usize) + 1
    }

    /// The ways in which tiles of so many rows of so many images may come, in steps of `depth` of a group's channels.
    pub(crate) fn tiles(&self, images: usize, channels: usize, rows: usize, depth: usize) -> Vec<Runs> {
        let all = self.pixels();
        let spanned = (rows + all - 2) / all + 1;
        let mut tiles = vec![];
        tiles.extend(self.runs(rows.min(all), 0, 1));
        if self.pairs(1) && all > OVERLAP && rows > 64 {
            tiles.extend(self.runs(rows - OVERLAP, OVERLAP, 1));
        }
        // Planes that tiles of one image would leave rows of without a pixel.
        if images > 1 && self.output[0] == 1 && spanned <= MOST_IMAGES && !all.is_multiple_of(rows) {
            tiles.extend(self.runs(rows, 0, spanned));
        }
        let whole = rows / all;
        let unboxed = if self.element == 4 { self.phases.is_none() } else { channels.is_multiple_of(depth) };
        if unboxed && self.packed && self.is_odd() && self.taps[0] == 1 && self.image[0] == 1 {
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
    fn runs(&self, pixels: usize, overlap: usize, images: usize) -> Option<Runs> {
        let chunk = 16 / self.element;
        // A box begins at a multiple of 16 bytes.
        let run = self.longest(pixels, overlap, images > 1) + chunk - 1;
        let with = |by, columns, boxes, apart, pitch| Runs {
            pixels,
            by,
            images,
            overlap,
            columns,
            boxes,
            apart,
            phases: self.phases.unwrap_or(1),
            taps: self.line_of_taps(),
            paired: self.pairs(images),
            pitch,
            guard: 0,
            filter_stages: 0,
            filter_rows: false,
        };
        let Some(phases) = self.phases else {
            let boxes = run.div_ceil(LONGEST_BOX);
            let columns = run.div_ceil(boxes).max(SHORTEST_BOX).next_multiple_of(ALIGNED);
            return (boxes <= MOST_BOXES)
                .then(|| with(By::Channels, columns, boxes, columns, boxes * columns));
        };
        // Threads of a warp read eight neighbouring pixels of four channels from all banks.
        let (banks, fits): (_, fn(usize) -> bool) = match self.element {
            4 => (SHORTEST_BOX, |columns| matches!(columns % 32, 8 | 24)),
            _ => (2 * SHORTEST_BOX, |columns| matches!(columns % 64, 16 | 48)),
        };
        // Elements of a phase are moved by less than 16 bytes, and those of two pixels' lines of taps are in one box.
        let moved = if phases > 1 { chunk - 1 } else { 0 };
        let shared = if self.element == 4 { 0 } else { moved + self.line_of_taps() * self.dilations[2] };
        let shared = shared.next_multiple_of(chunk);
        let columns = |boxes: usize| {
            let least = (run + moved + (boxes - 1) * shared).div_ceil(boxes).max(banks);
            (least..=LONGEST_BOX).find(|&columns| fits(columns))
        };
        let (boxes, columns) = (1..=MOST_BOXES).find_map(|boxes| Some((boxes, columns(boxes)?)))?;
        Some(with(By::Boxes, columns, boxes, columns - shared, columns))
    }

    /// Planes of as many images.
    fn planes(&self, pixels: usize, images: usize, depth: usize) -> Runs {
        let pitch = self.image.iter().product::<usize>();
        // Elements of 16 bits come by one bulk copy, of f32 by TMA, which rounds them.
        let columns = if self.element == 4 { LONGEST_BOX } else { depth * pitch };
        Runs {
            pixels,
            by: By::Planes,
            images,
            overlap: 0,
            columns,
            boxes: (depth * pitch).div_ceil(columns),
            apart: columns,
            phases: 1,
            taps: self.line_of_taps(),
            paired: false,
            pitch,
            guard: (self.pads[1] * self.image[2] + self.pads[2]).next_multiple_of(ALIGNED),
            filter_stages: 0,
            filter_rows: false,
        }
    }
}
