//! Every kernel family through the real compiler, for every architecture, with no device: it compiles, nothing is
//! spilled (but where tensors are so large that offsets need 64 bits), registers are few enough for the blocks that
//! are to share a multiprocessor, and kernels contain the instructions that they are about.
//!
//! NVRTC is found by the loader (`LD_LIBRARY_PATH`) or in the folder `FUSEPLAN_NVRTC_PATH`; where it is not,
//! cases are ignored with the reason. The instructions are read with `nvdisasm` where that is on the `PATH`.
//! With `REQUIRE_NVRTC=1` a missing compiler or disassembler is a failure. With `FUSEPLAN_TEST_EVERY=3` each
//! architecture gets one in three of a solver's cases, neighbouring architectures different ones; what is compiled
//! for one architecture alone is always there. `FUSEPLAN_TEST_ARCHS=sm_70` leaves out all others.
//! `FUSEPLAN_TEST_SHOW=1` prints how long each took, and its registers; with `--test-threads=1` none waits for another. Beside a driver
//! NVRTC keeps what it compiled, and says nothing of registers the next time: `CUDA_CACHE_DISABLE=1` forbids it.

mod cases;
#[path = "../../../../tests/common/problems.rs"]
mod problems;

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::process::Command;
use std::time::Instant;

use fuseplan_api::*;
use fuseplan_cuda::{CudaBackend, inspect, inspect_with_filter_rows};
use fuseplan_gpu::{Compiled, Kernel};
use libtest_mimic::{Arguments, Failed, Trial};

use cases::{
    GATHER, HALO_MMA, LINES, PLANES, REORDERED, RUNS, TRAINED, TRANSPOSED, WGMMA, WINOGRAD, activations,
    cases, wide,
};
use problems::training;

/// An architecture that devices are compiled for.
struct Arch {
    name: &'static str,
    /// Major versions of NVRTC that know it.
    nvrtc: RangeInclusive<u32>,
    /// Whether it has the tensor cores' instructions that kernels use.
    tensor_cores: bool,
    /// Threads of a multiprocessor.
    threads: u32,
    /// Of how many cases it gets one: several where its code differs little from its neighbour's.
    every: usize,
}

/// Registers of a multiprocessor, how many of a thread's are given at once, and to how many threads.
const REGISTERS: u32 = 65536;
const REGISTERS_AT_ONCE: u32 = 8;
const WARP: u32 = 32;

static ARCHS: [Arch; 15] = {
    const fn arch(
        name: &'static str,
        nvrtc: RangeInclusive<u32>,
        tensor_cores: bool,
        threads: u32,
        every: usize,
    ) -> Arch {
        Arch { name, nvrtc, tensor_cores, threads, every }
    }
    const ANY: RangeInclusive<u32> = 0..=u32::MAX;
    [
        arch("sm_70", 0..=12, false, 2048, 1),
        arch("sm_72", 0..=12, false, 2048, 6),
        arch("sm_75", ANY, false, 1024, 1),
        arch("sm_80", ANY, true, 2048, 1),
        arch("sm_86", ANY, true, 1536, 1),
        arch("sm_87", ANY, true, 1536, 6),
        arch("sm_88", 13..=u32::MAX, true, 1536, 6),
        arch("sm_89", ANY, true, 1536, 1),
        arch("sm_90a", ANY, true, 2048, 1),
        arch("sm_90", ANY, true, 2048, 6),
        arch("sm_100", ANY, true, 2048, 1),
        arch("sm_103", ANY, true, 2048, 6),
        arch("sm_110", 13..=u32::MAX, true, 1536, 6),
        arch("sm_120", ANY, true, 1536, 1),
        arch("sm_121", ANY, true, 1536, 6),
    ]
};

/// The architecture that kernels of which there is one are compiled for.
const HOPPER: &Arch = &ARCHS[8];

/// How many blocks are to be on a multiprocessor at once, as a kernel's launch bounds have it.
fn at_once(source: &str, arch: &Arch) -> Option<u32> {
    let bounds = source.lines().find_map(|line| {
        let hopper = line.strip_prefix("extern \"C\" __global__ void __launch_bounds__(");
        line.strip_prefix("KERNEL(").or(hopper)
    })?;
    let bounds = bounds.trim_end_matches(" {").trim_end_matches(" CLUSTER").strip_suffix(')')?;
    // No bound is that of one block.
    let Some((_, blocks)) = bounds.split_once(", ") else { return Some(1) };
    let (blocks, most) = match blocks.strip_prefix("AT_ONCE(").and_then(|rest| rest.split_once(',')) {
        Some((blocks, _)) => (blocks, if arch.tensor_cores { u32::MAX } else { 2 }),
        None => (blocks, u32::MAX),
    };
    let constant = || {
        let (_, value) = source.split_once(&format!("constexpr int {blocks}{{"))?;
        value.split_once('}')?.0.parse().ok()
    };
    blocks.parse().ok().or_else(constant).map(|blocks: u32| blocks.min(most))
}

