//! Stored binaries of any bytes: nothing panics, and what is accepted is what would be written.
//!
//! `.ci/run fuzz`, which starts from `fuzz/seeds/cache_entry`; a test of the library takes these seeds too.
#![no_main]

use fuseplan::CompiledBinary;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // The same as the fields and the binary of an entry whose head and digest are right, which no mutation would find.
    let mut entry = b"FUSEPLAN".to_vec();
    entry.extend(1u32.to_le_bytes());
    entry.extend((entry.len() as u64 + 8 + bytes.len() as u64 + 32).to_le_bytes());
    entry.extend(bytes);
    let digest = blake3::hash(&entry);
    entry.extend(digest.as_bytes());
    check(&entry);
});

fn check(bytes: &[u8]) {
    // SAFETY: what comes of the bytes is never loaded.
    if let Ok(binary) = unsafe { CompiledBinary::from_bytes(bytes) } {
        assert!(binary.to_bytes() == bytes);
        assert!(format!("{binary:?}").contains("CompiledBinary"));
    }
}
