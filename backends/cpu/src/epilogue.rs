//! The operators behind a convolution (or of an element-wise plan), applied in their declared order while
//! their operand is still in registers or in the first-level cache.
//!
//! Per-channel operators that follow one another (scaling by α, bias, spatial batch-norm) fold into one
//! [`ChannelStep`] step, by [`Fold`], once for each execution.
//!
//! An execution [binds](Epilogue::bind) its arguments and gets [`Steps`]. Their front, one such step and
//! one [`Simple`] activation, is made for registers. What remains is for rows in scratch memory.

use std::ffi::c_void;

use fuseplan_api::{ActivationMode, BatchNormMode, Constraint, Op, OpArgs, OpArgsKind, Problem};

use crate::activation::{Activation, Simple};
use crate::channels::{ChannelStep, Fold};
use crate::isa::{MAX_LANES, Number, Simd};
use crate::volume::Volume;

/// The most operators behind the convolution.
const MAX_OPS: usize = 16;

/// Solvers that use [`Epilogue`] have this constraint.
pub(crate) const LENGTH: Constraint = Constraint {
    property: "number of operators",
    accepts: "at most 16 behind the convolution",
    check: |problem, _| {
        let count = problem.epilogue().len();
        (count > MAX_OPS).then(|| count.to_string())
    },
};

/// What is known of the operators before run time.
#[derive(Debug)]
pub(crate) struct Epilogue {
    ops: Vec<Kind>,
    /// Index of the first operator's arguments.
    first: usize,
    channels: usize,
    data_type: fuseplan_api::DataType,
    /// The output, then every operand that has one value an element.
    surfaces: Vec<Volume>,
}

#[derive(Debug)]
enum Kind {
    /// One value a channel; the distance between them.
    Bias {
        stride: usize,
    },
    /// One value an element.
    Residual {
        surface: usize,
    },
    /// Parameters for each channel.
    Spatial,
    /// Parameters for each element of an image.
    PerActivation {
        surface: usize,
    },
    Activation(ActivationMode),
}

/// What is done to each channel.
#[derive(Clone, Copy)]
enum Factor {
    Scale(f32),
    Bias { data: *const c_void, stride: usize },
    Normalize { scale: *const f32, bias: *const f32, mean: *const f32, variance: *const f32, epsilon: f32 },
}

/// The steps of one execution.
#[derive(Clone, Copy)]
pub(crate) struct Steps<'a> {
    /// The first step.
    channels: ChannelStep,
    /// Follows it.
    simple: Simple,
    /// What remains after that.
    rest: [Step; 2 * MAX_OPS + 2],
    len: usize,
    epilogue: &'a Epilogue,
}

// SAFETY: the pointers are to operands that nobody writes during the execution.
unsafe impl Sync for Steps<'_> {}

#[derive(Clone, Copy)]
enum Step {
    Channel(ChannelStep),
    Normalize {
        scale: *const f32,
        bias: *const f32,
        mean: *const f32,
        variance: *const f32,
        epsilon: f32,
        surface: usize,
    },
    Residual {
        data: *const c_void,
        surface: usize,
    },
    Activation(Activation),
    /// Adds the output's previous contents.
    Prior {
        beta: f32,
    },
}

/// Along which dimension the elements of a row lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// Channels of one pixel.
    Channels,
    /// Pixels of one channel.
    Width,
}

/// Where a row starts: image, channel, line (counted through depth and height), column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) image: usize,
    pub(crate) channel: usize,
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// Channels beyond the last that tables of per-channel values have room for.
pub(crate) const TABLE_SLACK: usize = 4 * MAX_LANES;

impl Epilogue {
    pub(crate) fn new(problem: &Problem) -> Self {
        let output = Volume::of(&problem.output);
        let mut surfaces = vec![output];
        let mut add = |surface: Volume| {
            surfaces.push(surface);
            surfaces.len() - 1
        };
        let ops = problem.epilogue().iter().map(|op| match op {
            Op::BiasForward { bias } if op.is_residual() => Kind::Residual { surface: add(Volume::of(bias)) },
            Op::BiasForward { bias } => Kind::Bias { stride: Volume::of(bias).strides[1] },
            Op::BatchNormInference { mode: BatchNormMode::Spatial } => Kind::Spatial,
            Op::BatchNormInference { mode: BatchNormMode::PerActivation } => {
                // Packed, the same for every image.
                let [_, _, depth, height, width] = output.lens;
                let strides = [0, depth * height * width, height * width, width, 1];
                Kind::PerActivation { surface: add(Volume { lens: output.lens, strides }) }
            }
            Op::ActivationForward { mode } => Kind::Activation(*mode),
            other => unreachable!("a solver accepted {other} in an epilogue"),
        });
        let ops = ops.collect();
        Epilogue {
            ops,
            first: usize::from(problem.conv().is_some()),
            channels: output.lens[1],
            data_type: problem.output.data_type(),
            surfaces,
        }
    }

