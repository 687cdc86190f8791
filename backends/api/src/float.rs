//! The floating-point environment that the library computes in.
//!
//! A thread's environment says how results are rounded, whether denormal numbers are flushed to zero or read as zero,
//! and which exceptions trap. Callers change it (`fesetround`, `feenableexcept`, `torch.set_flush_denormal`), and a
//! new thread inherits its creator's. Numbers must not depend on that, nor on which thread computes them, so all
//! that is computed is computed in the default environment: round to nearest, denormals kept, nothing traps.

#![allow(unsafe_code, reason = "the environment is a register, read and written by instructions of its own")]

/// Calls `work` in the default floating-point environment. The caller's, its exception flags included, is what it
/// was when this returns or unwinds. Costs some nanoseconds; nests.
///
/// Known on x86-64 (MXCSR) and 64-bit ARM (FPCR and FPSR); elsewhere this only calls `work`.
pub fn in_default_float_environment<R>(work: impl FnOnce() -> R) -> R {
    let _environment = Entered::default();
    opaque(work)
}

/// A call of its own, so that no arithmetic of `work` is moved to before or behind the change of environment.
#[inline(never)]
fn opaque<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// The default environment, until it is dropped.
struct Entered {
    callers: register::State,
}

impl Default for Entered {
    #[inline]
    fn default() -> Self {
        let callers = register::read();
        if !register::is_default(callers) {
            register::write(register::default_for(callers));
        }
        Entered { callers }
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if register::read() != self.callers {
            register::write(self.callers);
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod register {
    use std::arch::asm;

    /// MXCSR.
    pub(super) type State = u32;

    /// The exceptions that have occurred.
    const FLAGS: u32 = 0x3f;
    /// All exceptions masked, everything else off.
    const DEFAULT: u32 = 0x1f80;

    pub(super) fn is_default(state: State) -> bool {
        state & !FLAGS == DEFAULT
    }

    pub(super) fn default_for(_callers: State) -> State {
        DEFAULT
    }

    #[inline(always)]
    pub(super) fn read() -> State {
        let mut state = 0u32;
        // SAFETY: it stores four bytes, for which there is room.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut state, options(nostack, preserves_flags)) };
        state
    }

    #[inline(always)]
    pub(super) fn write(state: State) {
        // SAFETY: it loads four bytes that the processor itself has stored before, or the default. A caller whose
        // environment is not the default one gets its own back.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const state, options(nostack)) };
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod register {
    use std::arch::asm;

    /// FPCR, what is asked for, and FPSR, what has occurred.
    pub(super) type State = (u64, u64);

    pub(super) fn is_default((control, _): State) -> bool {
        control == 0
    }

    pub(super) fn default_for((_, status): State) -> State {
        (0, status)
    }

    #[inline(always)]
    pub(super) fn read() -> State {
        let (control, status): (u64, u64);
        // SAFETY: both registers may be read by any program.
        unsafe {
            asm!("mrs {}, fpcr", "mrs {}, fpsr", out(reg) control, out(reg) status, options(nostack));
        }
        (control, status)
    }

    #[inline(always)]
    pub(super) fn write((control, status): State) {
        // SAFETY: both registers may be written by any program, and hold what was read from them before, or the
        // default. A caller whose environment is not the default one gets its own back.
        unsafe { asm!("msr fpcr, {}", "msr fpsr, {}", in(reg) control, in(reg) status, options(nostack)) };
    }
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod register {
    pub(super) type State = ();

    pub(super) fn is_default((): State) -> bool {
        true
    }

    pub(super) fn default_for((): State) -> State {}

    pub(super) fn read() -> State {}

    pub(super) fn write((): State) {}
}

#[cfg(all(test, not(miri), any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use std::hint::black_box;
    use std::panic::catch_unwind;

    use super::*;

    /// Environments that callers set, each with a flag of an exception that has occurred.
    #[cfg(target_arch = "x86_64")]
    const CALLERS: [register::State; 5] = [0x1f81, 0x9fc2, 0x3f84, 0x7f88, 0x0020];
    #[cfg(target_arch = "aarch64")]
    const CALLERS: [register::State; 4] =
        [(0, 1), (1 << 24, 2), (1 << 22, 4), (3 << 22 | 1 << 25, 1 << 27 | 8)];

    #[test]
    fn work_sees_the_default_and_the_caller_keeps_its_own() {
        let own = register::read();
        for callers in CALLERS {
            let denormal = black_box(f32::MIN_POSITIVE) / 2.0;
            register::write(callers);
            let (inside, third) = in_default_float_environment(|| {
                let nested = in_default_float_environment(|| black_box(denormal) / 4.0);
                assert!(nested.to_bits() != 0 && register::is_default(register::read()));
                // An exception that most programs raise, and one that traps in some.
                (black_box(1.0f32) / black_box(0.0), black_box(1.0f32) / black_box(3.0))
            });
            let after = register::read();
            let unwound =
                catch_unwind(|| in_default_float_environment(|| std::panic::resume_unwind(Box::new(()))));
            let after_unwinding = register::read();
            register::write(own);
            assert_eq!((inside, third), (f32::INFINITY, 1.0 / 3.0));
            assert_eq!((after, after_unwinding, unwound.is_err()), (callers, callers, true));
        }
    }
}
