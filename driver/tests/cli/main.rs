//! The command `fuseplan` as its users meet it: lines, objects, files, exit codes.

mod infer;
mod inspect;
mod run;
