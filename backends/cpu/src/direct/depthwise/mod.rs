//! Depthwise convolution of tensors whose channels are innermost.
//!
//! A tile is a few pixels by one vector of channels, its inputs read where they are. With filters that `square` takes, such as
//! 3x3, 5x5 and 7x7, the pixels of a tile lie in two lines and share their inputs in
//! registers; otherwise they lie in one, with a load for each multiply-add. Larger ones of these filters have their inputs in f32,
//! to which `copied` converts those of 16 bits. Taps in the padding are left out on all sides. Sums are of the filter's lines in their order, either way.

mod any;
mod copied;
mod square;

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use fuseplan_api::volume::Volume;
use fuseplan_api::{
    Accuracy, Algorithm, Constraint, DataType, Executable, ExecutableInfo, Problem, RawStream, RunArgs,
    RunError,
};

use super::geometry::{Geometry, Lines};
use super::prepared::{self, Owner};
use super::{CONVOLUTION, Shared};
use crate::activation::{Activation, Vectors, activate, hard_swish};
use crate::arena::with_scratch;
use crate::constraint;
use crate::device::CpuDevice;
use crate::element::with_value_type;
use crate::epilogue::{self, ChannelStep, Ending, Epilogue, Lanes, Rows, Steps, fold_vectors};
use crate::isa::{Kernel, MAX_LANES, Number, Simd};
use crate::pool::{Locked, Pool, mirrored};
use crate::row::RowStart;
use crate::solver::{self, CpuSolver};
use crate::vectors::{load_strided, store_strided};

pub(crate) static DEPTHWISE: CpuSolver = CpuSolver {
    id: "cpu.depthwise.v2",
    algorithm: Algorithm::Direct,
    constraints: &[
        CONVOLUTION,
        constraint::SIZE,
        constraint::DATA_TYPE,
        constraint::INFERENCE,
        epilogue::LENGTH,
        ONE_CHANNEL,
        CHANNELS_INNERMOST,
    ],
    preferences: &[],
    any_layout: true,
    is_reference: false,
    accuracy: Accuracy::Exact,
    configurations: solver::one,
    load: |solver, problem, device, _| Arc::new(DepthwiseExecutable::new(solver, problem, device)),
};

pub(crate) const ONE_CHANNEL: Constraint = Constraint {
    property: "channels per group",
    accepts: "one input and one output",
    check: |problem, _| {
        let (conv, weights) = problem.conv()?;
        let (outputs, inputs) = (weights.lens()[0] / conv.groups(), weights.lens()[1]);
        ((outputs, inputs) != (1, 1)).then(|| format!("{inputs} to {outputs}"))
    },
};

const CHANNELS_INNERMOST: Constraint = Constraint {
    property: "layout",
    accepts: "channels innermost, of the tensor or of its blocks, in input and output",
    check: |problem, _| {
        let strides =
            [&problem.input, &problem.output].map(|tensor| Volume::with_all_strides(tensor).strides[1]);
        (strides != [1, 1]).then(|| format!("channel strides {} and {}", strides[0], strides[1]))
    },
};

/// Pixels of the largest tile.
const PIXELS: usize = 8;

/// Channels of the largest work item.
const CHUNK: usize = 16 * MAX_LANES;

/// Elements of the input that the lines of a work item have, so that each is in the second-level cache until the item's last
/// tile has read it.
const BAND: usize = 64 * 1024;

/// The functions of an instruction set and an element type.
#[derive(Clone, Copy)]
struct Functions {
    pack: PackFn,
    any: BandFn,
    /// For a filter that `square` takes, where the set has such kernels: of the type itself, and by a copy in f32.
    square: Option<[BandFn; 2]>,
    lanes: usize,
}

type PackFn = unsafe fn(&Geometry, *const c_void, *mut f32, usize);
type BandFn = unsafe fn(&Band<'_>);

struct Collect<T>(PhantomData<T>);

impl<T: Number> Kernel for Collect<T> {
    type Output = Functions;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Functions {
        Functions {
            pack: pack::<S, T>,
            any: any::band::<S, T>,
            square: if S::WRITES_OUT { Some([square::band::<S, T, T>, copied::band::<S, T>]) } else { None },
            lanes: S::LANES,
        }
    }
}

struct DepthwiseExecutable {
    info: ExecutableInfo,
    geometry: Geometry,
    epilogue: Epilogue,
    data_type: DataType,
    pack: PackFn,
    compute: BandFn,
    lanes: usize,
    pool: Arc<Pool>,
    /// Lines of a work item, and floats of the copy of their inputs.
    band: usize,
    copy: usize,
    /// Channels of a work item, and work items with the same lines.
    chunk: usize,
    chunks: usize,
    /// Channels, rounded up to whole vectors: the distance of taps in packed weights.
    padded: usize,
    owner: Owner,
}

impl std::fmt::Debug for DepthwiseExecutable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DepthwiseExecutable").field("info", &self.info).finish_non_exhaustive()
    }
}

