//! Host memory whose neighbours fault: an access beyond a tensor, in either direction, ends the process.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use fuseplan_api::{BackendError, Memory, MemoryKind, Stream};

/// Which end of an allocation lies at a page that can be neither read nor written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// The first byte lies directly behind one.
    Start,
    /// The last byte lies directly before one. The start is aligned to elements only.
    End,
}

/// Memory by the page, one end of each allocation at a page that faults and the other within a page of one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GuardPages(pub(crate) Edge);

/// Where an allocation lies: all of its pages, the two that fault included, and those in between.
struct Pages {
    all: *mut c_void,
    total: usize,
    inner: *mut c_void,
    usable: usize,
}

impl GuardPages {
    fn page() -> usize {
        // SAFETY: it takes any number.
        usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
    }

    /// The pages of an allocation of so many bytes.
    fn pages(&self, pointer: *mut c_void, bytes: usize) -> Pages {
        let (page, usable) = (Self::page(), bytes.max(1).next_multiple_of(Self::page()));
        let inner = match self.0 {
            Edge::Start => pointer,
            Edge::End => pointer.wrapping_byte_sub(usable - bytes),
        };
        Pages { all: inner.wrapping_byte_sub(page), total: usable + 2 * page, inner, usable }
    }

    /// Lets nobody write to an allocation any more.
    pub(crate) fn seal(&self, pointer: *mut c_void, bytes: usize) {
        let pages = self.pages(pointer, bytes);
        // SAFETY: these are the allocation's own pages.
        assert_eq!(unsafe { libc::mprotect(pages.inner, pages.usable, libc::PROT_READ) }, 0);
    }
}

impl Memory for GuardPages {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn allocate(&self, bytes: usize) -> Result<*mut c_void, BackendError> {
        let (page, usable) = (Self::page(), bytes.max(1).next_multiple_of(Self::page()));
        let out_of_memory = BackendError::OutOfMemory { backend: "suite", bytes };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new pages, which nothing else has.
        let inner = unsafe {
            let all = libc::mmap(ptr::null_mut(), usable + 2 * page, libc::PROT_NONE, flags, -1, 0);
            if all == libc::MAP_FAILED {
                return Err(out_of_memory);
            }
            let inner = all.wrapping_byte_add(page);
            if libc::mprotect(inner, usable, libc::PROT_READ | libc::PROT_WRITE) != 0 {
                return Err(out_of_memory);
            }
            inner
        };
        Ok(match self.0 {
            Edge::Start => inner,
            Edge::End => inner.wrapping_byte_add(usable - bytes),
        })
    }

    unsafe fn free(&self, pointer: *mut c_void, bytes: usize) {
        let pages = self.pages(pointer, bytes);
        // SAFETY: the caller got the pointer from `allocate(bytes)`, which mapped these pages.
        unsafe { libc::munmap(pages.all, pages.total) };
    }

    unsafe fn copy_in(
        &self,
        target: *mut c_void,
        source: &[u8],
        _stream: &Stream,
    ) -> Result<(), BackendError> {
        // SAFETY: the caller gives room for as many bytes as the source has.
        unsafe { ptr::copy(source.as_ptr(), target.cast(), source.len()) };
        Ok(())
    }

    unsafe fn zero(&self, target: *mut c_void, bytes: usize, _stream: &Stream) -> Result<(), BackendError> {
        // SAFETY: the caller gives room for as many bytes.
        unsafe { ptr::write_bytes(target.cast::<u8>(), 0, bytes) };
        Ok(())
    }

    unsafe fn copy_out(
        &self,
        target: &mut [u8],
        source: *const c_void,
        _stream: &Stream,
    ) -> Result<(), BackendError> {
        // SAFETY: the caller gives as many initialised bytes as the target has room for.
        unsafe { ptr::copy(source.cast(), target.as_mut_ptr(), target.len()) };
        Ok(())
    }
}

/// What a fault is reported as: text that stays, and its length.
static DOING: (AtomicPtr<u8>, AtomicUsize) = (AtomicPtr::new(ptr::null_mut()), AtomicUsize::new(0));

/// Says on standard error what was being done when the process ends by a fault.
#[derive(Debug)]
pub struct Reporter {
    text: RefCell<String>,
}

impl Default for Reporter {
    /// Reports from now on.
    fn default() -> Self {
        extern "C" fn report(signal: libc::c_int) {
            let (text, len) = (DOING.0.load(Ordering::SeqCst), DOING.1.load(Ordering::SeqCst));
            // SAFETY: the text stays while its length is not 0; both functions may be called in a handler. With the
            // default action the access faults again when this returns, and ends the process.
            unsafe {
                libc::write(2, text.cast(), len);
                libc::signal(signal, libc::SIG_DFL);
            }
        }
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            // SAFETY: the handler does what handlers may.
            unsafe { libc::signal(signal, report as extern "C" fn(libc::c_int) as libc::sighandler_t) };
        }
        Reporter { text: RefCell::default() }
    }
}

impl Reporter {
    /// What is done from now on.
    pub fn doing(&self, what: &str) {
        DOING.1.store(0, Ordering::SeqCst);
        let mut text = format!("\nmemory fault in {what}\n");
        DOING.0.store(text.as_mut_ptr(), Ordering::SeqCst);
        DOING.1.store(text.len(), Ordering::SeqCst);
        self.text.replace(text);
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        DOING.1.store(0, Ordering::SeqCst);
    }
}
