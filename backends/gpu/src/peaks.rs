//! What a device can do at most, measured: the best of a few launches of kernels that do nothing else, which start
//! small and grow, for no longer than [`PATIENCE`].
//!
//! - **bytes**: copies of 512 MiB, or of what there is room and time for; read plus written. Small copies, which only
//!   a device gets that is very slow, stay in its caches.
//! - **arithmetic**: multiplications and additions on operands that are at hand, by the instruction that the
//!   backend's kernels use.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fuseplan_api::{BackendError, DataType, Device, Memory, Patience, Peaks, Stream};

use crate::{CompileFailure, Context, Driver, Function, Geometry, GpuDevice, Runtime};

/// How long each of the two is measured. Copies grow to the largest that there is, arithmetic until it takes two
/// milliseconds; the clock rises with the first work.
const PATIENCE: Patience = Patience { budget: Duration::from_millis(500), enough: Duration::MAX, rounds: 8 };

/// A kernel that copies, or computes, and nothing else.
#[derive(Debug, Clone)]
pub struct Probe {
    /// What it does it by.
    pub name: &'static str,
    /// Its text. The argument has three words: where to read, where to write, and vectors of 16 bytes to copy or
    /// rounds of computing.
    pub source: String,
    /// Threads of a block.
    pub threads: u32,
    /// Blocks for each compute unit.
    blocks: u32,
    /// Operations of a thread in a round.
    operations: f64,
}

impl Probe {
    /// A kernel that computes, with a body of its own, which may use the vendor's text, what
    /// `kernels/peaks.cuh` defines, and `THREADS`.
    pub fn new<R: Runtime>(
        name: &'static str,
        body: &str,
        [threads, blocks]: [u32; 2],
        operations: f64,
    ) -> Self {
        let shared = kernel_text!("../kernels/peaks.cuh");
        let source = format!("#define THREADS {threads}\n{}\n{shared}\n{body}", R::VENDOR);
        Probe { name, source, threads, blocks, operations }
    }

    /// Multiplications and additions in f32, without matrix cores.
    pub fn fma<R: Runtime>() -> Self {
        // 8 times 16 for a thread and round.
        Self::new::<R>("FMA", kernel_text!("../kernels/peaks_fma.cuh"), [256, 16], 256.0)
    }

    /// A copy.
    pub fn copy<R: Runtime>() -> Self {
        Self::new::<R>("copy", kernel_text!("../kernels/peaks_copy.cuh"), [512, 0], 0.0)
    }
}

/// Peaks that were measured.
#[derive(Debug, Default)]
pub(crate) struct Measured(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    bytes: Option<f64>,
    flops: HashMap<DataType, f64>,
}

