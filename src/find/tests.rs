//! Timing solvers on a fake device.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;

use fuseplan_api::DeviceInfo;

use super::*;
use crate::cache::disk_at;
use crate::choice::{Chosen, Configuration, Measured};
use crate::*;

/// A convolution in groups, which several of the CPU's solvers take; then all that an operator may need.
fn plan(handle: &Handle) -> FusionPlan {
    let x = TensorDescriptor::nhwc(DataType::Float, [1, 8, 6, 6]).unwrap();
    let w = TensorDescriptor::nhwc(DataType::Float, [8, 4, 3, 3]).unwrap();
    let conv = ConvolutionDescriptor::d2().with_pads([1, 1]).unwrap().with_groups(2).unwrap();
    let mut plan = FusionPlan::for_device(handle, x).unwrap();
    plan.append(ConvForward::new(conv, w)).unwrap();
    plan.append(BiasForward::new()).unwrap();
    plan.append(BatchNormInference::new(BatchNormMode::Spatial)).unwrap();
    plan.append(BiasForward::residual()).unwrap();
    plan.append(ActivationForward::new(ActivationMode::Relu)).unwrap();
    plan
}

fn times(built: &Built) -> &[Measured] {
    match &built.chosen {
        Chosen::Measured { times, .. } => times,
        other => panic!("{other:?}"),
    }
}

fn is_stored(built: &Built) -> bool {
    matches!(built.chosen, Chosen::Measured { stored: true, .. })
}

#[test]
fn the_fastest_is_taken_and_its_scratch_memory_given_back() {
    let (fake, handle) = fake_device();
    let plan = plan(&handle);
    let preferred = plan.compile(&handle).unwrap();
    assert_eq!(*preferred.chosen(), Chosen::Preferred);
    fake.slow_down(preferred.info().solver);
    let options = CompileOptions::default().with_find(FindMode::Normal);
    let built = fastest(&handle, &plan.problem(), None).unwrap();
    assert!(times(&built).len() > 1);
    assert!(times(&built).windows(2).all(|pair| pair[0].time <= pair[1].time));
    assert_eq!(times(&built)[times(&built).len() - 1].solver, preferred.info().solver);
    assert_eq!(built.executable.info().solver, times(&built)[0].solver);
    assert!(times(&built).iter().all(|measured| measured.solver != "cpu.reference.v1"));
    assert_eq!(fake.live(), 0);
    // A request is a request.
    let asked = plan.compile_with(&handle, &options.with_solver("cpu.reference.v1")).unwrap();
    assert_eq!(*asked.chosen(), Chosen::Requested);
    let text = built.chosen.to_string();
    assert!(
        text.starts_with(&format!("measured: {} ", times(&built)[0].solver)) && text.ends_with(" µs"),
        "{text}"
    );
}

#[test]
fn short_executions_are_timed_as_one_graph_where_the_device_has_graphs() {
    for refuses in [false, true] {
        let (fake, handle) = fake_device();
        fake.give_graphs(refuses);
        let problem = plan(&handle).problem();
        let built = fastest(&handle, &problem, None).unwrap();
        let ([recorded, launches, live], executions) = (fake.graphs(), fake.executions());
        let timed = times(&built).len();
        // Something was short, and what was not was launched by itself.
        assert!(
            recorded > 0 && recorded.is_multiple_of(BURST as usize) && recorded <= timed * BURST as usize
        );
        assert_eq!(live, 0);
        if refuses {
            assert_eq!(launches, 0);
            assert!(executions >= timed + BURST as usize, "{executions}");
        } else {
            assert!((1..=timed * ROUNDS).contains(&launches), "{launches}");
        }
    }
}

