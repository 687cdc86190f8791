//! From the arguments of an execution to its steps: neighbouring operators on channels are folded into tables.

use std::ptr::NonNull;

use arrayvec::ArrayVec;
use fuseplan_api::OpArgs;
use fuseplan_api::operands::{ActivationForward, BatchNormInference, BiasForward, PReluForward};

use super::apply::{ChannelStep, Front, Step, Steps};
use super::{Epilogue, Kind, MAX_STEPS};
use crate::activation::{Activation, Simple};
use crate::channels::{self, Factor, LISTS, Norm, Run, TABLES};
use crate::isa::{Kernel, Simd};

impl Epilogue {
    /// The steps for the arguments of an execution: all operators' arguments, the convolution's included.
    ///
    /// # Safety
    /// `args` keep what `RunArgs` promises; `tables` has [`Epilogue::table_len`] floats and outlives the
    /// steps' use.
    pub(crate) unsafe fn bind(&self, args: &[OpArgs], tables: &mut [f32]) -> Steps<'_> {
        let (lists, tables) = tables.split_at_mut(LISTS * self.table_stride());
        let mut binder =
            Binder { epilogue: self, tables, lists, pending: ArrayVec::new(), steps: ArrayVec::new() };
        for before in &args[..self.first] {
            binder.scale(before.alpha);
        }
        if !matches!(self.ops.first(), Some(Kind::Bias { .. } | Kind::Spatial(_))) {
            // The front always begins with a step on channels.
            // SAFETY: nothing but alphas is pending, which have no parameters in memory.
            unsafe { binder.flush() };
        }
        for (kind, args) in self.ops.iter().zip(&args[self.first..]) {
            // SAFETY: `RunArgs` promises that the operator's parameters are readable.
            unsafe { binder.add(kind, args) };
        }
        // SAFETY: what is pending came from the arguments, whose parameters `RunArgs` promises to be readable.
        unsafe { binder.flush() };
        if let Some(last) = args.last().filter(|last| last.beta != 0.0) {
            binder.steps.push(Step::Prior { beta: last.beta });
        }
        binder.finish()
    }
}

struct Binder<'a, 't> {
    epilogue: &'a Epilogue,
    /// Memory that no step has yet.
    tables: &'t mut [f32],
    /// Scratch for folding.
    lists: &'t mut [f32],
    /// Operators that the next folded step will consist of.
    pending: ArrayVec<Factor, MAX_STEPS>,
    /// The steps so far.
    steps: ArrayVec<Step, MAX_STEPS>,
}

impl<'a> Binder<'a, '_> {
    fn scale(&mut self, alpha: f32) {
        if alpha != 1.0 {
            self.pending.push(Factor::Alpha(alpha));
        }
    }

    /// Whether one of the pending operators is a batch-norm, of which a step has at most one.
    fn normalizes(&self) -> bool {
        self.pending.iter().any(|factor| matches!(factor, Factor::Normalize { .. }))
    }

    /// Adds an operator and its alpha.
    ///
    /// # Safety
    /// The parameters of this operator, and of those that are pending, have a readable value for each channel.
    unsafe fn add(&mut self, kind: &Kind, args: &OpArgs) {
        let step = match *kind {
            Kind::Bias { data_type, stride } => {
                let BiasForward { bias } = BiasForward::of(args);
                self.pending.push(Factor::Bias { data: bias, data_type, stride });
                return self.scale(args.alpha);
            }
            Kind::Spatial(data_type) => {
                let BatchNormInference { scale, bias, mean, variance, epsilon } =
                    BatchNormInference::of(args);
                if self.normalizes() {
                    // SAFETY: the caller says that the pending operators' parameters are readable.
                    unsafe { self.flush() };
                }
                let parameters = Norm { scale, bias, mean, variance };
                let epsilon = epsilon as f32;
                self.pending.push(Factor::Normalize { parameters, data_type, epsilon, per_position: false });
                return self.scale(args.alpha);
            }
            Kind::PRelu { data_type, stride } => {
                let PReluForward { slope } = PReluForward::of(args);
                // SAFETY: the caller says that the pending operators' parameters are readable, and this one's.
                unsafe {
                    self.flush();
                    self.pending.push(Factor::Slope { data: slope, data_type, stride });
                    let slopes = self.table().factor;
                    self.steps.push(Step::PRelu(slopes));
                }
                return self.scale(args.alpha);
            }
            Kind::Residual { surface } => Step::Residual { data: BiasForward::of(args).bias, surface },
            Kind::PerActivation { data_type, surface } => {
                let BatchNormInference { scale, bias, mean, variance, epsilon } =
                    BatchNormInference::of(args);
                let parameters = Norm { scale, bias, mean, variance };
                Step::Normalize { parameters, data_type, epsilon: epsilon as f32, surface }
            }
            Kind::Activation(mode) => {
                let params = ActivationForward::of(args).params();
                Step::Activation(Activation::new(mode, &params, self.epilogue.data_type))
            }
        };
        // SAFETY: the caller says that the pending operators' parameters are readable.
        unsafe { self.flush() };
        self.steps.push(step);
        self.scale(args.alpha);
    }

    /// Folds the pending operators into a step. The first step is always a folded one, if only of the identity.
    ///
    /// # Safety
    /// The pending operators' parameters have a readable value for each channel.
    unsafe fn flush(&mut self) {
        if self.pending.is_empty() && !self.steps.is_empty() {
            return;
        }
        // SAFETY: as promised by the caller.
        let step = unsafe { self.table() };
        self.steps.push(Step::Channel(step));
    }

    /// What the pending operators fold into.
    ///
    /// # Safety
    /// As of `flush`.
    unsafe fn table(&mut self) -> ChannelStep {
        let Epilogue { channels, isa, .. } = *self.epilogue;
        let stride = self.epilogue.table_stride();
        let factors = &self.pending[..];
        let (tables, free) = std::mem::take(&mut self.tables).split_at_mut(TABLES * stride);
        isa.run(FoldChannels { factors, channels, tables, lists: self.lists });
        let tables = &*tables;
        let front = channels::front_factor(factors.iter().copied())
            .map(|factor| (factor, NonNull::from(&tables[2 * stride..]).cast()));
        self.tables = free;
        self.pending.clear();
        ChannelStep { front, factor: tables.as_ptr(), term: tables[stride..].as_ptr() }
    }

    fn finish(self) -> Steps<'a> {
        let mut rest = self.steps;
        let Step::Channel(channels) = rest[0] else { unreachable!("the first step is a folded one") };
        let front = match rest.get(1) {
            Some(Step::Activation(activation)) => activation.simple().map(Front::Simple),
            Some(&Step::PRelu(slopes)) => Some(Front::PRelu(slopes)),
            _ => None,
        };
        rest.drain(..1 + usize::from(front.is_some()));
        let activation = front.unwrap_or(Front::Simple(Simple::Identity));
        Steps { channels, activation, rest, epilogue: self.epilogue }
    }
}

/// Folds operators for each channel, in vectors of the instruction set.
struct FoldChannels<'a> {
    /// Their parameters have a readable value for each channel.
    factors: &'a [Factor],
    channels: usize,
    tables: &'a mut [f32],
    lists: &'a mut [f32],
}

impl Kernel for FoldChannels<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let factors = self.factors.iter().copied();
        let runs = [Run::channels(self.channels)].into_iter();
        // SAFETY: whoever makes this value answers for the parameters.
        unsafe { channels::fold(s, factors, runs, self.tables, self.lists) }
    }
}
