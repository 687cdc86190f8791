//! Depthwise convolution of tensors whose channels are innermost.
//!
//! A tile is a few pixels of one line by one vector of channels, its inputs read where they are, one load
//! for each multiply-add. Taps in the padding are left out on all sides.

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
use crate::epilogue::{self, Epilogue, Lanes, Place, Steps, load_strided, store_strided};
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

/// Channels that are computed for all lines before others.
const CHUNK: usize = 8 * MAX_LANES;

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
        let channels = b.geometry.groups;
        // All lines of a few columns and channels, so that a line's inputs are still in the first-level
        // cache when the next two lines need them.
        for first in (0..channels).step_by(CHUNK) {
            let chunk = first..(first + CHUNK).min(channels);
            let mut column = 0;
            while let Some(rows) = b.rows_at(column) {
                for line in b.lines.clone().filter(|&line| column < b.geometry.width(line)) {
                    // The last line of a cut image may end inside of the tile.
                    let rows = rows.min(b.geometry.width(line) - column);
                    let tile = b.tile::<T>(line, column);
                    macro_rules! rows {
                        ($($r:literal)*) => {
                            match rows {
                                // SAFETY: `band`'s caller says that the tensors are the problem's.
                                $($r => unsafe { pixels::<S, T, $r>(s, b, &tile, chunk.clone()) },)*
                                _ => {}
                            }
                        };
                    }
                    rows!(1 2 3 4 5 6 7 8);
                    // SAFETY: as above; the tile's pixels wait in the scratch.
                    unsafe { finish::<S, T>(s, b, &tile, rows, chunk.clone()) };
                }
                column += rows;
            }
        }
    }
}

impl Band<'_> {
    /// Pixels of the tile that begins at a column of a full line.
    fn rows_at(&self, column: usize) -> Option<usize> {
        let width = self.geometry.output.lens[4];
        let inner = self.geometry.inner_columns(width);
        if inner.contains(&column) {
            // As many pixels in each tile of the line, or one less.
            let left = inner.end - column;
            return Some(left.div_ceil(left.div_ceil(ROWS)));
        }
        // A pixel with taps in the padding is alone.
        (column < width).then_some(1)
    }

    /// The tile at a line and a column.
    fn tile<T: Number>(&self, line: usize, column: usize) -> Tile<T> {
        let g = self.geometry;
        let [image, _, slice, line_stride, pixel] = g.input.strides;
        let [_, taps_h, taps_w] = g.filters.taps;
        let (slices, first_slice) = g.taps_inside(0, self.slice);
        let (lines, first_line) = g.taps_inside(1, line);
        let (taps, first) = g.taps_inside(2, column);
        let origin = self.image * image + first_slice * slice + first_line * line_stride + first * pixel;
        let tap = (slices.start * taps_h + lines.start) * taps_w + taps.start;
        Tile {
            x: self.input.cast::<T>().wrapping_add(origin),
            w: self.weights.wrapping_add(tap * self.padded),
            taps: [slices.len(), lines.len(), taps.len()],
            x_tap: [g.dilations[0] * slice, g.dilations[1] * line_stride, g.dilations[2] * pixel],
            w_tap: [taps_h * taps_w * self.padded, taps_w * self.padded, self.padded],
            x_pixel: g.strides[2] * pixel,
            place: Place {
                image: self.image,
                channel: 0,
                line: self.slice * g.output.lens[3] + line,
                column,
            },
        }
    }
}

/// Computes channels of a tile's pixels: to the output where the epilogue ends in registers, else to
/// scratch.
///
/// # Safety
/// The tile lies inside of the tensors.
#[inline(always)]
unsafe fn pixels<S: Simd, T: Number, const R: usize>(
    s: S,
    b: &Band<'_>,
    tile: &Tile<T>,
    chunk: Range<usize>,
) {
    let y_pixel = b.surface.strides[4];
    let y = b.output.cast::<T>().wrapping_add(b.surface.at(tile.place));
    let done = b.steps.end_in_registers();
    for c in chunk.clone().step_by(S::LANES) {
        let n = (chunk.end - c).min(S::LANES);
        // SAFETY: the caller's; the scratch has room for the tile, tables for whole vectors.
        unsafe {
            let (scale, shift) = ([s.load(b.steps.scale.add(c))], [s.load(b.steps.shift.add(c))]);
            if n == S::LANES {
                let mut acc: [[S::V; 1]; R] = sums(s, tile, c, |p| T::load(s, p));
                b.steps.front(s, &mut acc, scale, shift);
                for (r, &[value]) in acc.iter().enumerate() {
                    if done {
                        T::store(s, y.add(r * y_pixel + c), value);
                    } else {
                        s.store(b.scratch.add(r * b.padded + c), value);
                    }
                }
                continue;
            }
            for r in 0..R {
                let pixel = Tile { x: tile.x.wrapping_add(r * tile.x_pixel), ..*tile };
                let mut acc: [[S::V; 1]; 1] = sums(s, &pixel, c, |p| T::load_part(s, p, n));
                b.steps.front(s, &mut acc, scale, shift);
                let [[value]] = acc;
                if done {
                    T::store_part(s, y.add(r * y_pixel + c), value, n);
                } else {
                    s.store(b.scratch.add(r * b.padded + c), value);
                }
            }
        }
    }
}

/// Applies what the epilogue has left, and writes the output.
///
/// # Safety
/// As [`pixels`], which has computed these pixels.
#[inline(always)]
unsafe fn finish<S: Simd, T: Number>(s: S, b: &Band<'_>, tile: &Tile<T>, rows: usize, chunk: Range<usize>) {
    if b.steps.end_in_registers() {
        return;
    }
    for r in 0..rows {
        let place = Place { channel: chunk.start, column: tile.place.column + r, ..tile.place };
        // SAFETY: the caller's.
        unsafe {
            let row = b.scratch.add(r * b.padded + chunk.start);
            let y = b.output.cast::<T>().add(b.surface.at(place));
            b.steps.rest(s, row, chunk.len(), Lanes::Channels, place, y.cast_const());
            for c in (0..chunk.len()).step_by(S::LANES) {
                store_strided(s, y.add(c), s.load(row.add(c)), 1, (chunk.len() - c).min(S::LANES));
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
) -> [[S::V; 1]; R] {
    let mut acc = [[s.splat(0.0)]; R];
    let (mut x2, mut w2) = (tile.x.wrapping_add(c), tile.w.wrapping_add(c));
    for _ in 0..tile.taps[0] {
        let (mut x1, mut w1) = (x2, w2);
        for _ in 0..tile.taps[1] {
            let (mut x, mut w) = (x1, w1);
            let mut tap = || {
                // SAFETY: packed weights have a whole vector for every tap.
                let weight = unsafe { s.load(w) };
                for (r, [acc]) in acc.iter_mut().enumerate() {
                    *acc = s.fma(load(x.wrapping_add(r * tile.x_pixel)), weight, *acc);
                }
                x = x.wrapping_add(tile.x_tap[2]);
                w = w.wrapping_add(tile.w_tap[2]);
            };
            if tile.taps[2] == 3 {
                // The usual width, without a loop: a tile is short.
                tap();
                tap();
                tap();
            } else {
                (0..tile.taps[2]).for_each(|_| tap());
            }
            x1 = x1.wrapping_add(tile.x_tap[1]);
            w1 = w1.wrapping_add(tile.w_tap[1]);
        }
        x2 = x2.wrapping_add(tile.x_tap[0]);
        w2 = w2.wrapping_add(tile.w_tap[0]);
    }
    acc
}
