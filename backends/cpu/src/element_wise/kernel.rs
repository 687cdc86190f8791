//! One item: fold the affine stages, then run the chain over its elements.

use std::marker::PhantomData;
use std::ops::Range;

use fuseplan_api::operands::{ActivationForward, BatchNormInference, BiasForward, PReluForward};
use fuseplan_api::volume::Volume;
use fuseplan_api::{BatchNormMode, Op, Problem, RunArgs};

use super::Stage;
use super::grid::{BLOCK, Grid};
use crate::activation::{Activation, Simple, prelu};
use crate::channels::{self, Affine, Factor, Fold, LISTS, Norm, TABLES};
use crate::isa::{Kernel, MAX_LANES, Number, Simd};
use crate::vectors::{deal, load, load_two, store, store_two, vectors};

/// Floats of a stage's folded parameters.
const FOLDED: usize = TABLES * BLOCK;

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

/// What a pass does in front of the activation.
#[derive(Clone, Copy)]
enum Folded<'a> {
    /// One fold for all elements.
    One(Fold<f32>),
    /// Numbers of its own for each element: [`Fold::back`] without a front.
    Each(Affine<&'a [f32]>),
    /// Numbers for each element behind a front, whose factor is the same for all.
    Normalize { factor: f32, term: &'a [f32], back: Affine<&'a [f32]> },
}

const IDENTITY: Folded<'static> = Folded::One(Fold { front: None, back: Affine::IDENTITY });

impl<'a, T: Number> Item<'a, T> {
    /// Floats of scratch: a block, the lists that parameters are folded from, each stage's tables.
    pub(super) fn scratch(stages: &[Stage]) -> usize {
        BLOCK * (1 + LISTS) + FOLDED * stages.len()
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

    /// What operator `i` folds into, and its alpha; of a PReLU its slopes alone.
    #[inline(always)]
    fn factors(&self, i: usize) -> impl Iterator<Item = Factor> + use<T> {
        let args = &self.args.ops[i];
        let own = match &self.problem.ops[i] {
            Op::BiasForward { bias } => {
                let BiasForward { bias: data } = BiasForward::of(args);
                Some(Factor::Bias { data, data_type: bias.data_type(), stride: Volume::of(bias).strides[1] })
            }
            Op::BatchNormInference { mode, params } => {
                let BatchNormInference { scale, bias, mean, variance, epsilon } =
                    BatchNormInference::of(args);
                Some(Factor::Normalize {
                    parameters: Norm { scale, bias, mean, variance },
                    data_type: *params,
                    epsilon: epsilon as f32,
                    per_position: *mode == BatchNormMode::PerActivation,
                })
            }
            Op::PReluForward { slope } => {
                let PReluForward { slope: data } = PReluForward::of(args);
                Some(Factor::Slope {
                    data,
                    data_type: slope.data_type(),
                    stride: Volume::of(slope).strides[1],
                })
            }
            // PASTHRU is its alpha; other activations are stages of their own.
            Op::ActivationForward { .. } => None,
            op @ (Op::ConvForward { .. }
            | Op::BatchNormForward { .. }
            | Op::BatchNormBackward { .. }
            | Op::ActivationBackward { .. }) => unreachable!("an element-wise plan has no {op}"),
        };
        let alpha = match own {
            Some(Factor::Slope { .. }) => None,
            Some(Factor::Alpha(_) | Factor::Bias { .. } | Factor::Normalize { .. }) | None => {
                Some(Factor::Alpha(args.alpha))
            }
        };
        own.into_iter().chain(alpha)
    }

    /// Folds `ops` for each row or column of this item.
    #[inline(always)]
    fn fold<S: Simd>(&self, s: S, ops: Range<usize>, tables: &mut [f32], lists: &mut [f32]) {
        let factors = ops.flat_map(|i| self.factors(i));
        let (runs, entries) = self.grid.parameters(&self.rows, &self.columns);
        let period = runs.len();
        // SAFETY: operators have a parameter of their type for each channel or for each position in each channel, which
        // is where the grid's runs are.
        unsafe { channels::fold(s, factors, runs, tables, lists) }
        for table in tables.chunks_exact_mut(BLOCK) {
            let mut known = period;
            while known < entries {
                let more = known.min(entries - known);
                table.copy_within(..more, known);
                known += more;
            }
        }
    }

    /// The factor of the front that `ops` fold into. It is the same for all rows, and should be asked for once.
    #[inline(always)]
    fn front(&self, ops: &Range<usize>) -> Option<f32> {
        channels::front_factor(ops.clone().flat_map(|i| self.factors(i)))
    }

    /// The folded parameters of a stage for some columns of a row.
    #[inline(always)]
    fn folded<'f>(
        &self,
        front: Option<f32>,
        tables: &'f [f32],
        row: usize,
        columns: &Range<usize>,
    ) -> Folded<'f> {
        let table = |i: usize| &tables[i * BLOCK..(i + 1) * BLOCK];
        if self.grid.per_row() {
            let at = row - self.rows.start;
            return Folded::One(Fold {
                front: front.map(|factor| Affine { factor, term: table(2)[at] }),
                back: Affine { factor: table(0)[at], term: table(1)[at] },
            });
        }
        // Whole pairs of vectors.
        let whole = (columns.end - self.columns.start).next_multiple_of(2 * MAX_LANES).min(BLOCK);
        let at = columns.start - self.columns.start..whole;
        let table = |i: usize| &table(i)[at.clone()];
        let back = Affine { factor: table(0), term: table(1) };
        match front {
            Some(factor) => Folded::Normalize { factor, term: table(2), back },
            None => Folded::Each(back),
        }
    }

    #[inline(always)]
    fn activation(&self, op: usize) -> Activation {
        let Op::ActivationForward { mode } = &self.problem.ops[op] else {
            unreachable!("the stage was made of an activation")
        };
        let params = ActivationForward::of(&self.args.ops[op]).params();
        Activation::new(*mode, &params, self.problem.output.data_type())
    }
}

