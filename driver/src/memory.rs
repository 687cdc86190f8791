//! Memory of the host for tensors of any size that a command line asks for.

use fuseplan::error::BackendError;

/// Bytes that have to be left beside a tensor: Rust ends a process whose small allocations are refused.
const REST: usize = 16 << 20;

/// Room for `count` elements, empty.
///
/// # Errors
/// The system has no such memory, or not enough beside it to go on: how many bytes the tensor has.
pub(crate) fn room<T>(count: usize) -> Result<Vec<T>, BackendError> {
    let mut room = Vec::new();
    // The host's memory is the cpu backend's.
    let refused =
        || BackendError::OutOfMemory { backend: "cpu", bytes: count.saturating_mul(size_of::<T>()) };
    room.try_reserve_exact(count).map_err(|_| refused())?;
    Vec::<u8>::new().try_reserve_exact(REST).map_err(|_| refused())?;
    Ok(room)
}

/// `count` elements.
///
/// # Errors
/// As of [`room`].
pub(crate) fn filled<T>(count: usize, element: impl FnMut() -> T) -> Result<Vec<T>, BackendError> {
    let mut all = room(count)?;
    all.extend(std::iter::repeat_with(element).take(count));
    Ok(all)
}

/// The elements of a slice.
///
/// # Errors
/// As of [`room`].
pub(crate) fn copied<T: Copy>(slice: &[T]) -> Result<Vec<T>, BackendError> {
    let mut all = room(slice.len())?;
    all.extend_from_slice(slice);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_an_error_with_its_bytes() {
        assert_eq!(filled(3, || 7u16).unwrap(), [7, 7, 7]);
        for (count, bytes) in [(1 << 60, 1 << 62), (usize::MAX, usize::MAX)] {
            let error = filled(count, || 0f32).unwrap_err();
            assert_eq!(error, BackendError::OutOfMemory { backend: "cpu", bytes });
        }
    }
}