    /// The output and all operands with one value an element, so that a solver can give them another shape
    /// (the same one for all) over the same memory.
    pub(crate) fn surfaces_mut(&mut self) -> &mut [Volume] {
        &mut self.surfaces
    }

    /// The output, in the shape given to it last.
    pub(crate) fn output(&self) -> &Volume {
        &self.surfaces[0]
    }

    /// Whether in every operand a line follows the one before it as a column does, so that a row may go on
    /// over the end of a line.
    pub(crate) fn is_flat(&self) -> bool {
        self.surfaces.iter().all(Volume::is_flat)
    }

    /// Floats of scratch that [`Epilogue::bind`] needs.
    pub(crate) fn table_len(&self) -> usize {
        // A bias folds into the step that it follows.
        let steps = 1 + self.ops.iter().filter(|op| !matches!(op, Kind::Bias { .. })).count();
        steps * ChannelStep::TABLES * self.table_stride()
    }

    fn table_stride(&self) -> usize {
        (self.channels + TABLE_SLACK).next_multiple_of(MAX_LANES)
    }

    /// The steps for the arguments of an execution: all operators' arguments, the convolution's included.
    ///
    /// # Safety
    /// `args` keep what `RunArgs` promises; `tables` has [`Epilogue::table_len`] floats and outlives the
    /// steps' use.
    pub(crate) unsafe fn bind(&self, args: &[OpArgs], tables: &mut [f32]) -> Steps<'_> {
        let mut binder = Binder {
            epilogue: self,
            tables: tables.as_mut_ptr(),
            factors: [Factor::Scale(1.0); 2 * MAX_OPS + 2],
            pending: 0,
            normalizes: false,
            list: [Step::Prior { beta: 0.0 }; 2 * MAX_OPS + 2],
            len: 0,
        };
        for before in &args[..self.first] {
            binder.scale(before.alpha);
        }
        // SAFETY: the caller's.
        unsafe {
            if !matches!(self.ops.first(), Some(Kind::Bias { .. } | Kind::Spatial)) {
                // The front always begins with a step on channels.
                binder.flush();
            }
            for (kind, args) in self.ops.iter().zip(&args[self.first..]) {
                binder.add(kind, args);
            }
            binder.flush();
        }
        if let Some(last) = args.last().filter(|last| last.beta != 0.0) {
            binder.push(Step::Prior { beta: last.beta });
        }
        binder.finish()
    }
}

struct Binder<'a> {
    epilogue: &'a Epilogue,
    /// Free memory for tables.
    tables: *mut f32,
    factors: [Factor; 2 * MAX_OPS + 2],
    pending: usize,
    /// Whether one of those pending is a batch-norm.
    normalizes: bool,
    list: [Step; 2 * MAX_OPS + 2],
    len: usize,
}

impl<'a> Binder<'a> {
    fn push(&mut self, step: Step) {
        self.list[self.len] = step;
        self.len += 1;
    }

    fn fold(&mut self, factor: Factor) {
        self.factors[self.pending] = factor;
        self.pending += 1;
    }

    fn scale(&mut self, alpha: f32) {
        if alpha != 1.0 {
            self.fold(Factor::Scale(alpha));
        }
    }

    /// # Safety
    /// As [`Epilogue::bind`].
    unsafe fn add(&mut self, kind: &Kind, args: &OpArgs) {
        let step = match (kind, &args.kind) {
            (&Kind::Bias { stride }, &OpArgsKind::BiasForward { bias }) => {
                self.fold(Factor::Bias { data: bias, stride });
                return self.scale(args.alpha);
            }
            (Kind::Spatial, &OpArgsKind::BatchNormInference { scale, bias, mean, variance, epsilon }) => {
                if self.normalizes {
                    // SAFETY: the caller's.
                    unsafe { self.flush() };
                }
                self.normalizes = true;
                self.fold(Factor::Normalize { scale, bias, mean, variance, epsilon: epsilon as f32 });
                return self.scale(args.alpha);
            }
            (&Kind::Residual { surface }, &OpArgsKind::BiasForward { bias }) => {
                Step::Residual { data: bias, surface }
            }
            (
                &Kind::PerActivation { surface },
                &OpArgsKind::BatchNormInference { scale, bias, mean, variance, epsilon },
            ) => Step::Normalize { scale, bias, mean, variance, epsilon: epsilon as f32, surface },
            (&Kind::Activation(mode), OpArgsKind::ActivationForward { params }) => {
                Step::Activation(Activation::new(mode, params, self.epilogue.data_type))
            }
            _ => unreachable!("arguments are of their operators' kinds"),
        };
        // SAFETY: the caller's.
        unsafe { self.flush() };
        self.push(step);
        self.scale(args.alpha);
    }