impl<T: Number> Kernel for Item<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let scratch = std::mem::take(&mut self.scratch);
        let (block, rest) = scratch.split_at_mut(BLOCK);
        let (lists, folded) = rest.split_at_mut(LISTS * BLOCK);
        let first_ops = match self.stages.first() {
            Some(Stage::Affine(ops)) => ops.clone(),
            _ => 0..0,
        };
        // A simple activation at the end is applied on the way out.
        let (mut last, mut between) = (Simple::Identity, &self.stages[1..]);
        if let [rest @ .., Stage::Activation(op)] = between
            && self.args.ops[*op].alpha == 1.0
            && let Some(simple) = self.activation(*op).simple()
        {
            (last, between) = (simple, rest);
        }
        let beta = self.args.ops.last().map_or(0.0, |last| last.beta);
        // What stays in registers needs no block, and goes through all columns at once.
        let in_registers = between.is_empty() && beta == 0.0;
        for (stage, folded) in self.stages.iter().zip(folded.chunks_exact_mut(FOLDED)) {
            let ops = match stage {
                Stage::Affine(ops) => ops.clone(),
                Stage::PRelu(op) => *op..op + 1,
                Stage::Residual(_) | Stage::Activation(_) => continue,
            };
            self.fold(s, ops, folded, lists);
        }
        if in_registers && T::deals::<S>() && !self.grid.per_row() {
            deal(s, &mut folded[..FOLDED]);
        }
        let first_front = self.front(&first_ops);
        let (input, output) = (self.args.input.cast::<T>(), self.args.output.cast::<T>());
        let step = if in_registers { self.columns.len() } else { BLOCK };
        let mut rows = self.rows.clone();
        while let Some(row) = rows.next() {
            for from in self.columns.clone().step_by(step) {
                let columns = from..self.columns.end.min(from + step);
                let elements = self.grid.elements(row, &columns);
                let n = elements.len();
                let first = self.folded(first_front, folded, row, &columns);
                // SAFETY: the elements lie within input and output.
                let (x, y) = unsafe { (input.add(elements.start), output.add(elements.start)) };
                if in_registers {
                    // Two rows share what is loaded of the parameters of columns.
                    let next = rows.clone().next().map(|row| self.grid.elements(row, &columns));
                    let shares = S::WRITES_OUT && !self.grid.per_row();
                    match next.filter(|next| shares && next.len() == n) {
                        Some(next) => {
                            let pitch = next.start - elements.start;
                            rows.next();
                            // SAFETY: both have the `n` elements of these columns in both rows, for which there are tables;
                            // they are one tensor or do not overlap.
                            unsafe { pass::<S, T, T, 2>(s, x, y, pitch, n, first, last, 0.0) };
                        }
                        // SAFETY: as for two rows.
                        None => unsafe { pass::<S, T, T, 1>(s, x, y, 0, n, first, last, 0.0) },
                    }
                    continue;
                }
                let block = block.as_mut_ptr();
                // SAFETY: the input has these `n` elements, and the block at least as many.
                unsafe { pass::<S, T, f32, 1>(s, x, block, 0, n, first, Simple::Identity, 0.0) };
                for (i, stage) in between.iter().enumerate() {
                    // SAFETY: the block has BLOCK elements, and holds those of these columns.
                    unsafe { self.stage(s, stage, block, &folded[FOLDED * (i + 1)..], row, &columns) };
                }
                // SAFETY: the block holds the `n` elements, which the output has room for.
                unsafe { pass::<S, f32, T, 1>(s, block, y, 0, n, IDENTITY, last, beta) };
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
                let fold = self.folded(self.front(ops), folded, row, columns);
                // SAFETY: the caller says that the block has these `n` elements, for which there are tables.
                unsafe {
                    pass::<S, f32, f32, 1>(s, block.cast_const(), block, 0, n, fold, Simple::Identity, 0.0)
                }
            }
            Stage::Residual(op) => {
                let args = &self.args.ops[*op];
                let BiasForward { bias } = BiasForward::of(args);
                let alpha = s.splat(args.alpha);
                // SAFETY: the residual has the output's elements.
                let residual = unsafe { bias.cast::<T>().add(elements.start) };
                vectors!(S, n, |at, count| {
                    // SAFETY: the caller says that the block has BLOCK elements, so whole vectors; the residual has
                    // `count` elements from `at` on.
                    unsafe {
                        let sum = s.add(s.load(block.add(at)), load(s, residual.add(at), count));
                        s.store(block.add(at), s.mul(alpha, sum));
                    }
                });
            }
            Stage::PRelu(op) => {
                let alpha = s.splat(self.args.ops[*op].alpha);
                macro_rules! each {
                    (|$at:ident, $count:ident| $slope:expr) => {
                        vectors!(S, n, |$at, $count| {
                            // SAFETY: the caller says that the block has BLOCK elements, so whole vectors; the slopes
                            // have `count` elements from `at` on.
                            unsafe {
                                let y = prelu(s, s.load(block.add($at)), $slope);
                                s.store(block.add($at), s.mul(alpha, y));
                            }
                        })
                    };
                }
                match self.folded(None, folded, row, columns) {
                    Folded::One(fold) => {
                        let slope = s.splat(fold.back.factor);
                        each!(|at, _count| slope);
                    }
                    Folded::Each(Affine { factor, .. })
                    | Folded::Normalize { back: Affine { factor, .. }, .. } => {
                        each!(|at, count| load(s, factor.as_ptr().add(at), count));
                    }
                }
            }
            Stage::Activation(op) => {
                // SAFETY: the caller says that the block has BLOCK elements, so whole vectors; lanes beyond the last
                // element are nobody's.
                unsafe { self.activation(*op).apply(s, block, n.div_ceil(S::LANES)) };
                let alpha = self.args.ops[*op].alpha;
                if alpha != 1.0 {
                    let back = Affine { factor: alpha, ..Affine::IDENTITY };
                    let fold = Folded::One(Fold { front: None, back });
                    // SAFETY: the caller says that the block has these `n` elements.
                    unsafe {
                        pass::<S, f32, f32, 1>(
                            s,
                            block.cast_const(),
                            block,
                            0,
                            n,
                            fold,
                            Simple::Identity,
                            0.0,
                        )
                    }
                }
            }
        }
    }
}

