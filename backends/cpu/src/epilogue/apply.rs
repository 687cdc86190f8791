//! The steps of one execution, on vectors in registers and on rows in scratch memory.

use std::ffi::c_void;
use std::ptr::NonNull;

use arrayvec::ArrayVec;
use fuseplan_api::DataType;
use fuseplan_api::volume::Volume;

use super::{Epilogue, MAX_STEPS};
use crate::activation::{Activation, Simple, prelu};
use crate::channels::{Affine, Fold, Norm};
use crate::isa::{Kernel, Number, Simd};
use crate::row::RowStart;
use crate::vectors::load_strided;

/// Along which dimension the elements of a row lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// Channels of one pixel.
    Channels,
    /// Pixels of one channel.
    Width,
}

/// The steps of one execution.
pub(crate) struct Steps<'a> {
    /// The first step.
    pub(super) channels: ChannelStep,
    /// The activation that follows it.
    pub(super) activation: Front,
    /// What remains after that.
    pub(super) rest: ArrayVec<Step, MAX_STEPS>,
    pub(super) epilogue: &'a Epilogue,
}

// SAFETY: the pointers are to operands and tables, which nobody writes while the steps are used.
unsafe impl Sync for Steps<'_> {}

/// An activation that is applied in registers.
#[derive(Clone, Copy)]
pub(super) enum Front {
    Simple(Simple),
    /// A PReLU, with a table of slopes, one for each channel.
    PRelu(*const f32),
}

/// One step.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// Folded operators.
    Channel(ChannelStep),
    /// A batch-norm with parameters for each element of an image.
    Normalize { parameters: Norm<*const c_void>, data_type: DataType, epsilon: f32, surface: usize },
    /// A PReLU, with a table of slopes, one for each channel.
    PRelu(*const f32),
    /// A bias with one value an element.
    Residual { data: *const c_void, surface: usize },
    /// An activation.
    Activation(Activation),
    /// The addition of the output's previous contents.
    Prior { beta: f32 },
}

/// A [`Fold`] for all channels: tables with one value for each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChannelStep {
    /// The factor and the terms of what is in front of a batch-norm, where there is one.
    pub(super) front: Option<(f32, NonNull<f32>)>,
    pub(super) factor: *const f32,
    pub(super) term: *const f32,
}

impl ChannelStep {
    /// The fold of the channels whose part of a table `table` loads.
    #[inline(always)]
    pub(crate) fn fold<S: Simd>(&self, s: S, table: impl Fn(*const f32) -> S::V) -> Fold<S::V> {
        Fold {
            front: self.front.map(|(factor, term)| Affine {
                factor: s.splat(factor),
                term: table(term.as_ptr().cast_const()),
            }),
            back: Affine { factor: table(self.factor), term: table(self.term) },
        }
    }
}

/// What is left behind the front, for a kernel that writes its sums straight to the output.
#[derive(Clone, Copy)]
pub(crate) struct Ending {
    /// The first element of an operand of the output's type that is added in registers and lies as the output does; null where
    /// there is none.
    pub(crate) residual: *const c_void,
    /// The activation of the sum with that.
    pub(crate) simple: Simple,
    /// The activation of whole vectors of what was written, and the folded step behind that.
    pub(crate) last: Option<Activation>,
    pub(crate) behind: Option<ChannelStep>,
}

// SAFETY: as of the steps that it was taken from.
unsafe impl Sync for Ending {}

impl Ending {
    /// Nothing.
    pub(crate) const NONE: Ending =
        Ending { residual: std::ptr::null(), simple: Simple::Identity, last: None, behind: None };
}

