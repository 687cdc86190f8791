//! The driver's command line for a case.

use fuseplan::{BatchNormMode, DataType};

use crate::case::{ActivationSpec, Case, OpSpec};

/// `fuseplan CBAInfer …`, for cases that its flags can express.
pub fn driver(case: &Case) -> Option<String> {
    use OpSpec::*;
    let mode = match case.ops.as_slice() {
        [Conv(_), Bias(_), BatchNorm(_), Activation(_)] => 0,
        [Conv(_), BatchNorm(_), Activation(_)] => 1,
        [BatchNorm(_), Activation(_)] => 2,
        [Conv(_), BatchNorm(_)] => 3,
        [Conv(_), Bias(_), Activation(_)] => 4,
        [Conv(_), Activation(_)] => 5,
        [Conv(_), Bias(_)] => 6,
        _ => return None,
    };
    let name = match case.data_type {
        DataType::Float => "CBAInfer",
        DataType::Half => "CBAInferfp16",
        DataType::BFloat16 => "CBAInferbfp16",
        DataType::Double | DataType::Int8 => return None,
    };
    let layout = case.layout.name().to_uppercase();
    let standard = ["NCHW", "NHWC"].contains(&layout.as_str());
    let scaled = case.beta != 0.0 || case.alpha.iter().any(|&alpha| alpha != 1.0);
    let explicit = case.conv().is_some_and(|conv| conv.weights.as_ref().is_some_and(|w| *w != case.layout));
    let one_sided = case.conv().is_some_and(|conv| !conv.is_symmetric());
    let other_output = case.conv().is_some_and(|conv| conv.output.is_some());
    let &[n, c, h, w] = case.input.as_slice() else { return None };
    if one_sided || other_output || !standard || scaled || explicit || case.refused.is_some() {
        return None;
    }
    let mut line = format!("fuseplan {name} -F {mode} -n {n} -c {c} -H {h} -W {w}");
    let mut flag = |name: &str, value: String| line.push_str(&format!(" {name} {value}"));
    if layout != "NCHW" {
        for name in ["--in_layout", "--out_layout", "--fil_layout"] {
            flag(name, layout.clone());
        }
    }
    for op in &case.ops {
        match op {
            Conv(conv) => {
                let (y, x) = (conv.filter[0], conv.filter[1]);
                let numbers = [
                    ("-k", conv.filters),
                    ("-y", y),
                    ("-x", x),
                    ("-p", conv.pad(0)),
                    ("-q", conv.pad(1)),
                    ("-u", conv.stride(0)),
                    ("-v", conv.stride(1)),
                    ("-l", conv.dilation(0)),
                    ("-j", conv.dilation(1)),
                    ("-g", conv.groups),
                ];
                numbers.iter().for_each(|(name, value)| flag(name, value.to_string()));
            }
            // No flag says that they are of another type than usual.
            Bias(bias) if bias.data_type.is_some_and(|data_type| data_type != case.data_type) => return None,
            BatchNorm(norm) if norm.data_type.is_some_and(|data_type| data_type != DataType::Float) => {
                return None;
            }
            BatchNorm(norm) => {
                let mode = if norm.mode == BatchNormMode::Spatial { 1 } else { 0 };
                flag("-M", mode.to_string());
            }
            Activation(ActivationSpec { mode, params: [alpha, beta, gamma] }) => {
                flag("-m", mode.miopen_value().to_string());
                [("-A", alpha), ("-B", beta), ("-G", gamma)]
                    .iter()
                    .for_each(|(name, value)| flag(name, value.to_string()));
            }
            Bias(_) => {}
            Residual(_) | PRelu(_) | BatchNormForward(_) | BatchNormBackward(_) | ActivationBackward(_) => {
                return None;
            }
        }
    }
    Some(line)
}
