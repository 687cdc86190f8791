//! What each operator reads and writes at run time.

use fuseplan_api::{BatchNormMode, Op, TensorDescriptor};

/// One operand of an operator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OperandSpec {
    pub(super) name: &'static str,
    pub(super) descriptor: TensorDescriptor,
    /// Whether it may be null.
    pub(super) optional: bool,
    /// Whether it must be null.
    pub(super) absent: bool,
}

impl OperandSpec {
    pub(crate) fn descriptor(&self) -> &TensorDescriptor {
        &self.descriptor
    }

    /// Whether it must be null.
    pub(crate) fn is_absent(&self) -> bool {
        self.absent
    }
}

/// An operator's operands, in the order in which its arguments list them.
pub(crate) fn operands(op: &Op, running: &TensorDescriptor) -> Vec<OperandSpec> {
    let spec = |name, descriptor| OperandSpec { name, descriptor, optional: false, absent: false };
    let params = |mode: &BatchNormMode, names: &[&'static str]| {
        // A plan's tensors are 4-D or 5-D, from which parameters can be derived.
        let descriptor = mode.derive(running).unwrap_or(*running);
        names.iter().map(|name| spec(name, descriptor)).collect::<Vec<_>>()
    };
    match op {
        Op::ConvForward { weights, .. } => vec![spec("weights", *weights)],
        Op::BiasForward { bias } => vec![spec("bias", *bias)],
        Op::BatchNormInference { mode } => params(mode, &["scale", "bias", "mean", "variance"]),
        Op::BatchNormForward { mode, running } => {
            let names =
                ["scale", "bias", "saved mean", "saved inverse variance", "running mean", "running variance"];
            let mut specs = params(mode, &names);
            specs[2..4].iter_mut().for_each(|spec| spec.optional = true);
            specs[4..].iter_mut().for_each(|spec| (spec.optional, spec.absent) = (!running, !running));
            specs
        }
        Op::BatchNormBackward { mode } => {
            let names =
                ["scale", "bias", "saved mean", "saved inverse variance", "scale gradient", "bias gradient"];
            let mut specs = vec![spec("x", *running)];
            specs.extend(params(mode, &names));
            specs
        }
        Op::ActivationBackward { .. } => vec![spec("y", *running)],
        // Activations have scalars only.
        _ => Vec::new(),
    }
}