impl Measured {
    /// The peaks of the device that this belongs to. One thread measures, others wait.
    ///
    /// # Errors
    /// A type without kernels, or the device or the compiler refuses.
    pub(crate) fn get<R: Runtime>(
        &self,
        device: &GpuDevice<R>,
        data_type: DataType,
    ) -> Result<Peaks, BackendError> {
        if !matches!(data_type, DataType::Float | DataType::Half | DataType::BFloat16) {
            let (backend, what) = (R::BACKEND, "peaks of this data type");
            return Err(BackendError::Unsupported { backend, what });
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = match known.bytes {
            Some(bytes) => bytes,
            None => *known.bytes.insert(copy(device, &Probe::copy::<R>())?),
        };
        let flops = match known.flops.get(&data_type) {
            Some(&flops) => flops,
            None => {
                let flops = arithmetic(device, &R::products(data_type, &device.info().arch))?;
                known.flops.insert(data_type, flops);
                flops
            }
        };
        Ok(Peaks { flops, bytes })
    }
}

/// A probe, ready to be launched.
fn load<R: Runtime>(
    device: &GpuDevice<R>,
    probe: &Probe,
    geometry: &Geometry,
) -> Result<Function<R>, BackendError> {
    let compiled = R::compile(&probe.source, &device.info().arch).map_err(|failure| match failure {
        CompileFailure::Backend(error) => error,
        CompileFailure::Log(text) => {
            BackendError::Driver { backend: R::BACKEND, call: "compiling what measures", text }
        }
    })?;
    device.load(&compiled.image, geometry)
}

/// The device's time of so many launches.
fn time<D: Driver>(
    context: &Context<D>,
    stream: &Stream,
    function: &Function<D>,
    geometry: &Geometry,
    arguments: [u64; 3],
    launches: u32,
) -> Result<Duration, BackendError> {
    let elapsed = context.time(stream, || {
        for _ in 0..launches {
            // SAFETY: the argument is the text's structure; its memory lives until the time is known.
            unsafe { function.launch(stream.raw(), geometry, &arguments) }?;
        }
        Ok::<_, BackendError>(())
    })?;
    Ok(elapsed.max(Duration::from_nanos(1)))
}

/// Bytes a second of a copy.
fn copy<R: Runtime>(device: &GpuDevice<R>, probe: &Probe) -> Result<f64, BackendError> {
    /// Bytes that a thread copies.
    const EACH: u64 = 16;
    /// Bytes of the smallest and of the largest copy.
    const BYTES: RangeInclusive<u64> = 64 << 10..=512 << 20;
    /// Copies that are timed together.
    const COPIES: u32 = 4;
    let stream = device.create_stream()?;
    let geometry = |bytes: u64| {
        let blocks = bytes.div_ceil(EACH * u64::from(probe.threads)) as u32;
        Geometry { grid: [blocks, 1, 1], block: probe.threads, shared: 0 }
    };
    let function = load(device, probe, &geometry(*BYTES.end()))?;
    let mut memory: Option<Scratch<'_>> = None;
    let (bytes, shortest) = PATIENCE.fastest(BYTES, |bytes| {
        let room = 2 * bytes as usize;
        let memory = match memory.take_if(|memory| memory.bytes == room) {
            Some(same) => memory.insert(same),
            None => {
                // Before the next: there may not be room for both.
                memory = None;
                memory.insert(Scratch::new(device.memory(), room)?)
            }
        };
        let from = memory.pointer as u64;
        let arguments = [from, from + bytes, bytes / EACH];
        time(&device.context, &stream, &function, &geometry(bytes), arguments, COPIES)
    })?;
    Ok(f64::from(2 * COPIES) * bytes as f64 / shortest.as_secs_f64())
}

/// Operations a second of a kernel that computes.
fn arithmetic<R: Runtime>(device: &GpuDevice<R>, probe: &Probe) -> Result<f64, BackendError> {
    let stream = device.create_stream()?;
    let memory = Scratch::new(device.memory(), 16)?;
    let blocks = device.info().compute_units * probe.blocks;
    let geometry = Geometry { grid: [blocks, 1, 1], block: probe.threads, shared: 0 };
    let function = load(device, probe, &geometry)?;
    let patience = Patience { enough: Duration::from_millis(2), ..PATIENCE };
    let (rounds, shortest) = patience.fastest(1..=1 << 24, |rounds| {
        time(&device.context, &stream, &function, &geometry, [0, memory.pointer as u64, rounds], 1)
    })?;
    let threads = f64::from(blocks) * f64::from(probe.threads);
    Ok(threads * probe.operations * rounds as f64 / shortest.as_secs_f64())
}

/// Memory that is given back.
struct Scratch<'a> {
    memory: &'a dyn Memory,
    pointer: *mut c_void,
    bytes: usize,
}

impl<'a> Scratch<'a> {
    fn new(memory: &'a dyn Memory, bytes: usize) -> Result<Self, BackendError> {
        Ok(Scratch { memory, pointer: memory.allocate(bytes)?, bytes })
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated with this size, given back once; every launch was waited for.
        unsafe { self.memory.free(self.pointer, self.bytes) }
    }
}
