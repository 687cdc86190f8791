//! A C caller's parallel loop as the library's.

use std::ffi::c_void;

use fuseplan::device::ParallelFor;

use super::export::FromBits;

/// What a caller's parallel loop calls for each index, with the argument that it was given.
pub(crate) type Work = unsafe extern "C" fn(*mut c_void, usize);

/// A caller's parallel loop, which is given a context, a count, the work and the work's argument.
pub(crate) type Loop = Option<unsafe extern "C" fn(*mut c_void, usize, Work, *mut c_void)>;

impl FromBits for Loop {
    unsafe fn from_bits(bits: u64) -> Self {
        // SAFETY: 0, which is none, or a function, as the caller promises.
        unsafe { std::mem::transmute(bits as usize) }
    }
}

/// An address of the caller's; nothing here looks behind it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address(pub(crate) *mut c_void);

// SAFETY: an address is a number; whoever dereferences it answers for that.
unsafe impl Send for Address {}
// SAFETY: a shared address gives a copy of the number.
unsafe impl Sync for Address {}

/// The caller's function with its context.
pub(crate) struct ParallelLoop {
    function: unsafe extern "C" fn(*mut c_void, usize, Work, *mut c_void),
    context: Address,
    threads: usize,
}

impl ParallelLoop {
    /// `None` where there is no function.
    pub(crate) fn new(function: Loop, context: *mut c_void, threads: usize) -> Option<Self> {
        Some(ParallelLoop { function: function?, context: Address(context), threads })
    }
}

impl ParallelFor for ParallelLoop {
    fn threads(&self) -> usize {
        self.threads
    }

    fn run(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        let argument = (&raw const work).cast_mut().cast();
        // SAFETY: the header says that the function may be called with the context that was given beside it, on several
        // threads at once, and that it calls `call_work` with this argument and returns behind the last such call, so
        // that none sees the end of `work`.
        unsafe { (self.function)(self.context.0, count, call_work, argument) }
    }
}

/// # Safety
/// `argument` is the one that the caller's function was given, which has not returned.
unsafe extern "C" fn call_work(argument: *mut c_void, index: usize) {
    // SAFETY: the argument is the address of this reference, which lives until the caller's function returns.
    let work = unsafe { *argument.cast::<&(dyn Fn(usize) + Sync)>() };
    // It catches panics, so none leaves this function.
    work(index);
}
