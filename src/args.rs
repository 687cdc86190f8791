//! Run-time arguments: what is set for each operator, in any order, before or after the compile.

mod copies;

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuseplan_api::{ActivationParams, BackendError, DataType, Element, OpArgs, OpArgsKind, OpKind, Prepared};

use crate::buffer::{Block, DeviceBuffer};
use crate::handle::Handle;
use crate::operator::{OpId, Operator};
use copies::Copies;
pub(crate) use copies::{Resident, place};

/// Memory that a plan reads: a [`DeviceBuffer`], a slice, or a raw pointer to memory of the handle's device.
#[derive(Debug, Clone, Copy)]
pub struct Operand<'a> {
    pub(crate) memory: Span<'a>,
    constant: bool,
}

/// Memory that a plan writes: a [`DeviceBuffer`], a mutable slice, or a raw pointer to memory of the
/// handle's device.
#[derive(Debug)]
pub struct OperandMut<'a> {
    pub(crate) memory: Span<'a>,
    lifetime: PhantomData<&'a mut ()>,
}

impl Operand<'_> {
    /// A raw pointer to memory of the handle's device.
    ///
    /// # Safety
    /// The memory holds the operand when a plan runs with it (`bytes` of it, if given, else as much as the
    /// plan's descriptor says), lives until the plan's stream has passed the execution, and is not written
    /// meanwhile.
    pub unsafe fn from_raw(address: *const c_void, bytes: Option<usize>) -> Self {
        let memory = Span { address, bytes, data_type: None, written: false, place: Place::Raw };
        Operand { memory, constant: false }
    }

    /// Promises that the contents do not change as long as the arguments with this operand live, so that a
    /// kernel may keep what it derives from them. Slices promise it by their borrow.
    ///
    /// # Safety
    /// The contents do not change.
    pub unsafe fn constant(mut self) -> Self {
        self.constant = true;
        self
    }
}

impl OperandMut<'_> {
    /// A raw pointer to memory of the handle's device that a plan may write. Null where an output is not
    /// wanted and may be left out.
    ///
    /// # Safety
    /// As [`Operand::from_raw`], and nothing else reads or writes the memory until the stream has passed
    /// the execution.
    pub unsafe fn from_raw(address: *mut c_void, bytes: Option<usize>) -> Self {
        OperandMut::new(address, bytes, None, Place::Raw)
    }

    /// An output that is not wanted.
    pub fn none() -> Self {
        OperandMut::new(std::ptr::null(), None, None, Place::Raw)
    }
}

impl<'a> OperandMut<'a> {
    pub(crate) fn new(
        address: *const c_void,
        bytes: Option<usize>,
        data_type: Option<DataType>,
        place: Place<'a>,
    ) -> Self {
        let memory = Span { address, bytes, data_type, written: true, place };
        OperandMut { memory, lifetime: PhantomData }
    }
}

impl<'a> Operand<'a> {
    /// Memory that is borrowed, so that its contents do not change.
    pub(crate) fn new(address: *const c_void, bytes: usize, data_type: DataType, place: Place<'a>) -> Self {
        let memory = Span { address, bytes: Some(bytes), data_type: Some(data_type), written: false, place };
        Operand { memory, constant: true }
    }
}

impl<'a, T: Element> From<&'a [T]> for Operand<'a> {
    fn from(slice: &'a [T]) -> Self {
        Operand::new(slice.as_ptr().cast(), size_of_val(slice), T::DATA_TYPE, Place::Host)
    }
}

/// Like a slice's, the contents cannot change as long as the borrow lasts.
impl<'a, T: Element> From<&'a DeviceBuffer<T>> for Operand<'a> {
    fn from(buffer: &'a DeviceBuffer<T>) -> Self {
        let block = buffer.block();
        Operand::new(block.address(), block.bytes(), T::DATA_TYPE, Place::Device(block))
    }
}

impl<'a, T: Element> From<&'a Vec<T>> for Operand<'a> {
    fn from(vec: &'a Vec<T>) -> Self {
        vec.as_slice().into()
    }
}

impl<'a, T: Element, const N: usize> From<&'a [T; N]> for Operand<'a> {
    fn from(array: &'a [T; N]) -> Self {
        array.as_slice().into()
    }
}

impl<'a, T: Element> From<&'a mut [T]> for OperandMut<'a> {
    fn from(slice: &'a mut [T]) -> Self {
        let (address, bytes) = (slice.as_mut_ptr().cast_const().cast(), size_of_val(slice));
        OperandMut::new(address, Some(bytes), Some(T::DATA_TYPE), Place::Host)
    }
}

impl<'a, T: Element> From<&'a mut DeviceBuffer<T>> for OperandMut<'a> {
    fn from(buffer: &'a mut DeviceBuffer<T>) -> Self {
        let block = buffer.block();
        OperandMut::new(block.address(), Some(block.bytes()), Some(T::DATA_TYPE), Place::Device(block))
    }
}

