//! The one argument of a kernel, as words.

use fuseplan_api::{ActivationParams, OpArgs, OpArgsKind, RunArgs};

/// Most words of a kernel's argument: drivers take 4096 bytes.
pub const MAX_WORDS: usize = 512;
/// Words before the operators: input, output, beta.
pub(crate) const FIRST_OP: usize = 3;
/// Words of an operator: four pointers, alpha and three scalars.
pub(crate) const OP_WORDS: usize = 6;

/// Writes the text's `struct Args` for a kernel with these sizes to the front of `words`, which have room for
/// it; the number of words.
pub fn pack(args: &RunArgs<'_>, sizes: &[i64], words: &mut [u64]) -> usize {
    let two = |low: f32, high: f32| u64::from(low.to_bits()) | u64::from(high.to_bits()) << 32;
    let beta = args.ops.last().map_or(0.0, |op| op.beta);
    words[..FIRST_OP].copy_from_slice(&[args.input as u64, args.output as u64, two(beta, 0.0)]);
    let mut next = FIRST_OP;
    for op in args.ops {
        let (pointers, more, [a, b, c]) = operands(op);
        let scalars = [two(op.alpha, a), two(b, c)];
        words[next..next + 4].copy_from_slice(&pointers);
        words[next + 4..next + OP_WORDS].copy_from_slice(&scalars);
        next += OP_WORDS;
        // The second place of operators that have one; its scalars are not used.
        if let Some(more) = more {
            words[next..next + 4].copy_from_slice(&more);
            next += OP_WORDS;
        }
    }
    for (word, size) in words[next..].iter_mut().zip(sizes) {
        *word = *size as u64;
    }
    next + sizes.len()
}

/// An operator's pointers, those of its second place, and scalars, in the order in which the text expects
/// them.
fn operands(op: &OpArgs) -> ([u64; 4], Option<[u64; 4]>, [f32; 3]) {
    match &op.kind {
        OpArgsKind::ConvForward { weights, .. } => ([*weights as u64, 0, 0, 0], None, [0.0; 3]),
        OpArgsKind::BiasForward { bias } => ([*bias as u64, 0, 0, 0], None, [0.0; 3]),
        OpArgsKind::BatchNormInference { scale, bias, mean, variance, epsilon } => {
            let pointers = [*scale, *bias, *mean, *variance].map(|pointer| pointer as u64);
            (pointers, None, [*epsilon as f32, 0.0, 0.0])
        }
        OpArgsKind::ActivationForward { params } => ([0; 4], None, scalars(params)),
        OpArgsKind::BatchNormForward {
            scale,
            bias,
            saved_mean,
            saved_inv_variance,
            running_mean,
            running_variance,
            exp_avg_factor,
            epsilon,
        } => (
            [*scale as u64, *bias as u64, *saved_mean as u64, *saved_inv_variance as u64],
            Some([*running_mean as u64, *running_variance as u64, 0, 0]),
            [*epsilon as f32, *exp_avg_factor as f32, 0.0],
        ),
        OpArgsKind::BatchNormBackward {
            x,
            scale,
            bias,
            scale_diff,
            bias_diff,
            saved_mean,
            saved_inv_variance,
        } => (
            [*x as u64, *scale as u64, *bias as u64, *scale_diff as u64],
            Some([*bias_diff as u64, *saved_mean as u64, *saved_inv_variance as u64, 0]),
            [0.0; 3],
        ),
        OpArgsKind::ActivationBackward { y, params } => ([*y as u64, 0, 0, 0], None, scalars(params)),
        _ => unreachable!("arguments are of their operators' kinds"),
    }
}

fn scalars(params: &ActivationParams) -> [f32; 3] {
    [params.alpha as f32, params.beta as f32, params.gamma as f32]
}
