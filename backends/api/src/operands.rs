//! What each operator takes at run time: the one list of its operands and scalars.
//!
//! Checks of bounds, staging, dummies, a GPU kernel's argument block and the C library's setters are loops over
//! [`OpKind::operands`]. A kernel that wants names takes an operator's arguments apart by its struct here,
//! [`ConvForward::of`] and its like, whose fields are made from the same list.

use std::ffi::c_void;

use crate::{ActivationParams, DataType, Op, OpArgs, OpKind, TensorDescriptor};

/// The most operands that an operator has.
pub const MAX_OPERANDS: usize = 7;

/// The most scalars that an operator has.
pub const MAX_SCALARS: usize = 3;

/// A tensor that an operator takes at run time besides its input and output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperandSpec {
    /// Its name among the operator's operands.
    pub name: &'static str,
    /// Whether it is read or written.
    pub access: Access,
    /// The type of its elements.
    pub element: OperandType,
    /// Its lengths and strides.
    pub shape: OperandShape,
    /// Whether it may be left out.
    pub presence: Presence,
}

/// What an execution does with an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It is read.
    Read,
    /// It is written, whatever it held before.
    Write,
    /// It is read, then written.
    Update,
}

impl Access {
    /// Whether an execution writes there.
    pub const fn is_written(self) -> bool {
        match self {
            Access::Read => false,
            Access::Write | Access::Update => true,
        }
    }
}

/// The type of an operand's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperandType {
    /// That of the plan's tensors.
    Data,
    /// f32, whatever the plan's tensors have.
    F32,
    /// That of the plan's tensors or f32, as the operator says.
    Either,
}

/// The lengths and strides of an operand in terms of its operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperandShape {
    /// Those of the operator's own descriptor: filters, a bias.
    Described,
    /// Those of the tensor that the operator works on.
    Running,
    /// Those of a batch-norm's parameters, packed: [`BatchNormMode::derive`](crate::BatchNormMode::derive).
    Parameters,
}

/// Whether an operand may be left out. A pointer that is left out is null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It must be given.
    Required,
    /// It may be given.
    Optional,
    /// It must be given for an operator with running statistics, and must not be for one without.
    WithRunningStatistics,
}

/// An operand of an operator in a plan.
#[derive(Debug, Clone, Copy)]
pub struct DescribedOperand {
    /// What every operator of the kind says of it.
    pub spec: &'static OperandSpec,
    /// The memory that it must have.
    pub descriptor: TensorDescriptor,
    /// Whether this operator takes it at all.
    pub is_taken: bool,
}

impl DescribedOperand {
    /// Whether the pointer may be null.
    pub fn may_be_null(&self) -> bool {
        !self.is_taken || self.spec.presence == Presence::Optional
    }
}

impl Op {
    /// The operator's operands, in the order of [`OpKind::operands`], for the tensor that it works on.
    pub fn operands(&self, running: &TensorDescriptor) -> impl Iterator<Item = DescribedOperand> {
        self.kind().operands().iter().map(move |spec| DescribedOperand {
            spec,
            descriptor: self.operand_descriptor(spec, running),
            is_taken: match spec.presence {
                Presence::Required | Presence::Optional => true,
                Presence::WithRunningStatistics => self.has_running_statistics(),
            },
        })
    }

    /// The running tensor stands in for what an operator of a plan cannot lack: a test holds the list to shapes that
    /// its operators have, and a plan's tensors are 4-D or 5-D, from which parameters can be derived.
    fn operand_descriptor(&self, spec: &OperandSpec, running: &TensorDescriptor) -> TensorDescriptor {
        let found = match spec.shape {
            OperandShape::Described => self.own_descriptor().copied(),
            OperandShape::Running => Some(*running),
            OperandShape::Parameters => self.parameters(running),
        };
        found.unwrap_or(*running)
    }

    /// The descriptor that the operator was made with, of the one operand whose shape it is.
    fn own_descriptor(&self) -> Option<&TensorDescriptor> {
        match self {
            Op::ConvForward { weights, .. } => Some(weights),
            Op::BiasForward { bias } => Some(bias),
            Op::PReluForward { slope } => Some(slope),
            Op::BatchNormInference { .. }
            | Op::ActivationForward { .. }
            | Op::BatchNormForward { .. }
            | Op::BatchNormBackward { .. }
            | Op::ActivationBackward { .. } => None,
        }
    }

