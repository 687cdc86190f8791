//! The operators behind the convolution as functions of a kernel's text, in their declared order.
//!
//! What an operator needs of a channel is read once for the channel (`numbers_of`), all of it before anything is
//! computed of it (`channel_of`); batch-norm's scale and variance are folded to a factor. `one_of` takes one channel or another.
//! `affine` takes a value through the operators at the beginning that are a multiply-add or two of its channel, and `chain`
//! takes what comes of that, number `e` of a vector, through the others. Residuals that lie as the output does are read for a
//! vector of it (`residuals_of`), and `each_residual` visits them. `READS_ELEMENTS` says whether any operator reads a number
//! for each element of the output.

use std::fmt::Write;

use fuseplan_api::volume::Volume;
use fuseplan_api::{ActivationMode, BatchNormMode, DataType, Op, Problem};

use crate::affine::Affine;
use crate::kernel::{Text, element};
use crate::volume::DIMS;

/// `struct Numbers`, `struct Channel`, `struct Residuals`, their functions, `affine` and `chain` for a problem; adds the sizes that
/// they use.
pub(crate) fn functions(problem: &Problem, text: &mut Text) -> String {
    let affine = Affine::of(&problem.ops);
    let (mut fields, mut numbers, mut reads, mut steps) =
        (Vec::new(), String::new(), String::new(), String::new());
    fields.extend(affine.fields.iter().map(|field| field.to_string()));
    let mut sets = affine.sets;
    let (mut residuals, mut residual_reads, mut residual_tensors) =
        (String::new(), String::new(), String::new());
    for (i, op) in problem.ops.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = match op {
            op if lies_as_output(op, problem) => {
                let _ = writeln!(residuals, "  Packed<V> of{i};");
                let _ = writeln!(residual_reads, "  r.of{i} = elements<V>(args.op[{i}], y);");
                let _ = writeln!(residual_tensors, "  visit((const T*)args.op[{i}].p[0]);");
                writeln!(steps, "  v += r.of{i}.at(e);")
            }
            Op::BiasForward { bias } if op.is_residual() => {
                let at = residual_offset(i, &Volume::of(bias), &Volume::of(&problem.output), text);
                writeln!(steps, "  v += param<T>(args.op[{i}], BiasForward::bias, {at});")
            }
            Op::BiasForward { bias } => {
                text.size(format!("bias{i}_c"), Volume::of(bias).strides[1]);
                let (element, at) = (param(bias.data_type(), problem), format!("k * args.shape.bias{i}_c"));
                let read = format!("param<{element}>(args.op[{i}], BiasForward::bias, {at})");
                let _ = writeln!(numbers, "  float bias{i};");
                let _ = writeln!(reads, "  n.bias{i} = {read};");
                if i < affine.count {
                    Ok(())
                } else {
                    fields.push(format!("bias{i}"));
                    let _ = writeln!(sets, "  c.bias{i} = n.bias{i};");
                    writeln!(steps, "  v += c.bias{i};")
                }
            }
            Op::PReluForward { slope } => {
                text.size(format!("slope{i}_c"), Volume::of(slope).strides[1]);
                let (element, at) = (param(slope.data_type(), problem), format!("k * args.shape.slope{i}_c"));
                fields.push(format!("slope{i}"));
                let _ = writeln!(numbers, "  float slope{i};");
                let _ = writeln!(
                    reads,
                    "  n.slope{i} = param<{element}>(args.op[{i}], PReluForward::slope, {at});"
                );
                let _ = writeln!(sets, "  c.slope{i} = n.slope{i};");
                writeln!(steps, "  v = prelu(v, c.slope{i});")
            }
            Op::BatchNormInference { mode: BatchNormMode::Spatial, params } => {
                let element = param(*params, problem);
                let _ = writeln!(numbers, "  Norm norm{i};");
                let _ = writeln!(reads, "  n.norm{i} = norm_of<{element}>(args.op[{i}], k);");
                if i < affine.count {
                    Ok(())
                } else {
                    fields.extend(["mean", "factor", "shift"].map(|field| format!("{field}{i}")));
                    let _ = writeln!(
                        sets,
                        "  c.mean{i} = n.norm{i}.mean;\n  c.factor{i} = factor_of(n.norm{i});\n  c.shift{i} = n.norm{i}.bias;"
                    );
                    writeln!(steps, "  v = batch_norm(v, c.mean{i}, c.factor{i}, c.shift{i});")
                }
            }
            Op::BatchNormInference { mode: BatchNormMode::PerActivation, params } => {
                let element = param(*params, problem);
                text.size("out_plane", Volume::of(&problem.output).plane());
                writeln!(
                    steps,
                    "  {{\n    const Norm norm = norm_of<{element}>(args.op[{i}], at.k * args.shape.out_plane + at.p);\n    \
                     v = batch_norm(v, norm.mean, factor_of(norm), norm.bias);\n  }}"
                )
            }
            Op::ActivationForward { mode } => {
                writeln!(steps, "  v = act_{}(v, args.op[{i}]);", activation(*mode))
            }
            // A convolution's sum is what the chain starts from.
            Op::ConvForward { .. } => Ok(()),
            Op::BatchNormForward { .. } | Op::BatchNormBackward { .. } | Op::ActivationBackward { .. } => {
                unreachable!("a plan for training has no chain: {op}")
            }
        };
        if i >= affine.count {
            let _ = writeln!(steps, "  v *= args.op[{i}].alpha;");
        }
    }
    let reads_elements = reads_elements(problem);
    let choices: String =
        fields.iter().map(|field| format!("  c.{field} = first ? a.{field} : b.{field};\n")).collect();
    let fields = if fields.is_empty() { String::new() } else { format!("  float {};\n", fields.join(", ")) };
    let value = affine.value;
    format!(
        "#define READS_ELEMENTS {reads_elements}\n\nstruct Numbers {{\n{numbers}}};\n\nstruct Channel {{\n{fields}}};\n\n\
         DEVICE Numbers numbers_of(const Args& args, idx k) {{\n  Numbers n;\n{reads}  return n;\n}}\n\n\
         DEVICE Channel channel_of(const Args& args, const Numbers& n) {{\n  Channel c;\n{sets}  return c;\n}}\n\n\
         DEVICE Channel channel_of(const Args& args, idx k) {{\n  const Numbers n = numbers_of(args, k);\n  KEEP_ORDER;\n  \
         return channel_of(args, n);\n}}\n\nDEVICE Channel one_of(bool first, const Channel& a, \
         const Channel& b) {{\n  Channel c;\n{choices}  return c;\n}}\n\n\
         DEVICE float affine(const Args& args, const Channel& c, float v) {{\n  return {value};\n}}\n\n\
         template <int V> struct Residuals {{\n{residuals}}};\n\n\
         template <int V> DEVICE Residuals<V> residuals_of(const Args& args, idx y) {{\n  Residuals<V> r;\n\
         {residual_reads}  return r;\n}}\n\n\
         template <class F> DEVICE void each_residual(const Args& args, F visit) {{\n{residual_tensors}}}\n\n\
         template <int V>\nDEVICE float chain(const Args& args, const Channel& c, const Residuals<V>& r, int e, float v, \
         const Coord& at) {{\n{steps}  return v;\n}}\n"
    )
}

