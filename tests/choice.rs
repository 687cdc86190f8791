//! What is chosen for some layers of known networks. A new model, tile or order changes the list, and the change is seen.

#![cfg(all(feature = "cuda", feature = "rocm"))]

use std::collections::BTreeSet;
use std::fmt::Write;

use fuseplan::{
    ActivationForward, ActivationMode, BiasForward, ConvForward, ConvolutionDescriptor, DataType, FusionPlan,
    MathMode, TensorDescriptor, TensorLayout, device::Target, problem::Op,
};

const TARGETS: [(&str, &str); 4] =
    [("cpu", "portable"), ("cuda", "sm_90a"), ("cuda", "sm_80"), ("rocm", "gfx942")];

/// Name, lengths of the image, filters, extent of a filter, stride, groups, padding before and after.
type Layer = (&'static str, [usize; 4], usize, usize, usize, usize, [usize; 2]);

const LAYERS: [Layer; 24] = [
    ("ResNet's stem", [8, 3, 224, 224], 64, 7, 2, 1, [3, 3]),
    ("ResNet's first 3x3", [64, 64, 56, 56], 64, 3, 1, 1, [1, 1]),
    ("ResNet's last 3x3, one image", [1, 512, 7, 7], 512, 3, 1, 1, [1, 1]),
    ("ResNet's first 1x1", [64, 64, 56, 56], 256, 1, 1, 1, [0, 0]),
    ("ResNeXt's groups", [8, 128, 56, 56], 128, 3, 1, 32, [1, 1]),
    ("MobileNet's depthwise", [8, 32, 112, 112], 32, 3, 1, 32, [1, 1]),
    ("a decoder's last", [1, 96, 128, 128], 3, 3, 1, 1, [1, 1]),
    ("hardly any products", [1, 4, 32, 32], 4, 1, 1, 1, [0, 0]),
    ("a 3x3 padded as TensorFlow's SAME", [8, 64, 56, 56], 128, 3, 2, 1, [0, 1]),
    ("a depthwise 3x3 padded as TensorFlow's SAME", [8, 96, 112, 112], 96, 3, 2, 96, [0, 1]),
    ("a bottleneck's 24 filters", [8, 96, 56, 56], 24, 1, 1, 1, [0, 0]),
    ("RegNet's groups of 56", [8, 224, 56, 56], 224, 3, 1, 4, [1, 1]),
    ("ResNeXt's groups of 16, one image", [1, 512, 28, 28], 512, 3, 2, 32, [1, 1]),
    ("a U-Net of 64 images", [64, 64, 512, 512], 64, 3, 1, 1, [1, 1]),
    ("a classifier of 8 rows", [8, 2048, 1, 1], 1000, 1, 1, 1, [0, 0]),
    ("a point convolution of few channels, one image", [1, 24, 56, 56], 72, 1, 1, 1, [0, 0]),
    ("a classifier of 16 rows", [16, 2048, 1, 1], 1000, 1, 1, 1, [0, 0]),
    ("an excitation of 10 channels", [64, 10, 1, 1], 240, 1, 1, 1, [0, 0]),
    ("an excitation of 16 channels", [64, 16, 1, 1], 240, 1, 1, 1, [0, 0]),
    ("an excitation of 10 channels, 65 images", [65, 10, 1, 1], 240, 1, 1, 1, [0, 0]),
    ("MobileNet's stem", [8, 3, 224, 224], 32, 3, 2, 1, [1, 1]),
    ("RegNet's 1x1 in strides", [8, 448, 28, 28], 896, 1, 2, 1, [0, 0]),
    ("a 1x1 of few pixels", [8, 112, 14, 14], 672, 1, 1, 1, [0, 0]),
    ("a 3x3 of few pixels", [8, 256, 14, 14], 256, 3, 1, 1, [1, 1]),
];

fn plan(layer: usize, data_type: DataType, math: MathMode, layout: TensorLayout) -> FusionPlan {
    let (_, lens, filters, extent, stride, groups, [before, after]) = LAYERS[layer];
    let x = TensorDescriptor::with_layout(data_type, layout, &lens).unwrap();
    let weights = [filters, lens[1] / groups, extent, extent];
    let weights = TensorDescriptor::with_layout(data_type, layout, &weights).unwrap();
    let conv = ConvolutionDescriptor::d2().with_asymmetric_pads([before; 2], [after; 2]).unwrap();
    let conv = conv.with_strides([stride; 2]).unwrap();
    let mut plan = FusionPlan::new(x).unwrap();
    plan.set_math_mode(math);
    plan.append(ConvForward::new(conv.with_groups(groups).unwrap(), weights)).unwrap();
    plan.append(BiasForward::new()).unwrap();
    plan.append(ActivationForward::new(ActivationMode::Relu)).unwrap();
    plan
}

#[test]
fn the_choice_is_the_one_that_is_written_down() {
    let mut found = String::new();
    for (backend, arch) in TARGETS {
        let arch = if arch == "portable" { format!("{}+portable", family()) } else { arch.into() };
        let target = Target::new(backend, &arch).unwrap();
        let of_backend = if backend == "cpu" { "cpu" } else { target.info().arch.as_str() };
        for (layer, (name, ..)) in LAYERS.into_iter().enumerate() {
            for (data_type, math) in [
                (DataType::Half, MathMode::Precise),
                (DataType::Float, MathMode::Precise),
                (DataType::Float, MathMode::AllowTf32),
            ] {
                for layout in [TensorLayout::Nchw, TensorLayout::Nhwc] {
                    let answers = plan(layer, data_type, math, layout).answers(&target).unwrap();
                    for candidates in answers.iter().filter_map(|answer| answer.candidates.as_ref().ok()) {
                        let words: BTreeSet<_> = candidates.iter().map(|c| &c.configuration).collect();
                        assert_eq!(words.len(), candidates.len(), "{candidates:?}");
                    }
                    let chosen = answers[0].candidates.as_ref().unwrap()[0].configuration.as_str();
                    let math = if math == MathMode::AllowTf32 { " TF32" } else { "" };
                    let line =
                        format!("{of_backend} {name}, {data_type}{math} {layout}: {}", answers[0].solver);
                    let _ = writeln!(found, "{}", format!("{line} {chosen}").trim_end());
                }
            }
        }
    }
    println!("{found}");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/choice.txt");
    let expected = std::fs::read_to_string(file).unwrap();
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.lines().count(), expected.lines().count());
}

