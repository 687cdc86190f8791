//! A work item: a band of output lines of some images and one group, packed, multiplied and finished.

use std::arch::asm;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use fuseplan_api::DataType;

use super::Convolution;
use super::finish::FinishPixels;
use super::pack::{PackPixels, planes};
use super::product::{Ahead, DEPTH, FILTERS, Multiplier, Product, SIDE, Unit};
use crate::direct::RESIDENT;
use crate::direct::input::{Channels, PackLine};
use crate::direct::output::Finish;
use crate::direct::weights::Panel;
use crate::epilogue::{Ending, Lanes, Steps};
use crate::row::RowStart;

/// Pixels whose sums wait to be finished, where filters stay in the cache.
const WAITING: usize = 8 * SIDE;

/// One execution.
pub(super) struct Work<'a> {
    pub(super) conv: &'a Convolution,
    pub(super) steps: Steps<'a>,
    /// What is left behind the front, if registers can hold it.
    pub(super) ending: Option<Ending>,
    /// Whether the output is asked for while the unit multiplies, as the second-level cache does not hold an image of it.
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
    /// A line whose channels were brought together.
    pub(super) line: &'a mut [f32],
    pub(super) sums: &'a mut [f32],
    pub(super) finish: &'a mut [f32],
}

/// What an item computes.
struct Band {
    images: Range<usize>,
    group: usize,
    slice: usize,
    lines: Range<usize>,
    columns: Range<usize>,
    /// Slices, and lines, of taps that some of these lines have inside of the input.
    slices: Range<usize>,
    taps: Range<usize>,
}

impl Band {
    /// How many columns it has in a line of `width`; a cut image's last line may end in front of all of them.
    fn columns(&self, width: usize) -> usize {
        self.columns.end.min(width).saturating_sub(self.columns.start)
    }
}

/// The pixels of an image's band, in the order of the plan.
struct Pixels {
    first: *const u16,
    /// Elements from one to the next.
    pitch: usize,
    /// Whether they are the tensor's, over whose end no tile may go.
    stays: bool,
}

/// The outputs of a panel for a band of an image: where the first pixel is, and how many elements are in front of it.
struct Outputs {
    panel: Panel,
    start: RowStart,
    offset: usize,
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
        let run = if is_resident && self.is_direct() {
            self.whole_lines(self.conv.unit.pixels())
        } else if is_resident && !stays {
            // Of pixels in place the last tile may begin in front of its run, where no sum may wait.
            self.whole_lines(WAITING)
        } else {
            count
        };
        // Runs that are finished at once are multiplied by all panels, one after the other; others by one panel for the whole image.
        let together = if is_resident && self.is_direct() { panels.len().max(1) } else { 1 };
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
    fn pixels(&self, band: &Band) -> usize {
        let Convolution { geometry: g, plan, .. } = self.conv;
        // The last line has no columns behind it.
        (band.lines.len() - 1) * plan.columns + band.columns(g.width(band.lines.end - 1))
    }

    /// The pixels of an image's band where they are.
    fn in_place(&self, band: &Band, image: usize) -> Pixels {
        let Convolution { geometry: g, .. } = self.conv;
        let [image_stride, channel, slice, line, column] = g.input.strides;
        let first = image * image_stride
            + band.group * g.inputs * channel
            + band.slice * slice
            + band.lines.start * line
            + band.columns.start * column;
        Pixels { first: self.input.cast::<u16>().wrapping_add(first), pitch: column, stays: true }
    }

    /// Packs what a band needs of an image.
    ///
    /// # Safety
    /// As [`Work::item`]; `packed` has room for an image.
    unsafe fn pack(&self, band: &Band, image: usize, packed: *mut u16, line: &mut [f32]) {
        let Convolution { geometry: g, plan, .. } = self.conv;
        let strides = g.input.strides;
        let (slices, first_slice) = g.taps_inside(0, band.slice);
        for slice in 0..slices.len() {
            let origin = image * strides[0]
                + band.group * g.inputs * strides[1]
                + (first_slice + slice * g.dilations[0]) * strides[2];
            for h in 0..plan.height.count() {
                let remainder = plan.height.remainder(h);
                for l in plan.height.needed(h, band.taps.clone(), band.lines.len()) {
                    let at = (band.lines.start + l) * plan.height.stride + remainder;
                    let at = at.checked_sub(g.pads_before[1]).filter(|&line| line < g.input.lens[3]);
                    let target =
                        |w: usize| packed.wrapping_add(plan.pixel(slice, [h, w], [l, 0]) * plan.pitch);
                    // SAFETY: the caller says what this function asks for; there is room for a line of each phase.
                    unsafe { self.pack_line(band, origin, at, target, line) };
                }
            }
        }
    }

