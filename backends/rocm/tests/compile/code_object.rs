//! What a code object says of its kernel: the note that the compiler leaves for the runtime.

use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, SectionHeader};
use serde::Deserialize;

/// A kernel's needs, by the names of AMD's code object metadata.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Usage {
    #[serde(rename = ".name")]
    pub(crate) name: String,
    /// Threads of a wave.
    #[serde(rename = ".wavefront_size")]
    pub(crate) wave: u32,
    /// Most threads of a block.
    #[serde(rename = ".max_flat_workgroup_size")]
    pub(crate) block: u32,
    /// Vector registers of a thread, accumulation registers included.
    #[serde(rename = ".vgpr_count")]
    pub(crate) vector: u32,
    /// Scalar registers of a wave.
    #[serde(rename = ".sgpr_count")]
    pub(crate) scalar: u32,
    /// Those that are kept in lanes of vector registers, and fetched from there.
    #[serde(rename = ".sgpr_spill_count")]
    pub(crate) scalar_spills: u32,
    #[serde(rename = ".vgpr_spill_count")]
    pub(crate) vector_spills: u32,
    /// Bytes of a thread's own memory.
    #[serde(rename = ".private_segment_fixed_size")]
    pub(crate) scratch: u32,
    /// Bytes of shared memory that the text declares.
    #[serde(rename = ".group_segment_fixed_size")]
    pub(crate) shared: u32,
    #[serde(rename = ".uses_dynamic_stack", default)]
    pub(crate) dynamic_stack: bool,
    #[serde(rename = ".args")]
    pub(crate) arguments: Vec<Argument>,
}

/// A kernel's argument.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Argument {
    #[serde(rename = ".size")]
    pub(crate) size: u32,
    #[serde(rename = ".value_kind")]
    pub(crate) kind: String,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    #[serde(rename = "amdhsa.kernels")]
    kernels: Vec<Usage>,
    #[serde(rename = "amdhsa.target")]
    target: String,
}

/// The target and the kernels of a code object.
pub(crate) fn read(image: &[u8]) -> Result<(String, Vec<Usage>), String> {
    let words = |error: object::Error| error.to_string();
    let header = FileHeader64::<Endianness>::parse(image).map_err(words)?;
    let endian = header.endian().map_err(words)?;
    for section in header.section_headers(endian, image).map_err(words)? {
        let Some(mut notes) = section.notes(endian, image).map_err(words)? else { continue };
        while let Some(note) = notes.next().map_err(words)? {
            /// `NT_AMDGPU_METADATA`.
            const METADATA: u32 = 32;
            if note.name() == b"AMDGPU" && note.n_type(endian) == METADATA {
                let read: Metadata = rmp_serde::from_slice(note.desc()).map_err(|error| error.to_string())?;
                return Ok((read.target, read.kernels));
            }
        }
    }
    Err("no metadata in the code object".into())
}
