//! One item: fold the affine stages, then run the chain over its elements.

use std::marker::PhantomData;
use std::ops::Range;

use fuseplan_api::{BatchNormMode, Op, OpArgs, OpArgsKind, Problem, RunArgs};

use super::Stage;
use super::grid::{BLOCK, Grid, Parameters, Run};
use crate::activation::{Activation, Simple};
use crate::channels::Fold;
use crate::isa::{Kernel, Number, Simd};

/// Floats of a stage's folded parameters: three lists.
const FOLDED: usize = 3 * BLOCK;

/// An item with scratch for it.
pub(super) struct Item<'a, T> {
    problem: &'a Problem,
    grid: &'a Grid,
    stages: &'a [Stage],
    args: &'a RunArgs<'a>,
    rows: Range<usize>,
    columns: Range<usize>,
    scratch: &'a mut [f32],
    element: PhantomData<T>,
}

/// What a pass does before the activation.
#[derive(Clone, Copy)]
enum Affine<'a> {
    /// The same for all elements.
    One(Fold),
    /// A scale and a shift for each element.
    Each([&'a [f32]; 2]),
    /// A scale, a shift and an offset for each element, and what is multiplied before the offset is added.
    Normalize([&'a [f32]; 3], f32),
}

const IDENTITY: Affine<'static> = Affine::One(Fold::IDENTITY);

/// What a pass does behind the activation: `y = alpha · activation + beta · y_prior`.
#[derive(Clone, Copy)]
struct Blend {
    alpha: f32,
    beta: f32,
}

const NO_BLEND: Blend = Blend { alpha: 1.0, beta: 0.0 };

impl<'a, T: Number> Item<'a, T> {
    /// Floats of scratch: a block, two lists on the way to folded parameters, a stage's lists of them.
    pub(super) fn scratch(stages: &[Stage]) -> usize {
        BLOCK * 3 + FOLDED * stages.len()
    }

    pub(super) fn new(
        problem: &'a Problem,
        grid: &'a Grid,
        stages: &'a [Stage],
        args: &'a RunArgs<'a>,
        (rows, columns): (Range<usize>, Range<usize>),
        scratch: &'a mut [f32],
    ) -> Self {
        Item { problem, grid, stages, args, rows, columns, scratch, element: PhantomData }
    }

    /// The scale, shift and offset that `ops` amount to, as of [`Fold`], for each row or column of this item.
    #[inline(always)]
    fn fold<S: Simd>(&self, s: S, ops: Range<usize>, folded: &mut [f32], lists: &mut [f32]) {
        let (scale, rest) = folded.split_at_mut(BLOCK);
        let (shift, offset) = rest.split_at_mut(BLOCK);
        let (first, second) = lists.split_at_mut(BLOCK);
        let entries = self.grid.parameters(&self.rows, &self.columns);
        let padded = entries.total().next_multiple_of(S::LANES);
        scale[..padded].fill(Fold::IDENTITY.scale);
        shift[..padded].fill(Fold::IDENTITY.shift);
        macro_rules! each {
            (|$($name:ident = $list:ident),*| $($target:ident = $value:expr),*) => {
                for at in (0..padded).step_by(S::LANES) {
                    // SAFETY: all lists have BLOCK elements, which is a multiple of every set's lanes.
                    unsafe {
                        $(let $name = s.load($list.as_ptr().add(at));)*
                        $(s.store($target.as_mut_ptr().add(at), $value);)*
                    }
                }
            };
        }
        for i in ops {
            let OpArgs { alpha, kind, .. } = &self.args.ops[i];
            match (&self.problem.ops[i], kind) {
                (Op::BiasForward { bias }, OpArgsKind::BiasForward { bias: values }) => {
                    let (values, stride) = (values.cast::<T>(), bias.strides()[1]);
                    let place = |run: &Run| run.per_channel(stride);
                    // SAFETY: the bias has an element for each channel.
                    unsafe { gather(s, values, entries.clone(), place, first) };
                    each!(|t = shift, bias = first| shift = s.add(t, bias));
                }
                (
                    Op::BatchNormInference { mode },
                    OpArgsKind::BatchNormInference { scale: gamma, bias, mean, variance, epsilon },
                ) => {
                    let spatial = *mode == BatchNormMode::Spatial;
                    let place = |run: &Run| if spatial { run.per_channel(1) } else { run.per_place() };
                    macro_rules! gather {
                        ($list:expr, $to:expr) => {
                            // SAFETY: there is a parameter for each channel or each place.
                            unsafe { gather(s, *$list, entries.clone(), place, $to) }
                        };
                    }
                    let epsilon = s.splat(*epsilon as f32);
                    gather!(gamma, first);
                    gather!(variance, second);
                    each!(|g = first, v = second| scale = s.div(g, s.sqrt(s.add(v, epsilon))));
                    gather!(mean, second);
                    each!(|t = shift, m = second| offset = s.sub(t, m));
                    gather!(bias, first);
                    each!(|b = first| shift = b);
                }
                // PASTHRU
                _ => {}
            }
            let alpha = s.splat(*alpha);
            each!(|a = scale, t = shift| scale = s.mul(a, alpha), shift = s.mul(t, alpha));
        }
    }

    /// The folded parameters of a stage for some columns of a row.
    #[inline(always)]
    fn affine<'f>(
        &self,
        ops: &Range<usize>,
        folded: &'f [f32],
        row: usize,
        columns: &Range<usize>,
    ) -> Affine<'f> {
        let list = |i: usize| &folded[i * BLOCK..(i + 1) * BLOCK];
        let norm = ops.clone().find(|&op| matches!(self.problem.ops[op], Op::BatchNormInference { .. }));
        let before = norm.map(|norm| self.args.ops[ops.start..norm].iter().map(|op| op.alpha).product());
        if self.grid.per_row() {
            let at = row - self.rows.start;
            let fold = Fold { scale: list(0)[at], shift: list(1)[at], ..Fold::IDENTITY };
            return Affine::One(match before {
                Some(before) => Fold { before, offset: list(2)[at], ..fold },
                None => fold,
            });
        }
        let at = columns.start - self.columns.start..columns.end - self.columns.start;
        let list = |i: usize| &list(i)[at.clone()];
        match before {
            Some(before) => Affine::Normalize([list(0), list(1), list(2)], before),
            None => Affine::Each([list(0), list(1)]),
        }
    }

    #[inline(always)]
    fn activation(&self, op: usize) -> Activation {
        match (&self.problem.ops[op], &self.args.ops[op].kind) {
            (Op::ActivationForward { mode }, OpArgsKind::ActivationForward { params }) => {
                Activation::new(*mode, params, self.problem.output.data_type())
            }
            _ => unreachable!("arguments are of their operators' kinds"),
        }
    }
}

impl<T: Number> Kernel for Item<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let scratch = std::mem::take(&mut self.scratch);
        let (block, rest) = scratch.split_at_mut(BLOCK);
        let (lists, folded) = rest.split_at_mut(2 * BLOCK);
        for (stage, folded) in self.stages.iter().zip(folded.chunks_exact_mut(FOLDED)) {
            if let Stage::Affine(ops) = stage {
                self.fold(s, ops.clone(), folded, lists);
            }
        }
        // A simple activation at the end is applied on the way out.
        let beta = self.args.ops.last().map_or(0.0, |last| last.beta);
        let first_ops = match self.stages.first() {
            Some(Stage::Affine(ops)) => ops.clone(),
            _ => 0..0,
        };
        let (mut last, mut blend) = (Simple::Identity, Blend { alpha: 1.0, beta });
        let mut between = &self.stages[1..];
        if let [rest @ .., Stage::Activation(op)] = between
            && let Some(simple) = self.activation(*op).simple()
        {
            (last, blend.alpha, between) = (simple, self.args.ops[*op].alpha, rest);
        }
        let (input, output) = (self.args.input.cast::<T>(), self.args.output.cast::<T>());
        for row in self.rows.clone() {
            for from in self.columns.clone().step_by(BLOCK) {
                let columns = from..self.columns.end.min(from + BLOCK);
                let elements = self.grid.elements(row, &columns);
                let n = elements.len();
                let first = self.affine(&first_ops, folded, row, &columns);
                // SAFETY: the elements lie within input and output.
                let (x, y) = unsafe { (input.add(elements.start), output.add(elements.start)) };
                if between.is_empty() {
                    // SAFETY: as above.
                    unsafe { pass(s, x, y, n, first, last, blend) };
                    continue;
                }
                let block = block.as_mut_ptr();
                // SAFETY: as above, and `n` is at most the block's length.
                unsafe { pass(s, x, block, n, first, Simple::Identity, NO_BLEND) };
                for (i, stage) in between.iter().enumerate() {
                    // SAFETY: as above; the block has whole vectors.
                    unsafe { self.stage(s, stage, block, &folded[FOLDED * (i + 1)..], row, &columns) };
                }
                // SAFETY: as above.
                unsafe { pass(s, block, y, n, IDENTITY, last, blend) };
            }
        }
    }
}

