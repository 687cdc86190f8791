//! Depthwise convolution of tensors whose channels are innermost.
//!
//! A tile is a few pixels of one line by one vector of channels, its inputs read where they are, one load
//! for each multiply-add. Tiles go through all channels of their pixels before they move on, so that
//! memory is read in order. Taps in the padding are left out on all sides.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use fuseplan_api::{
    Algorithm, Binary, BuildError, Constraint, Device, DeviceInfo, Executable, ExecutableInfo, OpArgsKind,
    Problem, RawStream, RunArgs, RunError, Solver,
};

use super::geometry::Geometry;
use super::{CONVOLUTION, Shared, next_owner};
use crate::arena::{Buffer, with_scratch};
use crate::element::with_value_type;
use crate::epilogue::{self, Epilogue, Lanes, Place, Steps, load_strided};
use crate::isa::{Isa, Kernel, MAX_LANES, Number, Simd};
use crate::pool::Pool;
use crate::{constraint, device};

/// Solver `cpu.depthwise.v1`.
#[derive(Debug)]
pub(crate) struct Depthwise;

const ONE_CHANNEL: Constraint = Constraint {
    property: "channels per group",
    accepts: "1 to 1",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let (outputs, inputs) = (weights.lens()[0] / conv.groups(), weights.lens()[1]);
        ((outputs, inputs) != (1, 1)).then(|| format!("{inputs} to {outputs}"))
    },
};

const CHANNELS_INNERMOST: Constraint = Constraint {
    property: "layout",
    accepts: "channels innermost in input and output",
    check: |problem, _| {
        let strides = [problem.input.strides()[1], problem.output.strides()[1]];
        (strides != [1, 1]).then(|| format!("channel strides {} and {}", strides[0], strides[1]))
    },
};

const CONSTRAINTS: &[Constraint] = &[
    CONVOLUTION,
    constraint::DATA_TYPE,
    constraint::INFERENCE,
    epilogue::LENGTH,
    ONE_CHANNEL,
    CHANNELS_INNERMOST,
];

impl Solver for Depthwise {
    fn id(&self) -> &'static str {
        "cpu.depthwise.v1"
    }

    fn algorithm(&self) -> Algorithm {
        Algorithm::Direct
    }

    fn constraints(&self) -> &'static [Constraint] {
        CONSTRAINTS
    }

    fn compile(&self, _problem: &Problem, target: &DeviceInfo) -> Result<Binary, BuildError> {
        Ok(device::nothing_to_compile(self, target))
    }

    fn load(
        &self,
        problem: &Problem,
        device: &Arc<dyn Device>,
        binary: &Binary,
    ) -> Result<Arc<dyn Executable>, BuildError> {
        let device = device::of_binary(self, device, binary)?;
        Ok(Arc::new(DepthwiseExecutable::new(self, problem, device.isa(), device.pool())))
    }
}

/// Pixels of the largest tile.
const ROWS: usize = 8;

/// The functions of an instruction set and an element type.
#[derive(Clone, Copy)]
struct Functions {
    pack: unsafe fn(&Geometry, *const c_void, *mut f32, usize),
    band: unsafe fn(&Band<'_>),
}

struct Collect<T>(PhantomData<T>);

impl<T: Number> Kernel for Collect<T> {
    type Output = Functions;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Functions {
        Functions { pack: pack::<S, T>, band: band::<S, T> }
    }
}

struct DepthwiseExecutable {
    info: ExecutableInfo,
    geometry: Geometry,
    epilogue: Epilogue,
    functions: Functions,
    pool: Arc<Pool>,
    /// Lines of a work item.
    band: usize,
    /// Channels, rounded up to whole vectors: the distance of taps in packed weights.
    padded: usize,
    owner: u64,
}

impl std::fmt::Debug for DepthwiseExecutable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DepthwiseExecutable").field("info", &self.info).finish_non_exhaustive()
    }
}

