use super::*;

fn plan(text: &str) -> FusionPlan {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn error(text: &str) -> String {
    text.parse::<FusionPlan>().unwrap_err().to_string()
}

/// What is written in the shortest form is printed as it is written.
#[test]
fn every_property_prints_as_it_is_written() {
    for text in [
        "f32 2x3x8x9 NCHW",
        "bf16 1x64x1x1 NHWC -> relu",
        "f32 2x3x8x9 strides 300x100x12x1 -> abs",
        "f16 1x64x56x56 NHWC -> conv 64 3x3 pad 1 -> bias -> relu",
        "f32 1x64x56x56 NCHW math tf32 -> conv 64 1x1",
        "f32 1x64x56x56 NCHW math strict -> conv 64 3x3 pad 1",
        "f32 2x8x9x9 NCHW -> conv 16 3x2 pad 1x0 stride 2x1 dilation 1x3 groups 2 weights NHWC",
        "f32 2x4x5x6x7 NDHWC -> conv 8 3x3x3 pad 1 stride 2 weights strides 500x100x9x3x1",
        "f32 1x4x8x8 NCHW -> conv 4 3x3 output-pad 1",
        "f32 1x4x8x8 NCHW -> conv 4 3x3 pad 0:1 stride 2",
        "f16 1x4x5x8x8 NDHWC -> conv 4 3x3x3 pad 2:0x1x1",
        "f16 1x4x5x8x8 NDHWC -> conv 4 1x3x3 pad 0x0:2x2:0",
        "f32 2x3x8x9 NCHW -> bias strides 6x2x1x1 -> residual -> residual NHWC -> residual strides 300x100x12x1",
        "f32 2x3x8x9 NCHW -> batch-norm spatial -> batch-norm per-activation -> gelutanh",
        "f32 2x3x8x9 NCHW -> conv 32 3x3 pad 1 stride 2 output NCHWc16 -> bias -> relu",
        "f32 2x32x8x9 NCHWc16 -> conv 64 3x3 -> residual -> residual NHWC",
        "bf16 2x32x8x9 NCHWc8 -> conv 20 3x3 weights NHWC output NHWC -> bias",
        "f16 2x32x8x9 NCHWc4 -> bias -> residual",
        "f16 2x8x8x9 NHWC -> conv 16 3x3 pad 1 output strides 3456x1x432x48 -> bias -> residual -> residual NHWC",
        "f32 2x4x5x6x7 NCDHW -> conv 8 3x3x3 pad 1 output strides 10080x210x42x7x1 -> relu",
        "f16 2x3x8x9 NCHW -> bias f32 -> batch-norm spatial f16 -> batch-norm per-activation",
        "f16 2x3x8x9 NHWC -> prelu -> prelu f32 -> prelu one -> prelu one f32 -> prelu strides 6x2x1x1",
        "f32 2x3x8x9 NCHW -> batch-norm-forward spatial running -> relu",
        "f32 2x3x8x9 NCHW -> batch-norm-forward per-activation",
        "f32 2x3x8x9 NCHW -> batch-norm-backward spatial -> leakyrelu-backward",
    ] {
        assert_eq!(plan(text).to_string(), text);
    }
}

#[test]
fn what_is_usual_need_not_be_written() {
    for (text, printed) in [
        ("f32 2x3x8x9", "f32 2x3x8x9 NCHW"),
        ("F32 2X3x8x9x1 ncdhw->Conv 4 3 PAD 1x1x1", "f32 2x3x8x9x1 NCDHW -> conv 4 3x3x3 pad 1"),
        ("f16 1x8x4x4 NHWC -> conv 8 1 weights NHWC", "f16 1x8x4x4 NHWC -> conv 8 1x1"),
        (
            "f16 1x8x4x4 NHWC -> conv 8 3 weights NCHW groups 2",
            "f16 1x8x4x4 NHWC -> conv 8 3x3 groups 2 weights NCHW",
        ),
        ("f32 1x8x4x4 -> conv 8 3 pad 1:1x2:2", "f32 1x8x4x4 NCHW -> conv 8 3x3 pad 1x2"),
        ("f32 1x8x4x4 -> batch-norm", "f32 1x8x4x4 NCHW -> batch-norm spatial"),
        ("f32 1x8x4x4 -> batch-norm f32", "f32 1x8x4x4 NCHW -> batch-norm spatial"),
        ("f32 1x8x4x4 -> bias f32 NHWC", "f32 1x8x4x4 NCHW -> bias"),
        ("f32 1x8x4x4 NCHW -> residual NCHW", "f32 1x8x4x4 NCHW -> residual"),
    ] {
        assert_eq!(plan(text).to_string(), printed, "{text}");
    }
}

#[test]
fn parameters_of_activations_belong_to_the_text_and_not_to_the_plan() {
    let text = "f32 1x8x4x4 NCHW -> bias -> clamp min -1 max 6 -> relu";
    let parsed: PlanText = text.parse().unwrap();
    assert_eq!(parsed.activations, [None, Some(Activation::Clamp { min: -1.0, max: 6.0 }), None]);
    assert_eq!(parsed.to_string(), text);
    assert_eq!(parsed.plan.to_string(), "f32 1x8x4x4 NCHW -> bias -> clamp -> relu");
    let short: PlanText = "f32 1x8x4x4 -> elu alpha 2.5e-1".parse().unwrap();
    assert_eq!(short.activations, [Some(Activation::Elu { alpha: 0.25 })]);
    let partly: PlanText = "f32 1x8x4x4 -> power beta 2".parse().unwrap();
    assert_eq!(partly.activations, [Some(Activation::Power { alpha: 1.0, beta: 2.0, gamma: 1.0 })]);
    assert_eq!(
        error(text),
        "`min` at 34: a plan has no parameters of activations, which are arguments; accepted: `->` or the end"
    );
}

#[test]
fn errors_name_the_place_and_what_is_accepted() {
    for (text, expected) in [
        ("", "at the end: no data type has this name; accepted: f32, f16, bf16, f64, i8"),
        ("f33 1x8x4x4", "`f33` at 0: no data type has this name; accepted: f32, f16, bf16, f64, i8"),
        ("f32", "at the end: these are no numbers; accepted: numbers with x between them, such as 3x3"),
        ("f32 1x8x4x0", "`1x8x4x0` at 4: tensor length 3 is zero; it must be at least 1"),
        (
            "f32 1x8x4 -> relu",
            "`f32` at 0: the plan's input has 3 dimensions; accepted: 4 (N, C, H, W) or 5 (N, C, D, H, W)",
        ),
        (
            "f32 1x8x4x4 NCDHW",
            "`NCDHW` at 12: tensor: 4 dimensions, expected 5 for this layout; accepted: NCHW, NHWC, NCHWc4, NCHWc8, NCHWc16, or strides and 4 \
             numbers with x between them",
        ),
        (
            "f32 1x8x4x4 NWHC",
            "`NWHC` at 12: this is not expected here; accepted: `->`, NCHW, NHWC, NCHWc4, NCHWc8, NCHWc16, strides, math",
        ),
        ("f32 1x8x4x4 math fast", "`fast` at 17: no mode of products has this name; accepted: strict, tf32"),
        (
            "f32 1x8x4x4 -> conv 64",
            "at the end: these are no numbers; accepted: numbers with x between them, such as 3x3",
        ),
        ("f32 1x8x4x4 -> conv many 3x3", "`many` at 20: this is no number of filters; accepted: a number"),
        (
            "f32 1x8x4x4 -> conv 64 3x3x3",
            "`3x3x3` at 23: there are 3 numbers, and 2 spatial dimensions; accepted: 1 number or 2, with x between them",
        ),
        (
            "f32 1x8x4x4 -> conv 64 3x3 stride 0",
            "`0` at 34: convolution stride 0 is zero; it must be at least 1",
        ),
        (
            "f32 1x8x4x4 -> conv 64 3x3 pad 1:2:3",
            "`1:2:3` at 31: this is no padding; accepted: numbers with x between them, each for both sides or as \
             before:after, such as 1x0:1",
        ),
        (
            "f32 1x8x4x4 -> conv 64 3x3 pads 1",
            "`pads` at 27: this is not expected here; accepted: `->`, the end, or a property of the operator before it",
        ),
        (
            "f32 1x8x4x4 -> conv 64 9x9",
            "`conv` at 15: the filter reaches over 9 elements of spatial dimension 0, the padded input has 4; accepted: \
             weights with lengths [64, 8, 4, 4]",
        ),
        (
            "f16 1x8x4x4 -> relu -> conv 8 1x1",
            "`conv` at 23: a convolution can only be the first operator of a plan, here ActivationForward is; accepted: a \
             plan that starts with it",
        ),
        (
            "f32 1x24x4x4 NCHWc16 -> relu",
            "`NCHWc16` at 13: NCHWc16 has blocks of 16 channels, the tensor has 24 channels, which are no multiple of \
             that; accepted: NCHW, NHWC, NCHWc4, NCHWc8, NCHWc16, or strides and 4 numbers with x between them",
        ),
        (
            "f32 1x8x4x4 NCHWc8 -> conv 12 1x1",
            "`conv` at 22: NCHWc8 has blocks of 8 channels, the tensor has 12 channels, which are no multiple of that; \
             accepted: an output layout that has as many channels as there are filters",
        ),
        (
            "f32 1x8x4x4 -> conv 8 3x3 pad 1000000000",
            "`conv` at 15: tensor lengths [1, 8, 2000000002, 2000000002] with strides [18446744073709551615, 4000000008000000004, \
             2000000002, 1] overflow the address space; accepted: padding, filters and output strides with which the output fits the address \
             space",
        ),
        (
            "f32 1x8x4x4 -> conv 8 1x1 output rows",
            "`rows` at 33: an output has no such property; accepted: NCHW, NHWC, NCHWc4, NCHWc8, NCHWc16, or strides and 4 \
             numbers with x between them",
        ),
        (
            "f32 1x8x4x4 -> conv 8 1x1 output strides 1x2x3",
            "`conv` at 15: tensor strides: 3 entries, expected one for each of the 4 dimensions; accepted: 4 output strides, above 0 \
             where the length is above 1",
        ),
        (
            "f32 1x8x4x4 -> conv 8 1x1 output strides 6x5x4x3x2x1",
            "`conv` at 15: output strides: 6 entries, expected one for each of the 4 dimensions; accepted: 4 output strides, above 0 \
             where the length is above 1",
        ),
        (
            "f32 1x8x4x4 -> conv 8 1x1 output strides 128x1x16x4",
            "`conv` at 15: the output has strides [128, 1, 16, 4], with which elements overlap; accepted: strides with which no \
             elements overlap",
        ),
        ("f32 1x8x4x4 -> elu alpha", "at the end: this is no number; accepted: a number"),
        (
            "f32 1x8x4x4 -> relu slope 1",
            "`slope` at 20: this is not expected here; accepted: `->`, the end, or a property of the operator before it",
        ),
        (
            "f32 1x8x4x4 relu",
            "`relu` at 12: this is not expected here; accepted: `->`, NCHW, NHWC, NCHWc4, NCHWc8, NCHWc16, strides, math",
        ),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
    let unknown = error("f32 1x8x4x4 -> ");
    assert!(
        unknown.starts_with("at the end: no operator has this name; accepted: conv, bias, "),
        "{unknown}"
    );
    assert!(unknown.contains(", gelu, ") && unknown.ends_with("with -backward behind them"), "{unknown}");
}

/// A convolution makes its output in the layout that the input literally has, though the strides mean nothing.
#[test]
fn the_layout_of_a_single_pixel_is_kept() {
    let text = "f16 8x64x1x1 NHWC -> conv 32 3x3 pad 2";
    assert_eq!(plan(text).output().to_string(), "f16 8x32x3x3 NHWC");
    assert_eq!(plan(text).to_string(), text);
}