impl<'a, T: Element> From<&'a mut Vec<T>> for OperandMut<'a> {
    fn from(vec: &'a mut Vec<T>) -> Self {
        vec.as_mut_slice().into()
    }
}

impl<'a, T: Element, const N: usize> From<&'a mut [T; N]> for OperandMut<'a> {
    fn from(array: &'a mut [T; N]) -> Self {
        array.as_mut_slice().into()
    }
}

pub(crate) mod sealed {
    use super::*;

    /// Whose an address is.
    #[derive(Debug, Clone, Copy)]
    pub(crate) enum Place<'a> {
        /// A slice in host memory.
        Host,
        /// Memory of the handle's device, as the caller promised.
        Raw,
        /// Memory of a device that keeps track of the streams that use it.
        Device(&'a Block),
        /// Memory of a device that is ready for this handle's stream and no other.
        #[cfg(feature = "cudarc")]
        Stream(&'a crate::cuda::Tracked<'a>),
    }

    /// An address with what is known of the memory there.
    #[derive(Debug, Clone, Copy)]
    pub struct Span<'a> {
        pub(crate) address: *const c_void,
        /// `None` for raw pointers of unknown extent.
        pub(crate) bytes: Option<usize>,
        /// `None` for raw pointers.
        pub(crate) data_type: Option<DataType>,
        /// Whether the plan writes there.
        pub(crate) written: bool,
        pub(crate) place: Place<'a>,
    }

    // SAFETY: a span is an address and facts about it; whoever dereferences it answers for that.
    unsafe impl Send for Span<'_> {}
    // SAFETY: as above.
    unsafe impl Sync for Span<'_> {}

    impl<'a> Span<'a> {
        /// Whether this is a slice in host memory.
        pub(crate) fn is_host(&self) -> bool {
            matches!(self.place, Place::Host)
        }

        /// A buffer there is to be used by something launched into the handle's stream next.
        pub(crate) fn use_on(&self, handle: &Handle) -> Result<(), BackendError> {
            match self.place {
                Place::Device(block) if self.written => block.write_on(handle),
                Place::Device(block) => block.read_on(handle),
                _ => Ok(()),
            }
        }

        /// It is used by what was launched last.
        pub(crate) fn launched(&self) -> Result<(), BackendError> {
            match self.place {
                #[cfg(feature = "cudarc")]
                Place::Stream(tracked) => tracked.launched(),
                _ => Ok(()),
            }
        }

        /// The bytes of a slice in host memory that is read.
        pub(crate) fn host_bytes(&self) -> Option<&'a [u8]> {
            let bytes = self.bytes.filter(|_| self.is_host() && !self.written)?;
            // SAFETY: the span was made from a slice of numbers of this size, borrowed for `'a`.
            Some(unsafe { std::slice::from_raw_parts(self.address.cast(), bytes) })
        }
    }

    /// What arguments are made of.
    pub trait Lower<'a> {
        /// The backend's form and the memory behind it, in the order of
        /// [`operands`](crate::execute::operands).
        fn lower(self) -> (OpArgs, Vec<Span<'a>>);
    }
}
pub(crate) use sealed::{Lower, Place, Span};

/// The arguments of one operator.
pub trait Arguments<'a>: sealed::Lower<'a> {}

