//! What an item reads of the image: packed, where it is, and asked for before it is packed.

use std::sync::atomic::Ordering;

use fuseplan_api::DataType;

use super::Convolution;
use super::pack::{PackPixels, planes};
use super::product::{Ahead, Unit};
use super::work::{Band, Work};
use crate::direct::RESIDENT;
use crate::direct::input::{Channels, PackLine};

/// Lines of the input that are asked for by one product after the other, of those that ask for no filters.
#[derive(Default)]
pub(super) struct Soon {
    /// Bytes from the input's first, and how many there are.
    first: usize,
    bytes: usize,
    /// Products so far, and in all.
    asked: usize,
    products: usize,
}

/// The pixels of an image's band, in the order of the plan.
pub(super) struct Pixels {
    pub(super) first: *const u16,
    /// Elements from one to the next.
    pub(super) pitch: usize,
    /// Whether they are the tensor's, over whose end no tile may go.
    pub(super) stays: bool,
}

impl Work<'_> {
    /// What the item behind a band packs of its first image and this one did not, if it packs all lines, these follow one another in
    /// memory, and the second-level cache does not hold the input.
    pub(super) fn soon(&self, band: &Band, products: usize) -> Soon {
        let Convolution { geometry: g, plan, data_type, unit, .. } = self.conv;
        let [image, channel, _, line, column] = g.input.strides;
        let at = band.lines.end;
        let (images, lines) =
            if at < g.output.lens[3] { (band.images.start, at) } else { (band.images.end, 0) };
        let is_next = plan.parts == 1 && plan.spans == 1 && g.groups == 1 && g.output.lens[2] == 1;
        let size = data_type.size();
        let is_large = ((g.input.lens[0] - 1) * image + g.input.lens[3] * line) * size > RESIDENT;
        let is_dense = channel == 1 && line == g.input.lens[4] * column;
        let skips_lines = g.strides[1] > (g.filters.taps[1] - 1) * g.dilations[1] + 1;
        let is_there = images < g.input.lens[0] && is_dense && !skips_lines;
        if *unit == Unit::Vector || !is_next || !is_large || !is_there {
            return Soon::default();
        }
        let inputs = g.input_lines(lines..(lines + plan.band).min(g.output.lens[3]));
        let packed = if lines == 0 { 0 } else { g.input_lines(band.lines.clone()).end };
        let first = inputs.start.max(packed);
        Soon {
            first: (images * image + first * line) * size,
            bytes: inputs.end.saturating_sub(first) * line * size,
            asked: 0,
            products,
        }
    }

    /// What of that a product of so many steps asks for.
    pub(super) fn ahead(&self, soon: &mut Soon, steps: usize) -> Ahead {
        soon.asked += 1;
        let part = [soon.asked - 1, soon.products];
        Ahead::part(self.input.wrapping_byte_add(soon.first).cast(), soon.bytes, part, steps)
    }

    /// The pixels of an image's band where they are.
    pub(super) fn in_place(&self, band: &Band, image: usize) -> Pixels {
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
    pub(super) unsafe fn pack(&self, band: &Band, image: usize, packed: *mut u16, line: &mut [f32]) {
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
}
