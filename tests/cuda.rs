//! The corpus and random cases on NVIDIA GPUs.

fn main() -> std::process::ExitCode {
    fuseplan_suite::run("cuda")
}