macro_rules! arguments {
    (
        $(#[$doc:meta])* $name:ident { $($(#[$rdoc:meta])* $read:ident),* ; $($(#[$wdoc:meta])* $write:ident),* ;
        $($(#[$sdoc:meta])* $scalar:ident: $ty:ty),* }
        => |$this:ident| $kind:expr
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<'a> {
            $($read: Operand<'a>,)*
            $($write: OperandMut<'a>,)*
            $($scalar: $ty,)*
            alpha: f32,
            beta: f32,
            lifetime: PhantomData<&'a ()>,
        }

        impl<'a> $name<'a> {
            /// The arguments, with alpha 1 and beta 0.
            ///
            $(#[doc = concat!("- `", stringify!($read), "`: ")] $(#[$rdoc])*)*
            $(#[doc = concat!("- `", stringify!($write), "`: ")] $(#[$wdoc])*)*
            $(#[doc = concat!("- `", stringify!($scalar), "`: ")] $(#[$sdoc])*)*
            #[allow(clippy::too_many_arguments, reason = "MIOpen's own argument lists")]
            pub fn new(
                $($read: impl Into<Operand<'a>>,)*
                $($write: impl Into<OperandMut<'a>>,)*
                $($scalar: $ty,)*
            ) -> Self {
                $name {
                    $($read: $read.into(),)*
                    $($write: $write.into(),)*
                    $($scalar,)*
                    alpha: 1.0,
                    beta: 0.0,
                    lifetime: PhantomData,
                }
            }

            /// Scales the operator's result: `y = alpha · op(x) + beta · y_prior`.
            pub fn alpha(mut self, alpha: f32) -> Self {
                self.alpha = alpha;
                self
            }

            /// Scales the output's previous contents, which are added. Only the last operator of a plan may
            /// have a beta other than 0.
            pub fn beta(mut self, beta: f32) -> Self {
                self.beta = beta;
                self
            }
        }

        impl<'a> sealed::Lower<'a> for $name<'a> {
            fn lower(self) -> (OpArgs, Vec<Span<'a>>) {
                let $this = &self;
                let kind = $kind;
                let spans = vec![$(self.$read.memory,)* $(self.$write.memory,)*];
                (OpArgs { alpha: self.alpha, beta: self.beta, kind }, spans)
            }
        }

        impl<'a> Arguments<'a> for $name<'a> {}
    };
}

arguments!(
    /// Of [`ConvForward`](crate::ConvForward).
    ConvForwardArgs {
        /// the filters, of the operator's weights descriptor.
        weights ; ; }
    => |args| OpArgsKind::ConvForward {
        weights: args.weights.memory.address,
        prepared: args.weights.constant.then(|| Arc::new(Prepared::default())),
    }
);
arguments!(
    /// Of [`BiasForward`](crate::BiasForward).
    BiasForwardArgs {
        /// one value a channel, or the residual, of the tensor's data type.
        bias ; ; }
    => |args| OpArgsKind::BiasForward { bias: args.bias.memory.address }
);
arguments!(
    /// Of [`BatchNormInference`](crate::BatchNormInference). Parameters are packed f32 of the shape that
    /// [`BatchNormMode::derive`](crate::BatchNormMode::derive) gives.
    BatchNormInferenceArgs {
        /// scale (γ).
        scale,
        /// bias (β).
        bias,
        /// the estimated mean.
        mean,
        /// the estimated variance.
        variance ; ;
        /// added to the variance.
        epsilon: f64 }
    => |args| OpArgsKind::BatchNormInference {
        scale: args.scale.memory.address.cast(),
        bias: args.bias.memory.address.cast(),
        mean: args.mean.memory.address.cast(),
        variance: args.variance.memory.address.cast(),
        epsilon: args.epsilon,
    }
);
arguments!(
    /// Of [`ActivationForward`](crate::ActivationForward); α, β, γ of the formulas of
    /// [`ActivationMode`](crate::ActivationMode). Not to be confused with the operator's `alpha` and `beta`.
    ActivationForwardArgs { ; ;
        /// α in the mode's formula.
        activ_alpha: f64,
        /// β in the mode's formula.
        activ_beta: f64,
        /// γ in the mode's formula.
        activ_gamma: f64 }
    => |args| OpArgsKind::ActivationForward {
        params: ActivationParams::new(args.activ_alpha, args.activ_beta, args.activ_gamma),
    }
);
arguments!(
    /// Of [`BatchNormForward`](crate::BatchNormForward); everything packed f32. `running_mean` and
    /// `running_variance` are [`OperandMut::none`] for an operator without running statistics.
    BatchNormForwardArgs {
        /// scale (γ).
        scale,
        /// bias (β).
        bias ;
        /// written: the mean of this batch; may be left out.
        saved_mean,
        /// written: `1 / sqrt(variance + ε)` of this batch; may be left out.
        saved_inv_variance,
        /// updated: `(1 − f) · running + f · batch`.
        running_mean,
        /// updated likewise, with the unbiased variance.
        running_variance ;
        /// the factor f.
        exp_avg_factor: f64,
        /// added to the variance.
        epsilon: f64 }
    => |args| OpArgsKind::BatchNormForward {
        scale: args.scale.memory.address.cast(),
        bias: args.bias.memory.address.cast(),
        saved_mean: args.saved_mean.memory.address.cast_mut().cast(),
        saved_inv_variance: args.saved_inv_variance.memory.address.cast_mut().cast(),
        running_mean: args.running_mean.memory.address.cast_mut().cast(),
        running_variance: args.running_variance.memory.address.cast_mut().cast(),
        exp_avg_factor: args.exp_avg_factor,
        epsilon: args.epsilon,
    }
);
arguments!(
    /// Of [`BatchNormBackward`](crate::BatchNormBackward); parameters packed f32.
    BatchNormBackwardArgs {
        /// the input of the forward batch-norm, of the plan's descriptor.
        x,
        /// scale (γ).
        scale,
        /// bias (β).
        bias,
        /// the mean saved by the forward pass.
        saved_mean,
        /// the inverse standard deviation saved by the forward pass.
        saved_inv_variance ;
        /// written: gradient of scale.
        scale_diff,
        /// written: gradient of bias.
        bias_diff ; }
    => |args| OpArgsKind::BatchNormBackward {
        x: args.x.memory.address,
        scale: args.scale.memory.address.cast(),
        bias: args.bias.memory.address.cast(),
        scale_diff: args.scale_diff.memory.address.cast_mut().cast(),
        bias_diff: args.bias_diff.memory.address.cast_mut().cast(),
        saved_mean: args.saved_mean.memory.address.cast(),
        saved_inv_variance: args.saved_inv_variance.memory.address.cast(),
    }
);
arguments!(
    /// Of [`ActivationBackward`](crate::ActivationBackward); α, β, γ of the forward activation.
    ActivationBackwardArgs {
        /// the output of the forward activation, of the plan's descriptor.
        y ; ;
        /// α in the mode's formula.
        activ_alpha: f64,
        /// β in the mode's formula.
        activ_beta: f64,
        /// γ in the mode's formula.
        activ_gamma: f64 }
    => |args| OpArgsKind::ActivationBackward {
        y: args.y.memory.address,
        params: ActivationParams::new(args.activ_alpha, args.activ_beta, args.activ_gamma),
    }
);

/// The arguments of a plan's operators, keyed by operator.
///
/// May be filled before or after the compile, in any order; setting again overwrites. May be used for any
/// number of executions. Slices and buffers stay borrowed as long as the arguments live.
///
/// Slices that plans read may be used on any device: where a device has memory of its own, they are copied
/// there at the first execution, and the copy is kept as long as the arguments live and the operator's are
/// not set again.
///
/// Any number of threads may execute with the same arguments. Where plans write slices or buffers among them
/// (statistics, gradients), executions take turns: on a host each computes alone, on another device each
/// launches alone.
#[derive(Debug, Default)]
pub struct OperatorArgs<'a> {
    /// One entry for each operator index up to the highest that was set.
    ops: Vec<OpArgs>,
    slots: Vec<Slot<'a>>,
    copies: Copies,
    /// Held by who executes where operands are written.
    turn: Mutex<()>,
    lifetime: PhantomData<&'a mut ()>,
}

/// What is known of an operator's arguments besides the arguments.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slot<'a> {
    /// The plan whose operator this was set for.
    pub(crate) plan: u64,
    /// `None` where nothing was set.
    pub(crate) kind: Option<OpKind>,
    pub(crate) spans: Vec<Span<'a>>,
}

impl<'a> OperatorArgs<'a> {
    /// No arguments.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the arguments of an operator. Operands are checked when a plan runs with them.
    pub fn set<O: Operator>(&mut self, operator: OpId<O>, args: O::Args<'a>) -> &mut Self {
        let (args, spans) = args.lower();
        while self.ops.len() <= operator.index {
            self.ops.push(OpArgs { alpha: 1.0, beta: 0.0, kind: OpArgsKind::Unset });
            self.slots.push(Slot::default());
        }
        self.copies.forget(operator.index);
        self.ops[operator.index] = args;
        self.slots[operator.index] = Slot { plan: operator.plan, kind: Some(O::KIND), spans };
        self
    }

    pub(crate) fn ops(&self) -> &[OpArgs] {
        &self.ops
    }

    pub(crate) fn slots(&self) -> &[Slot<'a>] {
        &self.slots
    }

    /// Every operand.
    pub(crate) fn spans(&self) -> impl Iterator<Item = &Span<'a>> {
        self.slots.iter().flat_map(|slot| &slot.spans)
    }

    /// The turn of an execution, to be kept while it uses memory that these arguments borrow mutably and other
    /// executions with them use too; `None` where there is no such memory. (Raw operands were promised to be
    /// used by one execution at a time.)
    pub(crate) fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        let writes = self.spans().any(|span| span.written && !matches!(span.place, Place::Raw));
        writes.then(|| self.turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The addresses of an operator's operands, of copies where there are any.
    pub(crate) fn addresses(&self, index: usize, resident: Option<&Resident>) -> Vec<*mut c_void> {
        let spans = self.slots[index].spans.iter().enumerate();
        let copy = |operand| resident.and_then(|resident| resident.address((index, operand)));
        spans.map(|(operand, span)| copy(operand).unwrap_or(span.address.cast_mut())).collect()
    }

    /// The arguments with every slice that is read replaced by its copy in the memory of the handle's
    /// device; `None` where there is nothing to replace.
    pub(crate) fn resident(&self, handle: &Handle) -> Result<Option<Arc<Resident>>, BackendError> {
        if !self.spans().any(|span| span.is_host() && !span.written) {
            return Ok(None);
        }
        self.copies.resident(handle, &self.ops, &self.slots).map(Some)
    }
}