impl DepthwiseExecutable {
    fn new(solver: &CpuSolver, problem: &Problem, device: &CpuDevice) -> Self {
        let (isa, pool) = (device.isa(), device.pool());
        let functions = with_value_type!(problem.output.data_type(), T => isa.run(Collect::<T>(PhantomData)));
        let mut epilogue = Epilogue::new(problem, isa);
        let geometry = Geometry::new(problem, &mut epilogue, Lines::of(8 * PIXELS));
        let [images, channels, depth, lines, _] = geometry.output.lens;
        // Channels of a work item lie side by side in every tensor.
        let block = geometry.input.block.min(epilogue.block());
        let is_copied = problem.output.data_type() != DataType::Float && square::is_long(&geometry);
        let most = block.min(if is_copied { copied::CHUNK } else { CHUNK });
        let whole = square::chunk(channels, most, functions.lanes);
        let is_taken = square::takes(&geometry) && (!is_copied || copied::is_worth_it(&geometry));
        let square = functions.square.zip(whole).filter(|_| is_taken);
        let chunk = square.map_or(block.min(CHUNK), |(_, chunk)| chunk);
        let chunks = channels.div_ceil(chunk);
        // A few items for each thread, so that a late one does not hold up the rest.
        let bands = (4 * pool.threads()).div_ceil(images * depth * chunks).min(lines);
        let dealt = if pool.threads() == 1 { lines } else { lines.div_ceil(bands) };
        let squares = format!("{}x{}", square::LINES, square::COLUMNS);
        let (compute, band, tiles) = match square {
            Some(([_, copied], _)) if is_copied => {
                let band = dealt.next_multiple_of(square::LINES).min(copied::lines(&geometry));
                (copied, band, format!("{squares} copied"))
            }
            Some(([square, _], _)) => (square, square::LINES, squares),
            None => {
                let line = geometry.input.lens[4] * channels.min(chunk) * geometry.strides[1];
                let fits = (BAND / line.max(1)).clamp(1, lines);
                (functions.any, dealt.min(fits), format!("1x{PIXELS}"))
            }
        };
        let copy = if is_copied && square.is_some() { copied::copy_len(&geometry, band) } else { 0 };
        let info =
            solver.info(format!("{}, tiles of {tiles} pixels, {} threads", isa.name(), pool.threads()));
        DepthwiseExecutable {
            info,
            data_type: problem.output.data_type(),
            pack: functions.pack,
            compute,
            lanes: functions.lanes,
            pool: Arc::clone(pool),
            band,
            copy,
            chunk,
            chunks,
            padded: channels.next_multiple_of(MAX_LANES),
            owner: Owner::new(),
            geometry,
            epilogue,
        }
    }

    fn weights_len(&self) -> usize {
        self.padded * self.geometry.filters.tap_count()
    }

    /// Where channel 0 would lie if the channels in front of this one, the first of a work item, lay side by side with it.
    fn channel_0_beside(&self, tensor: *mut c_void, volume: &Volume, channel: usize) -> *mut c_void {
        let offset = volume.channel_offset(channel) - channel;
        tensor.wrapping_byte_add(offset * self.data_type.size())
    }

    /// What is left behind the front for tiles that write to the output, if they do. Activations are of whole vectors.
    fn ending(&self, steps: &Steps<'_>) -> Option<Ending> {
        if steps.end_in_registers() {
            return Some(Ending::NONE);
        }
        // A work item may have a block's channels only.
        let is_whole =
            [self.geometry.output.lens[1], self.chunk].iter().all(|of| of.is_multiple_of(self.lanes));
        steps.ending().filter(|ending| is_whole && ending.residual.is_null())
    }

