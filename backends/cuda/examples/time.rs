//! Times the thirteen convolution+bias+ReLU and eight batch-norm+ReLU configurations of MIOpen's published
//! charts, batch 64, or convolutions or batch-norms of the caller's. Launches on operands that rotate through 256 MB,
//! so that nothing stays in the cache, are captured into a CUDA graph: the median of seven replays, in microseconds for
//! one launch.
//!
//! ```sh
//! cargo run --release -p fuseplan-cuda --example time -- [--json] [--types f16,bf16,f32] \
//!     [--layouts nhwc,nchw] [--tf32] [--solver ID,…] [--every-solver] [--tiles COUNT] [--spread COUNT] [--changing] [--only PART_OF_A_NAME] \
//!     [--convolutions N-C-[D-]H-W-K-EXTENT-PAD-STRIDE-GROUPS[+r],…] [--training N-C-H-W,…]
//! ```
//!
//! `+r` names a convolution with a residual behind the bias. EXTENT and PAD are a number or one of each dimension, as
//! `1x7`. With one number a convolution of volumes is not padded in depth, and it is never strided there. `--training`
//! times batch-norm for training with ReLU, forward and backward. With `--changing` nobody promises that filters and
//! parameters stay as they are. Every solver that takes a problem, of those named, is timed with `--every-solver`, else
//! the one that is chosen; each in its best configuration, or with `--tiles COUNT` in as many as that, best by its
//! model first, and `--spread COUNT` more from the better half of the others.

use std::ffi::c_void;
use std::ptr;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, LazyLock};
use std::thread;

use fuseplan_api::operands::MAX_SCALARS;
use fuseplan_api::*;
use fuseplan_cuda::CudaBackend;
use half::{bf16, f16};

/// C, H, W, K, filter extent, padding.
const CONVOLUTIONS: [[usize; 6]; 13] = [
    [2048, 7, 7, 512, 1, 0],
    [512, 7, 7, 2048, 1, 0],
    [512, 7, 7, 512, 3, 1],
    [1024, 14, 14, 256, 1, 0],
    [256, 14, 14, 1024, 1, 0],
    [256, 14, 14, 256, 3, 1],
    [128, 28, 28, 128, 3, 1],
    [128, 28, 28, 512, 1, 0],
    [512, 28, 28, 128, 1, 0],
    [256, 55, 55, 64, 1, 0],
    [64, 55, 55, 256, 1, 0],
    [64, 55, 55, 64, 1, 0],
    [64, 55, 55, 64, 3, 1],
];

/// C, H, W.
const BATCH_NORMS: [[usize; 3]; 8] = [
    [512, 7, 7],
    [2048, 7, 7],
    [256, 14, 14],
    [1024, 14, 14],
    [128, 28, 28],
    [512, 28, 28],
    [64, 55, 55],
    [256, 55, 55],
];

const BATCH: usize = 64;

