//! Memory that ends the process where a kernel reads or writes beside it.

use std::ptr;

/// A page, or several where pages are small.
const PAGE: usize = 1 << 16;
/// What addresses are multiples of: no kernel may count on more.
const ALIGNMENT: usize = 16;

/// Bytes of the whole, with a page that nobody may touch on either side; `None` if there are none so many.
fn mapped(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(PAGE)?.checked_add(2 * PAGE)
}

/// As many bytes, which end where the page behind them begins or a few bytes before it.
pub(crate) fn take(bytes: usize) -> Option<*mut u8> {
    let whole = mapped(bytes)?;
    let (nothing, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a new mapping; what is made accessible lies within it.
    unsafe {
        let start = libc::mmap(ptr::null_mut(), whole, nothing, flags, -1, 0);
        if start == libc::MAP_FAILED {
            return None;
        }
        let start = start.cast::<u8>();
        let open =
            libc::mprotect(start.add(PAGE).cast(), whole - 2 * PAGE, libc::PROT_READ | libc::PROT_WRITE);
        if open != 0 {
            libc::munmap(start.cast(), whole);
            return None;
        }
        Some(start.add(whole - PAGE - bytes.next_multiple_of(ALIGNMENT)))
    }
}

/// # Safety
/// `memory` came from [`take`] with as many bytes and is not used any more.
pub(crate) unsafe fn give_back(memory: *mut u8, bytes: usize) {
    let Some(whole) = mapped(bytes) else { return };
    // SAFETY: the start of the mapping, by what `take` did.
    unsafe {
        let start = memory.add(bytes.next_multiple_of(ALIGNMENT)).add(PAGE).sub(whole);
        libc::munmap(start.cast(), whole);
    }
}
