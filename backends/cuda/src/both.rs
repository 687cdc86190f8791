//! Binaries that carry a second kernel, for what the first one does not take.

use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};

use fuseplan_api::{Binary, BuildError, Configuration, DeviceInfo, Problem, Solver};
use fuseplan_gpu::{binary, compile};

use crate::context::Cuda;

/// Compiles a solver's text, and another's kernel beside it.
pub(crate) fn compile_both(
    id: &'static str,
    (problem, target): (&Problem, &DeviceInfo),
    (configuration, text): (&Configuration, &str),
    (solver, others): (&dyn Solver, &Configuration),
) -> Result<Binary, BuildError> {
    // NVRTC works in several threads at once.
    let (image, other) = thread::scope(|scope| {
        let other = || solver.compile(problem, target, others);
        let thread = thread::Builder::new().spawn_scoped(scope, other);
        let image = compile::<Cuda>(id, text, &target.arch);
        let join =
            |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        (image, thread.map_or_else(|_| other(), join))
    });
    let (image, other) = (image?, other?);
    let images = [&(image.len() as u64).to_le_bytes(), &*image, &other.bytes].concat();
    Ok(binary::seal(id, &target.arch, configuration, text, &images))
}

/// The image that [`compile_both`] made of the solver's text, and the other kernel's binary.
pub(crate) fn split<'a>(
    id: &'static str,
    arch: &str,
    solver: &dyn Solver,
    images: &'a [u8],
) -> Result<(&'a [u8], Binary), BuildError> {
    let parts = images.split_first_chunk().and_then(|(length, images)| {
        images.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)
    });
    let Some((image, other)) = parts else {
        return Err(BuildError::Binary { solver: id, reason: "it is cut off".into() });
    };
    Ok((image, Binary { solver: solver.id().into(), arch: arch.into(), bytes: other.into() }))
}