/// `y = last(fold(x)) + beta · y` for `n` elements of each of R rows, which are `pitch` elements apart. Passes that are known for a
/// beta of 0 have no look at it in their loops.
///
/// # Safety
/// `x` is readable and `y` writable for `n` elements of each row, and `y` readable where beta is not 0; `x` is `y` or
/// does not overlap it; the tables have `n` elements, in the order of [`Number::load_two`] and whole pairs of vectors where
/// both types deal out elements, and then beta is 0.
#[inline(always)]
#[expect(
    clippy::too_many_arguments,
    reason = "the tensors have two arguments each, and so have the operators"
)]
unsafe fn pass<S: Simd, X: Number, Y: Number, const R: usize>(
    s: S,
    x: *const X,
    y: *mut Y,
    pitch: usize,
    n: usize,
    fold: Folded<'_>,
    last: Simple,
    beta: f32,
) {
    let (zero_beta, beta) = (beta == 0.0, s.splat(beta));
    macro_rules! each {
        (|$x:ident, $at:ident, $count:ident| $affine:expr, $last:expr) => {
            if X::deals::<S>() && Y::deals::<S>() {
                macro_rules! two {
                    ($first:expr, $n:expr) => {
                        // SAFETY: the caller says that `x` and `y` have these elements, and that tables have whole pairs
                        // of vectors.
                        unsafe {
                            let mut values = [[s.splat(0.0); 2]; R];
                            for (row, values) in values.iter_mut().enumerate() {
                                *values = load_two(s, x.add(row * pitch + $first), $n);
                                for (half, value) in values.iter_mut().enumerate() {
                                    let ($at, $count, $x) = ($first + half * S::LANES, S::LANES, *value);
                                    *value = $last.apply(s, $affine);
                                }
                            }
                            for (row, &values) in values.iter().enumerate() {
                                store_two(s, y.add(row * pitch + $first), values, $n);
                            }
                        }
                    };
                }
                let (pair, rest) = (2 * S::LANES, n % (2 * S::LANES));
                for first in (0..n - rest).step_by(pair) {
                    two!(first, pair);
                }
                if rest > 0 {
                    two!(n - rest, rest);
                }
                return;
            }
            vectors!(S, n, |$at, $count| {
                // SAFETY: the caller says that `x`, `y` and the tables have the `count` elements from `$at` on, and that
                // `y` is readable where it is read.
                unsafe {
                    // All rows before the first is written, so that what is loaded of tables is known to be the same.
                    let mut values = [s.splat(0.0); R];
                    for (row, value) in values.iter_mut().enumerate() {
                        let $x = load(s, x.add(row * pitch + $at), $count);
                        *value = $last.apply(s, $affine);
                    }
                    for (row, &value) in values.iter().enumerate() {
                        let (y, mut value) = (y.add(row * pitch + $at), value);
                        if !zero_beta {
                            value = s.fma(beta, load(s, y.cast_const(), $count), value);
                        }
                        store(s, y, value, $count);
                    }
                }
            })
        };
    }
    macro_rules! with_fold {
        ($last:expr) => {
            match fold {
                // Rows that have a fold each go through alone.
                Folded::One(_) if R > 1 => unreachable!("rows share parameters of columns"),
                Folded::One(Fold { front, back }) => {
                    let front = Some(Affine::splat(s, front.unwrap_or(Affine::IDENTITY)));
                    let fold = Fold { front, back: Affine::splat(s, back) };
                    each!(|x, _at, _count| fold.apply(s, x), $last);
                }
                Folded::Each(Affine { factor, term }) => {
                    let (factor, term) = (factor.as_ptr(), term.as_ptr());
                    each!(
                        |x, at, count| Affine {
                            factor: load(s, factor.add(at), count),
                            term: load(s, term.add(at), count)
                        }
                        .apply(s, x),
                        $last
                    );
                }
                Folded::Normalize {
                    factor: front_factor,
                    term: front_term,
                    back: Affine { factor, term },
                } => {
                    let (factor, term) = (factor.as_ptr(), term.as_ptr());
                    let (front_factor, front_term) = (s.splat(front_factor), front_term.as_ptr());
                    each!(
                        |x, at, count| {
                            let term_in_front = load(s, front_term.add(at), count);
                            let front = Affine { factor: front_factor, term: term_in_front };
                            let factor = load(s, factor.add(at), count);
                            let back = Affine { factor, term: load(s, term.add(at), count) };
                            Fold { front: Some(front), back }.apply(s, x)
                        },
                        $last
                    );
                }
            }
        };
    }
    if !S::WRITES_OUT {
        // One loop that asks each vector, as three would be much of what the portable set takes of a library.
        with_fold!(last);
        return;
    }
    match last {
        Simple::Identity => with_fold!(Simple::Identity),
        Simple::Slope(slope) => with_fold!(Simple::Slope(slope)),
        Simple::Clip(top) => with_fold!(Simple::Clip(top)),
    }
}
