//! The text of kernels: every file lists what it needs of the text before it, and gets it; kernels on matrix cores, and
//! one without them, are kept in `kernels/examples`. `UPDATE=1` writes these anew.

#[path = "../../gpu/tests/contract/checker.rs"]
mod checker;
#[path = "../../gpu/tests/contract/examples.rs"]
mod examples;
#[path = "../../../tests/common/problems.rs"]
mod problems;

use std::path::Path;

use fuseplan_api::*;
use fuseplan_rocm::{RocmBackend, kernel};

use problems::{chain, conv, depthwise, element_wise, norm_relu, training};

const KERNELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels");
const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gpu/kernels");

/// Convolutions with operators behind them.
fn convolutions() -> Vec<Problem> {
    let mut all = Vec::new();
    for data_type in [DataType::Float, DataType::Half, DataType::BFloat16] {
        for layout in [TensorLayout::Nhwc, TensorLayout::Nchw] {
            for (channels, groups, taps) in [(64, 1, 3), (64, 1, 1), (64, 2, 3), (8, 4, 3), (3, 1, 7)] {
                let behind = chain(&[8, 64, 28, 28], data_type, layout, ActivationMode::Relu);
                all.push(conv(data_type, layout, &[8, channels, 28, 28], 64, taps, groups, behind));
            }
        }
    }
    all
}

#[test]
fn every_file_lists_what_it_needs() {
    let files = [KERNELS, SHARED].map(|folder| examples::files(Path::new(folder))).concat();
    // What measures a device's peaks is made without the other files.
    let files = files.into_iter().filter(|(name, _)| !name.contains("peaks"));
    let mut contract = checker::Contract::new(files);
    let mut problems = convolutions();
    // Blocks meet in memory where there are few pixels, or few channels of many.
    let half = DataType::Half;
    problems.push(conv(half, TensorLayout::Nhwc, &[1, 512, 7, 7], 512, 3, 1, vec![]));
    let (relu, spatial) = (ActivationMode::Relu, BatchNormMode::Spatial);
    problems.push(training(half, TensorLayout::Nhwc, [64, 64, 56, 56], spatial, relu, false));
    for layout in [TensorLayout::Nhwc, TensorLayout::Nchw] {
        problems.push(depthwise(DataType::Half, layout, [8, 64, 28, 28], 1, 3, 1));
        for mode in [BatchNormMode::Spatial, BatchNormMode::PerActivation] {
            problems.push(element_wise(DataType::Half, layout, [8, 64, 28, 28], norm_relu(mode)));
            for backward in [false, true] {
                problems.push(training(
                    DataType::Half,
                    layout,
                    [8, 64, 28, 28],
                    mode,
                    ActivationMode::Relu,
                    backward,
                ));
            }
        }
    }
    for problem in &problems {
        for solver in RocmBackend.solvers() {
            for arch in ["gfx942", "gfx1100"] {
                if let Some(kernel) = kernel(solver.id(), problem, arch) {
                    contract.look_at(&format!("{} of {}", solver.id(), problem.input), &kernel.source);
                }
            }
        }
    }
    let complaints = contract.complaints();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// The runtime that runs these texts without a GPU defines this memory, so it has one name in all of them.
#[test]
fn dynamic_shared_memory_has_one_name() {
    let files = [KERNELS, SHARED].map(|folder| examples::files(Path::new(folder))).concat();
    let declarations: Vec<_> = files
        .iter()
        .flat_map(|(name, text)| text.lines().map(move |line| (name, line.trim())))
        .filter(|(_, line)| line.starts_with("DYNAMIC_SHARED("))
        .collect();
    assert!(!declarations.is_empty());
    for (name, line) in declarations {
        assert!(line.ends_with(", shared);"), "{name}: {line}");
    }
}

#[test]
fn examples_of_kernels_are_kept() {
    let problem = &convolutions()[10];
    let kernels =
        [("conv_mfma", "gfx942"), ("conv_wmma", "gfx1100"), ("conv_ffma", "gfx1030")].map(|(name, arch)| {
            let id = format!("rocm.{name}.v1");
            let kernel = kernel(&id, problem, arch).unwrap();
            let what = format!("{id} on {arch}: {}", kernel.detail);
            (
                format!("{name}.hip"),
                examples::example("fuseplan-rocm", &what, &kernel.geometry, &kernel.source),
            )
        });
    examples::compare(&Path::new(KERNELS).join("examples"), &kernels);
}