    /// Turns pending factors into a step. The first step is always one.
    ///
    /// # Safety
    /// As [`Epilogue::bind`].
    unsafe fn flush(&mut self) {
        if self.pending == 0 && self.len > 0 {
            return;
        }
        let (channels, stride) = (self.epilogue.channels, self.epilogue.table_stride());
        let step = ChannelStep::at(self.tables, stride, self.normalizes);
        let mut before = 1.0;
        for c in 0..stride {
            let mut fold = Fold::IDENTITY;
            for factor in self.factors[..self.pending].iter().filter(|_| c < channels) {
                // SAFETY: parameters have one value for each channel.
                unsafe { factor.apply(c, self.epilogue.data_type, &mut fold) }
            }
            if c == 0 {
                before = fold.before;
            }
            // SAFETY: there are tables of `stride` floats for each step.
            unsafe { step.write(c, &fold) }
        }
        self.tables = self.tables.wrapping_add(ChannelStep::TABLES * stride);
        (self.pending, self.normalizes) = (0, false);
        self.push(Step::Channel(ChannelStep { before, ..step }));
    }

    fn finish(self) -> Steps<'a> {
        let Step::Channel(channels) = self.list[0] else { unreachable!("the first step is one on channels") };
        let simple = match self.list[1] {
            Step::Activation(activation) if self.len > 1 => activation.simple(),
            _ => None,
        };
        let skipped = 1 + usize::from(simple.is_some());
        let mut rest = [Step::Prior { beta: 0.0 }; 2 * MAX_OPS + 2];
        let len = self.len - skipped;
        rest[..len].copy_from_slice(&self.list[skipped..self.len]);
        Steps { channels, simple: simple.unwrap_or(Simple::Identity), rest, len, epilogue: self.epilogue }
    }
}

impl Factor {
    /// Does it to channel `c`.
    ///
    /// # Safety
    /// The parameters have a value for `c`.
    unsafe fn apply(&self, c: usize, data_type: fuseplan_api::DataType, fold: &mut Fold) {
        // SAFETY: the caller's.
        unsafe {
            match *self {
                Factor::Scale(alpha) => fold.multiply(alpha),
                Factor::Bias { data, stride } => fold.add(crate::element::with_value_type!(data_type, T => {
                    (*data.cast::<T>().add(c * stride)).widen()
                })),
                Factor::Normalize { scale, bias, mean, variance, epsilon } => {
                    let at = |p: *const f32| *p.add(c);
                    fold.normalize(at(scale), at(bias), at(mean), at(variance), epsilon);
                }
            }
        }
    }
}

