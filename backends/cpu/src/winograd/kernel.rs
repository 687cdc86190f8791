//! What is computed in vectors: the transforms of filters, of the input's tiles, and of the output's tiles with the front
//! of the epilogue.

#![expect(clippy::needless_range_loop, reason = "rows and columns of small matrices have names")]

use std::marker::PhantomData;

use super::transform::{MOST_IN, MOST_OUT, MOST_TAPS, Transform, filter_tile, input_tile, output_tile};
use crate::activation::Simple;
use crate::direct::input::{self, PackLineFn};
use crate::direct::output::{self, FinishFn};
use crate::direct::tile::Tiles;
use crate::direct::weights::{self, PackWeightsFn};
use crate::epilogue::Steps;
use crate::isa::{Kernel, Number, Simd};

/// The functions of an instruction set, an element type and a [`Transform`].
#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub(super) tiles: Tiles,
    pub(super) pack_line: PackLineFn,
    pub(super) pack_weights: PackWeightsFn,
    pub(super) filters: unsafe fn(&PanelFilters),
    pub(super) input: unsafe fn(&InputTiles),
    pub(super) output: unsafe fn(&OutputTiles<'_>),
    pub(super) finish: FinishFn,
    pub(super) lanes: usize,
}

/// Makes [`Functions`].
pub(super) struct Collect<T, W>(pub(super) PhantomData<(T, W)>);

impl<T: Number, W: Transform> Kernel for Collect<T, W> {
    type Output = Functions;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Functions {
        Functions {
            tiles: Tiles::of::<S>(),
            pack_line: input::pack::<S, T>,
            pack_weights: weights::pack::<S, T>,
            filters: filters::<S, W>,
            input: input_tiles::<S, W>,
            output: output_tiles::<S, W>,
            finish: output::finish::<S, T>,
            lanes: S::LANES,
        }
    }
}

/// A panel's filters of a chunk of input channels.
pub(super) struct PanelFilters {
    /// As direct convolution packs them: taps, then the chunk's channels, then vectors of output channels.
    pub(super) packed: *const f32,
    /// Input channels of the chunk, and of the group.
    pub(super) channels: usize,
    pub(super) inputs: usize,
    pub(super) vectors: usize,
    /// Where the chunk's first channel is stored: points, then the group's channels, then vectors of output channels.
    pub(super) target: *mut f32,
}

/// Transforms a panel's filters.
///
/// # Safety
/// The CPU has the instruction set; the filters are readable, and there is room for all points.
unsafe fn filters<S: Simd, W: Transform>(args: &PanelFilters) {
    struct Run<'a, W>(&'a PanelFilters, PhantomData<W>);
    impl<W: Transform> Kernel for Run<'_, W> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let f = self.0;
            // A channel's vectors follow one another, as channels do.
            for vector in 0..f.channels * f.vectors {
                let at = vector * S::LANES;
                let mut taps = [[s.splat(0.0); MOST_TAPS]; MOST_TAPS];
                for i in 0..W::TAPS {
                    for j in 0..W::TAPS {
                        let tap = (i * W::TAPS + j) * f.channels * f.vectors * S::LANES;
                        // SAFETY: the caller says that the filters are readable.
                        taps[i][j] = unsafe { s.load(f.packed.add(tap + at)) };
                    }
                }
                let points = filter_tile::<S, W>(s, &taps);
                for i in 0..W::IN {
                    for j in 0..W::IN {
                        let point = (i * W::IN + j) * f.inputs * f.vectors * S::LANES;
                        // SAFETY: the caller says that there is room for all points.
                        unsafe { s.store(f.target.add(point + at), points[i][j]) };
                    }
                }
            }
        }
    }
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Run::<W>(args, PhantomData)) }
}

/// Tiles of the input, side by side, of a vector of channels. Distances are in floats.
pub(super) struct InputTiles {
    /// The first pixel of the first line; pixels are vectors that follow one another.
    pub(super) lines: *const f32,
    /// The distance from one line to the next.
    pub(super) line: usize,
    pub(super) tiles: usize,
    /// Where the first point of the first tile is stored, and the distances from a tile and from a point to the next.
    pub(super) target: *mut f32,
    pub(super) tile: usize,
    pub(super) point: usize,
}

/// Transforms tiles of the input.
///
/// # Safety
/// The CPU has the instruction set; all pixels of the tiles are readable, and there is room for all points.
unsafe fn input_tiles<S: Simd, W: Transform>(args: &InputTiles) {
    struct Run<'a, W>(&'a InputTiles, PhantomData<W>);
    impl<W: Transform> Kernel for Run<'_, W> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let t = self.0;
            for at in 0..t.tiles {
                let mut tile = [[s.splat(0.0); MOST_IN]; MOST_IN];
                for i in 0..W::IN {
                    for j in 0..W::IN {
                        // SAFETY: the caller says that the tile's pixels are readable.
                        tile[i][j] =
                            unsafe { s.load(t.lines.add(i * t.line + (at * W::OUT + j) * S::LANES)) };
                    }
                }
                input_tile::<S, W>(s, &mut tile);
                for i in 0..W::IN {
                    for j in 0..W::IN {
                        // SAFETY: the caller says that there is room for all points.
                        unsafe {
                            s.store(t.target.add(at * t.tile + (i * W::IN + j) * t.point), tile[i][j]);
                        }
                    }
                }
            }
        }
    }
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Run::<W>(args, PhantomData)) }
}