/// The number of registers in the compiler's log.
fn registers(log: &str) -> Option<u32> {
    log.split_once("Used ")?.1.split_once(" registers")?.0.parse().ok()
}

/// Compiles and looks at what the compiler says of it.
fn check(name: &str, solver: &str, problem: &Problem, of: &Arch, wanted: &[&str]) -> Result<(), Failed> {
    let arch = of.name;
    let target = CudaBackend.target(arch)?;
    let found = CudaBackend.solvers().iter().find(|found| found.id() == solver).ok_or("no such solver")?;
    found.applies(problem, &target).map_err(|refusal| refusal.to_string())?;
    let start = Instant::now();
    let (kernel, compiled) =
        inspect(solver, problem, arch).unwrap().map_err(|failure| format!("{failure:?}"))?;
    let milliseconds = start.elapsed().as_millis();
    look(solver, of, &target, (&kernel, &compiled), milliseconds, (problem, wanted))?;
    // What the same binary has for filters that may change.
    if solver == cases::RUNS && arch == HOPPER.name {
        let start = Instant::now();
        if let Some(rows) = inspect_with_filter_rows(problem, arch) {
            let (kernel, compiled) = rows.map_err(|failure| format!("{failure:?}"))?;
            let milliseconds = start.elapsed().as_millis();
            look(solver, of, &target, (&kernel, &compiled), milliseconds, (problem, &[]))?;
        } else if name.ends_with(".own") {
            return Err("no filters of blocks' own".into());
        }
    }
    Ok(())
}

/// Looks at a kernel and what the compiler made of it, of which some instructions are wanted.
fn look(
    solver: &str,
    of: &Arch,
    target: &DeviceInfo,
    (kernel, compiled): (&Kernel, &Compiled),
    milliseconds: u128,
    (problem, wanted): (&Problem, &[&str]),
) -> Result<(), Failed> {
    let arch = of.name;
    if kernel.geometry.shared as usize > target.local_memory {
        return Err(format!(
            "{} for {arch}: {} bytes of shared memory",
            kernel.detail, kernel.geometry.shared
        )
        .into());
    }
    // Arrays that are not in registers have a stack frame. Offsets of 64 bits may take more registers than there are.
    let local = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
    let wide = problem.output.span() >= 1 << 30;
    let spills = |line: &str| wide && line.contains("Registers are spilled");
    let warns =
        |line: &str| line.contains("warning") && !spills(line) && !line.contains("_75' are deprecated");
    if (!wide && !compiled.log.contains(local)) || compiled.log.lines().any(warns) {
        return Err(format!("{} for {arch}: {}", kernel.detail, compiled.log).into());
    }
    let registers = registers(&compiled.log).ok_or_else(|| format!("no registers in {:?}", compiled.log))?;
    let blocks = at_once(&kernel.source, of).ok_or("the text has no launch bounds")?;
    let threads = kernel.geometry.block.next_multiple_of(WARP) * blocks;
    let taken = registers.next_multiple_of(REGISTERS_AT_ONCE) * threads;
    if std::env::var_os("FUSEPLAN_TEST_SHOW").is_some() {
        println!(
            "{solver} {arch}: {milliseconds} ms, {registers} registers, {blocks} blocks of {} threads at once, {}",
            kernel.geometry.block, kernel.detail
        );
    }
    if taken > REGISTERS || threads > of.threads {
        return Err(format!(
            "{} for {arch}: {registers} registers, {blocks} blocks of {} threads at once: {taken} registers of \
             {REGISTERS}, {threads} threads of {}",
            kernel.detail, kernel.geometry.block, of.threads
        )
        .into());
    }
    // Disassemblers that can be had without a toolkit know no architecture that NVRTC has given up.
    let unread = wanted.is_empty() || *of.nvrtc.end() == 12;
    let text = if unread { None } else { disassemble(&compiled.image)? };
    // Turing's accesses of shared memory have a modifier of their own before their width.
    let text = text.map(|text| text.replace("LDS.U.", "LDS."));
    let differs = |text: &str, instruction: &&&str| match instruction.strip_prefix('!') {
        Some(absent) => text.contains(absent),
        None => !text.contains(**instruction),
    };
    let wrong = text.and_then(|text| wanted.iter().find(|instruction| differs(&text, instruction)));
    wrong.map_or(Ok(()), |instruction| {
        Err(format!("{} for {arch}: {instruction} was wanted", kernel.detail).into())
    })
}

