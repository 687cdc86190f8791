//! Plans: appending, compiling, the cache, what was compiled before.

use std::sync::Barrier;

use fuseplan::device::Target;
use fuseplan::error::{BackendError, CompileError, ExecuteError, PlanError, Reason};
use fuseplan::problem::OpKind;
use fuseplan::support::Table;
use fuseplan::*;
use fuseplan_suite::sample::Sample;

fn sample() -> Sample {
    Sample::new(3).unwrap()
}

fn nchw(lens: [usize; 4]) -> TensorDescriptor {
    TensorDescriptor::nchw(DataType::Float, lens).unwrap()
}

fn conv_1x1(filters: usize, channels: usize) -> ConvForward {
    let conv = ConvolutionDescriptor::d2();
    ConvForward::new(conv, nchw([filters, channels, 1, 1]))
}

/// Whether both plans run the very same executable.
fn same(a: &CompiledPlan, b: &CompiledPlan) -> bool {
    std::ptr::eq(a.info(), b.info())
}

#[test]
fn odd_ranks_are_refused() {
    for rank in 1..=3 {
        let x = TensorDescriptor::packed(DataType::Float, &vec![4; rank]).unwrap();
        let error = FusionPlan::new(x).unwrap_err();
        assert_eq!(error, PlanError::Rank { found: rank });
        assert!(error.to_string().contains("4 (N, C, H, W) or 5"), "{error}");
    }
}

#[test]
fn overlapping_outputs_are_refused_but_not_in_a_plan_with_a_convolution() {
    // Overlapping inputs are only read; behind a convolution the output is packed.
    let folded = TensorDescriptor::new(DataType::Float, &[1, 2, 3, 4], &[1, 3, 4, 1]).unwrap();
    let mut plan = FusionPlan::new(folded).unwrap();
    let error = plan.append(ActivationForward::new(ActivationMode::Relu)).unwrap_err();
    assert!(matches!(error.reason, Reason::OverlappingOutput { .. }), "{error}");
    assert!(error.to_string().contains("[1, 3, 4, 1]") && !error.accepted.is_empty());
    plan.append(conv_1x1(3, 2)).unwrap();
    assert!(plan.output().is_packed());
}

#[test]
fn a_rejected_append_changes_nothing() {
    let mut sample = sample();
    let handle = Handle::cpu();
    let compiled = sample.plan.compile(&handle).unwrap();
    let before = sample.plan.problem();
    let error = sample.plan.append(conv_1x1(3, 4)).unwrap_err();
    assert_eq!(
        (error.index, error.kind, &error.reason),
        (3, OpKind::ConvForward, &Reason::SecondConvolution)
    );
    assert!(error.to_string().starts_with("ConvForward (operator 3): the plan already has a convolution"));
    assert!(error.to_string().ends_with(&format!("accepted: {}", error.accepted)));
    assert_eq!(sample.plan.problem(), before);
    assert_eq!(sample.run(&compiled, &handle, &sample.args()).unwrap(), sample.expected());
    // And it still takes what it should.
    let id = sample.plan.append(BiasForward::residual()).unwrap();
    assert_eq!(id.index(), 3);
}

#[test]
fn a_device_that_cannot_rejects_at_the_append_with_every_solvers_reason() {
    let x = TensorDescriptor::nchw(DataType::Double, [1, 3, 8, 8]).unwrap();
    let handle = Handle::cpu();
    let relu = || ActivationForward::new(ActivationMode::Relu);
    let mut plan = FusionPlan::for_device(&handle, x).unwrap();
    let error = plan.append(relu()).unwrap_err();
    let Reason::NoSolver { device, refusals } = &error.reason else { panic!("{error}") };
    assert!(device.starts_with("cpu 0"));
    let solvers: Vec<_> = Table::of_backend("cpu").unwrap().rows.iter().map(|row| row.solver).collect();
    assert_eq!(refusals.iter().map(|refusal| refusal.solver).collect::<Vec<_>>(), solvers);
    assert!(
        refusals.iter().any(|r| r.property == "data type" && r.found == "f64" && r.accepts.contains("f32"))
    );
    assert!(plan.ops().is_empty());
    // For any device it is taken, and refused at the compile for the same reasons.
    let mut plan = FusionPlan::new(x).unwrap();
    plan.append(relu()).unwrap();
    let CompileError::NoSolver { refusals: later, chain, .. } = plan.compile(&handle).unwrap_err() else {
        panic!("another error")
    };
    assert_eq!((&later, chain.as_str()), (refusals, "ActivationForward"));
}

