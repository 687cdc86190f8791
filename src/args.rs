//! Run-time arguments: what is set for each operator, in any order, before or after the compile.

mod copies;
mod operand;

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuseplan_api::operands::{MAX_OPERANDS, MAX_SCALARS};
use fuseplan_api::{Activation, ActivationMode, ActivationParams, BackendError, DataType, OpArgs, OpKind};

use crate::buffer::Block;
use crate::handle::Handle;
use crate::operator::{OpId, Operator};
use copies::Copies;
pub(crate) use copies::Resident;
pub use operand::{Operand, OperandMut};

/// What a batch-norm adds to the variance if nothing else is said, as other libraries do.
const EPSILON: f64 = 1e-5;

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
    pub(crate) struct Span<'a> {
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
    // SAFETY: a shared span gives a copy of the address, and the span itself is never changed through it.
    unsafe impl Sync for Span<'_> {}

    impl<'a> Span<'a> {
        /// An address of which only the caller knows what is there.
        pub(crate) const fn raw(address: *const c_void, written: bool) -> Self {
            Span { address, bytes: None, data_type: None, written, place: Place::Raw }
        }

        /// Whether this is a slice in host memory.
        pub(crate) fn is_host(&self) -> bool {
            matches!(self.place, Place::Host)
        }

        /// A buffer there is to be used by something launched into the handle's stream next.
        pub(crate) fn use_on(&self, handle: &Handle) -> Result<(), BackendError> {
            match self.place {
                Place::Device(block) if self.written => block.write_on(handle),
                Place::Device(block) => block.read_on(handle),
                Place::Host | Place::Raw => Ok(()),
                #[cfg(feature = "cudarc")]
                Place::Stream(_) => Ok(()),
            }
        }

        /// Memory there is used by what was launched last.
        pub(crate) fn launched(&self) -> Result<(), BackendError> {
            match self.place {
                #[cfg(feature = "cudarc")]
                Place::Stream(tracked) => tracked.launched(),
                Place::Host | Place::Raw | Place::Device(_) => Ok(()),
            }
        }

        /// The bytes of a slice in host memory that is read.
        pub(crate) fn host_bytes(&self) -> Option<&'a [u8]> {
            let bytes = self.bytes.filter(|_| self.is_host() && !self.written)?;
            // SAFETY: the span was made from a slice of numbers of this size, borrowed for `'a`.
            Some(unsafe { std::slice::from_raw_parts(self.address.cast(), bytes) })
        }
    }

    /// What arguments are made of: operands and scalars in the order of the operator's lists.
    #[derive(Debug)]
    pub struct Lowered<'a> {
        pub(crate) spans: [Span<'a>; MAX_OPERANDS],
        pub(crate) scalars: [f64; MAX_SCALARS],
        /// The activation's mode, where there is one.
        pub(crate) mode: Option<ActivationMode>,
        pub(crate) alpha: f32,
        pub(crate) beta: f32,
        /// Whether nothing that is read can change.
        pub(crate) constant: bool,
    }

    /// Arguments that can be put in the order of the operator's lists.
    pub trait Lower<'a> {
        /// The arguments in that order.
        fn lower(self) -> Lowered<'a>;
    }
}
pub(crate) use sealed::{Lower, Lowered, Place, Span};

/// The arguments of one operator.
pub trait Arguments<'a>: sealed::Lower<'a> {}

/// Where an operand stands in its operator's list, which must say of it whether it is written.
const fn index_of(kind: OpKind, name: &str, written: bool) -> usize {
    let index = kind.operand_index(name).expect("the operator has an operand of this name");
    assert!(kind.operands()[index].access.is_written() == written, "the operand is read, or written, only");
    index
}

/// Where a scalar stands in its operator's list.
const fn scalar_of(kind: OpKind, name: &str) -> usize {
    kind.scalar_index(name).expect("the operator has a scalar of this name")
}