impl DepthwiseExecutable {
    fn new(solver: &dyn Solver, problem: &Problem, isa: Isa, pool: &Arc<Pool>) -> Self {
        let functions = with_value_type!(problem.output.data_type(), T => isa.run(Collect::<T>(PhantomData)));
        let mut epilogue = Epilogue::new(problem);
        let geometry = Geometry::new(problem, &mut epilogue, 8 * ROWS);
        let [images, channels, depth, lines, _] = geometry.output.lens;
        // A few items for each thread, so that a late one does not hold up the rest.
        let bands = (4 * pool.threads()).div_ceil(images * depth).min(lines);
        let band = if pool.threads() == 1 { lines } else { lines.div_ceil(bands) };
        let info = ExecutableInfo {
            solver: solver.id(),
            algorithm: solver.algorithm(),
            kernels: 1,
            workspace: 0,
            detail: format!("{}, tiles of {ROWS} pixels, {} threads", isa.name(), pool.threads()),
        };
        let padded = channels.next_multiple_of(MAX_LANES);
        let pool = Arc::clone(pool);
        DepthwiseExecutable { info, geometry, epilogue, functions, pool, band, padded, owner: next_owner() }
    }

    fn weights_len(&self) -> usize {
        self.padded * self.geometry.filters.tap_count()
    }

    /// # Safety
    /// As [`Executable::run`]; `weights` are packed.
    unsafe fn compute(&self, args: &RunArgs<'_>, weights: &[f32]) -> Result<(), RunError> {
        let g = &self.geometry;
        let [images, _, depth, lines, _] = g.output.lens;
        let bands = lines.div_ceil(self.band);
        let (input, output) = (Shared(args.input.cast_mut()), Shared(args.output));
        with_scratch(self.epilogue.table_len(), |tables| {
            // SAFETY: the caller's; the tables live as long as the steps.
            let steps = unsafe { self.epilogue.bind(args.ops, tables) };
            let out_of_memory = std::sync::OnceLock::new();
            self.pool.for_each(images * depth * bands, &|item| {
                let start = item % bands * self.band;
                let done = with_scratch(ROWS * self.padded, |scratch| {
                    // SAFETY: the caller's; items have lines of their own.
                    unsafe {
                        (self.functions.band)(&Band {
                            geometry: g,
                            surface: self.epilogue.output(),
                            steps: &steps,
                            input: input.get(),
                            output: output.get(),
                            weights: weights.as_ptr(),
                            padded: self.padded,
                            scratch: scratch.as_mut_ptr(),
                            image: item / bands / depth,
                            slice: item / bands % depth,
                            lines: start..(start + self.band).min(lines),
                        });
                    }
                });
                if let Err(error) = done {
                    let _ = out_of_memory.set(error);
                }
            })?;
            out_of_memory.into_inner().map_or(Ok(()), Err)
        })?
    }
}

impl Executable for DepthwiseExecutable {
    fn info(&self) -> &ExecutableInfo {
        &self.info
    }

    unsafe fn run(&self, _stream: RawStream, args: &RunArgs<'_>) -> Result<(), RunError> {
        let OpArgsKind::ConvForward { weights, prepared } = &args.ops[0].kind else {
            unreachable!("arguments are of their operators' kinds")
        };
        // SAFETY: the caller keeps what `RunArgs` promises for this problem.
        unsafe {
            let pack = |target: &mut [f32]| {
                (self.functions.pack)(&self.geometry, *weights, target.as_mut_ptr(), self.padded);
            };
            match prepared {
                Some(prepared) => {
                    let packed = prepared.get_or_try_make(self.owner, || {
                        let mut buffer = Buffer::zeroed(self.weights_len())?;
                        pack(buffer.as_mut_slice());
                        Ok::<_, RunError>(buffer)
                    })?;
                    self.compute(args, packed.as_slice())
                }
                None => with_scratch(self.weights_len(), |packed| {
                    pack(packed);
                    self.compute(args, packed)
                })?,
            }
        }
    }
}