/// Whether a missing tool is a failure.
fn required() -> bool {
    std::env::var_os("REQUIRE_NVRTC").is_some_and(|value| value == "1")
}

/// The instructions of a cubin, where `nvdisasm` is at hand.
fn disassemble(cubin: &[u8]) -> Result<Option<String>, Failed> {
    let (process, thread) = (std::process::id(), std::thread::current().id());
    let file = std::env::temp_dir().join(format!("fuseplan-compile-{process}-{thread:?}.cubin"));
    std::fs::write(&file, cubin)?;
    let output = Command::new("nvdisasm").arg("--print-code").arg(&file).output();
    std::fs::remove_file(&file)?;
    match output {
        Ok(output) if output.status.success() => {
            Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
        }
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
        Err(error) if required() => Err(format!("nvdisasm: {error}").into()),
        Err(_) => Ok(None),
    }
}

/// The architectures that this NVRTC knows, and that are asked for.
fn known_archs() -> Vec<&'static Arch> {
    let toolchain = CudaBackend.target(HOPPER.name).map(|target| target.toolchain).unwrap_or_default();
    // `NVRTC 13.0`; the newest where there is none, for the names of the cases that are ignored.
    let major = toolchain.split([' ', '.']).nth(1).and_then(|major| major.parse().ok()).unwrap_or(13);
    let asked = std::env::var("FUSEPLAN_TEST_ARCHS").unwrap_or_default();
    let asked: Vec<_> = asked.split_whitespace().collect();
    let wanted =
        |arch: &&Arch| arch.nvrtc.contains(&major) && (asked.is_empty() || asked.contains(&arch.name));
    ARCHS.iter().filter(wanted).collect()
}

fn main() {
    let arguments = Arguments::from_args();
    let missing = CudaBackend.discover().notes.into_iter().find(|note| note.contains("NVRTC"));
    if let Some(note) = &missing {
        println!("ignored: {note}");
        if required() {
            std::process::exit(101);
        }
    }
    let every = std::env::var("FUSEPLAN_TEST_EVERY").ok().and_then(|text| text.parse().ok());
    let every: usize = every.unwrap_or(1).max(1);
    let archs = known_archs();
    let mut trials = Vec::new();
    let mut of_solver = HashMap::new();
    for (name, solver, problem, wanted) in cases().into_iter().chain(wide()) {
        let number = of_solver.entry(solver).or_insert(0);
        for (i, &arch) in archs.iter().enumerate() {
            let (taken, every) = match solver {
                WGMMA | PLANES | LINES | TRANSPOSED | REORDERED | RUNS | GATHER => {
                    (arch.name == HOPPER.name, 1)
                }
                "cuda.conv_mma.v1" | HALO_MMA | WINOGRAD => (arch.tensor_cores, every * arch.every),
                _ => (true, every * arch.every),
            };
            if !taken || (*number + i) % every != 0 {
                continue;
            }
            let problem = problem.clone();
            let check = move || check(name, solver, &problem, arch, wanted);
            trials.push(Trial::test(format!("{name}.{}", arch.name), check));
        }
        *number += 1;
    }
    if archs.iter().any(|arch| arch.name == HOPPER.name) {
        for (name, problem) in activations() {
            trials.push(Trial::test(name, move || {
                check("activation", "cuda.direct.v1", &problem, HOPPER, &[])
            }));
        }
        for mode in ActivationMode::ALL {
            let problem =
                training(DataType::BFloat16, TensorLayout::Nchw, TRAINED, BatchNormMode::Spatial, mode, true);
            let check = move || check("gradient", "cuda.batch_norm_training.v1", &problem, HOPPER, &[]);
            trials.push(Trial::test(format!("gradient.{mode}"), check));
        }
    }
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(missing.is_some())).collect();
    libtest_mimic::run(&arguments, trials).exit();
}