    /// # Safety
    /// As [`Executable::run`]; `weights` are packed.
    unsafe fn compute(&self, args: &RunArgs<'_>, weights: &[f32]) -> Result<(), RunError> {
        let g = &self.geometry;
        let [images, channels, depth, lines, _] = g.output.lens;
        let (bands, chunk, chunks) = (lines.div_ceil(self.band), self.chunk, self.chunks);
        let (input, output) = (Shared(args.input.cast_mut()), Shared(args.output));
        with_scratch(self.epilogue.table_len(), |tables| {
            // SAFETY: the caller says that the arguments keep what `RunArgs` promises; the tables live as long as the steps.
            let steps = unsafe { self.epilogue.bind(args.ops, tables) };
            let (ending, swish) = match self.ending(&steps) {
                Some(Ending { last: Some(last), behind, .. }) if last.is_hard_swish() => {
                    (Some(Ending::NONE), Some(Swish { behind }))
                }
                ending => (ending, None),
            };
            let (count, len) = (images * depth * bands * chunks, PIXELS * CHUNK + self.copy);
            self.pool.for_each_with_scratch(Locked::No, count, len, &|scratch, items| {
                let (scratch, copy) = scratch.split_at_mut(PIXELS * CHUNK);
                for item in items {
                    // From the last to the first, as the layer in front of this one most often computed them in their order:
                    // what a thread wrote last is still in its cache.
                    let item = mirrored(item, count, self.pool.threads());
                    let (item, channel) = (item / chunks, item % chunks * chunk);
                    let start = item % bands * self.band;
                    // SAFETY: the function is of an instruction set that the CPU has and of the tensors' type, and the
                    // caller says that the tensors are the problem's. Items have lines and channels of their own.
                    unsafe {
                        (self.compute)(&Band {
                            geometry: g,
                            surface: self.epilogue.output(),
                            steps: &steps,
                            ending,
                            swish: swish.as_ref(),
                            input_strides: g.input.strides,
                            input: self.channel_0_beside(input.get(), &g.input, channel),
                            output: self.channel_0_beside(output.get(), self.epilogue.output(), channel),
                            weights: weights.as_ptr(),
                            padded: self.padded,
                            scratch: scratch.as_mut_ptr(),
                            copy: copy.as_mut_ptr(),
                            image: item / bands / depth,
                            slice: item / bands % depth,
                            lines: start..(start + self.band).min(lines),
                            channels: channel..(channel + chunk).min(channels),
                        });
                    }
                }
            })
        })?
    }
}

impl Executable for DepthwiseExecutable {
    fn info(&self) -> &ExecutableInfo {
        &self.info
    }

    unsafe fn run(&self, _stream: RawStream, args: &RunArgs<'_>) -> Result<(), RunError> {
        let pack = |weights, packed: &mut [f32], _| {
            // SAFETY: `RunArgs` promises the problem's filters; `packed` has `padded` floats for each tap.
            unsafe { (self.pack)(&self.geometry, weights, packed.as_mut_ptr(), self.padded) }
            Ok(())
        };
        prepared::with_packed(args, self.owner, self.weights_len(), pack, |packed| {
            // SAFETY: the caller keeps what `RunArgs` promises for this problem.
            unsafe { self.compute(args, packed) }
        })
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
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Pack(g, source.cast::<T>(), target, padded)) }
}

/// A hard swish that follows the front in registers, and the folded step behind it.
struct Swish {
    behind: Option<ChannelStep>,
}

// SAFETY: as of the ending that the step was taken from.
unsafe impl Sync for Swish {}

impl Swish {
    /// Applies it to sums of the channels from `c` on.
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, c: usize, sums: &mut [S::V]) {
        for sum in sums.iter_mut() {
            *sum = hard_swish(s, *sum);
        }
        if let Some(behind) = &self.behind {
            // SAFETY: tables have room for whole vectors.
            let fold = behind.fold(s, |table| unsafe { s.load(table.add(c)) });
            for sum in sums {
                *sum = fold.apply(s, *sum);
            }
        }
    }
}

/// A work item: some channels of lines of one slice of one image.
#[derive(Clone)]
struct Band<'a> {
    geometry: &'a Geometry,
    /// Of the input, which may be a copy.
    input_strides: [usize; 5],
    surface: &'a Volume,
    steps: &'a Steps<'a>,
    /// What is left for what tiles write to the output; none where they write to scratch.
    ending: Option<Ending>,
    swish: Option<&'a Swish>,
    /// As if the channels in front of the item's first lay side by side with it.
    input: *const c_void,
    output: *mut c_void,
    weights: *const f32,
    padded: usize,
    /// `PIXELS` pixels of `CHUNK` channels.
    scratch: *mut f32,
    copy: *mut f32,
    image: usize,
    slice: usize,
    lines: Range<usize>,
    channels: Range<usize>,
}

