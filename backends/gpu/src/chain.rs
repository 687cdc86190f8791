//! The operators behind the convolution as functions of a kernel's text, in their declared order.
//!
//! What an operator needs of a channel is read once for the channel (`channel_of`), all of it before anything is
//! computed of it; batch-norm's scale and variance are folded to a factor. `one_of` takes one channel or another.
//! Residuals that lie as the output does are read for a vector of it (`residuals_of`). `chain` takes a value, number
//! `e` of a vector, through every operator; `READS_PLACES` says whether any of that reads what lies as the output does.

use std::fmt::Write;

use fuseplan_api::{ActivationMode, BatchNormMode, Op, Problem};

use crate::kernel::Text;
use crate::volume::{DIMS, Volume};

/// `struct Channel`, `struct Residuals`, their functions and `chain` for a problem; adds the sizes that they use.
pub(crate) fn functions(problem: &Problem, text: &mut Text) -> String {
    let (mut fields, mut reads, mut sets, mut steps) =
        (String::new(), String::new(), String::new(), String::new());
    let (mut residuals, mut residual_reads) = (String::new(), String::new());
    for (i, op) in problem.ops.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = match op {
            Op::BiasForward { bias } if bias == &problem.output && op.is_residual() => {
                let _ = writeln!(residuals, "  Packed<V> of{i};");
                let _ = writeln!(residual_reads, "  r.of{i} = elements<V>(args.op[{i}], y);");
                writeln!(steps, "  v += r.of{i}.at(e);")
            }
            Op::BiasForward { bias } if op.is_residual() => {
                let at = residual_offset(i, &Volume::of(bias), text);
                writeln!(steps, "  v += element(args.op[{i}], {at});")
            }
            Op::BiasForward { bias } => {
                text.size(format!("bias{i}_c"), Volume::of(bias).strides[1]);
                let _ = write!(fields, " bias{i},");
                let _ = writeln!(reads, "  c.bias{i} = element(args.op[{i}], k * args.shape.bias{i}_c);");
                writeln!(steps, "  v += c.bias{i};")
            }
            Op::BatchNormInference { mode: BatchNormMode::Spatial } => {
                let _ = write!(fields, " mean{i}, factor{i}, shift{i},");
                let _ = writeln!(reads, "  const Norm norm{i} = norm_of(args.op[{i}], k);");
                let _ = writeln!(
                    sets,
                    "  c.mean{i} = norm{i}.mean;\n  c.factor{i} = factor_of(norm{i});\n  c.shift{i} = norm{i}.bias;"
                );
                writeln!(steps, "  v = batch_norm(v, c.mean{i}, c.factor{i}, c.shift{i});")
            }
            Op::BatchNormInference { mode: BatchNormMode::PerActivation } => {
                writeln!(
                    steps,
                    "  {{\n    const Norm norm = norm_of(args.op[{i}], at.k * args.shape.out_plane + at.p);\n    \
                     v = batch_norm(v, norm.mean, factor_of(norm), norm.bias);\n  }}"
                )
            }
            Op::ActivationForward { mode } => {
                writeln!(steps, "  v = act_{}(v, args.op[{i}]);", activation(*mode))
            }
            // A convolution's sum is what the chain starts from; training operators are not accepted.
            _ => Ok(()),
        };
        let _ = writeln!(steps, "  v *= args.op[{i}].alpha;");
    }
    let reads_places = problem.ops.iter().any(reads_places);
    let choices = fields.split_terminator(',').map(str::trim);
    let choices: String =
        choices.map(|field| format!("  c.{field} = first ? a.{field} : b.{field};\n")).collect();
    let fields = fields.strip_suffix(',').map(|names| format!("  float{names};\n")).unwrap_or_default();
    format!(
        "#define READS_PLACES {reads_places}\n\nstruct Channel {{\n{fields}}};\n\nDEVICE Channel channel_of(const Args& args, idx k) {{\n  Channel c;\n\
         {reads}  KEEP_ORDER;\n{sets}  return c;\n}}\n\nDEVICE Channel one_of(bool first, const Channel& a, \
         const Channel& b) {{\n  Channel c;\n{choices}  return c;\n}}\n\n\
         template <int V> struct Residuals {{\n{residuals}}};\n\n\
         template <int V> DEVICE Residuals<V> residuals_of(const Args& args, idx y) {{\n  Residuals<V> r;\n\
         {residual_reads}  return r;\n}}\n\n\
         template <int V>\nDEVICE float chain(const Args& args, const Channel& c, const Residuals<V>& r, int e, float v, \
         const Place& at) {{\n{steps}  return v;\n}}\n"
    )
}

/// Whether an operator reads memory at the place of an output.
fn reads_places(op: &Op) -> bool {
    op.is_residual() || matches!(op, Op::BatchNormInference { mode: BatchNormMode::PerActivation })
}

/// Numbers (f32) in a problem's `struct Channel`.
pub fn channel_values(problem: &Problem) -> usize {
    let values = |op: &Op| match op {
        Op::BiasForward { .. } if !op.is_residual() => 1,
        Op::BatchNormInference { mode: BatchNormMode::Spatial } => 3,
        _ => 0,
    };
    problem.ops.iter().map(values).sum()
}

/// The offset of an element of the residual of operator `i`.
fn residual_offset(i: usize, residual: &Volume, text: &mut Text) -> String {
    text.strides(&format!("residual{i}"), &residual.strides);
    let index = [
        "at.n",
        "at.k",
        "(at.p / args.shape.out_w / args.shape.out_h)",
        "(at.p / args.shape.out_w % args.shape.out_h)",
        "(at.p % args.shape.out_w)",
    ];
    let terms = DIMS.iter().zip(index).map(|(dim, index)| format!("{index} * args.shape.residual{i}_{dim}"));
    terms.collect::<Vec<_>>().join(" + ")
}

/// An activation's name in the names of its functions.
pub(crate) fn activation(mode: ActivationMode) -> String {
    mode.to_string().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_activation_has_its_function() {
        let text = include_str!("../kernels/common.cuh");
        for mode in ActivationMode::ALL {
            assert!(
                text.contains(&format!("DEVICE float act_{}(float x, const Op&", activation(mode))),
                "{mode}"
            );
        }
    }
}