impl Steps<'_> {
    /// What is left behind the front, if the output is of f32 and it is no more than an [`Ending`].
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.ending_of_any_type().filter(|_| self.epilogue.data_type == DataType::Float)
    }

    /// What is left behind the front of an output of any type, if registers that have the sums can do all of it.
    pub(crate) fn ending_in_registers(&self) -> Option<Ending> {
        self.ending_of_any_type().filter(|ending| ending.last.is_none() && ending.behind.is_none())
    }

    fn ending_of_any_type(&self) -> Option<Ending> {
        let [output, ..] = self.epilogue.surfaces[..] else { return None };
        let lies_alike = |surface: usize| {
            let v = &self.epilogue.surfaces[surface];
            (v.strides, v.block, v.block_stride) == (output.strides, output.block, output.block_stride)
        };
        let of = |residual: *const c_void| Ending { residual, ..Ending::NONE };
        Some(match self.rest[..] {
            [] => Ending::NONE,
            [Step::Activation(last)] => Ending { last: Some(last), ..Ending::NONE },
            [Step::Activation(last), Step::Channel(step)] => {
                Ending { last: Some(last), behind: Some(step), ..Ending::NONE }
            }
            [Step::Residual { data, surface }] if lies_alike(surface) => of(data),
            [Step::Residual { data, surface }, Step::Activation(activation)] if lies_alike(surface) => {
                match activation.simple() {
                    Some(simple) => Ending { simple, ..of(data) },
                    None => Ending { last: Some(activation), ..of(data) },
                }
            }
            _ => return None,
        })
    }

    /// The first operand with one value an element, and how it lies.
    pub(crate) fn residual(&self) -> Option<(*const c_void, &Volume)> {
        self.rest.iter().find_map(|step| match *step {
            Step::Residual { data, surface } => Some((data, &self.epilogue.surfaces[surface])),
            _ => None,
        })
    }

    /// How the output lies.
    pub(crate) fn output(&self) -> &Volume {
        self.epilogue.output()
    }

    /// Whether the front is all there is.
    pub(crate) fn end_in_registers(&self) -> bool {
        self.rest.is_empty()
    }

    /// As [`Epilogue::is_flat`].
    pub(crate) fn is_flat(&self) -> bool {
        self.epilogue.is_flat()
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
        // One multiply-add after the other for the whole tile, since registers that are full of sums have no room for
        // the parameters of both.
        if let Some((factor, term)) = self.channels.front {
            let (factor, term) = (s.splat(factor), table(term.as_ptr().cast_const()));
            for row in sums.iter_mut() {
                for v in 0..V {
                    row[v] = Affine { factor, term: term[v] }.apply(s, row[v]);
                }
            }
        }
        let (factor, term) = (table(self.channels.factor), table(self.channels.term));
        macro_rules! each {
            (|$x:ident, $v:ident| $y:expr) => {
                for row in sums.iter_mut() {
                    for $v in 0..V {
                        let back = Affine { factor: factor[$v], term: term[$v] };
                        let $x = back.apply(s, row[$v]);
                        row[$v] = $y;
                    }
                }
            };
        }
        match self.activation {
            Front::Simple(Simple::Identity) => each!(|x, v| x),
            Front::Simple(Simple::Slope(slope)) => each!(|x, v| Simple::Slope(slope).apply(s, x)),
            Front::Simple(Simple::Clip(top)) => each!(|x, v| Simple::Clip(top).apply(s, x)),
            Front::PRelu(slopes) => {
                let slopes = table(slopes);
                each!(|x, v| prelu(s, x, slopes[v]));
            }
        }
    }

    /// Applies what remains behind the front to rows in scratch. `prior` is where the output has the first element.
    ///
    /// # Safety
    /// The rows are readable and writable, each in whole vectors; the elements that they are, from `start` on, lie inside
    /// of the output, which is readable where a prior is to be added.
    #[inline(always)]
    pub(crate) unsafe fn rest<S: Simd, T: Number>(
        &self,
        _: S,
        rows: Rows,
        lanes: Lanes,
        start: RowStart,
        prior: *const T,
    ) {
        if !self.end_in_registers() {
            // SAFETY: the vocabulary is the proof that the CPU has the set; the caller answers for the rows.
            unsafe { S::enter(Rest { steps: self, rows, lanes, start, prior }) }
        }
    }
}

