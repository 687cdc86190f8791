//! Scratch memory of a thread.
//!
//! Kernels need the same few buffers on every run. Each thread keeps the buffers it has used and grows
//! them when a larger one is asked for, so a run allocates nothing once every size has been seen. The
//! memory goes back to the system when the thread ends, that of a buffer above [`KEPT`] as soon as it is not used any
//! more. What still runs on the thread after its end (destructors of its other thread-locals and of its pthread keys,
//! `atexit` handlers) has memory for each call instead.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::RefCell;
use std::ptr::NonNull;

use fuseplan_api::{BackendError, RunError};

/// Alignment of every scratch buffer: a cache line, and the widest vector.
pub(crate) const ALIGN: usize = 64;

/// Bytes of a huge page where small ones have 4 KiB, and the least buffer that is aligned to one. Filters are read from end to end, which
/// is faster in such pages.
const HUGE_PAGE: usize = 2 << 20;

/// Floats of the largest buffer that a thread keeps: 64 MiB, beside whose use allocating it costs little. Only packed
/// weights, where they are not kept beside the arguments, and tables of very many channels may be larger.
const KEPT: usize = 16 << 20;

/// A growable, aligned buffer of initialised f32.
pub(crate) struct Buffer {
    pointer: NonNull<f32>,
    len: usize,
}

// SAFETY: a buffer owns its memory like a `Vec<f32>`.
unsafe impl Send for Buffer {}
// SAFETY: a shared buffer is only read, like a `Vec<f32>`.
unsafe impl Sync for Buffer {}

impl Buffer {
    const EMPTY: Buffer = Buffer { pointer: NonNull::dangling(), len: 0 };

    /// `len` zeros.
    pub(crate) fn zeroed(len: usize) -> Result<Self, BackendError> {
        if len == 0 {
            return Ok(Self::EMPTY);
        }
        let bytes = len.saturating_mul(size_of::<f32>());
        let out_of_memory = BackendError::OutOfMemory { backend: "cpu", bytes };
        let Some(layout) = layout(len) else { return Err(out_of_memory) };
        // SAFETY: the layout's size is not zero.
        let Some(pointer) = NonNull::new(unsafe { alloc(layout) }) else { return Err(out_of_memory) };
        if layout.align() == HUGE_PAGE {
            ask_for_huge_pages(pointer, bytes);
        }
        // SAFETY: the memory has these bytes, which nobody else knows of.
        unsafe { pointer.write_bytes(0, bytes) };
        Ok(Buffer { pointer: pointer.cast(), len })
    }

    pub(crate) fn as_slice(&self) -> &[f32] {
        // SAFETY: `pointer` names `len` initialised floats, or is dangling and `len` is 0.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.len) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [f32] {
        // SAFETY: `pointer` names `len` initialised floats, or is dangling and `len` is 0; `&mut self` makes the access
        // unique.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let (1.., Some(layout)) = (self.len, layout(self.len)) {
            // SAFETY: `pointer` came from `alloc` with this very layout.
            unsafe { dealloc(self.pointer.as_ptr().cast(), layout) }
        }
    }
}

/// The layout of so many floats, if there can be so many.
fn layout(len: usize) -> Option<Layout> {
    let bytes = len.checked_mul(size_of::<f32>())?;
    Layout::from_size_align(bytes, if bytes < HUGE_PAGE { ALIGN } else { HUGE_PAGE }).ok()
}

/// Asks the system to back new memory by huge pages. It may have none, or be told by its administrator to give none.
fn ask_for_huge_pages(start: NonNull<u8>, bytes: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: the advice changes no contents of the caller's memory.
    unsafe {
        libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes);
}

thread_local! {
    /// Buffers not in use, the one for the outermost call last.
    static FREE: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) };
}

/// Levels for which a thread that calls [`begin`] has room to keep buffers.
const LEVELS: usize = 4;

/// Allocates now what keeping buffers takes, as the C library ends the process where a thread's first use of a variable
/// of its own finds no memory.
pub(crate) fn begin() {
    let _ = FREE.try_with(|free| free.borrow_mut().try_reserve(LEVELS));
}

/// Calls `f` with `len` floats of scratch, aligned to [`ALIGN`], whose contents are unspecified.
///
/// Calls may nest; each level has a buffer of its own. A panic in `f` gives the buffer up.
///
/// # Errors
/// Out of memory.
pub(crate) fn with_scratch<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> Result<R, RunError> {
    let mut buffer = FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten().unwrap_or(Buffer::EMPTY);
    if buffer.len < len {
        drop(std::mem::replace(&mut buffer, Buffer::EMPTY));
        // A little more than asked for, so that slowly growing problems do not reallocate each time.
        buffer = Buffer::zeroed(len.saturating_add(len / 8))?;
    }
    let result = f(&mut buffer.as_mut_slice()[..len]);
    if buffer.len <= KEPT {
        // Where the list is gone or has no room, the buffer goes with the closure.
        let _ = FREE.try_with(move |free| {
            let mut free = free.borrow_mut();
            if free.try_reserve(1).is_ok() {
                free.push(buffer);
            }
        });
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_buffers_of_their_own_and_keep_them() {
        let mut seen = [(0usize, 0usize); 2];
        for round in &mut seen {
            with_scratch(100, |outer| {
                outer.fill(1.0);
                let inner = with_scratch(5000, |inner| {
                    inner.fill(2.0);
                    inner.as_ptr() as usize
                });
                assert!(outer.iter().all(|&v| v == 1.0));
                *round = (outer.as_ptr() as usize, inner.unwrap());
            })
            .unwrap();
        }
        assert_eq!(seen[0], seen[1]);
        assert_eq!(seen[0].0 % ALIGN, 0);
        assert_eq!(seen[0].1 % ALIGN, 0);
    }

    #[test]
    fn buffers_of_huge_pages_begin_with_one_and_have_zeros() {
        let floats = HUGE_PAGE / size_of::<f32>();
        for (len, align) in
            [(1, ALIGN), (floats - 1, ALIGN), (floats, HUGE_PAGE), (3 * floats + 5, HUGE_PAGE)]
        {
            let mut buffer = Buffer::zeroed(len).unwrap();
            assert_eq!(buffer.as_slice().as_ptr().addr() % align, 0, "{len}");
            assert!(buffer.as_slice().len() == len && buffer.as_slice().iter().all(|&x| x == 0.0), "{len}");
            buffer.as_mut_slice().fill(1.0);
        }
        assert!(Buffer::zeroed(usize::MAX / 2).is_err());
    }

    #[test]
    fn a_thread_keeps_no_large_buffer() {
        let kept = || FREE.with_borrow(|free| free.iter().map(|buffer| buffer.len).sum::<usize>());
        with_scratch(KEPT + 1, |_| ()).unwrap();
        assert_eq!(kept(), 0);
        with_scratch(KEPT / 2, |_| ()).unwrap();
        assert!((KEPT / 2..=KEPT).contains(&kept()));
    }

    #[test]
    fn impossible_sizes_are_errors() {
        let error = with_scratch(usize::MAX / 8, |_| ()).unwrap_err();
        assert!(error.to_string().contains("out of memory"), "{error}");
        assert!(with_scratch(usize::MAX, |_| ()).is_err());
    }
}
