//! The format of stored binaries: what was made for one solver, architecture and text is not used for others.

use fuseplan_api::{Binary, BuildError, Configuration, fnv1a};

/// The first bytes; the number is the format's.
const MAGIC: [u8; 8] = *b"fuseGPU2";
/// Magic, digest, length of the configuration.
const HEADER: usize = 20;

/// Tells texts apart: a binary is only used for the very text that it was made from.
fn digest(text: &str) -> [u8; 8] {
    fnv1a(text.as_bytes()).to_le_bytes()
}

/// What decides a stored binary besides its solver and architecture: the text, the configuration, which the binary remembers and which
/// decides more than the text where it is a launch's number of lines, and this version, which stands for the compiler's options.
pub fn cache_key(configuration: &Configuration, text: &str) -> Vec<u8> {
    [env!("CARGO_PKG_VERSION"), "\n", configuration.as_str(), "\n", text].concat().into_bytes()
}

/// A binary of what a text was compiled to: the text of a solver's kernel in a configuration.
pub fn seal(
    solver: &'static str,
    arch: &str,
    configuration: &Configuration,
    text: &str,
    image: &[u8],
) -> Binary {
    let words = configuration.as_str().as_bytes();
    let bytes = [&MAGIC[..], &digest(text), &(words.len() as u32).to_le_bytes(), words, image].concat();
    Binary { solver: solver.into(), arch: arch.into(), bytes }
}

/// The configuration that a binary was compiled in.
///
/// # Errors
/// A binary of another solver, architecture or format.
pub fn configuration(solver: &'static str, arch: &str, binary: &Binary) -> Result<Configuration, BuildError> {
    Ok(Configuration::new(parts(solver, arch, binary)?.0))
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
    let (_, found, image) = parts(solver, arch, binary)?;
    if *found != digest(text) {
        return Err(BuildError::Binary { solver, reason: "it was made from another text".into() });
    }
    Ok(image)
}

/// The configuration's words, the digest and the image.
fn parts<'a>(
    solver: &'static str,
    arch: &str,
    binary: &'a Binary,
) -> Result<(&'a str, &'a [u8; 8], &'a [u8]), BuildError> {
    let refuse = |reason: String| Err(BuildError::Binary { solver, reason });
    if binary.solver != solver {
        return refuse(format!("it was made by {}", binary.solver));
    }
    if binary.arch != arch {
        return refuse(format!("it was made for {}, the device is {arch}", binary.arch));
    }
    let parts = || {
        let (header, rest) = binary.bytes.split_at_checked(HEADER)?;
        let (digest, length) = header.strip_prefix(&MAGIC)?.split_first_chunk()?;
        let length = u32::from_le_bytes(length.try_into().ok()?);
        let (words, image) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        (!image.is_empty()).then_some((std::str::from_utf8(words).ok()?, digest, image))
    };
    parts().map_or_else(|| refuse("it is not of this format".into()), Ok)
}
