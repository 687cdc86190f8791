use std::ptr;

use fuseplan_api::operands::{ActivationForward, BatchNormInference};
use fuseplan_api::*;
use fuseplan_fakes::NullBackend;

use super::*;
use crate::arguments::MAX_WORDS;
use crate::constraint::MAX_OPS;
use crate::direct::direct;
use crate::fake::{FakeDriver, calls};
use crate::{INFERENCE, OPERATOR_COUNT, Target};

/// A device of one unit.
const ALONE: Target = Target { units: 1, cluster: None, scratch: false };

/// The fake's device behind the contract.
fn open() -> Arc<dyn Device> {
    Arc::new(GpuDevice::<FakeDriver>::open(0).unwrap())
}

static SOLVER: JitSolver<FakeDriver> = JitSolver::new(
    "null.direct.v1",
    Algorithm::Direct,
    &[INFERENCE, OPERATOR_COUNT],
    Kernels::One(|problem, _| direct("// vendor", problem)),
);

fn relu(lens: [usize; 4], count: usize) -> Problem {
    let x = TensorDescriptor::nchw(DataType::Half, lens).unwrap();
    let ops = vec![Op::ActivationForward { mode: ActivationMode::Relu }; count];
    Problem { input: x, output: x, ops, math: MathMode::Precise }
}

#[test]
fn a_binary_is_loaded_only_for_what_it_was_made() {
    let device = open();
    let good = SOLVER.compile_preferred(&relu([1, 2, 3, 4], 1), device.info()).unwrap();
    let load = |problem: &Problem, binary: &Binary| SOLVER.load(problem, &device, binary).map(drop);
    assert_eq!(load(&relu([1, 2, 3, 4], 1), &good), Ok(()));
    // Sizes are arguments: one binary for all shapes. Operators are part of the text.
    assert_eq!(load(&relu([5, 6, 7, 8], 1), &good), Ok(()));
    for (count, binary, reason) in [
        (2, good.clone(), "it was made from another text"),
        (1, Binary { bytes: good.bytes[..16].into(), ..good.clone() }, "it is not of this format"),
        (1, Binary { bytes: Vec::new(), ..good.clone() }, "it is not of this format"),
        (1, Binary { bytes: b"ELF and so on and so".to_vec(), ..good.clone() }, "it is not of this format"),
        (1, Binary { arch: "sm_80".into(), ..good.clone() }, "it was made for sm_80, the device is null"),
        (1, Binary { solver: "null.b.v1".into(), ..good.clone() }, "it was made by null.b.v1"),
    ] {
        let error = BuildError::Binary { solver: "null.direct.v1", reason: reason.into() };
        assert_eq!(load(&relu([1, 2, 3, 4], count), &binary), Err(error));
    }
}

/// A stored binary has one configuration, so that who chose another must not be given it, though the text is the same.
#[test]
fn configurations_of_one_text_are_stored_apart() {
    static LAUNCHES: JitSolver<FakeDriver> = JitSolver::new(
        "null.launches.v1",
        Algorithm::Direct,
        &[INFERENCE, OPERATOR_COUNT],
        Kernels::Several {
            configurations: |_, _| {
                ["1 line", "2 lines"].map(|words| (Configuration::new(words), Estimate::Order)).into()
            },
            kernel: |problem, _, _| Some(direct("// vendor", problem)),
        },
    );
    let target = NullBackend.target("").unwrap();
    let key = |lens, words| LAUNCHES.cache_key(&relu(lens, 1), &target, &Configuration::new(words)).unwrap();
    assert_ne!(key([1, 2, 3, 4], "1 line"), key([1, 2, 3, 4], "2 lines"));
    assert_eq!(key([1, 2, 3, 4], "1 line"), key([5, 6, 7, 8], "1 line"));
}

#[test]
fn an_executable_says_its_launch() {
    let device = open();
    let problem = relu([1, 2, 300, 400], 1);
    let binary = SOLVER.compile_preferred(&problem, device.info()).unwrap();
    let executable = SOLVER.load(&problem, &device, &binary).unwrap();
    let Kernel { geometry, detail, .. } = SOLVER.kernel(&problem, "null");
    let resources = executable.info().resources.unwrap();
    assert_eq!((resources.blocks, resources.threads), (geometry.grid, geometry.block));
    assert_eq!(executable.info().detail, detail);
}

#[test]
fn the_compilers_log_reaches_the_caller() {
    let target = DeviceInfo { arch: "broken".into(), ..NullBackend.target("").unwrap() };
    let error = SOLVER.compile_preferred(&relu([1, 1, 1, 1], 1), &target).unwrap_err();
    assert_eq!(error.to_string(), "null.direct.v1: the kernel does not compile: line 1: no");
}