/// Applies a folded step to so many vectors of channels from `channel` on in place, the first at `p` and each `pitch` floats behind the
/// one before.
///
/// # Safety
/// The CPU has the instruction set; the vectors are readable and writable, and tables have the channels.
pub(crate) unsafe fn fold_vectors<S: Simd>(
    step: &ChannelStep,
    channel: usize,
    p: *mut f32,
    pitch: usize,
    vectors: usize,
) {
    struct Run<'a>(&'a ChannelStep, usize, *mut f32, usize, usize);
    impl Kernel for Run<'_> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let Run(step, channel, p, pitch, vectors) = self;
            // SAFETY: the caller says that tables have the channels, which have whole vectors behind the last.
            let fold = step.fold(s, |table: *const f32| unsafe { s.load(table.add(channel)) });
            for i in 0..vectors {
                // SAFETY: the caller says that the vectors are readable and writable.
                unsafe {
                    let at = p.add(i * pitch);
                    s.store(at, fold.apply(s, s.load(at)));
                }
            }
        }
    }
    // SAFETY: the caller says that the CPU has the instruction set, and answers for the vectors.
    unsafe { S::enter(Run(step, channel, p, pitch, vectors)) }
}

pub(crate) type FoldVectorsFn = unsafe fn(&ChannelStep, usize, *mut f32, usize, usize);

/// Rows of elements in scratch: of pixels that follow one another where lanes are channels, else of such channels.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) first: *mut f32,
    /// Floats from one row to the next.
    pub(crate) pitch: usize,
    pub(crate) count: usize,
    /// Elements of a row.
    pub(crate) len: usize,
}

/// How many pixels ahead of their use operands, and places in the output, are prefetched.
pub(crate) const AHEAD: usize = 16;

/// What remains behind the front: one function for each instruction set and type. Kernels of all kinds end with it, and
/// would be twice as long with a copy of their own.
struct Rest<'a, T> {
    steps: &'a Steps<'a>,
    rows: Rows,
    lanes: Lanes,
    start: RowStart,
    prior: *const T,
}

