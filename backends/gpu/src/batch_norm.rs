//! Batch-norm for training: statistics, results and gradients in one kernel.

use fuseplan_api::{BatchNormMode, Op, Problem};

use crate::chain::activation;
use crate::kernel::{Geometry, Kernel, Text};
use crate::volume::Volume;

/// Threads of a block; the text has the same number.
const THREADS: usize = 256;

/// Plans the kernel of a batch-norm for training: a block for each channel, or a thread for each place of
/// all images. Only for problems that meet [`TRAINING`](crate::TRAINING).
pub fn batch_norm(vendor: &str, problem: &Problem) -> Kernel {
    let (mode, backward) = match problem.ops[0] {
        Op::BatchNormForward { mode, .. } => (mode, false),
        Op::BatchNormBackward { mode } => (mode, true),
        _ => unreachable!("the constraint asks for batch-norm first"),
    };
    let mode_behind = problem.ops.get(1).and_then(|op| match op {
        Op::ActivationForward { mode } | Op::ActivationBackward { mode } => Some(activation(*mode)),
        _ => None,
    });
    let (x, y) = (Volume::of(&problem.input), Volume::of(&problem.output));
    let (groups, count, group_threads) = match mode {
        BatchNormMode::Spatial => (x.lens[1], x.pixels(), THREADS),
        BatchNormMode::PerActivation => (x.lens[1] * x.plane(), x.lens[0], 1),
    };
    let mut text = Text::default();
    text.constant("SPATIAL", (mode == BatchNormMode::Spatial).into()).constant("BACKWARD", backward.into());
    text.constant("GROUP_THREADS", group_threads).constant("HAS_ACTIVATION", mode_behind.is_some().into());
    text.output(&y).size("groups", groups).size("count", count);
    text.strides("x", &x.strides).strides("y", &y.strides);
    let name = mode_behind.unwrap_or_else(|| "pasthru".into());
    let functions = format!("#define ACTIVATION act_{name}\n#define GRADIENT grad_{name}\n");
    let blocks = groups.div_ceil(THREADS / group_threads);
    let geometry = Geometry { grid: [blocks as u32, 1, 1], block: THREADS as u32, shared: 0 };
    let detail = format!("f64 sums, {group_threads} threads a group");
    text.finish(vendor, problem, &[&functions, include_str!("../kernels/batch_norm.cuh")], geometry, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuseplan_api::ActivationMode;

    #[test]
    fn every_activation_has_its_gradient() {
        let text = include_str!("../kernels/batch_norm.cuh");
        for mode in ActivationMode::ALL {
            assert!(text.contains(&format!("DEVICE double grad_{}(double", activation(mode))), "{mode}");
        }
    }
}
