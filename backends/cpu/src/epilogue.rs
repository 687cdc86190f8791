//! The operators behind a convolution (or of an element-wise plan), applied in their declared order while
//! their operand is still in registers or in the first-level cache.
//!
//! Per-channel steps that follow one another (scaling by α, bias, spatial batch-norm) fold into one
//! `x · scale + shift` per channel, computed in f64 once for each execution and rounded to f32 once. With a
//! bare bias the scale is exactly 1 and the step an exact addition.
//!
//! An execution [binds](Epilogue::bind) its arguments and gets [`Steps`]. Their front, one affine step and
//! one [`Simple`] activation, is made for registers. What remains is for rows in scratch memory.

use std::ffi::c_void;

use fuseplan_api::{ActivationMode, BatchNormMode, Constraint, Op, OpArgs, OpArgsKind, Problem};

use crate::activation::{Activation, Simple};
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

/// A step on channel `c`: scale, or scale and shift, in f64.
#[derive(Clone, Copy)]
enum Factor {
    Scale(f64),
    Bias { data: *const c_void, stride: usize },
    Normalize { scale: *const f32, bias: *const f32, mean: *const f32, variance: *const f32, epsilon: f64 },
}

/// The steps of one execution.
#[derive(Clone, Copy)]
pub(crate) struct Steps<'a> {
    /// One for each channel, and as many again as the widest register tile, so that whole tiles can be
    /// loaded.
    pub(crate) scale: *const f32,
    /// As `scale`.
    pub(crate) shift: *const f32,
    /// Follows the scale and shift.
    pub(crate) simple: Simple,
    /// What remains after that.
    rest: [Step; 2 * MAX_OPS + 2],
    len: usize,
    epilogue: &'a Epilogue,
}

// SAFETY: the pointers are to operands that nobody writes during the execution.
unsafe impl Sync for Steps<'_> {}

#[derive(Clone, Copy)]
enum Step {
    Affine {
        scale: *const f32,
        shift: *const f32,
    },
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
        2 * (self.ops.len() + 2) * self.table_stride()
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
            list: [Step::Prior { beta: 0.0 }; 2 * MAX_OPS + 2],
            len: 0,
        };
        for before in &args[..self.first] {
            binder.scale(before.alpha);
        }
        // SAFETY: the caller's.
        unsafe {
            if !matches!(self.ops.first(), Some(Kind::Bias { .. } | Kind::Spatial)) {
                // The front always begins with an affine step.
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
            self.fold(Factor::Scale(alpha.into()));
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
                self.fold(Factor::Normalize { scale, bias, mean, variance, epsilon });
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

    /// Turns pending factors into a table of scales and shifts. The first step is always one.
    ///
    /// # Safety
    /// As [`Epilogue::bind`].
    unsafe fn flush(&mut self) {
        if self.pending == 0 && self.len > 0 {
            return;
        }
        let (channels, stride) = (self.epilogue.channels, self.epilogue.table_stride());
        let (scale, shift) = (self.tables, self.tables.wrapping_add(stride));
        self.tables = self.tables.wrapping_add(2 * stride);
        for c in 0..stride {
            let (mut a, mut b) = (1.0f64, 0.0f64);
            for factor in self.factors[..self.pending].iter().filter(|_| c < channels) {
                // SAFETY: parameters have one value for each channel.
                let (by, plus) = unsafe { factor.of_channel(c, self.epilogue.data_type) };
                (a, b) = (a * by, b * by + plus);
            }
            // SAFETY: there is a table for each of the operators and one more, of `2 * stride` floats.
            unsafe {
                scale.add(c).write(a as f32);
                shift.add(c).write(b as f32);
            }
        }
        self.pending = 0;
        self.push(Step::Affine { scale, shift });
    }

    fn finish(self) -> Steps<'a> {
        let Step::Affine { scale, shift } = self.list[0] else {
            unreachable!("the first step is an affine one")
        };
        let simple = match self.list[1] {
            Step::Activation(activation) if self.len > 1 => activation.simple(),
            _ => None,
        };
        let skipped = 1 + usize::from(simple.is_some());
        let mut rest = [Step::Prior { beta: 0.0 }; 2 * MAX_OPS + 2];
        let len = self.len - skipped;
        rest[..len].copy_from_slice(&self.list[skipped..self.len]);
        Steps { scale, shift, simple: simple.unwrap_or(Simple::Identity), rest, len, epilogue: self.epilogue }
    }
}

impl Factor {
    /// Scale and shift of channel `c`.
    ///
    /// # Safety
    /// The parameters have a value for `c`.
    unsafe fn of_channel(&self, c: usize, data_type: fuseplan_api::DataType) -> (f64, f64) {
        // SAFETY: the caller's.
        unsafe {
            match *self {
                Factor::Scale(alpha) => (alpha, 0.0),
                Factor::Bias { data, stride } => {
                    let value = crate::element::with_value_type!(data_type, T => {
                        (*data.cast::<T>().add(c * stride)).widen()
                    });
                    (1.0, value.into())
                }
                Factor::Normalize { scale, bias, mean, variance, epsilon } => {
                    let at = |p: *const f32| f64::from(*p.add(c));
                    let by = at(scale) / (at(variance) + epsilon).sqrt();
                    (by, at(bias) - by * at(mean))
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

    /// Applies the front to rows of V vectors of channel lanes, whose values for `scale` and `shift` are
    /// given. The activation is looked at once for all of them.
    #[inline(always)]
    pub(crate) fn front<S: Simd, const R: usize, const V: usize>(
        &self,
        s: S,
        sums: &mut [[S::V; V]; R],
        scale: [S::V; V],
        shift: [S::V; V],
    ) {
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
                    Step::Affine { scale, shift } if lanes == Lanes::Channels => {
                        let (scale, shift) = (scale.add(place.channel), shift.add(place.channel));
                        for at in (0..len).step_by(S::LANES) {
                            let x = s.load(row.add(at));
                            s.store(row.add(at), s.fma(x, s.load(scale.add(at)), s.load(shift.add(at))));
                        }
                    }
                    Step::Affine { scale, shift } => {
                        let (scale, shift) =
                            (s.splat(*scale.add(place.channel)), s.splat(*shift.add(place.channel)));
                        for at in (0..len).step_by(S::LANES) {
                            s.store(row.add(at), s.fma(s.load(row.add(at)), scale, shift));
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
