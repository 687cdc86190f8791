//! The corpus and random cases on the CPU.

fn main() -> std::process::ExitCode {
    fuseplan_suite::run("cpu")
}