    /// The same operator with its descriptor in canonical form.
    pub fn canonical(&self) -> Op {
        let mut op = self.clone();
        match &mut op {
            Op::ConvForward { weights: own, .. }
            | Op::BiasForward { bias: own }
            | Op::PReluForward { slope: own } => *own = own.canonical(),
            Op::BatchNormInference { .. }
            | Op::ActivationForward { .. }
            | Op::BatchNormForward { .. }
            | Op::BatchNormBackward { .. }
            | Op::ActivationBackward { .. } => {}
        }
        op
    }

    /// What a batch-norm's parameters are for the tensor that it works on.
    fn parameters(&self, running: &TensorDescriptor) -> Option<TensorDescriptor> {
        let (mode, data_type) = match self {
            Op::BatchNormInference { mode, params } => (mode, *params),
            Op::BatchNormForward { mode, .. } | Op::BatchNormBackward { mode } => (mode, DataType::Float),
            Op::ConvForward { .. }
            | Op::BiasForward { .. }
            | Op::PReluForward { .. }
            | Op::ActivationForward { .. }
            | Op::ActivationBackward { .. } => return None,
        };
        mode.derive(running).and_then(|derived| derived.with_data_type(data_type)).ok()
    }

    fn has_running_statistics(&self) -> bool {
        matches!(self, Op::BatchNormForward { running: true, .. })
    }
}

impl OpKind {
    /// Where the operand of this name stands in the list, if it has one. In a constant, `expect` makes a wrong name an
    /// error of the compiler.
    pub const fn operand_index(self, name: &str) -> Option<usize> {
        let mut i = 0;
        while i < self.operands().len() {
            if is_same(self.operands()[i].name, name) {
                return Some(i);
            }
            i += 1;
        }
        None
    }

    /// Where the scalar of this name stands in the list of scalars.
    pub const fn scalar_index(self, name: &str) -> Option<usize> {
        let mut i = 0;
        while i < self.scalars().len() {
            if is_same(self.scalars()[i], name) {
                return Some(i);
            }
            i += 1;
        }
        None
    }
}

const fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

/// The operands and scalars of one kind of operator by name.
pub trait Operands: Into<OpArgs> {
    /// The operator's kind.
    const KIND: OpKind;
}

/// The Rust type of a pointer to an operand.
macro_rules! pointer {
    (Read Data) => { *const c_void };
    (Read F32) => { *const f32 };
    (Read Either) => { *const c_void };
    (Write F32) => { *mut f32 };
    (Update F32) => { *mut f32 };
}