#[test]
fn arguments_are_laid_out_as_the_text_declares_them() {
    let device = open();
    let x = TensorDescriptor::nchw(DataType::Float, [2, 3, 4, 5]).unwrap();
    let ops = vec![
        Op::BatchNormInference { mode: BatchNormMode::Spatial, params: DataType::Float },
        Op::ActivationForward { mode: ActivationMode::Clamp },
    ];
    let problem = Problem { input: x, output: x, ops, math: MathMode::Precise };
    let binary = SOLVER.compile_preferred(&problem, device.info()).unwrap();
    let executable = SOLVER.load(&problem, &device, &binary).unwrap();
    let at = |address: usize| std::ptr::without_provenance::<std::ffi::c_void>(address);
    let norm =
        BatchNormInference { scale: at(11), bias: at(12), mean: at(13), variance: at(14), epsilon: 0.5 };
    let clamp = ActivationForward::from(ActivationParams::new(5.0, 6.0, 7.0));
    let ops = [OpArgs { alpha: 2.0, ..norm.into() }, OpArgs { alpha: 3.0, beta: 4.0, ..clamp.into() }];
    let args = RunArgs { input: at(1), output: at(2).cast_mut(), ops: &ops, workspace: std::ptr::null_mut() };
    // SAFETY: the fake's launch reads nothing.
    unsafe { executable.run(std::ptr::null_mut(), &args) }.unwrap();
    let calls = calls();
    let of = |name| calls.iter().find_map(|call| call.strip_prefix(name)).unwrap();
    let words = of("launch [").trim_end_matches(']').split(", ");
    let found: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
    let two = |low: f32, high: f32| u64::from(low.to_bits()) | u64::from(high.to_bits()) << 32;
    let expected =
        [1, 2, two(4.0, 0.0), 11, 12, 13, 14, two(2.0, 0.5), 0, 0, 0, 0, 0, two(3.0, 5.0), two(6.0, 7.0)];
    assert_eq!(found[..15], expected);
    // One word for each field of the text's `struct Shape`, in its order: out_h and out_w come first.
    let shape = of("load ").split("struct Shape {").nth(1).unwrap().split('}').next().unwrap();
    assert_eq!(found.len() - 15, shape.matches("Size ").count());
    assert_eq!(found[15..18], [4, 5, 20]);
}

/// In memory of the driver's, whose address and the launch's number are the last of the arguments.
#[test]
fn what_a_launch_hands_on_lies_in_scratch_memory() {
    let device = open();
    let x = TensorDescriptor::nhwc(DataType::Half, [4, 16, 16, 16]).unwrap();
    let ops = vec![Op::BatchNormForward { mode: BatchNormMode::Spatial, running: false }];
    let problem = Problem { input: x, output: x, ops, math: MathMode::Precise };
    let solver = JitSolver::<FakeDriver>::batch_norm("null.batch_norm_training.v1");
    let configuration = Configuration::new("16 groups, 512 threads, split 2 in memory");
    let binary = solver.compile(&problem, device.info(), &configuration).unwrap();
    let executable = solver.load(&problem, &device, &binary).unwrap();
    assert_eq!((executable.info().kernels, executable.info().workspace), (2, 0));
    calls();
    let ops = [OpArgs::default()];
    let args = RunArgs { input: ptr::null(), output: ptr::null_mut(), ops: &ops, workspace: ptr::null_mut() };
    // SAFETY: the fake's launch reads nothing.
    unsafe { executable.run(ptr::null_mut(), &args) }.unwrap();
    let calls = calls();
    // Two sums of each of two blocks and sixteen groups, and what they are the distances from.
    assert_eq!((&*calls[0], &*calls[1]), ("enter", "with_scratch 640"));
    let [first, second] = [2, 3].map(|at| {
        let words = calls[at].strip_prefix("launch [").unwrap().trim_end_matches(']');
        words.split(", ").map(|word| word.parse().unwrap()).collect::<Vec<u64>>()
    });
    // The address is the number of the call that gave it.
    let behind = first.len() - 2;
    assert_eq!((&first[..behind], &first[behind..]), (&second[..behind], &[2, 0][..]));
    assert_eq!((second[behind..].to_vec(), calls.len()), (vec![2, 1], 5));
}

