//! Every kernel family through the real compiler, for every architecture, with no device: it compiles, nothing
//! is spilled, registers and shared memory stay within bounds.
//!
//! hiprtc is found as the backend finds it; where it is not, cases are ignored with the reason.
//! `tests/rocm/run.sh` gets one that needs no installation. With `REQUIRE_HIPRTC=1` a missing compiler is a
//! failure. `FUSEPLAN_TEST_ARCHS` lists the architectures. With `FUSEPLAN_TEST_EVERY` one in so many cases of each
//! solver is compiled, but at least one, and other ones for another architecture.

mod code_object;
#[path = "../../../../tests/common/problems.rs"]
mod problems;

use std::collections::BTreeMap;

use fuseplan_api::*;
use fuseplan_rocm::{RocmBackend, inspect, inspect_peaks};
use libtest_mimic::{Arguments, Failed, Trial};

use problems::{chain, conv, depthwise, element_wise, norm_relu, training};

/// Architectures, the largest of each generation in full.
const ARCHS: [&str; 8] = [
    "gfx90a:sramecc+:xnack-",
    "gfx942:sramecc+:xnack-",
    "gfx950:sramecc+:xnack-",
    "gfx1100",
    "gfx1101",
    "gfx1151",
    "gfx1200",
    "gfx1201",
];

/// Name, solver, problem, most vector registers.
struct Case {
    name: String,
    solver: &'static str,
    problem: Problem,
    registers: u32,
}

const MFMA: &str = "rocm.conv_mfma.v1";
const WMMA: &str = "rocm.conv_wmma.v1";

fn case(name: impl Into<String>, solver: &'static str, problem: Problem) -> Case {
    // Three waves of a SIMD of CDNA have so many each.
    Case { name: name.into(), solver, problem, registers: 168 }
}

/// Depthwise convolutions: name, image, filters a channel, extent of a filter, stride.
const DEPTHWISE: [(&str, [usize; 4], usize, usize, usize); 11] = [
    ("3x3", [64, 96, 56, 56], 1, 3, 1),
    ("3x3s2", [64, 96, 56, 56], 1, 3, 2),
    ("5x5", [64, 240, 28, 28], 1, 5, 1),
    ("5x5s2", [64, 144, 56, 56], 1, 5, 2),
    ("planes_of_49", [64, 960, 7, 7], 1, 3, 1),
    ("7x7", [8, 96, 56, 56], 1, 7, 1),
    ("13x13", [8, 96, 56, 56], 1, 13, 1),
    ("16x16", [1, 64, 32, 32], 1, 16, 1),
    ("7x7.multiplier4", [8, 96, 56, 56], 4, 7, 1),
    ("multiplier2", [8, 32, 56, 56], 2, 3, 1),
    ("odd", [1, 13, 9, 11], 3, 3, 1),
];

