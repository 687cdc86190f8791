//! A solver's binary of a problem in a configuration: from the disk cache, else compiled and stored there; then loaded.

use std::cell::Cell;
use std::sync::Arc;

use fuseplan_api::{Binary, BuildError, Configuration, Device, DeviceInfo, Executable, Problem, Solver};

use crate::cache::{self, Subject};
use crate::observe::Source;

/// What `load` makes of the solver's binary, which is compiled if the disk cache does not have it; and where it comes from.
pub(crate) fn obtain<T>(
    solver: &dyn Solver,
    configuration: &Configuration,
    problem: &Problem,
    target: &DeviceInfo,
    load: impl Fn(&Binary) -> Result<T, BuildError>,
) -> Result<(T, Source), BuildError> {
    let source = Cell::new(Source::Disk);
    let compile = || {
        source.set(Source::Compiled);
        solver.compile(problem, target, configuration)
    };
    // What has no name on disk has nothing that was compiled.
    let Some(subject) = Subject::stored(solver, problem, target, configuration) else {
        return Ok((load(&compile()?)?, Source::Solver));
    };
    let Some(disk) = cache::disk() else { return Ok((load(&compile()?)?, Source::Compiled)) };
    let binary =
        |bytes: &[u8]| Binary { solver: solver.id().into(), arch: target.arch.clone(), bytes: bytes.into() };
    let loaded = disk.get_or_build(&subject, |bytes| load(&binary(bytes)), || Ok(compile()?.bytes))?;
    Ok((loaded, source.get()))
}

/// The solver's executable on a device, and where its binary comes from.
pub(crate) fn executable(
    solver: &dyn Solver,
    configuration: &Configuration,
    problem: &Problem,
    device: &Arc<dyn Device>,
) -> Result<(Arc<dyn Executable>, Source), BuildError> {
    let load = |binary: &Binary| solver.load(problem, device, binary);
    obtain(solver, configuration, problem, device.info(), load)
}
