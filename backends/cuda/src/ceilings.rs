//! What a device can do at most, measured: the best of a few launches of kernels that do nothing else.
//!
//! - **bytes**: copies of 512 MB, or of what there is room for; read plus written.
//! - **arithmetic**: multiplications and additions on operands that are at hand. f32 on the CUDA cores, where
//!   its products are exact; f16 and bf16 on the tensor cores by the instruction that this backend's kernels
//!   use on the architecture: `wgmma` on sm_90a, `mma.sync` from sm_80, and the CUDA cores before.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use fuseplan_api::{BackendError, Ceilings, DataType, Device, RunError, Stream};
use fuseplan_gpu::{CompileFailure, Function, Geometry};

use crate::solvers::{CudaFunction, VENDOR};
use crate::{BACKEND, CudaDevice, arch, compiler};

/// Ceilings that were measured.
#[derive(Debug, Default)]
pub(crate) struct Measured(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    bytes: Option<f64>,
    flops: HashMap<DataType, f64>,
}

impl Measured {
    /// The ceilings of the device that this belongs to. One thread measures, others wait.
    pub(crate) fn get(&self, device: &CudaDevice, data_type: DataType) -> Result<Ceilings, BackendError> {
        let probe = Probe::of(data_type, &device.info().arch)?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = match known.bytes {
            Some(bytes) => bytes,
            None => *known.bytes.insert(copy(device)?),
        };
        let flops = match known.flops.get(&data_type) {
            Some(&flops) => flops,
            None => {
                let flops = arithmetic(device, &probe)?;
                known.flops.insert(data_type, flops);
                flops
            }
        };
        Ok(Ceilings { flops, bytes })
    }
}

/// A kernel that computes.
struct Probe {
    /// What its text is chosen by.
    name: &'static str,
    /// The name of the type in PTX.
    data_type: &'static str,
    threads: u32,
    /// Blocks for each multiprocessor.
    blocks: u32,
    /// Operations of a thread in a round of its loop.
    operations: f64,
}

impl Probe {
    fn of(data_type: DataType, arch: &str) -> Result<Self, BackendError> {
        let name = match data_type {
            DataType::Float => "",
            DataType::Half => "f16",
            DataType::BFloat16 => "bf16",
            _ => {
                return Err(BackendError::Unsupported {
                    backend: BACKEND,
                    what: "ceilings of this data type",
                });
            }
        };
        let capability = arch::named(arch).map_or((0, 0), |arch| arch.capability);
        Ok(if name.is_empty() || capability < (8, 0) {
            // 8 times 16 fused multiplications and additions.
            Probe { name: "FFMA", data_type: "", threads: 256, blocks: 16, operations: 256.0 }
        } else if arch == "sm_90a" {
            // Four products of 64x256x16 by 128 threads.
            Probe { name: "WGMMA", data_type: name, threads: 256, blocks: 1, operations: 16384.0 }
        } else {
            // Sixteen products of 16x8x16 by a warp.
            Probe { name: "MMA", data_type: name, threads: 256, blocks: 4, operations: 2048.0 }
        })
    }
}

const COPY_THREADS: u32 = 512;
/// Bytes that a thread copies.
const COPY_EACH: usize = 16;
/// Copies that are timed together.
const COPIES: u32 = 4;

/// A part of the text.
fn text(part: &str, data_type: &str, threads: u32) -> String {
    let file = include_str!("../kernels/ceilings.cuh");
    format!("#define {part}\n#define TYPE \"{data_type}\"\n#define THREADS {threads}\n{VENDOR}\n{file}")
}

/// A part of the text, ready to be launched.
fn load(
    device: &CudaDevice,
    part: &str,
    data_type: &str,
    geometry: &Geometry,
) -> Result<CudaFunction, BackendError> {
    let text = text(part, data_type, geometry.block);
    let compiled = compiler::compile(&text, &device.info().arch).map_err(|failure| match failure {
        CompileFailure::Backend(error) => error,
        CompileFailure::Log(text) => {
            BackendError::Driver { backend: BACKEND, call: "nvrtcCompileProgram", text }
        }
    })?;
    CudaFunction::load(device, &compiled.image, geometry)
}

/// The shortest of a few times.
fn best(mut time: impl FnMut() -> Result<f64, BackendError>) -> Result<f64, BackendError> {
    (0..8).try_fold(f64::INFINITY, |best, _| Ok(best.min(time()?)))
}

/// Seconds of so many launches.
fn seconds(
    device: &CudaDevice,
    stream: &Stream,
    function: &CudaFunction,
    geometry: &Geometry,
    arguments: [u64; 3],
    launches: u32,
) -> Result<f64, BackendError> {
    let elapsed = device.time(stream, &mut || {
        for _ in 0..launches {
            // SAFETY: the argument is the text's structure; its memory lives until the time is known.
            unsafe { function.launch(stream.raw(), geometry, &arguments) }?;
        }
        Ok(())
    });
    match elapsed {
        Ok(elapsed) => Ok(elapsed.as_secs_f64().max(1e-9)),
        Err(RunError::Backend(error)) => Err(error),
        Err(error) => {
            Err(BackendError::Driver { backend: BACKEND, call: "measuring", text: error.to_string() })
        }
    }
}