impl Band<'_> {
    /// Whether there is something left behind the front, or tiles are in scratch.
    fn is_left(&self) -> bool {
        self.ending.is_none() || !self.steps.end_in_registers()
    }

    /// A pixel of the band, at its first channel.
    fn row_start(&self, line: usize, column: usize) -> RowStart {
        let line = self.slice * self.geometry.output.lens[3] + line;
        RowStart { image: self.image, channel: self.channels.start, line, column }
    }

    /// Where the sums of a tile's pixel are written from channel `c` on, if not to the output.
    fn row(&self, pixel: usize, c: usize) -> *mut f32 {
        self.scratch.wrapping_add(pixel * CHUNK + (c - self.channels.start))
    }
}

/// Applies what the front of the epilogue has left to `columns` pixels of a line, in the output where tiles write there, else
/// in scratch, from where it writes them to the output. One function for each instruction set and type.
///
/// # Safety
/// The CPU has the instruction set; the pixels lie inside of the output, of type `T`; their sums are there, or in scratch from
/// pixel `first` on.
unsafe fn finish<S: Simd, T: Number>(band: &Band<'_>, first: usize, line: usize, columns: Range<usize>) {
    // SAFETY: the caller says that the CPU has the instruction set.
    unsafe { S::enter(Finish::<T>(band, first, line, columns, PhantomData)) }
}

struct Finish<'a, T>(&'a Band<'a>, usize, usize, Range<usize>, PhantomData<T>);

impl<T: Number> Kernel for Finish<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Finish(band, first, line, columns, _) = self;
        if let Some(Ending { last, behind, .. }) = &band.ending {
            if let Some(last) = last {
                // SAFETY: `finish`'s caller says that the pixels lie inside of the output; only of f32 in whole vectors is there
                // an activation. The vocabulary is the proof that the CPU has the set.
                unsafe { end::<S>(band, last, behind.as_ref(), line, columns) };
            }
            return;
        }
        let (start, len) = (band.row_start(line, columns.start), band.channels.len());
        let sums = band.row(first, band.channels.start);
        let rows = Rows { first: sums, pitch: CHUNK, count: columns.len(), len };
        let pixel = RowStart { channel: 0, ..start }.offset(band.surface);
        let output = band.output.cast::<T>().wrapping_add(pixel + band.channels.start);
        // SAFETY: `finish`'s caller says that the pixels lie inside of the output, and that their sums are in scratch, which
        // has whole vectors.
        unsafe { band.steps.rest(s, rows, Lanes::Channels, start, output.cast_const()) };
        for r in 0..rows.count {
            let (row, to) = (sums.wrapping_add(r * CHUNK), output.wrapping_add(r * band.surface.strides[4]));
            for c in (0..len).step_by(S::LANES) {
                // SAFETY: as of the rest, for the pixel's channels from `c` on.
                unsafe { store_strided(s, to.add(c), s.load(row.add(c)), 1, (len - c).min(S::LANES)) };
            }
        }
    }
}

/// Applies an activation, and the folded step behind it, to `columns` pixels of a line in the output. One function for each
/// instruction set, as it consists of calls.
///
/// # Safety
/// The CPU has the instruction set; the pixels lie inside of the output, of f32, and the item's channels are whole vectors.
#[inline(never)]
unsafe fn end<S: Simd>(
    band: &Band<'_>,
    last: &Activation,
    behind: Option<&ChannelStep>,
    line: usize,
    columns: Range<usize>,
) {
    let (channels, pitch) = (band.channels.clone(), band.surface.strides[4]);
    let pixel = RowStart { channel: 0, ..band.row_start(line, columns.start) }.offset(band.surface);
    let first = band.output.cast::<f32>().wrapping_add(pixel);
    // Pixels without gaps are one.
    let is_flat = pitch == channels.len();
    let (rows, len) = if is_flat { (1, columns.len() * pitch) } else { (columns.len(), channels.len()) };
    let start = first.wrapping_add(channels.start);
    let vectors =
        Vectors { first: start, pitch: S::LANES, count: len / S::LANES, run_pitch: pitch, runs: rows };
    // SAFETY: as of this function.
    unsafe { activate::<S>(last, vectors) };
    if let Some(step) = behind {
        for c in channels.step_by(S::LANES) {
            // SAFETY: as of this function; tables have all channels.
            unsafe { fold_vectors::<S>(step, c, first.add(c), pitch, columns.len()) };
        }
    }
}
