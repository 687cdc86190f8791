//! The bytes of a stored binary: `docs/cache.md` has the table.

use thiserror::Error;

use super::key::Subject;

const MAGIC: [u8; 8] = *b"FUSEPLAN";

/// Changes with the layout of the bytes, and with the text of a problem by which they are found.
pub(super) const VERSION: u32 = 2;

/// Magic, format version, length.
pub(super) const PREFIX: usize = 8 + 4 + 8;
const DIGEST: usize = blake3::OUT_LEN;

/// Stored bytes that are not a binary for the purpose at hand.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BinaryError {
    /// They do not start as a stored binary does.
    #[error("these bytes are not a compiled plan")]
    NotABinary,
    /// Another layout of bytes.
    #[error("the compiled plan has format {found}, this fuseplan reads format {expected}")]
    Format {
        /// The format found.
        found: u32,
        /// The format that is read.
        expected: u32,
    },
    /// Bytes are missing, or follow.
    #[error("the compiled plan has {found} bytes, {expected} were written")]
    Length {
        /// How many there are.
        found: u64,
        /// How many were written.
        expected: u64,
    },
    /// The bytes are not those that were written.
    #[error("the compiled plan is damaged: its digest differs")]
    Damaged,
    /// It was compiled by another version of fuseplan, whose kernels may take other arguments.
    #[error("the plan was compiled by fuseplan {found}, this is {expected}; compile it again")]
    Version {
        /// The version that compiled it.
        found: String,
        /// This version.
        expected: String,
    },
    /// It was compiled for another architecture.
    #[error("the plan was compiled for {found}, the device is {expected}")]
    Arch {
        /// What it was compiled for.
        found: String,
        /// The device's architecture.
        expected: String,
    },
    /// It was compiled from another plan.
    #[error("the binary is of another plan: {found}; this plan: {expected}")]
    Problem {
        /// The plan that it was compiled from.
        found: String,
        /// The plan that it was to be loaded for.
        expected: String,
    },
}

/// The fields of a subject, each behind its length.
pub(super) fn fields(subject: &Subject) -> Vec<u8> {
    let Subject { version, solver, arch, toolchain, content } = subject;
    let mut bytes = Vec::new();
    for field in [version.as_bytes(), solver.as_bytes(), arch.as_bytes(), toolchain.as_bytes(), content] {
        bytes.extend((field.len() as u64).to_le_bytes());
        bytes.extend(field);
    }
    bytes
}

/// The bytes to store.
pub(crate) fn encode(subject: &Subject, payload: &[u8]) -> Vec<u8> {
    let fields = fields(subject);
    let length = PREFIX + fields.len() + payload.len() + DIGEST;
    let mut bytes = Vec::with_capacity(length);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((length as u64).to_le_bytes());
    bytes.extend(fields);
    bytes.extend(payload);
    let digest = blake3::hash(&bytes);
    bytes.extend(digest.as_bytes());
    bytes
}

/// How many bytes there are in all, as the first [`PREFIX`] of them say.
pub(super) fn length(mut rest: &[u8]) -> Result<u64, BinaryError> {
    if take(&mut rest, MAGIC.len()) != Some(&MAGIC) {
        return Err(BinaryError::NotABinary);
    }
    let found = take_array(&mut rest).map(u32::from_le_bytes).ok_or(BinaryError::NotABinary)?;
    if found != VERSION {
        return Err(BinaryError::Format { found, expected: VERSION });
    }
    take_array(&mut rest).map(u64::from_le_bytes).ok_or(BinaryError::NotABinary)
}

/// The subject and the payload, every byte verified.
pub(crate) fn decode(bytes: &[u8]) -> Result<(Subject, &[u8]), BinaryError> {
    let (expected, found) = (length(bytes)?, bytes.len() as u64);
    if found != expected {
        return Err(BinaryError::Length { found, expected });
    }
    let (covered, digest) = bytes.split_last_chunk::<DIGEST>().ok_or(BinaryError::Damaged)?;
    if blake3::hash(covered) != *digest {
        return Err(BinaryError::Damaged);
    }
    let mut rest = covered.get(PREFIX..).ok_or(BinaryError::Damaged)?;
    let subject = subject(&mut rest).ok_or(BinaryError::Damaged)?;
    Ok((subject, rest))
}

fn subject(rest: &mut &[u8]) -> Option<Subject> {
    let mut field = || {
        let length = take_array(rest).map(u64::from_le_bytes)?;
        Some(take(rest, usize::try_from(length).ok()?)?.to_vec())
    };
    let mut text = || String::from_utf8(field()?).ok();
    let (version, solver, arch, toolchain) = (text()?, text()?, text()?, text()?);
    Some(Subject { version, solver, arch, toolchain, content: field()? })
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (front, back) = rest.split_at_checked(length)?;
    *rest = back;
    Some(front)
}

fn take_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    take(rest, N)?.try_into().ok()
}
