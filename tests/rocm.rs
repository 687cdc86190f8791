//! The corpus and random cases on AMD GPUs.

fn main() -> std::process::ExitCode {
    fuseplan_suite::run("rocm")
}