/// With bias and ReLU, of N, C, perhaps D, H, W, K, filter extent, padding, stride, groups, each of which is one number but for extents and
/// padding, which may be one of each dimension; with a residual between them or without.
fn convolution(
    data_type: DataType,
    layout: TensorLayout,
    math: MathMode,
    numbers: &[Vec<usize>],
    residual: bool,
) -> Result<Problem, Box<dyn std::error::Error>> {
    let (sizes, rest) = numbers.split_at(numbers.len().saturating_sub(5));
    let ([_, c, ..], [k, extent, pad, stride, groups]) = (sizes, rest) else {
        return Err("nine numbers are wanted, or ten".into());
    };
    let sizes = &sizes.concat()[..];
    let (c, k, stride, groups, dims) = (c[0], k[0], stride[0], groups[0], sizes.len() - 2);
    let of_dims =
        |numbers: &[usize]| if numbers.len() == 1 { vec![numbers[0]; dims] } else { numbers.into() };
    let layout = match (dims, layout) {
        (3, TensorLayout::Nhwc) => TensorLayout::Ndhwc,
        (3, _) => TensorLayout::Ncdhw,
        (_, layout) => layout,
    };
    let (mut pads, mut strides) = (of_dims(pad), vec![stride; dims]);
    if dims == 3 {
        strides[0] = 1;
        if pad.len() == 1 {
            pads[0] = 0;
        }
    }
    let input = TensorDescriptor::with_layout(data_type, layout, sizes)?;
    let filters = [vec![k, c / groups.max(1)], of_dims(extent)].concat();
    let weights = TensorDescriptor::with_layout(data_type, layout, &filters)?;
    let conv = ConvolutionDescriptor::of_dims(dims)?.with_pads(pads)?;
    let conv = conv.with_strides(strides)?.with_groups(groups)?;
    let output = conv.forward_output(&input, &weights)?;
    let channels = [vec![1, k], vec![1; dims]].concat();
    let bias = TensorDescriptor::with_layout(data_type, layout, &channels)?;
    let relu = Op::ActivationForward { mode: ActivationMode::Relu };
    let mut ops = vec![Op::ConvForward { conv, weights }, Op::BiasForward { bias }];
    ops.extend(residual.then_some(Op::BiasForward { bias: output }));
    ops.push(relu);
    Ok(Problem { input, output, ops, math })
}

/// Batch-norm for training and ReLU, forward and backward.
fn training(
    data_type: DataType,
    layout: TensorLayout,
    lens: [usize; 4],
) -> Result<[Problem; 2], DescriptorError> {
    let input = TensorDescriptor::with_layout(data_type, layout, &lens)?;
    let (norm, relu) = (BatchNormMode::Spatial, ActivationMode::Relu);
    let forward =
        vec![Op::BatchNormForward { mode: norm, running: true }, Op::ActivationForward { mode: relu }];
    let backward = vec![Op::BatchNormBackward { mode: norm }, Op::ActivationBackward { mode: relu }];
    Ok([forward, backward].map(|ops| Problem { input, output: input, ops, math: MathMode::Precise }))
}

/// The numbers of a name.
fn numbers<const N: usize>(name: &str) -> Result<[usize; N], Box<dyn std::error::Error>> {
    let numbers: Vec<usize> = name.split('-').map(str::parse).collect::<Result<_, _>>()?;
    Ok(numbers.try_into().map_err(|_| format!("{name} has not {N} numbers"))?)
}

fn problems(
    data_type: DataType,
    layout: TensorLayout,
    options: &Options,
) -> Result<Vec<(String, Problem)>, Box<dyn std::error::Error>> {
    let math = if options.tf32 { MathMode::AllowTf32 } else { MathMode::Precise };
    let mut problems = Vec::new();
    if let Some(list) = &options.convolutions {
        for name in list.split(',') {
            let (numbers, residual) =
                name.strip_suffix("+r").map_or((name, false), |numbers| (numbers, true));
            let of_dims = |word: &str| word.split('x').map(str::parse).collect::<Result<Vec<usize>, _>>();
            let numbers: Vec<_> = numbers.split('-').map(of_dims).collect::<Result<_, _>>()?;
            problems.push((name.into(), convolution(data_type, layout, math, &numbers, residual)?));
        }
    }
    if let Some(list) = &options.training {
        for name in list.split(',') {
            let [forward, backward] = training(data_type, layout, numbers(name)?)?;
            problems.extend([(format!("forward {name}"), forward), (format!("backward {name}"), backward)]);
        }
    }
    if !problems.is_empty() {
        return Ok(problems);
    }
    let relu = Op::ActivationForward { mode: ActivationMode::Relu };
    for [c, h, w, k, extent, pad] in CONVOLUTIONS {
        let name = format!("{c}-{h}-{w}-{k}-{extent}-{extent}-{pad}-{pad}");
        let numbers = [BATCH, c, h, w, k, extent, pad, 1, 1].map(|number| vec![number]);
        problems.push((name, convolution(data_type, layout, math, &numbers, false)?));
    }
    for [c, h, w] in BATCH_NORMS {
        let input = TensorDescriptor::with_layout(data_type, layout, &[BATCH, c, h, w])?;
        let ops = vec![
            Op::BatchNormInference { mode: BatchNormMode::Spatial, params: DataType::Float },
            relu.clone(),
        ];
        problems.push((
            format!("na {c}-{h}-{w}"),
            Problem { input, output: input, ops, math: MathMode::Precise },
        ));
    }
    Ok(problems)
}

