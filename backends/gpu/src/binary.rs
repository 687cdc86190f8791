//! The format of stored binaries: what was made for one solver, architecture and text is not used for others.

use fuseplan_api::{Binary, BuildError};

/// The first bytes; the number is the format's.
const MAGIC: [u8; 8] = *b"fuseGPU1";
/// Magic and digest.
const HEADER: usize = 16;

/// Tells texts apart (FNV-1a): a binary is only used for the very text that it was made from.
fn digest(text: &str) -> [u8; 8] {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.to_le_bytes()
}

/// What decides a stored binary besides its solver and architecture: the text, and this version, which
/// stands for the compiler's options.
pub fn cache_key(text: &str) -> Vec<u8> {
    [env!("CARGO_PKG_VERSION"), "\n", text].concat().into_bytes()
}

/// A binary of what a text was compiled to.
pub fn seal(solver: &'static str, arch: &str, text: &str, image: &[u8]) -> Binary {
    let bytes = [&MAGIC, &digest(text), image].concat();
    Binary { solver: solver.into(), arch: arch.into(), bytes }
}

/// What the text was compiled to.
///
/// # Errors
/// A binary of another solver, architecture, format or text.
pub fn open<'a>(
    solver: &'static str,
    arch: &str,
    text: &str,
    binary: &'a Binary,
) -> Result<&'a [u8], BuildError> {
    let refuse = |reason: String| Err(BuildError::Binary { solver, reason });
    if binary.solver != solver {
        return refuse(format!("it was made by {}", binary.solver));
    }
    if binary.arch != arch {
        return refuse(format!("it was made for {}, the device is {arch}", binary.arch));
    }
    if binary.bytes.len() <= HEADER || binary.bytes[..8] != MAGIC {
        return refuse("it is not of this format".into());
    }
    if binary.bytes[8..HEADER] != digest(text) {
        return refuse("it was made from another text".into());
    }
    Ok(&binary.bytes[HEADER..])
}
