//! A work item: a band of output lines of some images and one group, packed, multiplied and finished.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::AtomicBool;

use super::Convolution;
use super::image::{Pixels, Soon};
use super::outputs::Outputs;
use super::product::{Ahead, DEPTH, FILTERS, Multiplier, Product, SIDE, Unit};
use crate::direct::RESIDENT;
use crate::direct::weights::Panel;
use crate::epilogue::{Ending, Steps};
use crate::row::RowStart;

/// Pixels whose sums wait to be finished, where filters stay in the cache.
const WAITING: usize = 8 * SIDE;

/// One execution.
pub(super) struct Work<'a> {
    pub(super) conv: &'a Convolution,
    pub(super) steps: Steps<'a>,
    /// What is left behind the front, if registers can hold it.
    pub(super) ending: Option<Ending>,
    /// Whether the output is asked for while the unit multiplies, which is worth while if that takes long and the second-level cache does
    /// not hold an image of the output, or, where images are joined, all of it.
    pub(super) asks: bool,
    pub(super) input: *const c_void,
    pub(super) output: *mut c_void,
    pub(super) filters: *const u16,
    /// Whether all elements of the image so far were the sums of their parts.
    pub(super) complete: AtomicBool,
}

// SAFETY: the pointers are to tensors, of which items write disjoint parts and nobody writes what others read.
unsafe impl Sync for Work<'_> {}

/// A thread's scratch, of the plan's sizes.
pub(super) struct Scratch<'a> {
    pub(super) packed: *mut u16,
    /// The item, without its part, whose image is packed.
    pub(super) holds: Option<usize>,
    /// What the item behind this one packs.
    pub(super) soon: Soon,
    /// A line whose channels were brought together.
    pub(super) line: &'a mut [f32],
    pub(super) sums: &'a mut [f32],
    pub(super) finish: &'a mut [f32],
}

/// What an item computes.
pub(super) struct Band {
    pub(super) images: Range<usize>,
    pub(super) group: usize,
    pub(super) slice: usize,
    pub(super) lines: Range<usize>,
    pub(super) columns: Range<usize>,
    /// Slices, and lines, of taps that some of these lines have inside of the input.
    pub(super) slices: Range<usize>,
    pub(super) taps: Range<usize>,
}

impl Band {
    /// How many columns it has in a line of `width`; a cut image's last line may end in front of all of them.
    pub(super) fn columns(&self, width: usize) -> usize {
        self.columns.end.min(width).saturating_sub(self.columns.start)
    }
}