/// A launch for each part, whose images and residual lie behind those of the part before it; the bias is that of all.
#[test]
fn what_is_too_large_is_computed_in_parts() {
    let solver: crate::InParts<JitSolver<FakeDriver>> = crate::InParts(JitSolver::new(
        "null.direct.v1",
        Algorithm::Direct,
        &[INFERENCE, OPERATOR_COUNT, crate::SPAN],
        Kernels::One(|problem, _| direct("// vendor", problem)),
    ));
    let device = open();
    let of = |lens| TensorDescriptor::nhwc(DataType::Half, lens).unwrap();
    let (input, weights) = (of([6, 16, 4096, 4096]), of([2, 16, 1, 1]));
    let conv = ConvolutionDescriptor::d2();
    let output = conv.forward_output(&input, &weights).unwrap();
    let bias = TensorDescriptor::nchw(DataType::Half, [1, 2, 1, 1]).unwrap();
    let ops =
        vec![Op::ConvForward { conv, weights }, Op::BiasForward { bias }, Op::BiasForward { bias: output }];
    let problem = Problem { input, output, ops, math: MathMode::Precise };
    solver.applies(&problem, device.info()).unwrap();
    let binary = solver.compile_preferred(&problem, device.info()).unwrap();
    let executable = solver.load(&problem, &device, &binary).unwrap();
    let info = executable.info();
    assert_eq!((info.kernels, info.detail.as_str()), (2, "one output a thread; in 2 parts of 3 images"));
    let at = |address: usize| std::ptr::without_provenance_mut::<std::ffi::c_void>(address);
    let ops: Vec<_> = [11, 12, 1 << 20]
        .map(|address| OpArgs {
            pointers: std::array::from_fn(|i| at(if i == 0 { address } else { 0 })),
            ..OpArgs::default()
        })
        .into();
    let args = RunArgs { input: at(1), output: at(2), ops: &ops, workspace: std::ptr::null_mut() };
    // SAFETY: the fake's launch reads nothing.
    unsafe { executable.run(std::ptr::null_mut(), &args) }.unwrap();
    let launches: Vec<Vec<u64>> = calls()
        .iter()
        .filter_map(|call| call.strip_prefix("launch ["))
        .map(|words| words.trim_end_matches(']').split(", ").map(|word| word.parse().unwrap()).collect())
        .collect();
    let plane = 4096 * 4096;
    let expected = [0, 1].map(|part| {
        let (input, output) = (part * 3 * 16 * plane * 2, part * 3 * 2 * plane * 2);
        [1 + input, 2 + output, 11, 12, (1 << 20) + output]
    });
    let found = launches.iter().map(|words| [0, 1, 3, 6, 9].map(|at| words[at])).collect::<Vec<_>>();
    assert_eq!(found, expected);
    assert_eq!(launches[0][12..], launches[1][12..], "sizes");
}

#[test]
fn the_longest_plan_fits_a_kernels_arguments() {
    let x = TensorDescriptor::nchw(DataType::Float, [2, 16, 4, 5]).unwrap();
    let weights = TensorDescriptor::nchw(DataType::Float, [16, 16, 1, 1]).unwrap();
    let bias = TensorDescriptor::nhwc(DataType::Float, [2, 16, 4, 5]).unwrap();
    let conv = ConvolutionDescriptor::d2();
    let mut ops = vec![Op::ConvForward { conv, weights }];
    ops.resize(MAX_OPS, Op::BiasForward { bias });
    let mut problem = Problem { input: x, output: x, ops, math: MathMode::Precise };
    let info = NullBackend.target("").unwrap();
    SOLVER.applies(&problem, &info).unwrap();
    let words = |kernel: Kernel| {
        let ops = vec![OpArgs::default(); problem.ops.len()];
        let (input, output) = (std::ptr::null(), std::ptr::null_mut());
        let args = RunArgs { input, output, ops: &ops, workspace: std::ptr::null_mut() };
        kernel.arguments.pack(&args, &mut [0; 2 * MAX_WORDS])
    };
    let gemm = |problem: &Problem| {
        let (configuration, _) = crate::gemm_configurations(problem, &crate::ffma(), &ALONE).swap_remove(0);
        crate::implicit_gemm("", problem, &crate::ffma(), &ALONE, &configuration).unwrap()
    };
    let biased = [direct("", &problem), gemm(&problem)].map(words);
    // Batch-norm has the most pointers of what a chain is made of.
    let mut normalized = problem.clone();
    normalized.ops[1] = Op::BatchNormInference { mode: BatchNormMode::Spatial, params: DataType::Float };
    let normalized = [direct("", &normalized), gemm(&normalized)].map(words);
    assert!(
        biased.into_iter().chain(normalized).all(|words| words <= MAX_WORDS),
        "{biased:?} {normalized:?}"
    );
    problem.ops.push(Op::BiasForward { bias });
    let refusal = SOLVER.applies(&problem, &info).unwrap_err().to_string();
    assert_eq!(refusal, "null.direct.v1: number of operators is 33, accepted: at most 32");
}