macro_rules! table {
    ($(
        $kind:ident {
            operands {
                $($(#[$doc:meta])* $operand:ident: $access:ident $element:ident $shape:ident $presence:ident,)*
            }
            scalars { $($(#[$scalar_doc:meta])* $scalar:ident,)* }
        }
    )*) => {
        impl OpKind {
            /// The operands of such an operator, in the order in which [`OpArgs`] has their pointers.
            pub const fn operands(self) -> &'static [OperandSpec] {
                match self {
                    $(OpKind::$kind => &[$(OperandSpec {
                        name: stringify!($operand),
                        access: Access::$access,
                        element: OperandType::$element,
                        shape: OperandShape::$shape,
                        presence: Presence::$presence,
                    }),*],)*
                }
            }

            /// The names of the scalars of such an operator, in the order in which [`OpArgs`] has them.
            pub const fn scalars(self) -> &'static [&'static str] {
                match self {
                    $(OpKind::$kind => &[$(stringify!($scalar)),*],)*
                }
            }
        }

        $(
            #[doc = concat!("The operands and scalars of [`Op::", stringify!($kind), "`].")]
            #[derive(Debug, Clone, Copy)]
            pub struct $kind {
                $($(#[$doc])* pub $operand: pointer!($access $element),)*
                $($(#[$scalar_doc])* pub $scalar: f64,)*
            }

            impl $kind {
                /// What the arguments of such an operator are.
                pub fn of(args: &OpArgs) -> Self {
                    let [$($operand,)* ..] = args.pointers;
                    let [$($scalar,)* ..] = args.scalars;
                    $kind { $($operand: $operand.cast(),)* $($scalar,)* }
                }
            }

            /// With an alpha of 1, a beta of 0 and nothing prepared.
            impl From<$kind> for OpArgs {
                fn from(operands: $kind) -> Self {
                    let $kind { $($operand,)* $($scalar,)* } = operands;
                    OpArgs {
                        pointers: filled([$($operand as *mut c_void),*], std::ptr::null_mut()),
                        scalars: filled([$($scalar),*], 0.0),
                        ..OpArgs::default()
                    }
                }
            }

            impl Operands for $kind {
                const KIND: OpKind = OpKind::$kind;
            }
        )*
    };
}

/// A list with `filler` behind it.
fn filled<T: Copy, const N: usize, const M: usize>(list: [T; N], filler: T) -> [T; M] {
    let mut all = [filler; M];
    all[..N].copy_from_slice(&list);
    all
}

table! {
    ConvForward {
        operands {
            /// The filters.
            weights: Read Data Described Required,
        }
        scalars {}
    }
    BiasForward {
        operands {
            /// One value a channel, or the residual.
            bias: Read Either Described Required,
        }
        scalars {}
    }
    PReluForward {
        operands {
            /// One slope a channel, or one for all.
            slope: Read Either Described Required,
        }
        scalars {}
    }
    BatchNormInference {
        operands {
            /// Scale (γ).
            scale: Read Either Parameters Required,
            /// Bias (β).
            bias: Read Either Parameters Required,
            /// Estimated mean.
            mean: Read Either Parameters Required,
            /// Estimated variance.
            variance: Read Either Parameters Required,
        }
        scalars {
            /// Added to the variance.
            epsilon,
        }
    }
    ActivationForward {
        operands {}
        scalars {
            /// α in the mode's formula.
            activ_alpha,
            /// β in the mode's formula.
            activ_beta,
            /// γ in the mode's formula.
            activ_gamma,
        }
    }
    BatchNormForward {
        operands {
            /// Scale (γ).
            scale: Read F32 Parameters Required,
            /// Bias (β).
            bias: Read F32 Parameters Required,
            /// The mean of this batch.
            saved_mean: Write F32 Parameters Optional,
            /// `1 / sqrt(variance + ε)` of this batch.
            saved_inv_variance: Write F32 Parameters Optional,
            /// `(1 − f) · running + f · batch`.
            running_mean: Update F32 Parameters WithRunningStatistics,
            /// Likewise, with the unbiased variance.
            running_variance: Update F32 Parameters WithRunningStatistics,
        }
        scalars {
            /// Added to the variance.
            epsilon,
            /// The factor f.
            exp_avg_factor,
        }
    }
    BatchNormBackward {
        operands {
            /// The input of the forward batch-norm.
            x: Read Data Running Required,
            /// Scale (γ).
            scale: Read F32 Parameters Required,
            /// Bias (β), which remakes the activation's input.
            bias: Read F32 Parameters Required,
            /// The mean saved by the forward pass.
            saved_mean: Read F32 Parameters Required,
            /// The inverse standard deviation saved by the forward pass.
            saved_inv_variance: Read F32 Parameters Required,
            /// The gradient of scale.
            scale_diff: Write F32 Parameters Required,
            /// The gradient of bias.
            bias_diff: Write F32 Parameters Required,
        }
        scalars {}
    }
    ActivationBackward {
        operands {
            /// The output of the forward activation.
            y: Read Data Running Required,
        }
        scalars {
            /// α of the forward activation.
            activ_alpha,
            /// β of the forward activation.
            activ_beta,
            /// γ of the forward activation.
            activ_gamma,
        }
    }
}

impl From<ActivationParams> for ActivationForward {
    fn from(params: ActivationParams) -> Self {
        let ActivationParams { alpha, beta, gamma } = params;
        ActivationForward { activ_alpha: alpha, activ_beta: beta, activ_gamma: gamma }
    }
}

impl ActivationForward {
    /// The scalars of the mode's formula.
    pub fn params(&self) -> ActivationParams {
        ActivationParams::new(self.activ_alpha, self.activ_beta, self.activ_gamma)
    }
}

impl ActivationBackward {
    /// The operands and scalars for the output of the forward activation and its scalars.
    pub fn new(y: *const c_void, params: ActivationParams) -> Self {
        let ActivationParams { alpha, beta, gamma } = params;
        ActivationBackward { y, activ_alpha: alpha, activ_beta: beta, activ_gamma: gamma }
    }

    /// The scalars of the mode's formula.
    pub fn params(&self) -> ActivationParams {
        ActivationParams::new(self.activ_alpha, self.activ_beta, self.activ_gamma)
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::without_provenance_mut;

    use super::*;
    use crate::{ActivationMode, BatchNormMode, ConvolutionDescriptor};

    fn running() -> TensorDescriptor {
        TensorDescriptor::nchw(DataType::Half, [2, 6, 5, 7]).unwrap()
    }

    fn samples(kind: OpKind) -> Vec<Op> {
        let conv = ConvolutionDescriptor::d2();
        let tensor = |lens| TensorDescriptor::nchw(DataType::Half, lens).unwrap();
        let modes = BatchNormMode::ALL.into_iter();
        match kind {
            OpKind::ConvForward => vec![Op::ConvForward { conv, weights: tensor([6, 3, 2, 2]) }],
            OpKind::BiasForward => {
                let single = TensorDescriptor::nchw(DataType::Float, [1, 6, 1, 1]).unwrap();
                [tensor([1, 6, 1, 1]), single, running()].map(|bias| Op::BiasForward { bias }).to_vec()
            }
            OpKind::PReluForward => {
                [tensor([1, 6, 1, 1]), tensor([1, 1, 1, 1])].map(|slope| Op::PReluForward { slope }).to_vec()
            }
            OpKind::BatchNormInference => modes
                .flat_map(|mode| [DataType::Half, DataType::Float].map(|params| (mode, params)))
                .map(|(mode, params)| Op::BatchNormInference { mode, params })
                .collect(),
            OpKind::ActivationForward => vec![Op::ActivationForward { mode: ActivationMode::Elu }],
            OpKind::BatchNormForward => modes
                .flat_map(|mode| [false, true].map(|running| Op::BatchNormForward { mode, running }))
                .collect(),
            OpKind::BatchNormBackward => modes.map(|mode| Op::BatchNormBackward { mode }).collect(),
            OpKind::ActivationBackward => vec![Op::ActivationBackward { mode: ActivationMode::Elu }],
        }
    }

    #[test]
    fn every_operators_lists_have_room_and_names_of_their_own() {
        for kind in OpKind::ALL {
            assert!(kind.operands().len() <= MAX_OPERANDS && kind.scalars().len() <= MAX_SCALARS, "{kind}");
            let names = kind.operands().iter().map(|spec| spec.name).chain(kind.scalars().iter().copied());
            let mut names: Vec<_> = names.collect();
            for (i, spec) in kind.operands().iter().enumerate() {
                assert_eq!(kind.operand_index(spec.name), Some(i), "{kind}");
            }
            for (i, name) in kind.scalars().iter().enumerate() {
                assert_eq!(kind.scalar_index(name), Some(i), "{kind}");
            }
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{kind} has a name twice");
        }
        let most = OpKind::ALL.map(|kind| kind.operands().len()).into_iter().max();
        assert_eq!(most, Some(MAX_OPERANDS));
    }

    /// The running tensor stands in for no other: each shape is one that the operator has.
    #[test]
    fn every_operands_shape_and_type_are_its_operators() {
        for op in OpKind::ALL.into_iter().flat_map(samples) {
            for DescribedOperand { spec, descriptor, is_taken } in op.operands(&running()) {
                let what = format!("{op}: {}", spec.name);
                let expected = match spec.shape {
                    OperandShape::Described => *op.own_descriptor().expect(&what),
                    OperandShape::Running => running(),
                    OperandShape::Parameters => op.parameters(&running()).expect(&what),
                };
                assert_eq!(descriptor, expected, "{what}");
                let elements = match spec.element {
                    OperandType::Data => &[DataType::Half][..],
                    OperandType::F32 => &[DataType::Float],
                    OperandType::Either => &[DataType::Half, DataType::Float],
                };
                assert!(elements.contains(&descriptor.data_type()), "{what}");
                let lacks = spec.presence == Presence::WithRunningStatistics && !op.has_running_statistics();
                assert_eq!(is_taken, !lacks, "{what}");
            }
        }
    }

    #[test]
    fn arguments_hold_operands_in_the_order_of_the_list() {
        let at = |address: usize| without_provenance_mut::<f32>(address);
        let operands = BatchNormForward {
            scale: at(4),
            bias: at(8),
            saved_mean: at(12),
            saved_inv_variance: at(16),
            running_mean: at(20),
            running_variance: at(24),
            epsilon: 0.5,
            exp_avg_factor: 0.25,
        };
        let args = OpArgs::from(operands);
        assert_eq!(args.pointers.map(|pointer| pointer.addr()), [4, 8, 12, 16, 20, 24, 0]);
        assert_eq!((args.alpha, args.beta, args.scalars), (1.0, 0.0, [0.5, 0.25, 0.0]));
        assert_eq!(format!("{:?}", BatchNormForward::of(&args)), format!("{operands:?}"));
        const RUNNING_VARIANCE: usize = BatchNormForward::KIND.operand_index("running_variance").unwrap();
        assert_eq!(args.pointers[RUNNING_VARIANCE].addr(), 24);
        let params = ActivationParams::new(1.0, 2.0, 3.0);
        let args = OpArgs::from(ActivationBackward::new(at(4).cast(), params));
        assert_eq!((args.pointers[0].addr(), ActivationBackward::of(&args).params()), (4, params));
    }
}