/// The arguments of a kind of operator: operands that are read, operands that are written, scalars with what they are
/// where they are not set, and the activation whose parameters are the scalars behind it.
macro_rules! arguments {
    (
        $(#[$doc:meta])* $name:ident of $kind:ident with ($($given:ident),*) {
            $($(#[$rdoc:meta])* $read:ident),* ; $($(#[$wdoc:meta])* $write:ident),* ;
            $($(#[$sdoc:meta])* $scalar:ident = $default:expr),*
        } $(and $activation:ident as [$($param:ident),*])?
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<'a> {
            $($read: Operand<'a>,)*
            $($write: OperandMut<'a>,)*
            $($scalar: f64,)*
            $($activation: Activation,)?
            alpha: f32,
            beta: f32,
            lifetime: PhantomData<&'a ()>,
        }

        arguments!(@default $name ($($given)* $($activation)?));

        impl<'a> $name<'a> {
            /// The arguments with what is given here, alpha 1, beta 0, and nothing else set.
            pub fn new($($activation: Activation,)? $($given: impl Into<Operand<'a>>),*) -> Self {
                #[allow(unused_mut, reason = "some kinds are given nothing")]
                let mut args = $name {
                    $($read: Operand::ABSENT,)*
                    $($write: OperandMut::none(),)*
                    $($scalar: $default,)*
                    $($activation,)?
                    alpha: 1.0,
                    beta: 0.0,
                    lifetime: PhantomData,
                };
                $(args.$given = $given.into();)*
                args
            }

            $($(#[$rdoc])*
            pub fn $read(mut self, $read: impl Into<Operand<'a>>) -> Self {
                self.$read = $read.into();
                self
            })*

            $($(#[$wdoc])*
            pub fn $write(mut self, $write: impl Into<OperandMut<'a>>) -> Self {
                self.$write = $write.into();
                self
            })*

            $($(#[$sdoc])*
            pub fn $scalar(mut self, $scalar: f64) -> Self {
                self.$scalar = $scalar;
                self
            })*

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
            fn lower(self) -> Lowered<'a> {
                const KIND: OpKind = OpKind::$kind;
                const OPERANDS: &[&str] = &[$(stringify!($read),)* $(stringify!($write),)*];
                const SCALARS: &[&str] = &[$(stringify!($scalar),)* $($(stringify!($param),)*)?];
                const { assert!(OPERANDS.len() == KIND.operands().len()) };
                const { assert!(SCALARS.len() == KIND.scalars().len()) };
                let mut lowered = Lowered {
                    spans: [Span::raw(std::ptr::null(), false); MAX_OPERANDS],
                    scalars: [0.0; MAX_SCALARS],
                    mode: None,
                    alpha: self.alpha,
                    beta: self.beta,
                    constant: true $(&& self.$read.constant)*,
                };
                $(lowered.spans[const { index_of(KIND, stringify!($read), false) }] = self.$read.memory;)*
                $(lowered.spans[const { index_of(KIND, stringify!($write), true) }] = self.$write.memory;)*
                $(lowered.scalars[const { scalar_of(KIND, stringify!($scalar)) }] = self.$scalar;)*
                $(
                    let ActivationParams { alpha, beta, gamma } = self.$activation.params();
                    let [$($param),*] = [alpha, beta, gamma];
                    $(lowered.scalars[const { scalar_of(KIND, stringify!($param)) }] = $param;)*
                    lowered.mode = Some(self.$activation.mode());
                )?
                lowered
            }
        }

        impl<'a> Arguments<'a> for $name<'a> {}
    };
    (@default $name:ident ()) => {
        impl Default for $name<'_> {
            fn default() -> Self {
                Self::new()
            }
        }
    };
    (@default $name:ident ($($given:ident)+)) => {};
}

arguments!(
    /// Arguments of a [`ConvForward`](crate::ConvForward): its filters.
    ConvForwardArgs of ConvForward with (weights) {
        /// The filters, of the operator's weights descriptor.
        weights ; ; }
);
arguments!(
    /// Arguments of a [`BiasForward`](crate::BiasForward): what is added.
    BiasForwardArgs of BiasForward with (bias) {
        /// One value a channel, or the residual, of the tensor's data type.
        bias ; ; }
);
arguments!(
    /// Arguments of a [`PReluForward`](crate::PReluForward): its slopes.
    PReluForwardArgs of PReluForward with (slope) {
        /// One slope a channel, or one, of the operator's descriptor.
        slope ; ; }
);
arguments!(
    /// Arguments of a [`BatchNormInference`](crate::BatchNormInference): its four parameters, all of which have to be set,
    /// and ε. Parameters are packed f32 of the shape that [`BatchNormMode::derive`](crate::BatchNormMode::derive) gives.
    ///
    /// ```
    /// # use fuseplan::*;
    /// let (scale, bias, mean, variance) = ([1.0f32; 8], [0.0f32; 8], [0.5f32; 8], [2.0f32; 8]);
    /// let args = BatchNormInferenceArgs::new().scale(&scale).bias(&bias).mean(&mean).variance(&variance);
    /// ```
    BatchNormInferenceArgs of BatchNormInference with () {
        /// Scale (γ).
        scale,
        /// Bias (β).
        bias,
        /// The estimated mean.
        mean,
        /// The estimated variance.
        variance ; ;
        /// What is added to the variance; 1e-5 if not set.
        epsilon = EPSILON }
);
arguments!(
    /// Arguments of an [`ActivationForward`](crate::ActivationForward): the [`Activation`] with its parameters, which has
    /// the mode that the operator was appended with. [`OperatorArgs::set`] takes the activation itself where alpha is 1 and
    /// beta 0; these scale the operator's result and are none of the activation's parameters.
    ActivationForwardArgs of ActivationForward with () { ; ; } and activation as [activ_alpha, activ_beta, activ_gamma]
);
arguments!(
    /// Arguments of a [`BatchNormForward`](crate::BatchNormForward): scale and bias, which have to be set, and where its
    /// statistics go; everything packed f32. An operator with running statistics has both of them, one without has none.
    ///
    /// ```
    /// # use fuseplan::*;
    /// let (scale, bias) = ([1.0f32; 8], [0.0f32; 8]);
    /// let (mut mean, mut variance) = ([0.0f32; 8], [1.0f32; 8]);
    /// let args = BatchNormForwardArgs::new()
    ///     .scale(&scale)
    ///     .bias(&bias)
    ///     .running_mean(&mut mean)
    ///     .running_variance(&mut variance)
    ///     .exp_avg_factor(0.01);
    /// ```
    BatchNormForwardArgs of BatchNormForward with () {
        /// Scale (γ).
        scale,
        /// Bias (β).
        bias ;
        /// Written: the mean of this batch; may be left out.
        saved_mean,
        /// Written: `1 / sqrt(variance + ε)` of this batch; may be left out.
        saved_inv_variance,
        /// Updated: `(1 − f) · running + f · batch`.
        running_mean,
        /// Updated likewise, with the unbiased variance.
        running_variance ;
        /// The factor f by which a batch counts among running statistics; 0.1 if not set.
        exp_avg_factor = 0.1,
        /// What is added to the variance; 1e-5 if not set.
        epsilon = EPSILON }
);
arguments!(
    /// Arguments of a [`BatchNormBackward`](crate::BatchNormBackward), all of which have to be set; parameters packed f32.
    BatchNormBackwardArgs of BatchNormBackward with () {
        /// The input of the forward batch-norm, of the plan's descriptor.
        x,
        /// Scale (γ).
        scale,
        /// Bias (β).
        bias,
        /// The mean saved by the forward pass.
        saved_mean,
        /// The inverse standard deviation saved by the forward pass.
        saved_inv_variance ;
        /// Written: gradient of scale.
        scale_diff,
        /// Written: gradient of bias.
        bias_diff ; }
);
arguments!(
    /// Arguments of an [`ActivationBackward`](crate::ActivationBackward): the forward activation with its parameters, and its
    /// output. The activation has the mode that the operator was appended with.
    ActivationBackwardArgs of ActivationBackward with (y) {
        /// The output of the forward activation, of the plan's descriptor.
        y ; ; } and activation as [activ_alpha, activ_beta, activ_gamma]
);

/// An activation, neither scaled nor blended with the output.
impl From<Activation> for ActivationForwardArgs<'_> {
    fn from(activation: Activation) -> Self {
        ActivationForwardArgs::new(activation)
    }
}

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
    /// `None` where nothing was set.
    slots: Vec<Option<Slot<'a>>>,
    copies: Copies,
    /// Held by who executes where operands are written.
    turn: Mutex<()>,
    lifetime: PhantomData<&'a mut ()>,
}

/// What is known of an operator's arguments besides the arguments.
#[derive(Debug, Clone)]
pub(crate) struct Slot<'a> {
    /// The plan whose operator this was set for.
    pub(crate) plan: u64,
    pub(crate) kind: OpKind,
    /// The activation's mode, where there is one.
    pub(crate) mode: Option<ActivationMode>,
    /// In the order of the operator's list; nothing behind its last is looked at.
    pub(crate) spans: [Span<'a>; MAX_OPERANDS],
}

impl<'a> Slot<'a> {
    /// The operands, in the order of the operator's list.
    pub(crate) fn spans(&self) -> &[Span<'a>] {
        &self.spans[..self.kind.operands().len()]
    }
}

impl<'a> OperatorArgs<'a> {
    /// No arguments.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the arguments of an operator. They are checked when a plan runs with them. An activation that is neither scaled
    /// nor blended is its arguments.
    ///
    /// ```
    /// # use fuseplan::*;
    /// # let x = TensorDescriptor::nchw(DataType::Float, [1, 1, 4, 4])?;
    /// # let mut plan = FusionPlan::new(x)?;
    /// let relu6 = plan.append(ActivationForward::new(ActivationMode::ClippedRelu))?;
    /// let gelu = plan.append(ActivationForward::new(ActivationMode::Gelu))?;
    /// let mut args = OperatorArgs::new();
    /// args.set(relu6, Activation::ClippedRelu { max: 6.0 });
    /// args.set(gelu, ActivationForwardArgs::new(Activation::Gelu).alpha(0.5));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn set<O: Operator>(&mut self, operator: OpId<O>, args: impl Into<O::Args<'a>>) -> &mut Self {
        let Lowered { spans, scalars, mode, alpha, beta, constant } = args.into().lower();
        while self.ops.len() <= operator.index {
            self.ops.push(OpArgs::default());
            self.slots.push(None);
        }
        self.copies.forget(operator.index);
        let reads = O::KIND.operands().iter().any(|spec| !spec.access.is_written());
        self.ops[operator.index] = OpArgs {
            alpha,
            beta,
            pointers: spans.map(|span| span.address.cast_mut()),
            scalars,
            prepared: (reads && constant).then(Arc::default),
        };
        self.slots[operator.index] = Some(Slot { plan: operator.plan, kind: O::KIND, mode, spans });
        self
    }

    pub(crate) fn ops(&self) -> &[OpArgs] {
        &self.ops
    }

    pub(crate) fn slots(&self) -> &[Option<Slot<'a>>] {
        &self.slots
    }

    /// Every operand.
    pub(crate) fn spans(&self) -> impl Iterator<Item = &Span<'a>> {
        self.slots.iter().flatten().flat_map(Slot::spans)
    }

    /// The turn of an execution, to be kept while it uses memory that these arguments borrow mutably and other
    /// executions with them use too; `None` where there is no such memory. (Raw operands were promised to be
    /// used by one execution at a time.)
    pub(crate) fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        let writes = self.spans().any(|span| span.written && !matches!(span.place, Place::Raw));
        writes.then(|| self.turn.lock().unwrap_or_else(PoisonError::into_inner))
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