impl<T: Number> Kernel for Rest<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Rest { steps, rows: Rows { first, pitch, count, len }, lanes, start, prior } = self;
        let surfaces = &steps.epilogue.surfaces;
        // A macro, since a closure that is used in several kernels may not be inlined.
        macro_rules! each {
            (|$x:ident, $row:ident, $at:ident| $y:expr) => {
                for $row in 0..count {
                    let row = first.wrapping_add($row * pitch);
                    for $at in (0..len).step_by(S::LANES) {
                        // SAFETY: the vector begins in front of the row's end, and `rest`'s caller says that rows may be
                        // used in whole vectors.
                        let $x = unsafe { s.load(row.add($at)) };
                        let y = $y;
                        // SAFETY: as for the load.
                        unsafe { s.store(row.add($at), y) };
                    }
                }
            };
        }
        macro_rules! channels {
            ($table:expr, $row:expr, $at:expr) => {
                // SAFETY: tables have a value for each channel, and whole vectors behind the last.
                unsafe {
                    match lanes {
                        Lanes::Channels => s.load($table.add(start.channel + $at)),
                        Lanes::Width => s.splat(*$table.add(start.channel + $row)),
                    }
                }
            };
        }
        for step in &steps.rest {
            match *step {
                Step::Activation(activation) => {
                    let vectors = len.div_ceil(S::LANES);
                    // Rows without gaps are one.
                    let (rows, vectors) =
                        if pitch == vectors * S::LANES { (1, count * vectors) } else { (count, vectors) };
                    for row in 0..rows {
                        // SAFETY: `rest`'s caller says that rows may be used in whole vectors.
                        unsafe { activation.apply(s, first.add(row * pitch), vectors) }
                    }
                }
                Step::Channel(step) => {
                    each!(|x, row, at| {
                        step.fold(s, |table: *const f32| channels!(table, row, at)).apply(s, x)
                    });
                }
                Step::PRelu(slopes) => each!(|x, row, at| prelu(s, x, channels!(slopes, row, at))),
                Step::Residual { data, surface } => {
                    let residual = Operand::<T>::new(data.cast(), &surfaces[surface], lanes, start);
                    // Other lines of a cache than the sums', and where lanes are channels one far from the next.
                    let ahead = if lanes == Lanes::Channels { AHEAD } else { 1 };
                    each!(|x, row, at| {
                        s.prefetch(residual.place(row + ahead, at).cast());
                        // SAFETY: a residual has the output's lengths, so that the rows lie inside of it, too.
                        s.add(x, unsafe { residual.load(s, row, at, len) })
                    });
                }
                Step::Prior { beta } => {
                    let prior = Operand::<T>::at(prior, &surfaces[0], lanes);
                    let beta = s.splat(beta);
                    // SAFETY: `rest`'s caller says that the rows, which begin at `prior`, lie inside of the output.
                    each!(|x, row, at| s.fma(beta, unsafe { prior.load(s, row, at, len) }, x));
                }
                Step::Normalize { parameters, data_type, epsilon, surface } => {
                    let Norm { scale, bias, mean, variance } = parameters;
                    let identity = Affine::splat(s, Affine::IDENTITY);
                    macro_rules! normalize {
                        ($P:ty) => {{
                            let operand = |values: *const c_void| {
                                Operand::<$P>::new(values.cast(), &surfaces[surface], lanes, start)
                            };
                            let (scale, bias, mean, variance) =
                                (operand(scale), operand(bias), operand(mean), operand(variance));
                            each!(|x, row, at| {
                                // SAFETY: parameters have a value for each element of an image, all images' rows using
                                // the same ones, so that the rows lie inside of them.
                                let norm = unsafe {
                                    Norm {
                                        scale: scale.load(s, row, at, len),
                                        bias: bias.load(s, row, at, len),
                                        mean: mean.load(s, row, at, len),
                                        variance: variance.load(s, row, at, len),
                                    }
                                };
                                identity.normalize(s, norm, epsilon).apply(s, x)
                            });
                        }};
                    }
                    // Parameters that are not f32 are of the tensors' type.
                    if data_type == DataType::Float {
                        normalize!(f32);
                    } else {
                        normalize!(T);
                    }
                }
            }
        }
    }
}

/// Rows of an operand that has one value for each element of the output.
struct Operand<T> {
    data: *const T,
    /// The distances from one element of a row, and from one row, to the next.
    stride: usize,
    pitch: usize,
}

impl<T: Number> Operand<T> {
    /// The rows that begin at `data`.
    #[inline(always)]
    fn at(data: *const T, surface: &Volume, lanes: Lanes) -> Self {
        let [_, channel, _, _, column] = surface.strides;
        let (stride, pitch) = match lanes {
            Lanes::Channels => (channel, column),
            Lanes::Width => (column, channel),
        };
        Operand { data, stride, pitch }
    }

    /// The rows that begin at `start` of the operand at `data`.
    #[inline(always)]
    fn new(data: *const T, surface: &Volume, lanes: Lanes, start: RowStart) -> Self {
        Operand::at(data.wrapping_add(start.offset(surface)), surface, lanes)
    }

    /// The vector from element `at` of a row of `len` elements.
    ///
    /// # Safety
    /// The row's elements are readable.
    #[inline(always)]
    unsafe fn load<S: Simd>(&self, s: S, row: usize, at: usize, len: usize) -> S::V {
        let n = (len - at).min(S::LANES);
        // SAFETY: the `n` elements from `at` on are the row's, which the caller says are readable.
        unsafe { load_strided(s, self.place(row, at), self.stride, n) }
    }

    /// Where element `at` of a row lies, if there is such a row.
    #[inline(always)]
    fn place(&self, row: usize, at: usize) -> *const T {
        self.data.wrapping_add(row * self.pitch + at * self.stride)
    }
}