impl Steps<'_> {
    /// Whether the front is all there is.
    pub(crate) fn end_in_registers(&self) -> bool {
        self.len == 0
    }

    /// Applies the front to rows of V vectors of channel lanes; `table` loads these channels' part of a table, which
    /// has whole vectors for the widest register tile. The activation is looked at once for all of them.
    #[inline(always)]
    pub(crate) fn front<S: Simd, const R: usize, const V: usize>(
        &self,
        s: S,
        sums: &mut [[S::V; V]; R],
        table: impl Fn(*const f32) -> [S::V; V],
    ) {
        let ChannelStep { before, offset, scale, shift } = self.channels;
        if !offset.is_null() {
            let (before, offset) = (s.splat(before), table(offset));
            for row in sums.iter_mut() {
                for v in 0..V {
                    row[v] = s.fma(row[v], before, offset[v]);
                }
            }
        }
        let (scale, shift) = (table(scale), table(shift));
        macro_rules! each {
            ($simple:expr) => {
                for row in sums.iter_mut() {
                    for v in 0..V {
                        row[v] = $simple.apply(s, s.fma(row[v], scale[v], shift[v]));
                    }
                }
            };
        }
        match self.simple {
            Simple::Identity => each!(Simple::Identity),
            Simple::Slope(slope) => each!(Simple::Slope(slope)),
            Simple::Clip(top) => each!(Simple::Clip(top)),
        }
    }

    /// Applies what remains behind the front to `len` elements at `row`, in place. `prior` is the output at
    /// `place`.
    ///
    /// # Safety
    /// `row` is readable and writable for `len` elements rounded up to whole vectors; the row lies inside
    /// of the tensors.
    #[inline(always)]
    pub(crate) unsafe fn rest<S: Simd, T: Number>(
        &self,
        s: S,
        row: *mut f32,
        len: usize,
        lanes: Lanes,
        place: Place,
        prior: *const T,
    ) {
        let vectors = len.div_ceil(S::LANES);
        for step in &self.rest[..self.len] {
            // SAFETY: the caller's.
            unsafe {
                match *step {
                    Step::Activation(activation) => activation.apply(s, row, vectors),
                    Step::Channel(step) => {
                        for at in (0..len).step_by(S::LANES) {
                            let table = |p: *const f32| match lanes {
                                Lanes::Channels => s.load(p.add(place.channel + at)),
                                Lanes::Width => s.splat(*p.add(place.channel)),
                            };
                            s.store(row.add(at), step.apply(s, s.load(row.add(at)), table));
                        }
                    }
                    Step::Residual { data, surface } => {
                        let operand =
                            Operand::<T>::new(data.cast(), &self.epilogue.surfaces[surface], lanes, place);
                        for at in (0..len).step_by(S::LANES) {
                            let r = operand.load(s, at, len);
                            s.store(row.add(at), s.add(s.load(row.add(at)), r));
                        }
                    }
                    Step::Prior { beta } => {
                        let surface = &self.epilogue.surfaces[0];
                        let operand = Operand { data: prior, stride: lane_stride(surface, lanes) };
                        let beta = s.splat(beta);
                        for at in (0..len).step_by(S::LANES) {
                            let y = operand.load(s, at, len);
                            s.store(row.add(at), s.fma(beta, y, s.load(row.add(at))));
                        }
                    }
                    Step::Normalize { scale, bias, mean, variance, epsilon, surface } => {
                        let surface = &self.epilogue.surfaces[surface];
                        let operand = |p| Operand::<f32>::new(p, surface, lanes, place);
                        let (scale, bias) = (operand(scale), operand(bias));
                        let (mean, variance) = (operand(mean), operand(variance));
                        let epsilon = s.splat(epsilon);
                        for at in (0..len).step_by(S::LANES) {
                            let deviation = s.sqrt(s.add(variance.load(s, at, len), epsilon));
                            let by = s.div(scale.load(s, at, len), deviation);
                            let x = s.sub(s.load(row.add(at)), mean.load(s, at, len));
                            s.store(row.add(at), s.fma(x, by, bias.load(s, at, len)));
                        }
                    }
                }
            }
        }
    }
}

fn lane_stride(surface: &Volume, lanes: Lanes) -> usize {
    surface.strides[match lanes {
        Lanes::Channels => 1,
        Lanes::Width => 4,
    }]
}

/// One value for each element of a row.
struct Operand<T> {
    data: *const T,
    stride: usize,
}

impl<T: Number> Operand<T> {
    #[inline(always)]
    unsafe fn new(data: *const T, surface: &Volume, lanes: Lanes, place: Place) -> Self {
        // SAFETY: the caller gives a place inside of the surface.
        unsafe { Operand { data: data.add(surface.at(place)), stride: lane_stride(surface, lanes) } }
    }

    /// The vector from element `at` of a row of `len`.
    #[inline(always)]
    unsafe fn load<S: Simd>(&self, s: S, at: usize, len: usize) -> S::V {
        let n = (len - at).min(S::LANES);
        // SAFETY: the caller's.
        unsafe { load_strided(s, self.data.add(at * self.stride), self.stride, n) }
    }
}

/// `n` elements that are `stride` apart, then zeros.
///
/// # Safety
/// They are readable; `n` is at most [`Simd::LANES`].
#[inline(always)]
pub(crate) unsafe fn load_strided<S: Simd, T: Number>(s: S, p: *const T, stride: usize, n: usize) -> S::V {
    // SAFETY: the caller's.
    unsafe {
        if stride == 1 {
            return if n == S::LANES { T::load(s, p) } else { T::load_part(s, p, n) };
        }
        let mut block = [0.0f32; MAX_LANES];
        for (i, x) in block[..n].iter_mut().enumerate() {
            *x = (*p.add(i * stride)).widen();
        }
        s.load(block.as_ptr())
    }
}

/// Stores the first `n` lanes, `stride` elements apart.
///
/// # Safety
/// They are writable; `n` is at most [`Simd::LANES`].
#[inline(always)]
pub(crate) unsafe fn store_strided<S: Simd, T: Number>(s: S, p: *mut T, v: S::V, stride: usize, n: usize) {
    // SAFETY: the caller's.
    unsafe {
        if stride == 1 {
            return if n == S::LANES { T::store(s, p, v) } else { T::store_part(s, p, v, n) };
        }
        let mut block = [T::ZERO; MAX_LANES];
        T::store(s, block.as_mut_ptr(), v);
        for (i, x) in block[..n].iter().enumerate() {
            p.add(i * stride).write(*x);
        }
    }
}
