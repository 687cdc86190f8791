//! Whether this process may use the processor's matrix unit, AMX with tiles of bf16.

use std::arch::x86_64::__cpuid_count;

/// Whether the CPU has AMX for bf16, and the system lets this process use the tile registers. They
/// are asked for here, for all threads that there are and will be; the system refuses where a thread has a stack for
/// signals that is too small for their contents.
pub(super) fn is_available() -> bool {
    /// The bits of AMX with bf16 and of tiles in EDX.
    const AMX: u32 = 1 << 22 | 1 << 24;
    __cpuid_count(0, 0).eax >= 7 && __cpuid_count(7, 0).edx & AMX == AMX && may_use_tiles()
}

#[cfg(target_os = "linux")]
fn may_use_tiles() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_int = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_int = 18;
    // SAFETY: the call has no pointers; it changes nothing but what the process may use.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn may_use_tiles() -> bool {
    false
}