/// The times by which a framework chooses a layout: Hopper is faster where channels are innermost, by a model; without a
/// model there is no time.
#[test]
fn the_expected_time_is_that_of_the_preferred_solver() {
    let time = |backend, arch: &str, layout| {
        let target = Target::new(backend, arch).unwrap();
        plan(1, DataType::Half, MathMode::Precise, layout).expected_time(&target).unwrap()
    };
    let [nchw, nhwc] = [TensorLayout::Nchw, TensorLayout::Nhwc].map(|of| time("cuda", "sm_90a", of).unwrap());
    assert!(nhwc.mul_f64(1.2) < nchw, "{nhwc:?} {nchw:?}");
    assert!((1.0e-6..1.0e-3).contains(&nhwc.as_secs_f64()), "{nhwc:?}");
    assert_eq!(time("cpu", &format!("{}+portable", family()), TensorLayout::Nchw), None);
}

/// Layouts of a network are compared by the times of its convolutions, whatever solvers these have in each.
#[test]
fn few_filters_have_an_expected_time_in_every_layout() {
    let target = Target::new("cuda", "sm_90a").unwrap();
    let last = LAYERS.iter().position(|(name, ..)| *name == "a decoder's last").unwrap();
    for (data_type, math) in [
        (DataType::Half, MathMode::Precise),
        (DataType::Float, MathMode::Precise),
        (DataType::Float, MathMode::AllowTf32),
    ] {
        let [nchw, nhwc] = [TensorLayout::Nchw, TensorLayout::Nhwc].map(|layout| {
            let time = plan(last, data_type, math, layout).expected_time(&target).unwrap();
            time.unwrap_or_else(|| panic!("{data_type} {math:?} {layout} has no time")).as_secs_f64()
        });
        assert!((1e-6..1e-4).contains(&nchw) && (1e-6..1e-4).contains(&nhwc), "{nchw} {nhwc}");
    }
}

/// The family of the processor in the CPU's names of architectures.
fn family() -> &'static str {
    if cfg!(target_arch = "x86_64") { "x86-64" } else { std::env::consts::ARCH }
}