/// Whether an operator is a residual with the output's own strides.
fn lies_as_output(op: &Op, problem: &Problem) -> bool {
    op.is_residual() && matches!(op, Op::BiasForward { bias } if bias == &problem.output)
}

/// Operators of a problem whose numbers `struct Residuals` has.
pub fn residuals(problem: &Problem) -> usize {
    problem.ops.iter().filter(|op| lies_as_output(op, problem)).count()
}

/// Whether an operator of the problem computes exponentials, which takes registers of its own.
pub fn has_exponentials(problem: &Problem) -> bool {
    problem.ops.iter().any(|op| matches!(op, Op::ActivationForward { mode } if mode.has_exponentials()))
}

/// Whether any operator of a problem reads a number for each element of the output.
pub fn reads_elements(problem: &Problem) -> bool {
    problem.ops.iter().any(|op| {
        op.is_residual() || matches!(op, Op::BatchNormInference { mode: BatchNormMode::PerActivation, .. })
    })
}

/// The type of an operator's parameters in the text: T if it is that of the tensors, so that texts for all types are alike.
fn param(data_type: DataType, problem: &Problem) -> &'static str {
    if data_type == problem.output.data_type() {
        return "T";
    }
    match element(data_type) {
        Some(name) => name,
        None => unreachable!("parameters are f32 or of the tensors' type, not {data_type}"),
    }
}

