//! The same plans on the CPU and on a GPU, and their results next to each other: `FUSEPLAN_TEST_BESIDE` names the GPU's
//! backend, which is CUDA where nothing is said.

fn main() -> std::process::ExitCode {
    let beside = std::env::var("FUSEPLAN_TEST_BESIDE").unwrap_or_else(|_| "cuda".into());
    fuseplan_suite::side_by_side::run("cpu", &beside)
}
