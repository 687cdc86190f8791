//! The affine operators that a chain begins with: alphas, biases of channels and at most one batch-norm, which are one
//! multiply-add of each channel, or two around a batch-norm's mean. Nothing folds across the mean, as the difference from it
//! would be lost where it is large.

use std::fmt::Write;

use fuseplan_api::{BatchNormMode, Op};

/// The operators that are folded, and what a kernel's text says of them.
#[derive(Debug, Default)]
pub(crate) struct Affine {
    /// How many operators of the problem these are, from the first on.
    pub(crate) count: usize,
    /// Numbers of a channel: none, `shift`, or `term`, `factor` and `shift`.
    pub(crate) fields: &'static [&'static str],
    /// Statements that set the fields of the channel `c`, from the numbers `n` that were read: `bias<i>` and `norm<i>`.
    pub(crate) sets: String,
    /// What becomes of a value `v`.
    pub(crate) value: String,
}

impl Affine {
    pub(crate) fn of(ops: &[Op]) -> Affine {
        let mut affine = Affine::default();
        let mut alphas = Vec::new();
        for (i, op) in ops.iter().enumerate() {
            let alpha = format!("args.op[{i}].alpha");
            let fields = affine.fields;
            // Writing to a string cannot fail.
            let _ = match op {
                Op::ConvForward { .. } => Ok(()),
                Op::BiasForward { .. } if !op.is_residual() && fields.is_empty() => {
                    affine.fields = &["shift"];
                    writeln!(affine.sets, "  c.shift = n.bias{i};")
                }
                Op::BiasForward { .. } if !op.is_residual() => {
                    writeln!(affine.sets, "  c.shift += n.bias{i};")
                }
                Op::BatchNormInference { mode: BatchNormMode::Spatial, .. } if fields.len() < 3 => {
                    affine.fields = &["term", "factor", "shift"];
                    let before = if fields.is_empty() { "" } else { "c.shift " };
                    writeln!(
                        affine.sets,
                        "  c.term = {before}- n.norm{i}.mean;\n  c.factor = factor_of(n.norm{i});\n  c.shift = n.norm{i}.bias;"
                    )
                }
                Op::BiasForward { .. }
                | Op::BatchNormInference { .. }
                | Op::PReluForward { .. }
                | Op::ActivationForward { .. }
                | Op::BatchNormForward { .. }
                | Op::BatchNormBackward { .. }
                | Op::ActivationBackward { .. } => break,
            };
            affine.count = i + 1;
            if !affine.fields.is_empty() {
                let _ = writeln!(affine.sets, "  c.shift *= {alpha};");
            }
            if affine.fields.len() == 3 {
                let _ = writeln!(affine.sets, "  c.factor *= {alpha};");
            } else {
                alphas.push(alpha);
            }
        }
        let alpha = if alphas.is_empty() { "1.f".into() } else { alphas.join(" * ") };
        affine.value = match affine.fields.len() {
            0 => format!("v * ({alpha})"),
            1 => format!("fmaf(v, {alpha}, c.shift)"),
            _ => format!("fmaf(fmaf(v, {alpha}, c.term), c.factor, c.shift)"),
        };
        affine
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuseplan_api::{ActivationMode, DataType, TensorDescriptor, TensorLayout};

    fn bias(lens: &[usize]) -> Op {
        Op::BiasForward {
            bias: TensorDescriptor::with_layout(DataType::Float, TensorLayout::Nchw, lens).unwrap(),
        }
    }

    #[test]
    fn ends_at_what_is_no_multiply_add_of_a_channel() {
        let (of_channels, residual) = (bias(&[1, 8, 1, 1]), bias(&[2, 8, 4, 4]));
        let norm = |mode| Op::BatchNormInference { mode, params: DataType::Float };
        let (spatial, element) = (norm(BatchNormMode::Spatial), norm(BatchNormMode::PerActivation));
        let relu = Op::ActivationForward { mode: ActivationMode::Relu };
        let folded = |ops: &[&Op]| {
            let affine = Affine::of(&ops.iter().map(|&op| op.clone()).collect::<Vec<_>>());
            (affine.count, affine.fields.len())
        };
        assert_eq!(folded(&[&of_channels, &of_channels, &relu, &of_channels]), (2, 1));
        assert_eq!(folded(&[&of_channels, &spatial, &of_channels, &residual]), (3, 3));
        assert_eq!(folded(&[&spatial, &spatial]), (1, 3));
        for other in [relu, residual, element] {
            assert_eq!(folded(&[&other, &of_channels]), (0, 0));
        }
    }

    #[test]
    fn alphas_behind_a_number_of_a_channel_scale_it() {
        let [first, second] = [(); 2].map(|()| bias(&[1, 8, 1, 1]));
        let norm = Op::BatchNormInference { mode: BatchNormMode::Spatial, params: DataType::Float };
        let affine = Affine::of(&[first.clone(), second.clone()]);
        assert_eq!(affine.value, "fmaf(v, args.op[0].alpha * args.op[1].alpha, c.shift)");
        let sets: Vec<_> = affine.sets.lines().map(str::trim).collect();
        let both = ["c.shift = n.bias0;", "c.shift *= args.op[0].alpha;", "c.shift += n.bias1;"];
        assert_eq!(sets[..3], both);
        let affine = Affine::of(&[first, norm, second]);
        assert_eq!(affine.value, "fmaf(fmaf(v, args.op[0].alpha, c.term), c.factor, c.shift)");
        let sets: Vec<_> = affine.sets.lines().map(str::trim).collect();
        assert_eq!(sets[2], "c.term = c.shift - n.norm1.mean;");
        assert_eq!(
            sets[5..9],
            [
                "c.shift *= args.op[1].alpha;",
                "c.factor *= args.op[1].alpha;",
                "c.shift += n.bias2;",
                "c.shift *= args.op[2].alpha;"
            ]
        );
    }
}
