//! What the processor can do at most: multiply-adds and bytes copied a second, measured on all threads.

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fuseplan_api::{BackendError, DataType, Patience, Peaks, RunError};

use crate::arena::Buffer;
use crate::isa::{Isa, Kernel, Simd};
use crate::pool::Pool;
use crate::system;

/// How long arithmetic is measured. Other programs only ever make it slower, so the best round counts.
const PATIENCE: Duration = Duration::from_millis(100);

/// What was measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    /// Multiply-adds in f32, which vectors compute in whatever the data type, and memory.
    vectors: Peaks,
    /// Operations of instructions that multiply bf16; none where there are no such instructions.
    bf16: f64,
    isa: Isa,
}

impl Measured {
    /// The peaks of a data type.
    pub(crate) fn of(&self, data_type: DataType) -> Peaks {
        #[cfg(target_arch = "x86_64")]
        let products = crate::bf16::products(self.isa, data_type);
        #[cfg(not(target_arch = "x86_64"))]
        let products: Option<usize> = {
            let _ = (self.isa, data_type);
            None
        };
        let bf16 = products.map_or(0.0, |products| self.bf16 / products as f64);
        Peaks { flops: self.vectors.flops.max(bf16), ..self.vectors }
    }
}

/// Measures the processor.
pub(crate) fn measure(pool: &Pool, isa: Isa) -> Result<Measured, BackendError> {
    let vectors = Peaks { flops: flops(pool, &|| isa.run(MultiplyAdd))?, bytes: bytes(pool)? };
    #[cfg(target_arch = "x86_64")]
    if isa >= Isa::Avx512Bf16 {
        // SAFETY: the processor has the instructions of the set.
        let bf16 = flops(pool, &|| unsafe { crate::bf16::multiply_registers(isa) })?;
        return Ok(Measured { vectors, bf16, isa });
    }
    Ok(Measured { vectors, bf16: 0.0, isa })
}

fn failed(error: RunError) -> BackendError {
    match error {
        RunError::Backend(error) => error,
        other @ (RunError::SharedSums { .. } | RunError::Stopped { .. }) => {
            BackendError::Driver { backend: "cpu", call: "measuring peaks", text: other.to_string() }
        }
    }
}

/// The best rate of some rounds of `round`, which returns how much it did.
fn best_rate(mut round: impl FnMut() -> Result<f64, RunError>) -> Result<f64, BackendError> {
    let start = Instant::now();
    let mut best = 0f64;
    while best == 0.0 || start.elapsed() < PATIENCE {
        let start = Instant::now();
        let done = round().map_err(failed)?;
        best = best.max(done / start.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// Chains of dependent multiply-adds, enough of them to hide each other's latency, few enough to stay in
/// registers.
struct MultiplyAdd;

/// Steps of each chain; all of them together take tens of microseconds.
const STEPS: usize = 1 << 13;

impl MultiplyAdd {
    #[inline(always)]
    fn chains<S: Simd, const CHAINS: usize>(s: S) -> f64 {
        let (factor, addend) = (s.splat(black_box(0.5)), s.splat(black_box(1.0)));
        let mut chains = [addend; CHAINS];
        for _ in 0..STEPS {
            for chain in &mut chains {
                *chain = s.fma(*chain, factor, addend);
            }
        }
        for chain in chains {
            black_box(chain);
        }
        (2 * S::LANES * CHAINS * STEPS) as f64
    }
}

impl Kernel for MultiplyAdd {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f64 {
        match S::ROWS[0] {
            0..12 => Self::chains::<S, 4>(s),
            12..14 => Self::chains::<S, 12>(s),
            _ => Self::chains::<S, 20>(s),
        }
    }
}

/// Measurements of the kernel above that a thread takes part in: enough of them that the last ones, which
/// not every thread has a part in, do not count.
const SHARES: usize = 32;

/// The rate of all threads at `work`, which returns the operations that it has done.
fn flops(pool: &Pool, work: &(dyn Fn() -> f64 + Sync)) -> Result<f64, BackendError> {
    best_rate(|| {
        let each = Mutex::new(0.0);
        let items = SHARES * pool.threads();
        pool.for_each(items, &|_| {
            let flops = work();
            *each.lock().unwrap_or_else(PoisonError::into_inner) = flops;
        })?;
        Ok(items as f64 * each.into_inner().unwrap_or_else(PoisonError::into_inner))
    })
}

/// f32 that a thread copies at a time.
const CHUNK: usize = 1 << 18;

/// How long copies are measured: they grow to the largest, if there is time.
const COPIES: Patience = Patience { budget: Duration::from_secs(1), enough: Duration::MAX, rounds: 8 };

/// Bytes of the smallest two arrays together.
const LEAST: u64 = 1 << 20;

/// Bytes read plus written a second by copies between two arrays that together are four times the largest cache,
/// but neither less than 64 MiB nor more than 256 MiB; smaller ones where memory is so slow that these take too long.
fn bytes(pool: &Pool) -> Result<f64, BackendError> {
    let most = (system::caches().last as u64).saturating_mul(4).clamp(64 << 20, 256 << 20);
    let (mut from, mut to) = (Buffer::zeroed(0)?, Buffer::zeroed(0)?);
    let (bytes, shortest) = COPIES.fastest(LEAST..=most, |bytes| {
        let len = bytes as usize / 2 / size_of::<f32>();
        if from.as_slice().len() != len {
            (from, to) = (Buffer::zeroed(len)?, Buffer::zeroed(len)?);
            // Pages that were never written may all be the same one.
            from.as_mut_slice().fill(1.0);
        }
        let chunks = to.as_mut_slice().chunks_mut(CHUNK).zip(from.as_slice().chunks(CHUNK));
        let chunks: Vec<_> = chunks.map(Mutex::new).collect();
        let start = Instant::now();
        pool.for_each(chunks.len(), &|i| {
            let (to, from) = &mut *chunks[i].lock().unwrap_or_else(PoisonError::into_inner);
            to.copy_from_slice(from);
        })
        .map_err(failed)?;
        Ok(start.elapsed())
    })?;
    Ok(bytes as f64 / shortest.as_secs_f64())
}