impl<T: Number> Item<'_, T> {
    /// Applies a stage to a block in place.
    ///
    /// # Safety
    /// The block has BLOCK elements, the first of them those of these columns.
    #[inline(always)]
    unsafe fn stage<S: Simd>(
        &self,
        s: S,
        stage: &Stage,
        block: *mut f32,
        folded: &[f32],
        row: usize,
        columns: &Range<usize>,
    ) {
        let elements = self.grid.elements(row, columns);
        let n = elements.len();
        match stage {
            Stage::Affine(ops) => {
                let affine = self.affine(ops, folded, row, columns);
                // SAFETY: as of this function.
                unsafe { pass(s, block.cast_const(), block, n, affine, Simple::Identity, NO_BLEND) }
            }
            Stage::Residual(op) => {
                let OpArgs { alpha, kind: OpArgsKind::BiasForward { bias }, .. } = &self.args.ops[*op] else {
                    unreachable!("arguments are of their operators' kinds")
                };
                let alpha = s.splat(*alpha);
                // SAFETY: the residual has the output's elements.
                let residual = unsafe { bias.cast::<T>().add(elements.start) };
                vectors!(S, n, |at, count| {
                    // SAFETY: as of this function, and above.
                    unsafe {
                        let sum = s.add(s.load(block.add(at)), load(s, residual.add(at), count));
                        s.store(block.add(at), s.mul(alpha, sum));
                    }
                });
            }
            Stage::Activation(op) => {
                // SAFETY: as of this function; lanes beyond the last element are nobody's.
                unsafe { self.activation(*op).apply(s, block, n.div_ceil(S::LANES)) };
                let alpha = self.args.ops[*op].alpha;
                if alpha != 1.0 {
                    let affine = Affine::One(Fold { scale: alpha, ..Fold::IDENTITY });
                    // SAFETY: as of this function.
                    unsafe { pass(s, block.cast_const(), block, n, affine, Simple::Identity, NO_BLEND) }
                }
            }
        }
    }
}

