//! Fake backends, devices and solvers: they stand in for real ones in tests of what lies above the contract.
//! The crate is a development dependency only, so that no fake is part of a published library.

#![allow(clippy::missing_panics_doc, reason = "a test fails by a panic")]

mod device;
mod null;
mod solver;

pub use device::FakeDevice;
pub use null::NullBackend;
pub use solver::{FakeBackend, FakeSolver};