fn cases() -> Vec<Case> {
    use DataType::*;
    use TensorLayout::*;
    let relu = |lens: &[usize], data_type, layout| chain(lens, data_type, layout, ActivationMode::Relu);
    let (x, y) = (&[32, 64, 56, 56], &[32, 128, 56, 56]);
    let mut cases = Vec::new();
    for (number, data_type) in [Float, Half, BFloat16].into_iter().enumerate() {
        // Channels of many blocks in either layout, and of less than one.
        let large = [(Nchw, [64, 256, 28, 28]), (Nhwc, [64, 256, 28, 28]), (Nhwc, [2, 3, 7, 5])][number];
        let mut add = |name: &str, solver, problem| {
            cases.push(case(format!("{name}.{data_type}"), solver, problem));
        };
        let ffma = "rocm.conv_ffma.v1";
        add("ffma.nchw", ffma, conv(data_type, Nchw, x, 128, 3, 1, relu(y, data_type, Nchw)));
        add("ffma.nhwc", ffma, conv(data_type, Nhwc, x, 128, 3, 1, relu(y, data_type, Nhwc)));
        add("ffma.stem", ffma, conv(data_type, Nchw, &[8, 3, 224, 224], 64, 7, 1, vec![]));
        let volume = relu(&[2, 64, 8, 20, 20], data_type, Ndhwc);
        add("ffma.ndhwc.groups", ffma, conv(data_type, Ndhwc, &[2, 64, 8, 20, 20], 64, 3, 2, volume));
        // Blocks share the depth of a tile. RDNA's compiler takes more registers, of which eight waves of its SIMDs have so many.
        let behind = relu(&[1, 512, 7, 7], data_type, Nhwc);
        for (name, problem) in [
            ("1x1", conv(data_type, Nchw, &[1, 2048, 7, 7], 512, 1, 1, vec![])),
            ("3x3", conv(data_type, Nhwc, &[1, 512, 7, 7], 512, 3, 1, behind)),
        ] {
            let name = format!("ffma.split.{name}.{data_type}");
            cases.push(Case { name, solver: ffma, problem, registers: 192 });
        }
        let mut add = |name: &str, solver, problem| {
            cases.push(case(format!("{name}.{data_type}"), solver, problem));
        };
        let pixels = relu(&[3, 40, 1, 1], data_type, Nhwc);
        add("gemv", "rocm.conv_gemv.v1", conv(data_type, Nhwc, &[3, 2048, 1, 1], 40, 1, 1, pixels));
        add("gemv.odd", "rocm.conv_gemv.v1", conv(data_type, Nhwc, &[2, 75, 2, 2], 18, 1, 3, vec![]));
        add("direct.nchw", DIRECT, conv(data_type, Nchw, x, 128, 3, 1, relu(y, data_type, Nchw)));
        add("direct.nhwc.depthwise", DIRECT, conv(data_type, Nhwc, x, 64, 3, 64, vec![]));
        for mode in [BatchNormMode::Spatial, BatchNormMode::PerActivation] {
            let solver = "rocm.element_wise.v1";
            let ops = norm_relu(mode);
            let name = if mode == BatchNormMode::Spatial { "spatial" } else { "per_activation" };
            let problem = element_wise(data_type, Nchw, [64, 256, 55, 55], ops.clone());
            add(&format!("element_wise.nchw.{name}"), solver, problem);
            let problem = element_wise(data_type, Nhwc, [64, 256, 55, 55], ops);
            add(&format!("element_wise.nhwc.{name}"), solver, problem);
            let solver = "rocm.batch_norm_training.v1";
            for (way, backward) in [("forward", false), ("backward", true)] {
                for (layout, lens) in [(Nchw, [8, 16, 7, 5]), large] {
                    let problem = training(data_type, layout, lens, mode, ActivationMode::Tanh, backward);
                    add(&format!("training.{way}.{name}.{layout}.{}", lens[1]), solver, problem);
                }
            }
        }
        // Planes of no whole vectors, and of less than one.
        for (name, lens) in [("planes_of_49", [64, 512, 7, 7]), ("planes_of_6", [64, 512, 2, 3])] {
            let ops = norm_relu(BatchNormMode::Spatial);
            add(
                &format!("element_wise.{name}"),
                "rocm.element_wise.v1",
                element_wise(data_type, Nchw, lens, ops),
            );
        }
        // Each in one of the types in either layout.
        for (i, (name, lens, multiplier, taps, stride)) in DEPTHWISE.into_iter().enumerate() {
            let layouts = [Nchw, Nhwc].into_iter().enumerate().filter(|(j, _)| (i + j) % 3 == number);
            for (_, layout) in layouts {
                let problem = depthwise(data_type, layout, lens, multiplier, taps, stride);
                let name = format!("depthwise.{name}.{layout}.{data_type}");
                // Three blocks of two waves leave a SIMD of CDNA two.
                cases.push(Case { name, solver: "rocm.conv_depthwise.v1", problem, registers: 256 });
            }
        }
    }
    cases
}