/// Copies parameters in memory order to `to`.
///
/// # Safety
/// `place` gives each run's first index and step in the list at `list`.
#[inline(always)]
unsafe fn gather<S: Simd, T: Number>(
    s: S,
    list: *const T,
    runs: Parameters<'_>,
    place: impl Fn(&Run) -> (usize, usize),
    to: &mut [f32],
) {
    let mut rest = to;
    for run in runs {
        let (to, behind) = rest.split_at_mut(run.len());
        let (first, step) = place(&run);
        // SAFETY: as of this function.
        unsafe {
            match step {
                0 => to.fill((*list.add(first)).widen()),
                1 => {
                    let (from, to) = (list.add(first), to.as_mut_ptr());
                    vectors!(S, run.len(), |at, count| {
                        store(s, to.add(at), load(s, from.add(at), count), count);
                    });
                }
                _ => (0..).zip(to).for_each(|(i, to)| *to = (*list.add(first + i * step)).widen()),
            }
        }
        rest = behind;
    }
}

/// Runs a body for each whole vector of `n` elements, then for the rest; `count` is how many it has.
macro_rules! vectors {
    ($S:ident, $n:expr, |$at:ident, $count:ident| $body:block) => {
        let n = $n;
        let whole = n - n % $S::LANES;
        for $at in (0..whole).step_by($S::LANES) {
            let $count = $S::LANES;
            $body
        }
        if whole < n {
            let ($at, $count) = (whole, n - whole);
            $body
        }
    };
}
use vectors;

