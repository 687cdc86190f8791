//! What an executable is given at run time.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::operands::{MAX_OPERANDS, MAX_SCALARS};

/// Pointers and scalars of one execution.
///
/// What an executable may rely on: every pointer names memory of the device that the executable was loaded
/// for, large enough for its descriptor and aligned to its element; `ops` has one entry for each operator
/// of the problem, with that operator's operands; only the last entry has a non-zero `beta`; the output's elements are none of
/// another operand's, though each may lie in the other's [gaps](crate::TensorDescriptor::interleaves), except that in an
/// element-wise problem it may be the input itself or the residual itself when descriptors are equal.
#[derive(Debug, Clone, Copy)]
pub struct RunArgs<'a> {
    /// The plan's input.
    pub input: *const c_void,
    /// The plan's output.
    pub output: *mut c_void,
    /// One entry for each operator.
    pub ops: &'a [OpArgs],
    /// At least as many bytes as the executable's workspace, aligned to 256, that overlap no operand; may be anything when
    /// that is 0.
    pub workspace: *mut c_void,
}

/// Arguments of one operator: `y = alpha · op(x) + beta · y_prior`. What its pointers and scalars are is said by
/// [`OpKind::operands`](crate::OpKind::operands) and [`OpKind::scalars`](crate::OpKind::scalars).
#[derive(Debug, Clone)]
pub struct OpArgs {
    /// Scales the operator's result.
    pub alpha: f32,
    /// Scales the output's previous contents, which are added; not read when 0. Zero but on the last
    /// operator.
    pub beta: f32,
    /// One pointer for each operand, in their order; null where one is left out, and behind the last.
    pub pointers: [*mut c_void; MAX_OPERANDS],
    /// The scalars in their order, then zeros.
    pub scalars: [f64; MAX_SCALARS],
    /// Present when nothing that the operator reads can change as long as these arguments live: a place to keep what
    /// is derived from it.
    pub prepared: Option<Arc<Prepared>>,
}

/// An alpha of 1, and nothing else.
impl Default for OpArgs {
    fn default() -> Self {
        OpArgs {
            alpha: 1.0,
            beta: 0.0,
            pointers: [std::ptr::null_mut(); MAX_OPERANDS],
            scalars: [0.0; MAX_SCALARS],
            prepared: None,
        }
    }
}

// SAFETY: these are plain addresses and numbers; whoever dereferences an address answers for it (see
// `Executable::run`), and `Prepared` is itself shareable.
unsafe impl Send for OpArgs {}
// SAFETY: shared arguments give copies of addresses and numbers, and `Prepared` is shareable itself.
unsafe impl Sync for OpArgs {}

/// What executables derived from constant operands (packed weights, a transform), kept beside them.
///
/// One value for each owner; few owners are kept, the oldest goes first.
#[derive(Default)]
pub struct Prepared {
    slots: Mutex<Vec<(u64, Arc<dyn Any + Send + Sync>)>>,
}

impl Prepared {
    const SLOTS: usize = 4;

    /// The value that `owner` keeps here, made by `make` the first time. A panic or error in `make` leaves
    /// nothing behind. Looking up an existing value does not allocate.
    ///
    /// # Errors
    /// What `make` returns.
    pub fn get_or_try_make<T: Any + Send + Sync, E>(
        &self,
        owner: u64,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = slots.iter().find(|(o, _)| *o == owner).map(|(_, v)| Arc::clone(v));
        if let Some(value) = kept.and_then(|v| v.downcast::<T>().ok()) {
            return Ok(value);
        }
        let value = Arc::new(make()?);
        slots.retain(|(o, _)| *o != owner);
        if slots.len() == Self::SLOTS {
            slots.remove(0);
        }
        slots.push((owner, value.clone()));
        Ok(value)
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        write!(f, "Prepared({} kept)", slots.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepared_values_are_made_once_and_few_are_kept() {
        let prepared = Prepared::default();
        for owner in 0..6u64 {
            for _ in 0..2 {
                let mut made = 0;
                let value = prepared.get_or_try_make(owner, || {
                    made += 1;
                    Ok::<_, ()>(owner * 10)
                });
                assert_eq!(*value.unwrap(), owner * 10);
                assert!(made <= 1);
            }
        }
        assert_eq!(format!("{prepared:?}"), "Prepared(4 kept)");
        assert_eq!(prepared.get_or_try_make(5, || Err::<u64, _>("not again")).map(|v| *v), Ok(50));
        assert_eq!(prepared.get_or_try_make(0, || Err::<u64, _>("gone")), Err("gone"));
    }
}
