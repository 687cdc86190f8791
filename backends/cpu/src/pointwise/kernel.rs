//! What is computed in vectors besides the products: copies of filters and of blocks of pixels, and the lines of the output.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;

use fuseplan_api::DataType;

use super::plan::{Factors, Plan};
#[cfg(target_arch = "x86_64")]
use crate::bf16::RowsOfPairs;
use crate::direct::tile::Tiles;
use crate::element::with_value_type;
use crate::epilogue::{Lines, Steps};
use crate::isa::{Isa, Kernel, Number, Simd};
use crate::row::RowStart;
use crate::vectors::{load_strided, vectors};

/// The functions of an instruction set and an element type.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    /// What is multiplied, floats by these tiles.
    pub(super) factors: Factors,
    pub(super) tiles: Tiles,
    pub(super) pack_filters: unsafe fn(&PackFilters<'_>),
    pub(super) pack_pixels: unsafe fn(&PackPixels<'_>),
    pub(super) finish: unsafe fn(&Finish<'_>),
    pub(super) lanes: usize,
}

impl Functions {
    pub(super) fn of(isa: Isa, data_type: DataType) -> Self {
        with_value_type!(data_type, T => isa.run(Collect::<T>(PhantomData)))
    }

    /// The most filters of a tile.
    pub(super) fn rows(&self) -> usize {
        match self.factors {
            Factors::Floats => self.tiles.rows[1],
            #[cfg(target_arch = "x86_64")]
            Factors::Pairs => RowsOfPairs::MOST,
        }
    }
}

/// Makes [`Functions`].
struct Collect<T>(PhantomData<T>);

impl<T: Number> Kernel for Collect<T> {
    type Output = Functions;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Functions {
        Functions {
            factors: Factors::Floats,
            tiles: Tiles::of::<S>(),
            pack_filters: pack_filters::<S, T>,
            pack_pixels: pack_pixels::<S, T>,
            finish: finish::<S, T>,
            lanes: S::LANES,
        }
    }
}

/// Filters that are packed, each in a line of `plan.pitch` factors.
pub(super) struct PackFilters<'a> {
    pub(super) plan: &'a Plan,
    pub(super) filters: Range<usize>,
    /// The first filter of all, and its line.
    pub(super) source: *const c_void,
    pub(super) target: *mut f32,
}

/// Packs filters.
///
/// # Safety
/// The CPU has the instruction set; `source` has the filters, of type `T`; `target` has their lines.
unsafe fn pack_filters<S: Simd, T: Number>(args: &PackFilters<'_>) {
    struct Run<'a, T>(&'a PackFilters<'a>, PhantomData<T>);
    impl<T: Number> Kernel for Run<'_, T> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let f = self.0;
            let [output, channel] = f.plan.filters;
            for filter in f.filters.clone() {
                let (source, target) = (
                    f.source.cast::<T>().wrapping_add(filter * output),
                    f.target.wrapping_add(filter * f.plan.pitch),
                );
                vectors!(S, f.plan.inputs, |at, count| {
                    // SAFETY: the caller says that the filter's values are readable; lines have whole vectors.
                    unsafe {
                        s.store(target.add(at), load_strided(s, source.add(at * channel), channel, count));
                    }
                });
            }
        }
    }
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Run::<T>(args, PhantomData)) }
}

/// A block of a group's pixels that is packed: panels of vectors, of each the vectors of every channel.
pub(super) struct PackPixels<'a> {
    pub(super) plan: &'a Plan,
    pub(super) block: usize,
    pub(super) group: usize,
    /// The input's first element, and the block's place in scratch.
    pub(super) source: *const c_void,
    pub(super) target: *mut f32,
}

/// Packs a block; lanes beyond its pixels are 0.
///
/// # Safety
/// The CPU has the instruction set; `source` has the input, of type `T`; `target` has room for the block.
unsafe fn pack_pixels<S: Simd, T: Number>(args: &PackPixels<'_>) {
    struct Run<'a, T>(&'a PackPixels<'a>, PhantomData<T>);
    impl<T: Number> Kernel for Run<'_, T> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let c = self.0;
            let (plan, pixels) = (c.plan, c.plan.pixels_of(c.block));
            let [image_stride, channel_stride, .., step] = plan.input.strides;
            for panel in plan.panels_of(&pixels) {
                let target = c.target.wrapping_add(panel.start * plan.inputs);
                let of_panel = pixels.start + panel.start..pixels.end.min(pixels.start + panel.end);
                if of_panel.len() < panel.len() {
                    for at in (0..panel.len() * plan.inputs).step_by(S::LANES) {
                        // SAFETY: the caller says that there is room for the panel, which is whole vectors.
                        unsafe { s.store(target.add(at), s.splat(0.0)) };
                    }
                }
                let mut done = 0;
                for (image, columns) in plan.segments(of_panel) {
                    let source = c.source.cast::<T>().wrapping_add(
                        image * image_stride + c.group * plan.inputs * channel_stride + columns.start * step,
                    );
                    for channel in 0..plan.inputs {
                        let source = source.wrapping_add(channel * channel_stride);
                        let target = target.wrapping_add(channel * panel.len() + done);
                        vectors!(S, columns.len(), |at, count| {
                            // SAFETY: the caller says that the image's pixels are readable, and that there is room for
                            // these in the panel.
                            unsafe {
                                let pixels = load_strided(s, source.add(at * step), step, count);
                                if count == S::LANES {
                                    s.store(target.add(at), pixels);
                                } else {
                                    s.store_part(target.add(at), pixels, count);
                                }
                            }
                        });
                    }
                    done += columns.len();
                }
            }
        }
    }
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Run::<T>(args, PhantomData)) }
}

/// The sums of a block's pixels with some filters, to be finished.
pub(super) struct Finish<'a> {
    pub(super) plan: &'a Plan,
    pub(super) steps: &'a Steps<'a>,
    /// A line of `plan.block` sums for each filter.
    pub(super) sums: *const f32,
    /// As many lines of scratch.
    pub(super) lines: *mut f32,
    /// Pixels, counted through all images, and output channels.
    pub(super) pixels: Range<usize>,
    pub(super) channels: Range<usize>,
    pub(super) output: *mut c_void,
}

/// Finishes sums and writes them to the output.
///
/// # Safety
/// The CPU has the instruction set; sums and lines have the plan's sizes; the output has elements of type `T`, and nobody
/// else touches these pixels and channels of it.
pub(super) unsafe fn finish<S: Simd, T: Number>(args: &Finish<'_>) {
    struct Run<'a, T>(&'a Finish<'a>, PhantomData<T>);
    impl<T: Number> Kernel for Run<'_, T> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let f = self.0;
            let (mut sums, channel) = (f.sums, f.channels.start);
            for (image, columns) in f.plan.segments(f.pixels.clone()) {
                let lines = Lines {
                    steps: f.steps,
                    sums,
                    scratch: f.lines,
                    pitch: f.plan.block,
                    count: f.channels.len(),
                    len: columns.len(),
                    start: RowStart { image, channel, line: 0, column: columns.start },
                };
                // SAFETY: the sums are complete, and the caller says that the pixels lie inside of the output.
                unsafe { lines.finish(s, f.output.cast::<T>()) };
                sums = sums.wrapping_add(columns.len());
            }
        }
    }
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Run::<T>(args, PhantomData)) }
}
