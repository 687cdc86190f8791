//! Where an item's sums go: straight to the output, or through scratch.

use std::arch::asm;
use std::ops::Range;

use super::Convolution;
use super::finish::FinishPixels;
use super::product::SIDE;
use super::work::{Band, Work};
use crate::direct::output::Finish;
use crate::direct::weights::Panel;
use crate::epilogue::{Ending, Lanes};
use crate::row::RowStart;

/// The outputs of a panel for a band of an image: where the first pixel is, and how many elements are in front of it.
pub(super) struct Outputs {
    pub(super) panel: Panel,
    pub(super) start: RowStart,
    pub(super) offset: usize,
}

impl Work<'_> {
    /// Where the first pixel of a band's first channel lies in the output.
    pub(super) fn start(&self, band: &Band, image: usize) -> (RowStart, usize) {
        let Convolution { geometry: g, epilogue, .. } = self.conv;
        let line = band.slice * g.output.lens[3] + band.lines.start;
        let start = RowStart { image, channel: 0, line, column: band.columns.start };
        (start, start.offset(epilogue.output()))
    }

    /// Whether sums go straight to the output.
    pub(super) fn is_direct(&self) -> bool {
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
    pub(super) fn finish_pixels(
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
    pub(super) unsafe fn write(&self, end: unsafe fn(&FinishPixels<'_>), pixels: &FinishPixels<'_>) {
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
    pub(super) fn ask(&self, to: &FinishPixels<'_>) {
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
    pub(super) fn place(&self, pixel: usize) -> [usize; 2] {
        let Convolution { plan, flat, .. } = self.conv;
        if *flat { [0, pixel] } else { [pixel / plan.columns, pixel % plan.columns] }
    }

    /// Finishes a range of packed pixels, whose sums begin with the first of them.
    ///
    /// # Safety
    /// As [`Work::item`]; the sums are complete.
    pub(super) unsafe fn finish(
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