/// Numbers (f32) in a problem's `struct Channel`.
pub fn channel_values(problem: &Problem) -> usize {
    Affine::of(&problem.ops).fields.len() + chain_values(problem)
}

/// Those of them that `chain` needs, after `affine`.
pub fn chain_values(problem: &Problem) -> usize {
    let values = |op: &Op| match op {
        Op::BiasForward { .. } => usize::from(!op.is_residual()),
        Op::PReluForward { .. } => 1,
        Op::BatchNormInference { mode: BatchNormMode::Spatial, .. } => 3,
        Op::BatchNormInference { mode: BatchNormMode::PerActivation, .. }
        | Op::ConvForward { .. }
        | Op::ActivationForward { .. }
        | Op::BatchNormForward { .. }
        | Op::BatchNormBackward { .. }
        | Op::ActivationBackward { .. } => 0,
    };
    problem.ops[Affine::of(&problem.ops).count..].iter().map(values).sum()
}

/// The offset of an element of the residual of operator `i`.
fn residual_offset(i: usize, residual: &Volume, output: &Volume, text: &mut Text) -> String {
    text.size("out_h", output.lens[3]).size("out_w", output.lens[4]);
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
    use fuseplan_api::{Activation, DataType};

    use super::*;

    #[test]
    fn every_activation_has_its_function_and_gradient() {
        let text = kernel_text!("../kernels/activation.cuh");
        for mode in ActivationMode::ALL {
            for kind in ["act", "grad"] {
                assert!(
                    text.contains(&format!("DEVICE float {kind}_{}(float", activation(mode))),
                    "{kind} of {mode}"
                );
            }
        }
    }

    /// The text's polynomial and exponential, in f32, beside the formula.
    #[test]
    fn the_normal_distribution_of_16_bits_is_as_near_as_its_text_says() {
        let text = kernel_text!("../kernels/activation.cuh");
        let function =
            text.split("DEVICE float normal_cdf").nth(1).and_then(|rest| rest.split("tail =").next());
        let numbers = |line: &str| -> Vec<f32> {
            line.split(['(', ',', ')', ' ']).filter_map(|word| word.strip_suffix('f')?.parse().ok()).collect()
        };
        let lines = function.unwrap().lines().filter(|line| line.contains("fmaf("));
        let coefficients: Vec<f32> = lines.flat_map(numbers).collect();
        assert_eq!(coefficients.len(), 7);
        for step in 1..=1300 {
            let t = step as f32 / 100.0;
            let r = 1.0 / (t + 2.5);
            let p = coefficients.iter().fold(0.0f32, |p, &c| p.mul_add(r, c));
            let found = f64::from(p * (-0.5 * t * t).exp());
            let exact = Activation::Gelu.forward(DataType::Float, -f64::from(t)) / -f64::from(t);
            assert!((found / exact - 1.0).abs() < 2e-5, "{t}: {found:e}, {exact:e}");
        }
    }
}