/// Convolutions on matrix cores, and the register budget of each kind: what leaves a SIMD the waves that the
/// kernels' bounds ask for.
fn matrix() -> Vec<Case> {
    use DataType::*;
    use TensorLayout::*;
    let relu = |lens: &[usize], data_type, layout| chain(lens, data_type, layout, ActivationMode::Relu);
    let (x, y) = (&[32, 64, 56, 56], &[32, 128, 56, 56]);
    let mut cases = Vec::new();
    for data_type in [Half, BFloat16, Float] {
        let solvers: &[_] = if data_type == Float { &[MFMA] } else { &[MFMA, WMMA] };
        for &solver in solvers {
            // The largest tiles, for images that are read in chunks, leave a SIMD of CDNA two waves, the others
            // three; RDNA has registers for six waves at any rate.
            let mut add = |name: &str, problem, waves: u32| {
                let name = format!("{}.{name}.{data_type}", if solver == MFMA { "mfma" } else { "wmma" });
                let registers = if solver == MFMA { 512 / waves / 8 * 8 } else { 240 };
                cases.push(Case { name, solver, problem, registers });
            };
            for (layout, waves) in [(Nhwc, 2), (Nchw, 3)] {
                let name = |kind| format!("{kind}.{layout}");
                add(&name("3x3"), conv(data_type, layout, x, 128, 3, 1, relu(y, data_type, layout)), waves);
                add(&name("1x1"), conv(data_type, layout, x, 64, 1, 1, vec![]), waves);
                add(&name("few"), conv(data_type, layout, &[1, 40, 14, 14], 70, 3, 1, vec![]), waves);
                add(&name("stem"), conv(data_type, layout, &[8, 3, 64, 64], 64, 7, 1, vec![]), waves);
                add(&name("groups"), conv(data_type, layout, x, 64, 3, 4, vec![]), waves);
                // Blocks share the depth of a tile.
                let behind = relu(&[1, 512, 7, 7], data_type, layout);
                add(&name("split.3x3"), conv(data_type, layout, &[1, 512, 7, 7], 512, 3, 1, behind), waves);
                add(&name("split.1x1"), conv(data_type, layout, &[1, 2048, 7, 7], 512, 1, 1, vec![]), waves);
            }
            // Work enough for the largest tiles on the largest chip.
            let large = conv(
                data_type,
                Nhwc,
                &[64, 128, 56, 56],
                128,
                3,
                1,
                relu(&[64, 128, 56, 56], data_type, Nhwc),
            );
            add("large.NHWC", large, 2);
            // One wave has a whole tile.
            let batch_norm =
                vec![Op::BatchNormInference { mode: BatchNormMode::Spatial, params: DataType::Float }];
            add("1x1.small.NHWC", conv(data_type, Nhwc, &[1, 16, 4, 12], 264, 1, 1, batch_norm), 2);
            let volume = relu(&[2, 64, 8, 20, 20], data_type, Ndhwc);
            add("ndhwc", conv(data_type, Ndhwc, &[2, 64, 8, 20, 20], 64, 3, 2, volume), 2);
        }
    }
    cases
}

const DIRECT: &str = "rocm.direct.v1";

/// Plans for the direct kernel with more sizes, wider indices and longer chains than a wave has scalar registers for
/// at once. All of them are compiled for every architecture, as one in so many might not tell.
fn scalars() -> Vec<Case> {
    use DataType::*;
    use TensorLayout::*;
    let of = |data_type, lens: &[usize]| TensorDescriptor::with_layout(data_type, Nhwc, lens).unwrap();
    let bias = |data_type, channels| Op::BiasForward { bias: of(data_type, &[1, channels, 1, 1]) };
    let norm = Op::BatchNormInference { mode: BatchNormMode::Spatial, params: DataType::Float };
    let power = Op::ActivationForward { mode: ActivationMode::Power };
    let plan = |data_type, lens: &[usize], weights: &[usize], conv: ConvolutionDescriptor, chain: Vec<Op>| {
        let (input, weights) = (of(data_type, lens), of(data_type, weights));
        let output = conv.forward_output(&input, &weights).unwrap();
        let ops = [vec![Op::ConvForward { conv, weights }], chain].concat();
        Problem { input, output, ops, math: MathMode::Precise }
    };
    let single = ConvolutionDescriptor::d2()
        .with_pads([1, 1])
        .unwrap()
        .with_strides([1, 2])
        .unwrap()
        .with_dilations([1, 2])
        .unwrap();
    let far = ConvolutionDescriptor::d2()
        .with_pads([100_000_000, 1])
        .unwrap()
        .with_dilations([100_000_000, 1])
        .unwrap();
    // More elements than 32 bits count.
    let large = [64, 64, 560, 560];
    let residuals = chain(&large, Float, Nhwc, ActivationMode::Tanh);
    let powers = vec![power.clone(), norm.clone(), power.clone(), power];
    let problems = [
        (
            "one_filter",
            plan(Float, &[1, 3, 3, 5], &[1, 3, 1, 1], single, {
                vec![norm.clone(), bias(Float, 1), norm.clone(), norm]
            }),
        ),
        ("far.matrix", plan(BFloat16, &[1, 16, 2, 40], &[32, 16, 3, 3], far, vec![bias(BFloat16, 32)])),
        ("far.powers", plan(Half, &[1, 16, 2, 40], &[32, 16, 3, 3], far, powers)),
        ("wide.residual", conv(Float, Nhwc, &large, 64, 3, 1, residuals)),
        ("wide.nchw", conv(Float, Nchw, &large, 64, 3, 4, chain(&large, Float, Nchw, ActivationMode::Elu))),
    ];
    problems.map(|(name, problem)| case(format!("direct.{name}"), DIRECT, problem)).into()
}