impl Work<'_> {
    /// Computes an item.
    ///
    /// # Safety
    /// The CPU has the unit's instructions; the tensors are the problem's; scratch has the plan's sizes.
    pub(super) unsafe fn item(&self, item: usize, unit: &Multiplier, scratch: &mut Scratch<'_>) {
        let Convolution { geometry: g, plan, .. } = self.conv;
        let (part, whole) = (item % plan.parts, item / plan.parts);
        let (span, rest) = (whole % plan.spans, whole / plan.spans);
        let (band, rest) = (rest % plan.bands, rest / plan.bands);
        let (slice, rest) = (rest % g.output.lens[2], rest / g.output.lens[2]);
        let (group, batch) = (rest % g.groups, rest / g.groups);
        let lines = band * plan.band..((band + 1) * plan.band).min(g.output.lens[3]);
        let taps = lines.clone().map(|line| g.taps_inside(1, line).0).filter(|taps| !taps.is_empty());
        let band = Band {
            images: batch * plan.images..((batch + 1) * plan.images).min(g.output.lens[0]),
            group,
            slice,
            slices: g.taps_inside(0, slice).0,
            taps: taps.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0),
            lines,
            columns: span * plan.span..((span + 1) * plan.span).min(g.output.lens[4]),
        };
        let stays = plan.in_place && self.pixels(&band) >= 2 * SIDE;
        if !stays && scratch.holds.replace(whole) != Some(whole) {
            for (i, image) in band.images.clone().enumerate() {
                let packed = scratch.packed.wrapping_add(i * plan.image_len());
                // SAFETY: the caller says what this function asks for.
                unsafe { self.pack(&band, image, packed, scratch.line) };
            }
        }
        let panels = &plan.panels[group * plan.panels_per_group..][..plan.panels_per_group];
        let dealt = |part: usize| panels.len() * part / plan.parts;
        let panels = &panels[dealt(part)..dealt(part + 1)];
        let count = self.pixels(&band);
        // Filters that stay in the cache are read for some pixels after the other, so that these are written as a whole, or, where
        // sums wait to be finished, that these stay in the first-level cache. Half of what stays is pixels and sums.
        let is_resident = plan.filters / g.groups * size_of::<u16>() <= RESIDENT / 2;
        let at_once = is_resident && self.is_direct();
        let run = if at_once {
            self.whole_lines(self.conv.unit.pixels())
        } else if is_resident && !stays {
            // Of pixels in place the last tile may begin in front of its run, where no sum may wait.
            self.whole_lines(WAITING)
        } else {
            count
        };
        // Runs that are finished at once are multiplied by all panels, one after the other; others by one panel for the whole image.
        let together = if at_once { panels.len().max(1) } else { 1 };
        // Products of the first run ask for the next panel's filters, those of the last panel and of other runs for the next item's lines.
        let tiles = |pixels: usize| pixels.div_ceil(self.conv.unit.pixels());
        let images = band.images.len();
        let for_filters =
            if at_once { 1 } else { images } * panels.len().saturating_sub(1) * tiles(run.min(count));
        let products = (images * panels.len() * tiles(count)).saturating_sub(for_filters);
        scratch.soon = if stays { Soon::default() } else { self.soon(&band, products) };
        for first in (0..count).step_by(run.max(1)) {
            for at in (0..panels.len()).step_by(together) {
                let panels = panels[at..].split_at(together);
                for (i, image) in band.images.clone().enumerate() {
                    let pixels = if stays {
                        self.in_place(&band, image)
                    } else {
                        let first = scratch.packed.wrapping_add(i * plan.image_len()).cast_const();
                        Pixels { first, pitch: plan.pitch, stays }
                    };
                    let run = first..count.min(first + run);
                    // SAFETY: the caller says what this function asks for; the pixels are packed, or in place.
                    unsafe { self.multiply(&band, image, &pixels, run, panels, unit, scratch) };
                }
            }
        }
    }

    /// So many pixels, or, where lines are multiplied one by one, as many as whole lines have.
    fn whole_lines(&self, pixels: usize) -> usize {
        let columns = self.conv.plan.columns;
        if self.skips() { (pixels - pixels % columns).max(columns) } else { pixels }
    }

    /// Whether pixels between two lines are left out of products.
    fn skips(&self) -> bool {
        self.conv.unit == Unit::Vector && self.conv.plan.columns > self.conv.plan.span
    }

    /// The pixels of a run that are multiplied at a time: of lines by themselves those that are in the output.
    fn pieces(&self, band: &Band, run: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let Convolution { geometry: g, plan, unit, .. } = self.conv;
        let (skips, most) = (self.skips(), unit.pixels());
        let step = if skips { plan.columns } else { run.len().max(1) };
        let end = move |first: usize| match skips {
            true => run.end.min(first + band.columns(g.width(band.lines.start + first / plan.columns))),
            false => run.end,
        };
        let mut first = run.start;
        let mut rest = first..end(first);
        std::iter::from_fn(move || {
            while rest.is_empty() {
                first += step;
                if first >= run.end {
                    return None;
                }
                rest = first..end(first);
            }
            let piece = rest.start..rest.end.min(rest.start + most);
            rest.start = piece.end;
            Some(piece)
        })
    }

    /// How many pixels a band has, those between its lines included.
    pub(super) fn pixels(&self, band: &Band) -> usize {
        let Convolution { geometry: g, plan, .. } = self.conv;
        // The last line has no columns behind it.
        (band.lines.len() - 1) * plan.columns + band.columns(g.width(band.lines.end - 1))
    }

    /// Multiplies some of an image's pixels by panels of filters, one after the other, and finishes the sums. The panels behind these
    /// come next.
    ///
    /// # Safety
    /// As [`Work::item`]; the pixels are readable, with all taps and in whole tiles.
    #[expect(clippy::too_many_arguments, reason = "a product has two operands, each with its place")]
    unsafe fn multiply(
        &self,
        band: &Band,
        image: usize,
        pixels: &Pixels,
        run: Range<usize>,
        (panels, behind): (&[Panel], &[Panel]),
        unit: &Multiplier,
        scratch: &mut Scratch<'_>,
    ) {
        let Convolution { geometry: g, plan, functions, unit: kind, flat, .. } = self.conv;
        let slices = &band.slices;
        let per_line = plan.taps_of_line();
        let steps = plan.depth / DEPTH;
        let tile = |panel: Panel| plan.split.parts * panel.vectors * FILTERS;
        let of_slice = |panel: Panel| plan.taps.len() * steps * tile(panel);
        let of_taps = |panel: Panel, taps: usize| taps * per_line * steps * tile(panel);
        let filters = |panel: Panel, taps: &Range<usize>| {
            let first = slices.start * of_slice(panel) + of_taps(panel, taps.start);
            self.filters.wrapping_add(panel.offset + first)
        };
        let taps_of = |taps: &Range<usize>| &plan.taps[taps.start * per_line..taps.end * per_line];
        let (direct, skips) = (self.is_direct(), self.skips());
        // Vectors finish a piece of one line, or of lines that follow one another without a gap, which is evenly apart in the
        // output, too.
        let even = direct && *kind == Unit::Vector && (skips || *flat) && self.steps.end_in_registers();
        let (start, offset) = self.start(band, image);
        // Behind the first pixels, filters that are read again for the next ones are in the cache, also of panels that another image
        // was multiplied by.
        let (first_image, images) = match panels.len() {
            1 => (true, band.images.len()),
            _ => (image == band.images.start, 1),
        };
        let asks = run.start == 0 && first_image && !slices.is_empty();
        let products = if asks { self.pieces(band, run.clone()).count() } else { 0 };
        let mut product = Product {
            pixels: 0,
            vectors: 0,
            split: plan.split,
            image: pixels.first,
            pitch: pixels.pitch * size_of::<u16>(),
            part: plan.depth * size_of::<u16>(),
            slices: slices.len(),
            slice: [plan.slice_len() * size_of::<u16>(), 0],
            taps: taps_of(&band.taps),
            steps,
            pairs: plan.channels.div_ceil(2),
            filters: self.filters,
            sums: scratch.sums.as_mut_ptr(),
            ahead: Ahead::NOTHING,
        };
        for (i, &panel) in panels.iter().enumerate() {
            let next = panels.get(i + 1).or(behind.first()).filter(|_| asks);
            let all = plan.split.products() * slices.len() * band.taps.len() * per_line * steps;
            let ahead = |next: Panel, product: usize| {
                let elements = (slices.len() - 1) * of_slice(next) + of_taps(next, band.taps.len());
                let part = [(image - band.images.start) * products + product, images * products];
                Ahead::part(filters(next, &band.taps), elements * size_of::<u16>(), part, all)
            };
            let outputs = Outputs {
                panel,
                start: RowStart { channel: panel.first, ..start },
                offset: offset + self.conv.epilogue.output().channel_offset(panel.first),
            };
            let width = panel.vectors * SIDE;
            product.vectors = panel.vectors;
            product.slice[1] = of_slice(panel) * size_of::<u16>();
            product.filters = filters(panel, &band.taps);
            for (at, Range { start: first, end }) in self.pieces(band, run.clone()).enumerate() {
                // What would end behind the tensor begins earlier, with pixels that are computed twice.
                let begin = if pixels.stays { first.min(run.end - kind.whole(end - first)) } else { first };
                let to = if direct { 0 } else { (begin - run.start) * width };
                // Of a line by itself the taps in the padding are left out.
                if skips {
                    let taps = g.taps_inside(1, band.lines.start + first / plan.columns).0;
                    (product.taps, product.filters) = (taps_of(&taps), filters(panel, &taps));
                }
                product.pixels = end - begin;
                product.image = pixels.first.wrapping_add(begin * pixels.pitch);
                product.sums = scratch.sums[to..].as_mut_ptr();
                product.ahead = match next {
                    Some(&next) => ahead(next, at),
                    None => self.ahead(&mut scratch.soon, all),
                };
                let sums = product.sums.wrapping_add((first - begin) * width);
                // It is made where it is used: moved, it would be loaded while stores of its fields wait behind those of the output.
                let finish = || self.finish_pixels(&outputs, self.place(first), end - first, sums);
                if self.asks && direct && *flat {
                    self.ask(&finish());
                }
                let by_vectors = even.then(finish);
                // SAFETY: pixels and filters have whole tiles, and the sums room for them; the output has the pixels.
                let finished = unsafe { unit.multiply(&product, by_vectors.as_ref()) };
                if direct && !finished {
                    // SAFETY: the sums are complete; as of this function.
                    unsafe {
                        if *flat {
                            self.write(functions.finish, &finish());
                        } else {
                            let sums = &mut scratch.sums[(first - begin) * width..];
                            self.finish(band, &outputs, first..end, sums, scratch.finish);
                        }
                    }
                }
            }
            if !direct {
                // SAFETY: the sums are complete; as of this function.
                unsafe { self.finish(band, &outputs, run.clone(), scratch.sums, scratch.finish) };
            }
        }
    }
}
