//! The threads that PyTorch computes its own operators on, those of an OpenMP runtime, as a parallel loop for plans.
//!
//! The functions are those that GCC's programs call. LLVM's and Intel's runtimes have them too.

use std::any::Any;
use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fuseplan::device::ParallelFor;
use fuseplan::fork;
use pyo3::prelude::*;

use crate::error;
use crate::handle::Handle;
use crate::together::Together;

/// What every thread of a team calls, with one argument for all of them.
type Region = unsafe extern "C" fn(*mut c_void);

/// An OpenMP runtime that the process has loaded, and keeps.
#[derive(Debug, Clone)]
struct Runtime {
    file: PathBuf,
    /// `GOMP_parallel`: a region, its argument, how many threads (0: as many as the calling thread has been told), flags.
    parallel: unsafe extern "C" fn(Region, *mut c_void, c_uint, c_uint),
    in_parallel: unsafe extern "C" fn() -> c_int,
    thread_num: unsafe extern "C" fn() -> c_int,
    max_threads: unsafe extern "C" fn() -> c_int,
}

impl Runtime {
    /// The runtime that a library's calls of OpenMP reach: as the loader does, by what the process has for all of its libraries,
    /// in the order in which they were loaded, then by what the library itself depends on. Nothing is loaded.
    #[cfg(unix)]
    fn of(library: &Path) -> Option<Self> {
        use std::ffi::{CStr, OsStr};
        use std::os::unix::ffi::OsStrExt;

        use libloading::os::unix::{Library, Symbol};

        // SAFETY: nothing is loaded, so nothing runs.
        let loaded =
            |file: &Path| unsafe { Library::open(Some(file), libc::RTLD_NOLOAD | libc::RTLD_NOW) }.ok();
        let parallel = |library: Library| {
            // SAFETY: only its address is used.
            unsafe { library.get::<*const c_void>(c"GOMP_parallel") }.ok().map(Symbol::as_raw_ptr)
        };
        let address = parallel(Library::this()).or_else(|| parallel(loaded(library)?))?;
        // SAFETY: zeros are valid for a structure of pointers.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: the loader fills the structure.
        if unsafe { libc::dladdr(address, &mut info) } == 0 || info.dli_fname.is_null() {
            return None;
        }
        // SAFETY: the loader's string lives as long as the library, which whoever calls it has loaded.
        let file = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes()));
        let runtime = loaded(file)?;
        // SAFETY: these are the types of the functions of OpenMP's specification, and of that which GCC generates calls of.
        let found = unsafe {
            Runtime {
                file: file.to_owned(),
                parallel: *runtime.get(c"GOMP_parallel").ok()?,
                in_parallel: *runtime.get(c"omp_in_parallel").ok()?,
                thread_num: *runtime.get(c"omp_get_thread_num").ok()?,
                max_threads: *runtime.get(c"omp_get_max_threads").ok()?,
            }
        };
        // So it is never unloaded.
        std::mem::forget(runtime);
        Some(found)
    }

    #[cfg(not(unix))]
    fn of(_library: &Path) -> Option<Self> {
        None
    }
}

/// How many nanoseconds of waiting are borne, in which a thread that sleeps would have come.
const PATIENCE: u64 = 1_000_000;
/// How many nanoseconds of waiting are remembered, so that teams are tried again soon after whatever it was.
const LONGEST: u64 = 100_000_000;

/// The team of whichever thread calls: the one that PyTorch's operators have there.
#[derive(Debug)]
pub(crate) struct Team {
    runtime: Runtime,
    threads: usize,
    /// Nanoseconds that loops have waited for threads, less what they computed since.
    waited: AtomicU64,
}

/// A loop as the threads of a team see it.
struct Loop<'a> {
    runtime: &'a Runtime,
    count: usize,
    work: &'a (dyn Fn(usize) + Sync),
    /// Nanoseconds that the calling thread has computed for.
    computed: AtomicU64,
}

impl ParallelFor for Team {
    fn threads(&self) -> usize {
        self.threads
    }

    /// Leaves everything to the calling thread in a region of OpenMP's, as PyTorch does, and in a child of a fork, where a
    /// runtime may wait for threads of the parent's for ever.
    ///
    /// A region begins when all threads have left the one before, and ends when all have come, be there nothing left for
    /// them. On a machine that is busy with other programs a thread comes when the system lets it, which takes milliseconds. So
    /// behind such a wait the calling thread computes alone for as long, that no more than half of the time is lost.
    fn run(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        if Together::run(count, work) || self.has_no_regions() {
            return;
        }
        let start = Instant::now();
        if self.waited.load(Ordering::Relaxed) > PATIENCE {
            (0..count).for_each(work);
            return self.weigh(0, nanoseconds(start.elapsed()));
        }
        let argument = Loop { runtime: &self.runtime, count, work, computed: AtomicU64::new(0) };
        // GNU's runtime ends threads that a smaller team leaves over, so the team has the size of PyTorch's.
        // SAFETY: the region is called with the argument, which lives until all of its calls have returned, as this function
        // then does.
        unsafe { (self.runtime.parallel)(region, (&raw const argument).cast_mut().cast(), 0, 0) }
        let computed = argument.computed.into_inner();
        self.weigh(nanoseconds(start.elapsed()).saturating_sub(computed), computed);
    }
}