#[test]
fn what_was_found_is_stored_and_not_timed_again() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk_at(directory.path());
    let (fake, handle) = fake_device();
    let problem = plan(&handle).problem();
    let first = fastest(&handle, &problem, Some(&disk)).unwrap();
    assert!(!is_stored(&first));
    let executions = fake.executions();
    let second = fastest(&handle, &problem, Some(&disk)).unwrap();
    assert!(is_stored(&second));
    assert_eq!(times(&second), times(&first));
    assert_eq!(second.executable.info().solver, first.executable.info().solver);
    assert_eq!(fake.executions(), executions);
    assert!(second.chosen.to_string().starts_with("measured earlier: "));

    // Damage is found, and the file set aside.
    let files = || fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path());
    let entry = files().find(|path| path.extension().is_some_and(|end| end == "bin")).unwrap();
    let mut bytes = fs::read(&entry).unwrap();
    let middle = bytes.len() - 40;
    bytes[middle] ^= 1;
    fs::write(&entry, bytes).unwrap();
    assert!(!is_stored(&fastest(&handle, &problem, Some(&disk)).unwrap()));
    assert!(is_stored(&fastest(&handle, &problem, Some(&disk)).unwrap()));
    assert!(files().any(|path| path.extension().is_some_and(|end| end == "bad")));
}

/// Who times has its executables before it takes the lock of those who time, and so waits for no other lock then.
#[test]
fn nothing_is_built_under_the_lock_of_those_who_time() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk_at(directory.path());
    let (fake, handle) = fake_device();
    let problem = plan(&handle).problem();
    let (trials, _) = trials(&handle, &problem);
    let key = subject(handle.device_info(), &problem, &trials).key().to_hex();
    let open = |name: String| {
        let mut options = fs::OpenOptions::new();
        options
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(directory.path().join(name))
            .unwrap()
    };
    // Somebody who compiles a kernel whose key starts alike is not waited for.
    let compiling = open(format!("{}.lock", &key[..3]));
    compiling.lock().unwrap();
    let timing = open(format!("find-{}.lock", &key[..3]));
    timing.lock().unwrap();
    std::thread::scope(|scope| {
        let found = scope.spawn(|| fastest(&handle, &problem, Some(&disk)).unwrap());
        let start = Instant::now();
        while fake.loads() < trials.len() && start.elapsed() < Duration::from_secs(5) {
            std::thread::yield_now();
        }
        assert_eq!((fake.loads(), fake.executions()), (trials.len(), 0));
        drop(timing);
        let start = Instant::now();
        assert!(!is_stored(&found.join().unwrap()));
        assert!(start.elapsed() < Duration::from_secs(8), "it waited for who compiles");
    });
    assert!(fake.executions() > 0);
}

#[test]
fn times_are_of_a_device_a_problem_and_what_was_timed() {
    let (_, handle) = fake_device();
    let (info, problem) = (handle.device_info(), plan(&handle).problem());
    let (trials, _) = trials(&handle, &problem);
    assert!(trials.len() > 1);
    let stored = subject(info, &problem, &trials);
    let other = DeviceInfo { name: "another".into(), ..info.clone() };
    let smaller = DeviceInfo { compute_units: info.compute_units + 1, ..info.clone() };
    let updated = DeviceInfo { toolchain: "another".into(), ..info.clone() };
    for different in [&other, &smaller, &updated] {
        assert_ne!(subject(different, &problem, &trials), stored);
    }
    assert_ne!(subject(info, &problem, &trials[1..]), stored);
    let ordinal = DeviceInfo { ordinal: 3, ..info.clone() };
    assert_eq!(subject(&ordinal, &problem, &trials), stored);

    let solver = trials[0].solver;
    let of = |words: &str| Trial { solver, configuration: Configuration::new(words) };
    let trials = [of("64x32x16, split 2"), of("")];
    let times = trials.iter().zip([5, 70]).map(|(trial, time)| Measured {
        solver: trial.solver.id(),
        configuration: trial.configuration.clone(),
        time: Duration::from_nanos(time),
    });
    let times: Vec<_> = times.collect();
    assert_eq!(parse(&format(&times), &trials), Some(times.clone()));
    assert_eq!(parse(&format(&times), &trials[..1]), None);
    let id = solver.id();
    for nonsense in ["", id, &format!("b {id} \n"), &format!("-1 {id} \n"), "\u{FFFD} 1\n"] {
        assert_eq!(parse(nonsense.as_bytes(), &trials), None, "{nonsense}");
    }
}