/// Tiles of the output, side by side, of a panel of channels. Distances are in floats.
pub(super) struct OutputTiles<'a> {
    /// The first point of the first tile; the distances from a tile and from a point to the next.
    pub(super) points: *const f32,
    pub(super) tile: usize,
    pub(super) point: usize,
    pub(super) tiles: usize,
    pub(super) vectors: usize,
    /// The steps whose front is applied, with the parameters of the channels from `channel` on.
    pub(super) steps: &'a Steps<'a>,
    pub(super) channel: usize,
    /// What is added to the first pixel's channels behind that, and lies as they do; null where there is nothing. Then follows
    /// the activation.
    pub(super) residual: *const f32,
    pub(super) simple: Simple,
    /// Where the first pixel's channels are stored, and the distances from a pixel and from a line to the next.
    pub(super) target: *mut f32,
    pub(super) pixel: usize,
    pub(super) line: usize,
    /// Whether that may be in no cache of this core, so that a tile asks for the pixels of the next.
    pub(super) ahead: bool,
    /// How many lines and columns the tiles' output has, and lanes its last vector.
    pub(super) lines: usize,
    pub(super) columns: usize,
    pub(super) tail: usize,
}

/// Transforms tiles of the output and applies the front of the epilogue.
///
/// # Safety
/// The CPU has the instruction set; all points of the tiles are readable; the lines and columns are writable.
unsafe fn output_tiles<S: Simd, W: Transform>(args: &OutputTiles<'_>) {
    struct Run<'a, W>(&'a OutputTiles<'a>, PhantomData<W>);
    impl<W: Transform> Kernel for Run<'_, W> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let t = self.0;
            for at in 0..t.tiles {
                let columns = (t.columns - at * W::OUT).min(W::OUT);
                // Pixels are far apart, so that no core asks for them by itself. What lies behind the last tile may be another
                // thread's.
                if t.ahead && at + 1 < t.tiles {
                    for (i, j) in (0..t.lines).flat_map(|i| (0..W::OUT).map(move |j| (i, j))) {
                        let next = i * t.line + ((at + 1) * W::OUT + j) * t.pixel;
                        for v in 0..t.vectors {
                            s.prefetch_write(t.target.wrapping_add(next + v * S::LANES));
                        }
                    }
                }
                for v in 0..t.vectors {
                    let mut points = [[s.splat(0.0); MOST_IN]; MOST_IN];
                    for i in 0..W::IN {
                        for j in 0..W::IN {
                            let from = at * t.tile + (i * W::IN + j) * t.point + v * S::LANES;
                            // SAFETY: the caller says that the tile's points are readable.
                            points[i][j] = unsafe { s.load(t.points.add(from)) };
                        }
                    }
                    let tile = output_tile::<S, W>(s, &points);
                    let whole = v + 1 < t.vectors || t.tail == S::LANES;
                    // All at once, so that the activation is looked at once.
                    let mut pixels: [[S::V; 1]; MOST_OUT * MOST_OUT] =
                        std::array::from_fn(|pixel| [tile[pixel / MOST_OUT][pixel % MOST_OUT]]);
                    t.steps.front(s, &mut pixels, |table| {
                        // SAFETY: tables have room for whole vectors behind every channel.
                        [unsafe { s.load(table.add(t.channel + v * S::LANES)) }]
                    });
                    if !t.residual.is_null() {
                        for i in 0..W::OUT.min(t.lines) {
                            for j in 0..columns {
                                let offset = i * t.line + (at * W::OUT + j) * t.pixel + v * S::LANES;
                                let from = t.residual.wrapping_add(offset);
                                // SAFETY: the caller says that the residual is readable where lines and columns are writable.
                                let residual =
                                    unsafe { if whole { s.load(from) } else { s.load_part(from, t.tail) } };
                                let [value] = &mut pixels[i * MOST_OUT + j];
                                *value = t.simple.apply(s, s.add(*value, residual));
                            }
                        }
                    }
                    for i in 0..W::OUT {
                        for j in 0..W::OUT {
                            if i >= t.lines || j >= columns {
                                continue;
                            }
                            let [value] = pixels[i * MOST_OUT + j];
                            let offset = i * t.line + (at * W::OUT + j) * t.pixel + v * S::LANES;
                            // SAFETY: the caller says that the lines and columns are writable.
                            unsafe {
                                let to = t.target.add(offset);
                                if whole {
                                    s.store(to, value);
                                } else {
                                    s.store_part(to, value, t.tail);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Run::<W>(args, PhantomData)) }
}