/// Elements of a data type that are normally distributed, as activations and filters are: how many bits of factors differ decides
/// what power products take, and so how fast clocks run.
fn content(data_type: DataType) -> &'static [u8] {
    static CONTENT: [LazyLock<Vec<u8>>; 3] = [
        LazyLock::new(|| normal().flat_map(|value| f16::from_f32(value).to_le_bytes()).collect()),
        LazyLock::new(|| normal().flat_map(|value| bf16::from_f32(value).to_le_bytes()).collect()),
        LazyLock::new(|| normal().flat_map(f32::to_le_bytes).collect()),
    ];
    match data_type {
        DataType::Half => &CONTENT[0],
        DataType::BFloat16 => &CONTENT[1],
        _ => &CONTENT[2],
    }
}

/// A million normally distributed values of variance 0.01, each a sum of twelve uniform ones.
fn normal() -> impl Iterator<Item = f32> {
    let mut state = 1u32;
    let mut uniform = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32
    };
    (0..1 << 20).map(move |_| 0.1 * ((0..12).map(|_| uniform()).sum::<f32>() - 6.0))
}

/// Memory of the device, filled.
fn memory(
    device: &Arc<dyn Device>,
    stream: &Stream,
    data_type: DataType,
    bytes: usize,
) -> Result<*mut c_void, BackendError> {
    let (memory, content) = (device.memory().allocate(bytes)?, content(data_type));
    for start in (0..bytes).step_by(content.len()) {
        let part = &content[..content.len().min(bytes - start)];
        // SAFETY: the memory has as many bytes.
        unsafe { device.memory().copy_in(memory.wrapping_byte_add(start), part, stream) }?;
    }
    Ok(memory)
}

/// Sets of operands in memory of the device, 256 MB of them or more, which are freed when this is dropped.
struct Sets<'d> {
    device: &'d Arc<dyn Device>,
    allocated: Vec<(*mut c_void, usize)>,
    /// Input, output, and the arguments of operators.
    runs: Vec<(*mut c_void, *mut c_void, Vec<OpArgs>)>,
}

impl<'d> Sets<'d> {
    fn of(device: &'d Arc<dyn Device>, problem: &Problem) -> Result<Self, BackendError> {
        let stream = device.create_stream()?;
        let count = (256_000_000 / problem.bytes() as usize).clamp(2, 64);
        let mut sets = Sets { device, allocated: Vec::new(), runs: Vec::new() };
        for _ in 0..count {
            let mut get = |tensor: &TensorDescriptor| -> Result<*mut c_void, BackendError> {
                let pointer = memory(device, &stream, tensor.data_type(), tensor.bytes())?;
                sets.allocated.push((pointer, tensor.bytes()));
                Ok(pointer)
            };
            let (input, output) = (get(&problem.input)?, get(&problem.output)?);
            let mut ops = Vec::new();
            for op in &problem.ops {
                let mut args = OpArgs { scalars: [1.0; MAX_SCALARS], ..OpArgs::default() };
                for (operand, pointer) in op.operands(&problem.output).zip(&mut args.pointers) {
                    *pointer = get(&operand.descriptor)?;
                }
                ops.push(args);
            }
            sets.runs.push((input, output, ops));
        }
        Ok(sets)
    }