/// Packs weights: taps, then channels.
///
/// # Safety
/// The CPU has the instruction set; `source` has the filters, of type `T`; `target` has `padded` floats
/// for each tap.
unsafe fn pack<S: Simd, T: Number>(g: &Geometry, source: *const c_void, target: *mut f32, padded: usize) {
    struct Pack<'a, T>(&'a Geometry, *const T, *mut f32, usize);
    impl<T: Number> Kernel for Pack<'_, T> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let Pack(g, source, target, padded) = self;
            let stride = g.filters.strides[0];
            for tap in 0..g.filters.tap_count() {
                for c in (0..g.groups).step_by(S::LANES) {
                    let n = (g.groups - c).min(S::LANES);
                    // SAFETY: the caller of `pack` says that the filters are readable and that there is room.
                    unsafe {
                        let from = source.add(c * stride + g.filters.offset(0, tap));
                        s.store(target.add(tap * padded + c), load_strided(s, from, stride, n));
                    }
                }
            }
        }
    }
    // SAFETY: the caller's.
    unsafe { S::enter(Pack(g, source.cast::<T>(), target, padded)) }
}

/// Lines of one slice of one image.
struct Band<'a> {
    geometry: &'a Geometry,
    surface: &'a crate::volume::Volume,
    steps: &'a Steps<'a>,
    input: *const c_void,
    output: *mut c_void,
    weights: *const f32,
    padded: usize,
    /// `ROWS` pixels of `padded` channels.
    scratch: *mut f32,
    image: usize,
    slice: usize,
    lines: Range<usize>,
}

/// Computes a band.
///
/// # Safety
/// The CPU has the instruction set; the tensors are the problem's, of type `T`.
unsafe fn band<S: Simd, T: Number>(band: &Band<'_>) {
    // SAFETY: the caller's.
    unsafe { S::enter(Run::<T>(band, PhantomData)) }
}

struct Run<'a, T>(&'a Band<'a>, PhantomData<T>);

/// A tile's pixels, at their first channel. Distances are in elements.
#[derive(Clone, Copy)]
struct Tile<T> {
    /// First tap of the first pixel.
    x: *const T,
    w: *const f32,
    taps: [usize; 3],
    x_tap: [usize; 3],
    w_tap: [usize; 3],
    x_pixel: usize,
    place: Place,
}

impl<T: Number> Kernel for Run<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let b = self.0;
        let g = b.geometry;
        let strides = g.input.strides;
        let [_, taps_h, taps_w] = g.filters.taps;
        let (slices, first_slice) = g.taps_inside(0, b.slice);
        for line in b.lines.clone() {
            let (lines, first_line) = g.taps_inside(1, line);
            let width = g.width(line);
            let inner = g.inner_columns(width);
            let origin = b.image * strides[0] + first_slice * strides[2] + first_line * strides[3];
            let tap = (slices.start * taps_h + lines.start) * taps_w;
            let line_tile = Tile {
                x: b.input.cast::<T>().wrapping_add(origin),
                w: b.weights.wrapping_add(tap * b.padded),
                taps: [slices.len(), lines.len(), taps_w],
                x_tap: [
                    g.dilations[0] * strides[2],
                    g.dilations[1] * strides[3],
                    g.dilations[2] * strides[4],
                ],
                w_tap: [taps_h * taps_w * b.padded, taps_w * b.padded, b.padded],
                x_pixel: g.strides[2] * strides[4],
                place: Place {
                    image: b.image,
                    channel: 0,
                    line: b.slice * g.output.lens[3] + line,
                    column: 0,
                },
            };
            let mut column = 0;
            while column < width {
                let place = Place { column, ..line_tile.place };
                let rows = if inner.contains(&column) {
                    // As many pixels in each tile of the line, or one less.
                    let left = inner.end - column;
                    left.div_ceil(left.div_ceil(ROWS))
                } else {
                    1
                };
                let (taps, index) = g.taps_inside(2, column);
                let tile = Tile {
                    x: line_tile.x.wrapping_add(index * strides[4]),
                    w: line_tile.w.wrapping_add(taps.start * b.padded),
                    taps: [line_tile.taps[0], line_tile.taps[1], taps.len()],
                    place,
                    ..line_tile
                };
                macro_rules! rows {
                    ($($r:literal)*) => {
                        match rows {
                            // SAFETY: `band`'s caller says that the tensors are the problem's.
                            $($r => unsafe { pixels::<S, T, $r>(s, b, &tile) },)*
                            _ => {}
                        }
                    };
                }
                rows!(1 2 3 4 5 6 7 8);
                column += rows;
            }
        }
    }
}