#[test]
fn gpus_refuse_blocks_of_channels_and_outputs_in_another_order() {
    const ACCEPTS: &str = "tensors with strides (not NCHWc), the output in the order of the input";
    for (backend, arch) in &TARGETS[1..] {
        let target = Target::new(backend, arch).unwrap();
        for (text, found) in [
            ("f16 2x32x9x9 NCHWc16 -> conv 32 3x3 pad 1 -> bias -> relu", "NCHWc16, NCHWc16"),
            ("f32 2x32x9x9 NCHWc8 -> conv 64 3x3 output NHWC -> residual", "NCHWc8, NHWC, NHWC"),
            ("f16 2x8x9x9 NHWC -> conv 32 1x1 output NCHWc16 -> relu", "NHWC, NCHWc16"),
            ("f16 2x32x9x9 NHWC -> conv 32 1x1 groups 32 -> residual NCHWc4", "NHWC, NHWC, NCHWc4"),
            ("f16 2x32x9x9 NHWC -> conv 32 1x1 output NCHW", "NHWC, NCHW"),
            ("f32 2x32x9x9 NCHW -> conv 32 3x3 output NHWC -> relu", "NCHW, NHWC"),
            ("f32 2x32x9x9 NCHWc4 -> bias -> relu", "NCHWc4, NCHWc4"),
            ("f32 2x32x9x9 NCHWc4 -> batch-norm-forward spatial", "NCHWc4, NCHWc4"),
        ] {
            let plan: FusionPlan = text.parse().unwrap();
            let answers = plan.answers(&target).unwrap();
            assert!(!answers.is_empty());
            for answer in answers {
                let refusal = answer.candidates.unwrap_err();
                assert_eq!(
                    (refusal.property, refusal.found.as_str()),
                    ("layout", found),
                    "{text}: {refusal}"
                );
                assert_eq!(refusal.accepts, ACCEPTS);
            }
        }
        // One block is a tensor with channels innermost, one pixel lies in every order, and so does one channel.
        for text in [
            "f16 2x16x9x9 NCHWc16 -> conv 16 3x3 pad 1 -> bias -> relu",
            "f16 2x64x1x1 NCHWc16 -> conv 32 1x1 output NHWC",
            "f32 2x1x9x9 NCHW -> conv 32 3x3 output NHWC -> relu",
        ] {
            let plan: FusionPlan = text.parse().unwrap();
            let answers = plan.answers(&target).unwrap();
            assert!(answers.iter().any(|answer| answer.candidates.is_ok()), "{text} on {target}");
        }
    }
}

/// A slice of the channels of a larger tensor is written by the kernel of a whole tensor, in the same configuration, and read by
/// it as well.
#[test]
fn slices_of_channels_have_the_solver_of_whole_tensors() {
    let strides_of = |layout, data_type, lens: &[usize]| {
        let wider = [lens[0], 2 * lens[1].next_multiple_of(8), lens[2], lens[3]];
        TensorDescriptor::with_layout(data_type, layout, &wider).unwrap().strides().unwrap().to_vec()
    };
    for (backend, arch) in &TARGETS[1..] {
        let target = Target::new(backend, arch).unwrap();
        for (layer, (name, ..)) in LAYERS.into_iter().enumerate() {
            for (data_type, layout) in [DataType::Half, DataType::Float]
                .into_iter()
                .flat_map(|of| [TensorLayout::Nchw, TensorLayout::Nhwc].map(|layout| (of, layout)))
            {
                let whole = plan(layer, data_type, MathMode::Precise, layout);
                let Op::ConvForward { conv, weights } = whole.ops()[0] else { panic!("a convolution") };
                let sliced = |reads: bool| {
                    let lens = whole.input().lens();
                    let strides = strides_of(layout, data_type, lens);
                    let x = TensorDescriptor::new(data_type, lens, &strides).unwrap();
                    let mut plan = FusionPlan::new(if reads { x } else { *whole.input() }).unwrap();
                    let strides = strides_of(layout, data_type, whole.output().lens());
                    plan.append(ConvForward::new(conv, weights).with_output_strides(&strides)).unwrap();
                    plan.append(BiasForward::new()).unwrap();
                    plan.append(ActivationForward::new(ActivationMode::Relu)).unwrap();
                    plan
                };
                let chosen = |plan: &FusionPlan| {
                    let answer = plan.answers(&target).unwrap().swap_remove(0);
                    (answer.solver, answer.candidates.unwrap()[0].configuration.as_str().to_owned())
                };
                let ((solver, configuration), text) =
                    (chosen(&whole), format!("{arch} {name}, {data_type} {layout}"));
                for reads in [false, true] {
                    let plan = sliced(reads);
                    let (found, words) = chosen(&plan);
                    assert_eq!(found, solver, "{text}");
                    // What spans more is computed in parts, each of fewer images.
                    if plan.input().span().max(plan.output().span()) < 1 << 30 {
                        assert_eq!(words, configuration, "{text}");
                    }
                }
            }
        }
    }
}