    /// Microseconds of one execution.
    fn time(&mut self, executable: &dyn Executable, constant: bool) -> Result<f64, RunError> {
        for args in self.runs.iter_mut().flat_map(|(.., ops)| ops) {
            args.prepared = constant.then(Arc::default);
        }
        let stream = self.device.create_stream()?;
        let run_all = |stream: &Stream| {
            for (input, output, ops) in &self.runs {
                let args = RunArgs { input: *input, output: *output, ops, workspace: ptr::null_mut() };
                // SAFETY: memory of the problem's descriptors on this device, which lives as long as this.
                unsafe { executable.run(stream.raw(), &args) }?;
            }
            Ok::<_, RunError>(())
        };
        // What is derived from operands is prepared before a capture.
        run_all(&stream)?;
        let graph = Graph::capture(&**self.device, run_all)?;
        let graph = graph.instantiate()?;
        let mut times = Vec::new();
        for _ in 0..8 {
            let elapsed = self.device.time(&stream, &mut || {
                // SAFETY: the memory lives; the stream is the device's.
                Ok(unsafe { graph.launch(stream.raw()) }?)
            })?;
            times.push(elapsed.as_secs_f64() * 1e6 / self.runs.len() as f64);
        }
        times.remove(0);
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }
}

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        for &(pointer, bytes) in &self.allocated {
            // SAFETY: allocated by `of`, once, and `time` has waited.
            unsafe { self.device.memory().free(pointer, bytes) };
        }
    }
}

/// What the command line asks for.
#[derive(Default)]
struct Options {
    json: bool,
    types: Option<String>,
    layouts: Option<String>,
    tf32: bool,
    solver: Option<String>,
    every_solver: bool,
    tiles: Option<usize>,
    spread: usize,
    changing: bool,
    only: Option<String>,
    convolutions: Option<String>,
    training: Option<String>,
}

impl Options {
    fn read() -> Result<Self, String> {
        let mut options = Options::default();
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().map(Some).ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--json" => options.json = true,
                "--types" => options.types = value()?,
                "--layouts" => options.layouts = value()?,
                "--solver" => options.solver = value()?,
                "--only" => options.only = value()?,
                "--tf32" => options.tf32 = true,
                "--changing" => options.changing = true,
                "--every-solver" => options.every_solver = true,
                "--tiles" => options.tiles = value()?.and_then(|count| count.parse().ok()),
                "--spread" => options.spread = value()?.and_then(|count| count.parse().ok()).unwrap_or(0),
                "--convolutions" => options.convolutions = value()?,
                "--training" => options.training = value()?,
                _ => return Err(format!("unknown option {word}")),
            }
        }
        Ok(options)
    }

    /// Whether a list of names has this one; no list has all.
    fn wants(list: Option<&str>, name: &str) -> bool {
        list.is_none_or(|list| list.split(',').any(|word| word.eq_ignore_ascii_case(name)))
    }
}