#[test]
fn without_a_choice_or_memory_the_order_decides() {
    let (fake, handle) = fake_device();
    let x = TensorDescriptor::nchw(DataType::Float, [1, 2, 2, 2]).unwrap();
    let mut single = FusionPlan::new(x).unwrap();
    single.append(BatchNormForward::new(BatchNormMode::Spatial, false)).unwrap();
    assert!(fastest(&handle, &single.problem(), None).is_none());
    fake.fail_allocation(2);
    assert!(fastest(&handle, &plan(&handle).problem(), None).is_none());
    assert_eq!(fake.live(), 0);
}

/// Every kind of operator can be given scratch operands.
#[test]
fn training_is_timed_like_the_rest() {
    let (fake, handle) = fake_device();
    let x = TensorDescriptor::nchw(DataType::Float, [2, 3, 4, 4]).unwrap();
    let mut forward = FusionPlan::new(x).unwrap();
    forward.append(BatchNormForward::new(BatchNormMode::Spatial, true)).unwrap();
    let mut backward = FusionPlan::new(x).unwrap();
    backward.append(BatchNormBackward::new(BatchNormMode::PerActivation)).unwrap();
    backward.append(ActivationBackward::new(ActivationMode::Tanh)).unwrap();
    for plan in [forward, backward] {
        let (problem, compiled) = (plan.problem(), plan.compile(&handle).unwrap());
        let scratch = Scratch::new(&handle, &problem).unwrap();
        let executable = compiled.executable();
        let time = time(&handle, &scratch, executable, None).unwrap();
        assert!(time > Duration::ZERO);
    }
    assert_eq!(fake.live(), 0);
}

/// Tiles are timed, not only solvers, and those that the order would never choose.
#[test]
fn configurations_are_timed_and_found_again() {
    use fuseplan_api::{Backend, Candidate, Estimate, Preference};
    use fuseplan_fakes::{FakeBackend, FakeSolver};

    static BACKEND: FakeBackend = FakeBackend {
        name: "fake",
        arch: "fake_90",
        toolchain: "",
        solvers: &[
            &FakeSolver {
                configurations: || {
                    let candidate = |tile: u32| Candidate {
                        configuration: Configuration::new(format!("tile {tile}")),
                        estimate: Estimate::Cost { cost: tile.into(), unit: "tiles", model: "a fake" },
                        ..Candidate::only()
                    };
                    (1..=9).map(candidate).collect()
                },
                ..FakeSolver::new("fake.tiles.v1")
            },
            &FakeSolver {
                preferences: &[Preference {
                    property: "plan",
                    prefers: "another",
                    check: |_, _| Some("this one".into()),
                }],
                ..FakeSolver::new("fake.choosy.v1")
            },
        ],
    };
    let directory = tempfile::tempdir().unwrap();
    let disk = disk_at(directory.path());
    let handle = Handle::of(&BACKEND, BACKEND.open(0).unwrap()).unwrap();
    let x = TensorDescriptor::nchw(DataType::Float, [1, 2, 2, 2]).unwrap();
    let mut plan = FusionPlan::new(x).unwrap();
    plan.append(ActivationForward::new(ActivationMode::Relu)).unwrap();
    let found = fastest(&handle, &plan.problem(), Some(&disk)).unwrap();
    let mut timed: Vec<_> =
        times(&found).iter().map(|m| format!("{} {}", m.solver, m.configuration)).collect();
    timed.sort();
    assert_eq!(
        timed,
        [
            "fake.choosy.v1 ",
            "fake.tiles.v1 tile 1",
            "fake.tiles.v1 tile 2",
            "fake.tiles.v1 tile 3",
            "fake.tiles.v1 tile 4",
        ]
    );
    let again = fastest(&handle, &plan.problem(), Some(&disk)).unwrap();
    assert!(is_stored(&again));
    assert_eq!(times(&again), times(&found));
}