#[test]
fn what_was_compiled_before_an_append_computes_what_the_plan_was_then() {
    let mut sample = sample();
    let handle = Handle::cpu();
    let old = sample.plan.compile(&handle).unwrap();
    let binary = sample.plan.compile_for(&handle, &CompileOptions::default()).unwrap();
    let loaded = sample.plan.load(&handle, &binary).unwrap();
    let shift = vec![-1.5f32; 4];
    let more = sample.plan.append(BiasForward::new()).unwrap();
    let new = sample.plan.compile(&handle).unwrap();
    for compiled in [&old, &loaded] {
        assert_eq!(sample.run(compiled, &handle, &sample.args()).unwrap(), sample.expected());
    }
    // The new operator is the new one's only, and it is asked for there.
    let missing = ExecuteError::Missing { index: 3, kind: OpKind::BiasForward };
    assert_eq!(sample.run(&new, &handle, &sample.args()), Err(missing));
    let mut args = sample.args();
    args.set(more, BiasForwardArgs::new(&shift));
    let shifted: Vec<f32> = sample.expected().iter().map(|value| value - 1.5).collect();
    assert_eq!(sample.run(&new, &handle, &args).unwrap(), shifted);
    let extra = ExecuteError::Extra { index: 3, kind: OpKind::BiasForward, count: 3 };
    assert_eq!(sample.run(&old, &handle, &args), Err(extra));
}

#[test]
fn another_math_mode_is_another_problem() {
    let mut sample = sample();
    let handle = Handle::cpu();
    let old = sample.plan.compile(&handle).unwrap();
    sample.plan.set_math_mode(MathMode::AllowTf32);
    let new = sample.plan.compile(&handle).unwrap();
    assert!(!same(&old, &new));
    assert_eq!((old.problem().math, new.problem().math), (MathMode::Precise, MathMode::AllowTf32));
    for compiled in [&old, &new] {
        assert_eq!(sample.run(compiled, &handle, &sample.args()).unwrap(), sample.expected());
    }
}

#[test]
fn winograd_is_chosen_where_it_pays_and_never_for_a_strict_plan() {
    let handle = Handle::cpu();
    let winograd = CompileOptions::default().with_solver("cpu.winograd.v1");
    for (text, pays) in [
        ("f32 1x64x56x56 NCHW math tf32 -> conv 64 3x3 pad 1 -> relu", true),
        // Four products of the matrix unit take less time.
        ("f16 1x64x56x56 NHWC -> conv 64 3x3 pad 1 -> relu", !handle.device_info().arch.ends_with("+amx")),
        ("f32 1x256x14x14 NCHW -> conv 256 3x3 pad 1", true),
        ("f32 1x128x28x28 NCHW -> conv 128 5x5 pad 2", true),
        ("f32 1x64x56x56 NCHW math strict -> conv 64 3x3 pad 1", false),
        // Few channels, a line of which two thirds of the taps are outside, few pixels for many filters.
        ("f32 1x3x224x224 NCHW -> conv 32 3x3 pad 1", false),
        ("f32 1x64x1x500 NCHW -> conv 64 3x3 pad 1", false),
        ("f32 1x256x3x3 NCHW -> conv 256 3x3 pad 1", false),
    ] {
        let plan: FusionPlan = text.parse().unwrap();
        let chosen = plan.compile(&handle).unwrap();
        assert_eq!(chosen.info().solver == "cpu.winograd.v1", pays, "{text}: {:?}", chosen.info());
        assert_eq!(plan.compile_with(&handle, &winograd).is_ok(), !text.contains("strict"), "{text}");
    }
}

#[test]
fn a_clone_goes_its_own_way_and_shares_operator_handles() {
    let sample = sample();
    let handle = Handle::cpu();
    let compiled = sample.plan.compile(&handle).unwrap();
    let mut clone = sample.plan.clone();
    let of_clone = clone.compile(&handle).unwrap();
    assert_eq!(sample.run(&of_clone, &handle, &sample.args()).unwrap(), sample.expected());
    clone.append(BiasForward::new()).unwrap();
    assert_eq!((sample.plan.ops().len(), clone.ops().len()), (3, 4));
    assert!(same(&sample.plan.compile(&handle).unwrap(), &compiled));
    assert!(!same(&clone.compile(&handle).unwrap(), &of_clone));
}

#[test]
fn operator_handles_are_found_again_by_index_and_kind() {
    let sample = sample();
    assert_eq!(sample.plan.op_id::<ConvForward>(0), Some(sample.conv));
    assert_eq!(sample.plan.op_id::<BiasForward>(1), Some(sample.bias));
    assert_eq!(sample.plan.op_id::<BiasForward>(0), None);
    assert_eq!(sample.plan.op_id::<BiasForward>(3), None);
    assert_eq!(format!("{:?}", sample.relu), "OpId<ActivationForward>(2)");
}

#[test]
fn an_empty_plan_does_not_compile() {
    let plan = FusionPlan::new(nchw([1, 3, 8, 8])).unwrap();
    assert_eq!(plan.compile(&Handle::cpu()).unwrap_err(), CompileError::Empty);
}