type Compiled = (&'static dyn Solver, Candidate, Result<Binary, BuildError>);

/// What is to be timed of a problem. NVRTC works in several threads at once.
fn compile(problem: &Problem, device: &Arc<dyn Device>, options: &Options) -> Vec<Compiled> {
    let takes = |solver: &&&dyn Solver| {
        Options::wants(options.solver.as_deref(), solver.id())
            && solver.applies(problem, device.info()).is_ok()
            && solver.accuracy(problem) <= problem.math.allows()
    };
    // Those that have a reservation about the problem come after all others.
    let has_reservation = |solver: &&&dyn Solver| solver.reservation(problem, device.info()).is_some();
    let mut solvers: Vec<_> = CudaBackend.solvers().iter().filter(takes).collect();
    solvers.sort_by_key(has_reservation);
    let most = if options.every_solver { usize::MAX } else { 1 };
    let candidates = solvers.into_iter().take(most).flat_map(|&solver| {
        let mut candidates = solver.configurations(problem, device.info());
        let first = options.tiles.unwrap_or(1).min(candidates.len());
        let rest = candidates.split_off(first);
        let apart = (rest.len() / 2 / options.spread.max(1)).max(1);
        candidates.extend(rest.into_iter().step_by(apart).take(options.spread));
        candidates.into_iter().map(move |candidate| (solver, candidate))
    });
    let candidates: Vec<_> = candidates.collect();
    let binaries: Vec<_> = thread::scope(|scope| {
        let compile = |(solver, candidate): &(&'static dyn Solver, Candidate)| {
            solver.compile(problem, device.info(), &candidate.configuration)
        };
        let threads: Vec<_> =
            candidates.iter().map(|candidate| scope.spawn(move || compile(candidate))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a compiler panics")).collect()
    });
    candidates.into_iter().zip(binaries).map(|((solver, one), binary)| (solver, one, binary)).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::read()?;
    let device = CudaBackend.open(0)?;
    if !options.json {
        println!("{} ({})", device.info().name, device.info().toolchain);
    }
    let mut jobs = Vec::new();
    for (type_name, data_type) in
        [("f16", DataType::Half), ("bf16", DataType::BFloat16), ("f32", DataType::Float)]
    {
        for (layout_name, layout) in [("nhwc", TensorLayout::Nhwc), ("nchw", TensorLayout::Nchw)] {
            if !Options::wants(options.types.as_deref(), type_name)
                || !Options::wants(options.layouts.as_deref(), layout_name)
            {
                continue;
            }
            for (name, problem) in problems(data_type, layout, &options)? {
                if options.only.as_deref().is_none_or(|part| name.contains(part)) {
                    jobs.push(([type_name, layout_name], name, problem));
                }
            }
        }
    }
    thread::scope(|scope| {
        let (sender, compiled) = sync_channel(1);
        let (jobs, options, device) = (&jobs, &options, &device);
        // The kernels of the next problems are compiled while those of these are timed.
        scope.spawn(move || {
            let tiles = options.tiles.unwrap_or(1) + options.spread;
            for some in jobs.chunks((16 / tiles).max(1)) {
                let all: Vec<_> = thread::scope(|scope| {
                    let threads: Vec<_> = some
                        .iter()
                        .map(|(.., problem)| scope.spawn(|| compile(problem, device, options)))
                        .collect();
                    threads.into_iter().map(|thread| thread.join().expect("a compiler panics")).collect()
                });
                for ((kind, name, problem), compiled) in some.iter().zip(all) {
                    if sender.send((kind, name, problem, compiled)).is_err() {
                        return;
                    }
                }
            }
        });
        let mut last = None;
        for (kind, name, problem, compiled) in compiled {
            if !options.json && last.replace(kind) != Some(kind) {
                println!("\n{} {}: microseconds, TFLOP/s, GB/s, solver", kind[0], kind[1]);
            }
            let mut sets = Sets::of(device, problem)?;
            for (solver, Candidate { configuration, estimate, .. }, binary) in compiled {
                let executable = solver.load(problem, device, &binary?)?;
                let us = sets.time(&*executable, !options.changing)?;
                let (rate, bandwidth) = (problem.flops() / us / 1e6, problem.bytes() / us / 1e3);
                let (info, estimate) = (executable.info(), estimate.cost() * 1e6);
                let resources = info.resources.map_or(String::new(), |resources| format!("; {resources}"));
                let detail = format!("{}{resources}", info.detail);
                if options.json {
                    // Names and details have no characters that JSON would escape.
                    println!(
                        r#"{{"type":"{}","layout":"{}","name":"{name}","us":{us:.3},"solver":"{}","configuration":"{configuration}","estimate":{estimate:.3},"detail":"{detail}"}}"#,
                        kind[0],
                        kind[1],
                        solver.id()
                    );
                } else {
                    println!("{name:24} {us:8.1} {rate:7.1} {bandwidth:7.0}  {} {detail}", solver.id());
                }
            }
        }
        Ok(())
    })
}