    /// Packs a line of the input into the phases of columns, whose lines are where `to` says; one of zeros, if there is none.
    ///
    /// # Safety
    /// As [`Work::pack`]; `origin` is the slice's first element, and `line` one of its lines.
    unsafe fn pack_line(
        &self,
        band: &Band,
        origin: usize,
        line: Option<usize>,
        to: impl Fn(usize) -> *mut u16,
        scratch: &mut [f32],
    ) {
        let Convolution { geometry: g, plan, functions, data_type, .. } = self.conv;
        let [_, channel_stride, _, line_stride, column_stride] = g.input.strides;
        let (step, pad) = (plan.width.stride, g.pads_before[2]);
        let whole = PackPixels {
            source: self.input,
            step: 0,
            count: g.inputs * if plan.merges { g.filters.taps[2] } else { 1 },
            columns: [plan.columns, 0, 0],
            target: std::ptr::null_mut(),
            pitch: plan.pitch,
            part: plan.depth,
        };
        let Some(line) = line else {
            for w in 0..plan.width.count() {
                // SAFETY: the caller says that there is room for a line of each phase.
                self.note(unsafe { (functions.pixels)(&PackPixels { target: to(w), ..whole }) });
            }
            return;
        };
        let width = g.input_width(line);
        let at = |column: usize| {
            let element = origin + line * line_stride + column * column_stride;
            self.input.wrapping_byte_add(element * data_type.size())
        };
        // Column j of a phase is input column first + j * step + remainder - pad.
        let first = band.columns.start * step;
        if !plan.merges && (channel_stride == 1 || g.inputs == 1) {
            for w in 0..plan.width.count() {
                let remainder = plan.width.remainder(w);
                let until = |column: usize| (column + pad).saturating_sub(first + remainder).div_ceil(step);
                let before = until(0).min(plan.columns);
                let end = until(width).clamp(before, plan.columns);
                let column = (first + before * step + remainder).saturating_sub(pad);
                let columns = [before, end - before, plan.columns - end];
                let (source, step) = (at(column), step * column_stride);
                // SAFETY: the columns from `before` to `end` are inside of the line, which the caller says is the input's.
                self.note(unsafe {
                    (functions.pixels)(&PackPixels { source, step, columns, target: to(w), ..whole })
                });
            }
            return;
        }
        if !plan.merges && step == 1 && column_stride == 1 && *data_type == DataType::BFloat16 {
            let before = pad.saturating_sub(first).min(plan.columns);
            let end = (width + pad).saturating_sub(first).clamp(before, plan.columns);
            let source = at((first + before).saturating_sub(pad));
            let columns = [before, end - before, plan.columns - end];
            // Without strides there is one phase.
            let pixels = PackPixels { source, step: channel_stride, columns, target: to(0), ..whole };
            // SAFETY: the columns from `before` to `end` are inside of the line, which the caller says is the input's.
            unsafe { planes(&pixels) };
            return;
        }
        // Bring all columns together first, with those of the padding.
        let all = plan.input_columns(g);
        let before = pad.saturating_sub(first).min(all);
        let end = (width + pad).saturating_sub(first).clamp(before, all);
        let columns = [before, end - before, all - end];
        let source = at((first + before).saturating_sub(pad));
        if channel_stride == 1 && column_stride == g.inputs {
            let size = g.inputs * data_type.size();
            let target = scratch.as_mut_ptr().cast::<u8>();
            let [before, inside, after] = columns.map(|columns| columns * size);
            // SAFETY: the columns from `before` to `end` follow one another in the line, which the caller says is the
            // input's; scratch has room for all columns.
            unsafe {
                target.write_bytes(0, before);
                source.cast::<u8>().copy_to_nonoverlapping(target.add(before), inside);
                target.add(before + inside).write_bytes(0, after);
            }
            for w in 0..plan.width.count() {
                let remainder = plan.width.remainder(w);
                let source = target.wrapping_add(remainder * size).cast_const().cast();
                let columns = [0, plan.columns, 0];
                let pixels = PackPixels { source, step: step * g.inputs, columns, target: to(w), ..whole };
                // SAFETY: the line has all columns that a phase and the taps of a pixel reach.
                self.note(unsafe { (functions.pixels)(&pixels) });
            }
            return;
        }
        let chunk = plan.chunk(g);
        for channel in (0..g.inputs).step_by(chunk) {
            let channels = (g.inputs - channel).min(chunk);
            let together = PackLine {
                channels: Channels::Dense(channels),
                count: channels,
                source: source.wrapping_byte_add(channel * channel_stride * data_type.size()),
                channel_stride,
                column_stride,
                alternate: false,
                target: scratch.as_mut_ptr(),
                pixel: channels,
                columns,
            };
            // SAFETY: the columns from `before` to `end` are inside of the line, which the caller says is the input's; scratch
            // has room for all columns of a chunk.
            unsafe { (functions.pack_line)(&together) };
            for w in 0..plan.width.count() {
                let remainder = plan.width.remainder(w);
                let pixels = PackPixels {
                    source: scratch[remainder * channels..].as_ptr().cast(),
                    step: step * channels,
                    count: if plan.merges { whole.count } else { channels },
                    columns: [0, plan.columns, 0],
                    target: to(w).wrapping_add(channel),
                    ..whole
                };
                // SAFETY: the line has all columns that a phase and the taps of a pixel reach.
                self.note(unsafe { (functions.floats)(&pixels) });
            }
        }
    }