/// `y = alpha · last((x · before + offset) · scale + shift) + beta · y` for `n` elements.
///
/// # Safety
/// `x` is readable and `y` writable for `n` elements, and `y` readable where beta is not 0; `x` is `y` or
/// does not overlap it; the lists have `n` elements.
#[inline(always)]
unsafe fn pass<S: Simd, X: Number, Y: Number>(
    s: S,
    x: *const X,
    y: *mut Y,
    n: usize,
    affine: Affine<'_>,
    last: Simple,
    Blend { alpha, beta }: Blend,
) {
    let (alpha, zero_beta, beta) = (s.splat(alpha), beta == 0.0, s.splat(beta));
    macro_rules! each {
        (|$x:ident, $at:ident, $count:ident| $affine:expr, $last:expr) => {
            vectors!(S, n, |$at, $count| {
                // SAFETY: as of this function.
                unsafe {
                    let $x = load(s, x.add($at), $count);
                    let mut value = s.mul(alpha, $last.apply(s, $affine));
                    if !zero_beta {
                        value = s.fma(beta, load(s, y.add($at).cast_const(), $count), value);
                    }
                    store(s, y.add($at), value, $count);
                }
            })
        };
    }
    macro_rules! with_affine {
        ($last:expr) => {
            match affine {
                Affine::One(Fold { before, offset, scale, shift }) => {
                    let [before, offset, scale, shift] = [before, offset, scale, shift].map(|v| s.splat(v));
                    each!(|x, at, count| s.fma(s.fma(x, before, offset), scale, shift), $last);
                }
                Affine::Each(lists) => {
                    let [scale, shift] = lists.map(|list| list.as_ptr());
                    each!(
                        |x, at, count| s.fma(x, load(s, scale.add(at), count), load(s, shift.add(at), count)),
                        $last
                    );
                }
                Affine::Normalize(lists, before) => {
                    let ([scale, shift, offset], before) = (lists.map(|list| list.as_ptr()), s.splat(before));
                    each!(
                        |x, at, count| s.fma(
                            s.fma(x, before, load(s, offset.add(at), count)),
                            load(s, scale.add(at), count),
                            load(s, shift.add(at), count)
                        ),
                        $last
                    );
                }
            }
        };
    }
    match last {
        Simple::Identity => with_affine!(Simple::Identity),
        Simple::Slope(slope) => with_affine!(Simple::Slope(slope)),
        Simple::Clip(top) => with_affine!(Simple::Clip(top)),
    }
}

/// # Safety
/// `p` is readable for `count <= LANES` elements.
#[inline(always)]
unsafe fn load<S: Simd, T: Number>(s: S, p: *const T, count: usize) -> S::V {
    // SAFETY: as of this function.
    unsafe { if count == S::LANES { T::load(s, p) } else { T::load_part(s, p, count) } }
}

/// # Safety
/// `p` is writable for `count <= LANES` elements.
#[inline(always)]
unsafe fn store<S: Simd, T: Number>(s: S, p: *mut T, v: S::V, count: usize) {
    // SAFETY: as of this function.
    unsafe { if count == S::LANES { T::store(s, p, v) } else { T::store_part(s, p, v, count) } }
}
