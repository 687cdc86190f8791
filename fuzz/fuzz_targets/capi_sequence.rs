//! Call sequences of the C interface against the model of its tests.
//!
//! `MIOPEN_LOG_LEVEL=1 cargo +nightly fuzz run capi_sequence`
#![no_main]

#[path = "../../capi/tests/sequence/model.rs"]
mod model;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    model::run(bytes);
});