#[test]
fn the_second_equal_plan_finds_the_first_ones_kernel() {
    let handle = Handle::cpu();
    let first = sample().plan.compile(&handle).unwrap();
    assert!(same(&first, &sample().plan.compile(&Handle::cpu()).unwrap()));
    assert!(same(&first, &first.clone()));
    // Strides of dimensions of length 1 make no other problem; lengths and solvers do.
    let pixels = |strides: [usize; 4]| {
        let x = TensorDescriptor::new(DataType::Float, &[4, 7, 1, 1], &strides).unwrap();
        let mut plan = FusionPlan::new(x).unwrap();
        plan.append(ActivationForward::new(ActivationMode::Relu)).unwrap();
        plan.compile(&handle).unwrap()
    };
    assert!(same(&pixels([7, 1, 1, 1]), &pixels([7, 1, 7, 7])));
    assert!(!same(&first, &Sample::new(5).unwrap().plan.compile(&handle).unwrap()));
    let options = CompileOptions::default().with_solver("cpu.reference.v1");
    assert!(!same(&first, &sample().plan.compile_with(&handle, &options).unwrap()));
    // A device of its own has a cache of its own.
    let other = Handle::cpu_with_threads(1).unwrap();
    assert!(!same(&first, &sample().plan.compile(&other).unwrap()));
}

#[test]
fn threads_that_ask_at_once_build_once() {
    let handle = Handle::cpu_with_threads(1).unwrap();
    let barrier = Barrier::new(8);
    let compiled: Vec<_> = std::thread::scope(|scope| {
        let ask = || {
            let sample = Sample::new(11).unwrap();
            barrier.wait();
            sample.plan.compile(&handle).unwrap()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(compiled.iter().all(|plan| same(plan, &compiled[0])));
}

#[test]
fn a_compiled_plan_says_what_was_chosen_and_why() {
    let sample = sample();
    let handle = Handle::cpu();
    let table = Table::of_backend("cpu").unwrap();
    let compiled = sample.plan.compile(&handle).unwrap();
    // Every solver before the chosen one has a reason.
    let answers = sample.plan.answers(&handle).unwrap();
    assert_eq!(answers.len(), table.rows.len());
    assert_eq!(answers[0].solver, compiled.info().solver);
    assert!(answers[0].candidates.is_ok() && answers[0].reservation.is_none());
    let chosen = table.rows.iter().position(|row| row.solver == compiled.info().solver).unwrap();
    for row in &table.rows[..chosen] {
        let answer = answers.iter().find(|answer| answer.solver == row.solver).unwrap();
        assert!(answer.candidates.is_err() || answer.reservation.is_some(), "{answer:?}");
        let refused = compiled.refusals().iter().find(|refusal| refusal.solver == row.solver);
        assert_eq!(refused, answer.candidates.as_ref().err());
    }
    assert!(compiled.is_one_kernel() && compiled.info().kernels == 1 && compiled.workspace() == 0);
    assert!(compiled.is_for(&handle) && compiled.target().info() == handle.device_info());
    let text = compiled.to_string();
    assert!(text.contains(compiled.info().solver) && text.contains("kernels    1"), "{text}");
    for refusal in compiled.refusals() {
        assert!(text.contains(&refusal.to_string()), "{text}");
    }
}

#[test]
fn a_solver_can_be_asked_for_by_name() {
    let sample = sample();
    let handle = Handle::cpu();
    let with = |id: &str| sample.plan.compile_with(&handle, &CompileOptions::default().with_solver(id));
    assert_eq!(with("cpu.reference.v1").unwrap().info().solver, "cpu.reference.v1");
    let error = with("cpu.magic.v9").unwrap_err();
    assert!(matches!(&error, CompileError::UnknownSolver { backend: "cpu", id, .. } if id == "cpu.magic.v9"));
    assert!(error.to_string().contains("cpu.reference.v1"), "{error}");
    let error = with("cpu.batch_norm_training.v1").unwrap_err();
    let CompileError::NoSolver { refusals, .. } = &error else { panic!("{error}") };
    assert_eq!(refusals.len(), 1);
}

#[test]
fn a_plan_for_another_architecture_does_not_compile_for_this_handle() {
    let handle = Handle::cpu();
    let here = &handle.device_info().arch;
    let known = Target::new("cpu", "no-such-arch").unwrap_err();
    let BackendError::UnknownArch { known, .. } = &known else { panic!("{known}") };
    let names = known.split(", ").map(|name| name.trim_matches('`'));
    let others = names.filter(|name| name != here).filter_map(|name| Target::new("cpu", name).ok());
    let other = others.into_iter().next().expect("the CPU backend knows more than one architecture");
    let mut plan = FusionPlan::for_device(&other, nchw([1, 3, 8, 8])).unwrap();
    plan.append(BiasForward::new()).unwrap();
    let error = plan.compile(&handle).unwrap_err();
    assert!(
        matches!(&error, CompileError::OtherDevice { handle, .. } if handle.contains(here.as_str())),
        "{error}"
    );
}
