//! The command `fuseplan` as its users meet it: lines, objects, files, exit codes.

mod bench;
mod infer;
mod inspect;
mod log;
mod memory;
mod onnx;
mod output;
mod plan;
mod run;