/// Computes all channels of a tile's pixels.
///
/// # Safety
/// The tile lies inside of the tensors.
#[inline(always)]
unsafe fn pixels<S: Simd, T: Number, const R: usize>(s: S, b: &Band<'_>, tile: &Tile<T>) {
    let channels = b.geometry.groups;
    let y_pixel = b.surface.strides[4];
    let y = b.output.cast::<T>().wrapping_add(b.surface.at(tile.place));
    let done = b.steps.end_in_registers();
    for c in (0..channels).step_by(S::LANES) {
        let n = (channels - c).min(S::LANES);
        // SAFETY: the caller's; the scratch has room for the tile, tables for whole vectors.
        unsafe {
            let acc = if n == S::LANES {
                sums::<S, T, R>(s, tile, c, |p| T::load(s, p))
            } else {
                sums::<S, T, R>(s, tile, c, |p| T::load_part(s, p, n))
            };
            let (scale, shift) = (s.load(b.steps.scale.add(c)), s.load(b.steps.shift.add(c)));
            for (r, &sum) in acc.iter().enumerate() {
                let value = b.steps.front(s, sum, scale, shift);
                if !done {
                    s.store(b.scratch.add(r * b.padded + c), value);
                } else if n == S::LANES {
                    T::store(s, y.add(r * y_pixel + c), value);
                } else {
                    T::store_part(s, y.add(r * y_pixel + c), value, n);
                }
            }
        }
    }
    if done {
        return;
    }
    for r in 0..R {
        // SAFETY: the caller's.
        unsafe {
            let (row, y) = (b.scratch.add(r * b.padded), y.add(r * y_pixel));
            let place = Place { column: tile.place.column + r, ..tile.place };
            b.steps.rest(s, row, channels, Lanes::Channels, place, y.cast_const());
            for c in (0..channels).step_by(S::LANES) {
                let n = (channels - c).min(S::LANES);
                if n == S::LANES {
                    T::store(s, y.add(c), s.load(row.add(c)));
                } else {
                    T::store_part(s, y.add(c), s.load(row.add(c)), n);
                }
            }
        }
    }
}

/// The sums of R pixels for the channels from `c`.
///
/// # Safety
/// `load` may load the inputs of all taps.
#[inline(always)]
unsafe fn sums<S: Simd, T: Number, const R: usize>(
    s: S,
    tile: &Tile<T>,
    c: usize,
    load: impl Fn(*const T) -> S::V,
) -> [S::V; R] {
    let mut acc = [s.splat(0.0); R];
    let (mut x2, mut w2) = (tile.x.wrapping_add(c), tile.w.wrapping_add(c));
    for _ in 0..tile.taps[0] {
        let (mut x1, mut w1) = (x2, w2);
        for _ in 0..tile.taps[1] {
            let (mut x, mut w) = (x1, w1);
            for _ in 0..tile.taps[2] {
                // SAFETY: packed weights have a whole vector for every tap.
                let weight = unsafe { s.load(w) };
                for (r, acc) in acc.iter_mut().enumerate() {
                    *acc = s.fma(load(x.wrapping_add(r * tile.x_pixel)), weight, *acc);
                }
                x = x.wrapping_add(tile.x_tap[2]);
                w = w.wrapping_add(tile.w_tap[2]);
            }
            x1 = x1.wrapping_add(tile.x_tap[1]);
            w1 = w1.wrapping_add(tile.w_tap[1]);
        }
        x2 = x2.wrapping_add(tile.x_tap[0]);
        w2 = w2.wrapping_add(tile.w_tap[0]);
    }
    acc
}