    /// Notes whether some elements of the image are the sums of their parts.
    fn note(&self, complete: bool) {
        if !complete {
            self.complete.store(false, Ordering::Relaxed);
        }
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
        // Behind the first pixels, filters that are read again for the next ones are in the cache.
        let asks = run.start == 0 && !slices.is_empty();
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
            let ahead = |product: usize| {
                let Some(&next) = next else { return Ahead::NOTHING };
                let elements = (slices.len() - 1) * of_slice(next) + of_taps(next, band.taps.len());
                let part = [(image - band.images.start) * products + product, band.images.len() * products];
                let steps = plan.split.products() * slices.len() * band.taps.len() * per_line * steps;
                Ahead::part(filters(next, &band.taps), elements * size_of::<u16>(), part, steps)
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
                product.ahead = ahead(at);
                let sums = product.sums.wrapping_add((first - begin) * width);
                // It is not moved: loading it while its fields wait to be stored would wait for all stores in front of these.
                let finish =
                    direct.then(|| self.finish_pixels(&outputs, self.place(first), end - first, sums));
                let finish = finish.as_ref();
                if let Some(finish) = finish.filter(|_| self.asks && *flat) {
                    self.ask(finish);
                }
                // SAFETY: pixels and filters have whole tiles, and the sums room for them; the output has the pixels.
                let finished = unsafe { unit.multiply(&product, finish.filter(|_| even)) };
                // SAFETY: the sums are complete; as of this function.
                match finish.filter(|_| !finished) {
                    Some(finish) if *flat => unsafe { self.write(functions.finish, finish) },
                    Some(_) => unsafe {
                        let sums = &mut scratch.sums[(first - begin) * width..];
                        self.finish(band, &outputs, first..end, sums, scratch.finish);
                    },
                    None => {}
                }
            }
            if !direct {
                // SAFETY: the sums are complete; as of this function.
                unsafe { self.finish(band, &outputs, run.clone(), scratch.sums, scratch.finish) };
            }
        }
    }

    /// Where the first pixel of a band's first channel lies in the output.
    fn start(&self, band: &Band, image: usize) -> (RowStart, usize) {
        let Convolution { geometry: g, epilogue, .. } = self.conv;
        let line = band.slice * g.output.lens[3] + band.lines.start;
        let start = RowStart { image, channel: 0, line, column: band.columns.start };
        (start, start.offset(epilogue.output()))
    }

    /// Whether sums go straight to the output.
    fn is_direct(&self) -> bool {
        let Convolution { plan, epilogue, .. } = self.conv;
        plan.lanes == Lanes::Channels && epilogue.output().strides[1] == 1 && self.ending.is_some()
    }

    /// What writes sums straight to the output, if there is nothing behind the front, or what can be done in registers.
    fn end(&self) -> Option<unsafe fn(&FinishPixels<'_>)> {
        let Convolution { plan, epilogue, functions, .. } = self.conv;
        let are_neighbours = plan.lanes == Lanes::Width && epilogue.output().strides[4] == 1;
        match self.is_direct() {
            true => Some(functions.finish),
            false => functions.planes.filter(|_| are_neighbours && self.steps.end_in_registers()),
        }
    }

    /// Pixels of a panel from one of a band's on, that are evenly apart in the output, and their sums.
    fn finish_pixels(
        &self,
        outputs: &Outputs,
        [line, column]: [usize; 2],
        pixels: usize,
        sums: *mut f32,
    ) -> FinishPixels<'_> {
        let [_, plane, _, line_stride, step] = self.conv.epilogue.output().strides;
        let Outputs { panel, offset, .. } = outputs;
        let first = (offset + line * line_stride + column * step) * self.conv.data_type.size();
        let Ending { residual, simple, .. } = self.ending.unwrap_or(Ending::NONE);
        FinishPixels {
            steps: &self.steps,
            sums,
            vectors: panel.vectors,
            count: panel.count,
            pixels,
            channel: panel.first,
            output: self.output.wrapping_byte_add(first),
            step,
            plane,
            residual: if residual.is_null() { residual } else { residual.wrapping_byte_add(first) },
            simple,
        }
    }

    /// Writes pixels to the output, by this function where no residual is added.
    ///
    /// # Safety
    /// As [`Work::item`]; the sums are complete, and the pixels lie inside of the output.
    unsafe fn write(&self, end: unsafe fn(&FinishPixels<'_>), pixels: &FinishPixels<'_>) {
        let functions = &self.conv.functions;
        // SAFETY: as the caller says.
        unsafe {
            if pixels.residual.is_null() {
                end(pixels);
            } else {
                (functions.front)(pixels);
                (functions.add)(pixels);
            }
        }
    }

    /// Asks for the lines of memory in which every 64 bytes of some pixels of the output begin.
    fn ask(&self, to: &FinishPixels<'_>) {
        let size = self.conv.data_type.size();
        for pixel in 0..to.pixels {
            for at in (0..to.count * size).step_by(64) {
                let at = pixel * to.step * size + at;
                // SAFETY: prefetching never faults.
                unsafe {
                    asm!("prefetchw [{}]", in(reg) to.output.wrapping_byte_add(at), options(nostack, readonly));
                }
            }
        }
    }

    /// The line and column of a band's pixel; where lines follow one another without a gap all columns are the first line's.
    fn place(&self, pixel: usize) -> [usize; 2] {
        let Convolution { plan, flat, .. } = self.conv;
        if *flat { [0, pixel] } else { [pixel / plan.columns, pixel % plan.columns] }
    }

    /// Finishes a range of packed pixels, whose sums begin with the first of them.
    ///
    /// # Safety
    /// As [`Work::item`]; the sums are complete.
    unsafe fn finish(
        &self,
        band: &Band,
        outputs: &Outputs,
        pixels: Range<usize>,
        sums: &mut [f32],
        scratch: &mut [f32],
    ) {
        let Convolution { geometry: g, plan, functions, epilogue, flat, .. } = self.conv;
        let width = outputs.panel.vectors * SIDE;
        let end = self.end();
        let [mut line, mut column] = self.place(pixels.start);
        let mut at = pixels.start;
        while at < pixels.end {
            // Where lines follow one another without a gap a run goes on over their ends.
            let [line_width, columns] = match flat {
                true => [usize::MAX; 2],
                false => [band.columns(g.width(band.lines.start + line)), plan.columns],
            };
            let count = line_width.saturating_sub(column).min(pixels.end - at);
            if count > 0 {
                let sums = sums[(at - pixels.start) * width..].as_mut_ptr();
                let finish = self.finish_pixels(outputs, [line, column], count, sums);
                // SAFETY: the CPU has the instructions; the run lies inside of the output, and its sums are complete.
                unsafe {
                    if let Some(end) = end {
                        self.write(end, &finish);
                    } else {
                        (functions.front)(&finish);
                        let mut start = outputs.start;
                        start.line += at / plan.columns;
                        start.column += at % plan.columns;
                        (functions.output)(&Finish {
                            steps: &self.steps,
                            sums,
                            pixel: width,
                            count: outputs.panel.count,
                            pixels: count,
                            start,
                            output: self.output,
                            surface: epilogue.output(),
                            lanes: plan.lanes,
                            scratch: scratch.as_mut_ptr(),
                        });
                    }
                }
            }
            at += (columns - column).min(pixels.end - at);
            (line, column) = (line + 1, 0);
        }
    }
}