/// Every activation and its gradient, in f32 and in 16 bits.
fn activations() -> Vec<Case> {
    let types = [DataType::Float, DataType::BFloat16];
    let all = types.into_iter().flat_map(|t| ActivationMode::ALL.map(|mode| (t, mode)));
    let problems = |(data_type, mode): (DataType, ActivationMode)| {
        let forward = vec![Op::ActivationForward { mode }];
        let forward = element_wise(data_type, TensorLayout::Nchw, [2, 3, 4, 5], forward);
        let (spatial, lens) = (BatchNormMode::Spatial, [8, 16, 7, 5]);
        let gradient = training(data_type, TensorLayout::Nchw, lens, spatial, mode, true);
        [
            case(format!("activation.{mode}.{data_type}"), DIRECT, forward),
            case(format!("gradient.{mode}.{data_type}"), "rocm.batch_norm_training.v1", gradient),
        ]
    };
    all.flat_map(problems).collect()
}

/// Compiles, and looks at what the code object says of its kernel.
fn check(case: &Case, arch: &str) -> Result<(), Failed> {
    let target = RocmBackend.target(arch)?;
    let found =
        RocmBackend.solvers().iter().find(|found| found.id() == case.solver).ok_or("no such solver")?;
    found.applies(&case.problem, &target).map_err(|refusal| refusal.to_string())?;
    let (kernel, compiled) =
        inspect(case.solver, &case.problem, arch).unwrap().map_err(|failure| format!("{failure:?}"))?;
    let (name, kernels) = code_object::read(&compiled.image)?;
    let [usage] = kernels.as_slice() else { return Err(format!("{} kernels", kernels.len()).into()) };
    let detail = format!("{}; {usage:?}", kernel.detail);
    if std::env::var_os("FUSEPLAN_TEST_SHOW").is_some() {
        let (vector, scalar, shared) = (usage.vector, usage.scalar, usage.shared + kernel.geometry.shared);
        let spills = usage.scalar_spills;
        println!(
            "{} {arch}: {vector} vector, {scalar} scalar registers, {spills} of them spilled, {shared} shared",
            case.name
        );
    }
    let hold = |holds: bool, what: &str| if holds { Ok(()) } else { Err(format!("{what}: {detail}")) };
    hold(name.ends_with(arch), &format!("it is for {name}"))?;
    hold(usage.name == "fuseplan_kernel" && usage.wave == target.lanes, "another kernel or wave")?;
    hold(usage.scratch + usage.vector_spills == 0 && !usage.dynamic_stack, "it spills or has a stack")?;
    // Of the other kernels they go to lanes of vector registers now and then, not to memory.
    hold(case.solver != DIRECT || usage.scalar_spills == 0, "it spills scalar registers")?;
    hold(usage.block == kernel.geometry.block, "it was compiled for other blocks")?;
    let shared = (usage.shared + kernel.geometry.shared) as usize;
    hold(shared <= target.local_memory, "too much shared memory")?;
    hold(usage.vector <= case.registers, "too many registers")?;
    let explicit: Vec<_> =
        usage.arguments.iter().filter(|argument| !argument.kind.starts_with("hidden")).collect();
    hold(explicit.len() == 1 && explicit[0].size.is_multiple_of(8), "other arguments")?;
    hold(!compiled.log.contains("warning"), &format!("the compiler warns: {}", compiled.log))?;
    Ok(())
}

/// What measures a device's peaks is compiled as it was meant: it asks for no memory of threads, which would be
/// measured instead, and has its multiplications.
fn peaks(arch: &str) -> Result<(), Failed> {
    for (probe, compiled) in inspect_peaks(arch).map_err(|failure| format!("{failure:?}"))? {
        let (_, kernels) = code_object::read(&compiled.image)?;
        let [usage] = kernels.as_slice() else { return Err(format!("{} kernels", kernels.len()).into()) };
        let sound = usage.scratch + usage.vector_spills == 0 && usage.block == probe.threads;
        // Sums of four products are in registers at once, or those of sixteen chains.
        let registers = if probe.name == "copy" { 4 } else { 16 };
        if !sound || usage.vector < registers || usage.vector > 128 || compiled.log.contains("warning") {
            return Err(format!("{}: {usage:?} {}", probe.name, compiled.log).into());
        }
    }
    Ok(())
}

