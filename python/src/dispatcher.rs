//! What PyTorch's dispatcher would do with a call besides handing it to the operator's kernel, as far as it goes by the thread
//! and not by the tensors.

use std::path::Path;

use pyo3::prelude::*;

/// What a thread includes in all tensors' dispatch keys and excludes from them, beside what all threads begin with
/// (`c10::impl::PODLocalDispatchKeySet`).
pub(crate) type Keys = (u64, u64);

/// The functions of PyTorch's C++ libraries that say so. They take nothing, and what they give is C's too.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    #[cfg(target_os = "linux")]
    libraries: &'static libloading::os::unix::Library,
    /// `at::impl::torch_function_mode_enabled`
    has_function_mode: unsafe extern "C" fn() -> bool,
    /// `at::hasCallbacks`, which profilers have.
    has_callbacks: unsafe extern "C" fn() -> bool,
    /// `c10::GradMode::is_enabled`
    is_grad_enabled: unsafe extern "C" fn() -> bool,
    /// The keys of a thread in inference mode.
    of_inference: Keys,
}

/// `c10::impl::raw_local_dispatch_key_set`, of which each thread has one.
#[cfg(target_os = "linux")]
const KEYS: &std::ffi::CStr = c"_ZN3c104impl26raw_local_dispatch_key_setE";

#[cfg(target_os = "linux")]
thread_local! {
    /// Where this thread's keys are: in memory that it has until its end.
    static OF_THREAD: std::cell::Cell<*const Keys> = const { std::cell::Cell::new(std::ptr::null()) };
}

#[cfg(target_os = "linux")]
impl Dispatcher {
    /// The functions of the libraries that a loaded library of PyTorch's depends on, if they have them.
    pub(crate) fn of(library: &Path, of_inference: Keys) -> Option<Self> {
        use libloading::os::unix::Library;

        // SAFETY: nothing is loaded, so nothing runs.
        let libraries = unsafe { Library::open(Some(library), libc::RTLD_NOLOAD | libc::RTLD_NOW) }.ok()?;
        // So it is never unloaded.
        let libraries = Box::leak(Box::new(libraries));
        // SAFETY: a mangled name says that these take nothing. That they give a `bool` it does not; in PyTorch 2.11 they do.
        let function = |name: &std::ffi::CStr| unsafe { libraries.get(name) }.ok().map(|found| *found);
        let dispatcher = Dispatcher {
            has_function_mode: function(c"_ZN2at4impl27torch_function_mode_enabledEv")?,
            has_callbacks: function(c"_ZN2at12hasCallbacksEv")?,
            is_grad_enabled: function(c"_ZN3c108GradMode10is_enabledEv")?,
            libraries,
            of_inference,
        };
        dispatcher.keys().map(|_| dispatcher)
    }

    /// This thread's keys.
    fn keys(&self) -> Option<Keys> {
        let mut keys = OF_THREAD.get();
        if keys.is_null() {
            // SAFETY: only its address is used.
            let found = unsafe { self.libraries.get::<*const std::ffi::c_void>(KEYS) }.ok()?;
            keys = found.as_raw_ptr().cast_const().cast();
            OF_THREAD.set(keys);
        }
        // SAFETY: the loader's address of a thread's variable is that of this thread's own, which nobody else writes.
        (!keys.is_null()).then(|| unsafe { keys.read() })
    }
}

#[cfg(not(target_os = "linux"))]
impl Dispatcher {
    pub(crate) fn of(_library: &Path, _of_inference: Keys) -> Option<Self> {
        None
    }

    fn keys(&self) -> Option<Keys> {
        None
    }
}

impl Dispatcher {
    /// Whether a call in this thread gets to the kernel of the tensors' device as it is, unless a tensor wants something else: no
    /// mode, transform, tracer or autocast takes it on its way, and nobody records it.
    pub(crate) fn hands_on(&self) -> bool {
        let keys = self.keys();
        let plain = keys == Some((0, 0)) || keys == Some(self.of_inference);
        // SAFETY: functions without conditions.
        plain && !unsafe { (self.has_function_mode)() || (self.has_callbacks)() }
    }

    pub(crate) fn is_grad_enabled(&self) -> bool {
        // SAFETY: a function without conditions.
        unsafe { (self.is_grad_enabled)() }
    }
}

/// What this thread adds to tensors' dispatch keys and takes from them, where PyTorch's libraries tell.
#[pyfunction]
pub(crate) fn dispatch_keys(library: std::path::PathBuf) -> Option<Keys> {
    Dispatcher::of(&library, (0, 0))?.keys()
}