/// Bytes a second of a copy.
fn copy(device: &CudaDevice) -> Result<f64, BackendError> {
    let stream = device.create_stream()?;
    let (memory, bytes) = Scratch::largest(device, 512 << 20)?;
    let blocks = bytes.div_ceil(COPY_EACH * COPY_THREADS as usize) as u32;
    let geometry = Geometry { grid: [blocks, 1, 1], block: COPY_THREADS, shared: 0 };
    let function = load(device, "COPY", "", &geometry)?;
    let (from, to) = (memory.pointer as u64, memory.pointer as u64 + bytes as u64);
    let arguments = [from, to, (bytes / COPY_EACH) as u64];
    let best = best(|| seconds(device, &stream, &function, &geometry, arguments, COPIES))?;
    Ok(f64::from(2 * COPIES) * bytes as f64 / best)
}

/// Operations a second of a kernel that computes.
fn arithmetic(device: &CudaDevice, probe: &Probe) -> Result<f64, BackendError> {
    let stream = device.create_stream()?;
    let memory = Scratch::new(device, 16)?;
    let blocks = device.info().compute_units * probe.blocks;
    let geometry = Geometry { grid: [blocks, 1, 1], block: probe.threads, shared: 0 };
    let function = load(device, probe.name, probe.data_type, &geometry)?;
    let run =
        |rounds: u64| seconds(device, &stream, &function, &geometry, [0, memory.pointer as u64, rounds], 1);
    // The clock rises with the first work. Then as many rounds as take about two milliseconds.
    let mut rounds = 256;
    while run(rounds)? < 2e-3 && rounds < 1 << 24 {
        rounds *= 2;
    }
    let best = best(|| run(rounds))?;
    Ok(f64::from(blocks) * f64::from(probe.threads) * probe.operations * rounds as f64 / best)
}

/// Memory that is given back.
struct Scratch<'a> {
    device: &'a CudaDevice,
    pointer: *mut std::ffi::c_void,
    bytes: usize,
}

impl<'a> Scratch<'a> {
    fn new(device: &'a CudaDevice, bytes: usize) -> Result<Self, BackendError> {
        Ok(Scratch { device, pointer: device.memory().allocate(bytes)?, bytes })
    }

    /// Memory of twice as many bytes as are returned, which are at most `bytes`.
    fn largest(device: &'a CudaDevice, mut bytes: usize) -> Result<(Self, usize), BackendError> {
        const LEAST: usize = 16 << 20;
        loop {
            match Self::new(device, 2 * bytes) {
                Err(BackendError::OutOfMemory { .. }) if bytes > LEAST => bytes /= 2,
                made => return made.map(|memory| (memory, bytes)),
            }
        }
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated with this size, given back once; every launch was waited for.
        unsafe { self.device.memory().free(self.pointer, self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library;

    #[test]
    fn probes_are_those_of_the_architectures_kernels() {
        let of = |data_type, arch| Probe::of(data_type, arch).map(|probe| probe.name);
        assert_eq!(of(DataType::Float, "sm_90a"), Ok("FFMA"));
        assert_eq!(of(DataType::Half, "sm_90a"), Ok("WGMMA"));
        assert_eq!(of(DataType::BFloat16, "sm_100"), Ok("MMA"));
        assert_eq!(of(DataType::Half, "sm_75"), Ok("FFMA"));
        let error = of(DataType::Double, "sm_90a").unwrap_err().to_string();
        assert!(error.contains("ceilings of this data type"), "{error}");
    }

    /// Every part for every kind of architecture: nothing may wait for memory that holds spilled registers.
    #[test]
    fn probes_compile_and_spill_nothing() {
        if let Err(error) = library::nvrtc() {
            assert!(std::env::var_os("REQUIRE_NVRTC").is_none_or(|value| value != "1"), "{error}");
            return println!("ignored: {error}");
        }
        for arch in ["sm_75", "sm_80", "sm_90a", "sm_100", "sm_120"] {
            for data_type in [DataType::Float, DataType::Half, DataType::BFloat16] {
                let Probe { name, data_type, threads, .. } = Probe::of(data_type, arch).unwrap();
                for part in [name, "COPY"] {
                    let log = compiler::compile(&text(part, data_type, threads), arch).unwrap().log;
                    let sound = log.contains("0 bytes spill stores, 0 bytes spill loads");
                    assert!(sound && !log.contains("warning"), "{part} for {arch}: {log}");
                }
            }
        }
    }
}