impl Team {
    /// The runtime's file.
    pub(crate) fn file(&self) -> &Path {
        &self.runtime.file
    }

    /// Whether the calling thread computes alone.
    fn has_no_regions(&self) -> bool {
        // SAFETY: a function without conditions.
        fork::generation() > 0 || unsafe { (self.runtime.in_parallel)() } != 0
    }

    /// Calls `body`, whose loops have one region for all of them where they would have one each: all threads come once, and look for
    /// the next loop in memory.
    pub(crate) fn together(&self, body: &mut dyn FnMut()) {
        if self.has_no_regions() || self.waited.load(Ordering::Relaxed) > PATIENCE {
            return body();
        }
        let start = Instant::now();
        let first = Cell::new(Some(First { body, panic: None, computed: 0 }));
        let argument = Leads { runtime: &self.runtime, together: Together::new(), first: &first };
        // SAFETY: the region is called with the argument, which lives until all of its calls have returned, as this function
        // then does.
        unsafe { (self.runtime.parallel)(leading, (&raw const argument).cast_mut().cast(), 0, 0) }
        let Some(First { panic, computed, .. }) = first.take() else { return };
        self.weigh(nanoseconds(start.elapsed()).saturating_sub(computed), computed);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Weighs a loop's time of waiting against that of computing. Of several loops at once some may count for nothing.
    fn weigh(&self, waited: u64, computed: u64) {
        let before = self.waited.load(Ordering::Relaxed);
        let now = before.saturating_add(waited).saturating_sub(computed);
        self.waited.store(now.min(LONGEST), Ordering::Relaxed);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// Loops behind each other, as the threads of a team see them.
struct Leads<'a> {
    runtime: &'a Runtime,
    together: Together,
    /// Only the calling thread touches it.
    first: &'a Cell<Option<First<'a>>>,
}

/// What the calling thread does, and what became of it.
struct First<'a> {
    body: &'a mut dyn FnMut(),
    panic: Option<Box<dyn Any + Send>>,
    /// Nanoseconds that it took without waiting.
    computed: u64,
}

/// Leads or follows.
///
/// # Safety
/// As of [`region`], with `Leads`.
unsafe extern "C" fn leading(argument: *mut c_void) {
    // SAFETY: as the function's own.
    let of = unsafe { &*argument.cast::<Leads<'_>>() };
    // SAFETY: a function without conditions.
    match usize::try_from(unsafe { (of.runtime.thread_num)() }) {
        Ok(0) => {
            let start = Instant::now();
            if let Some(mut first) = of.first.take() {
                first.panic = catch_unwind(AssertUnwindSafe(|| of.together.lead(&mut *first.body))).err();
                first.computed = nanoseconds(start.elapsed()).saturating_sub(of.together.waited());
                of.first.set(Some(first));
            }
        }
        Ok(part) => of.together.follow(part),
        Err(_) => {}
    }
}

/// Does a thread's part. A smaller team leaves parts to the thread that called the library.
///
/// # Safety
/// The argument is a `Loop`, which lives, and the caller is a thread of a team of its runtime.
unsafe extern "C" fn region(argument: *mut c_void) {
    // SAFETY: as the function's own.
    let of = unsafe { &*argument.cast::<Loop<'_>>() };
    // SAFETY: a function without conditions.
    let thread = unsafe { (of.runtime.thread_num)() };
    if let Some(index) = usize::try_from(thread).ok().filter(|&index| index < of.count) {
        let start = Instant::now();
        // It catches panics, so none leaves this function.
        (of.work)(index);
        if index == 0 {
            of.computed.store(nanoseconds(start.elapsed()), Ordering::Relaxed);
        }
    }
}

/// The CPU on the threads of the OpenMP runtime that a library calls, if it calls one whose teams have so many threads. A child
/// of a fork has none of them.
#[pyfunction]
pub(crate) fn openmp_handle(py: Python<'_>, threads: usize, library: PathBuf) -> PyResult<Option<Handle>> {
    if fork::generation() > 0 {
        return Ok(None);
    }
    let Some(runtime) = Runtime::of(&library) else { return Ok(None) };
    // SAFETY: a function without conditions.
    if usize::try_from(unsafe { (runtime.max_threads)() }) != Ok(threads) {
        return Ok(None);
    }
    let team = Arc::new(Team { runtime, threads, waited: AtomicU64::new(0) });
    let opened = py.detach(|| fuseplan::Handle::cpu_with_parallel_for(team.clone()));
    let inner = opened.map_err(|error| error::backend(&error))?;
    Ok(Some(Handle::of_openmp(inner, threads, team)))
}