/// Why nothing can be compiled here.
fn missing() -> Option<String> {
    let problem = element_wise(
        DataType::Float,
        TensorLayout::Nchw,
        [1, 1, 1, 1],
        vec![Op::ActivationForward { mode: ActivationMode::Relu }],
    );
    let target = RocmBackend.target("gfx90a").unwrap();
    let solver = RocmBackend.solvers().iter().find(|solver| solver.id() == DIRECT).unwrap();
    match solver.compile_preferred(&problem, &target) {
        Err(BuildError::Backend(error @ BackendError::Unavailable { .. })) => Some(error.to_string()),
        _ => None,
    }
}

/// Whether this machine has something that the runtime may take for a device.
fn has_device() -> bool {
    std::path::Path::new("/dev/kfd").exists()
}

/// The real runtime on a machine without a device: a state like any other.
fn no_device() -> Result<(), Failed> {
    let found = RocmBackend.discover();
    let [note] = found.notes.as_slice() else { return Err(format!("{found:?}").into()) };
    if !found.devices.is_empty() || !note.starts_with("rocm: HIP ") || !note.ends_with(" finds no device") {
        return Err(format!("{found:?}").into());
    }
    assert_eq!(RocmBackend.open(0).unwrap_err().to_string(), "rocm: no device 0; 0 found");
    Ok(())
}

/// Of each solver's cases one in `every`, the first of which is the `start`-th or one before it.
fn sample(cases: Vec<Case>, every: usize, start: usize) -> Vec<Case> {
    let mut of_solvers = BTreeMap::<_, Vec<_>>::new();
    for case in cases {
        of_solvers.entry(case.solver).or_default().push(case);
    }
    let taken = |cases: Vec<Case>| {
        let first = start % every.min(cases.len());
        cases.into_iter().skip(first).step_by(every)
    };
    of_solvers.into_values().flat_map(taken).collect()
}

fn main() {
    let arguments = Arguments::from_args();
    let missing = missing();
    if let Some(reason) = &missing {
        println!("ignored: {reason}");
        if std::env::var_os("REQUIRE_HIPRTC").is_some_and(|value| value == "1") {
            std::process::exit(101);
        }
    }
    let listed = std::env::var("FUSEPLAN_TEST_ARCHS").ok();
    let archs: Vec<String> = match &listed {
        Some(list) => list.split_whitespace().map(String::from).collect(),
        None => ARCHS.map(String::from).to_vec(),
    };
    let every = std::env::var("FUSEPLAN_TEST_EVERY").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let has_device = has_device();
    if missing.is_none() && has_device {
        println!("ignored: no_device because this machine has /dev/kfd");
    }
    let mut trials =
        vec![Trial::test("no_device", no_device).with_ignored_flag(missing.is_some() || has_device)];
    for arch in archs {
        let activations =
            if arch.starts_with("gfx942") || arch == "gfx1201" { activations() } else { Vec::new() };
        let target = RocmBackend.target(&arch).ok();
        let takes = |case: &Case| {
            let solver = RocmBackend.solvers().iter().find(|solver| solver.id() == case.solver);
            let refused = solver.zip(target.as_ref()).map(|(s, target)| s.applies(&case.problem, target));
            refused.is_none_or(|answer| answer.is_ok())
        };
        // Each of these architectures has one of the two kinds of matrix cores.
        let matrix: Vec<_> = matrix().into_iter().filter(takes).collect();
        assert!(!matrix.is_empty(), "no matrix cores on {arch}");
        let all: Vec<_> = cases().into_iter().chain(matrix).chain(activations).collect();
        let start = ARCHS.iter().position(|known| *known == arch).unwrap_or(0);
        for case in sample(all, every, start).into_iter().chain(scalars()) {
            let (name, arch) = (format!("{}.{arch}", case.name), arch.clone());
            trials.push(Trial::test(name, move || check(&case, &arch)).with_ignored_flag(missing.is_some()));
        }
        let name = format!("peaks.{arch}");
        trials.push(Trial::test(name, move || peaks(&arch)).with_ignored_flag(missing.is_some()));
    }
    libtest_mimic::run(&arguments, trials).exit();
}
