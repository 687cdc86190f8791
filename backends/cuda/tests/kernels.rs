//! The text of kernels: every file lists what it needs of the text before it, and gets it; one kernel of every solver is
//! kept in `kernels/examples`. `UPDATE=1` writes these anew.

#[path = "compile/cases.rs"]
mod cases;
#[path = "../../gpu/tests/contract/checker.rs"]
mod checker;
#[path = "../../gpu/tests/contract/examples.rs"]
mod examples;
#[path = "../../../tests/common/problems.rs"]
mod problems;

use std::path::Path;

use fuseplan_api::*;
use fuseplan_cuda::{CudaBackend, kernel, kernel_with_filter_rows};

const KERNELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels");
const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gpu/kernels");

#[test]
fn every_file_lists_what_it_needs() {
    let files = [KERNELS, SHARED].map(|folder| examples::files(Path::new(folder))).concat();
    // What measures a device's peaks is made without the other files.
    let files = files.into_iter().filter(|(name, _)| !name.contains("peaks"));
    let mut contract = checker::Contract::new(files);
    for (name, solver, problem, _) in cases::cases().into_iter().chain(cases::wide()) {
        let arch = ["sm_90a", "sm_80"].into_iter().find_map(|arch| kernel(solver, &problem, arch));
        contract.look_at(name, &arch.unwrap().source);
        if ["runs.tf32.1x1", "runs.f16.1x1"].contains(&name) {
            contract.look_at(name, &kernel_with_filter_rows(&problem, "sm_90a").unwrap().source);
        }
        // Blocks that share a tile are no cluster there.
        if let Some(kernel) = kernel(solver, &problem, "sm_80").filter(|_| name.starts_with("split.")) {
            contract.look_at(name, &kernel.source);
        }
    }
    for (name, problem) in cases::activations() {
        let applies = |solver: &&&dyn Solver| kernel(solver.id(), &problem, "sm_80").is_some();
        let solver = CudaBackend.solvers().iter().find(applies).unwrap();
        contract.look_at(&name, &kernel(solver.id(), &problem, "sm_80").unwrap().source);
    }
    let complaints = contract.complaints();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// A launch may overlap the one before it, so that a kernel which did not wait would race with it.
#[test]
fn every_kernel_waits_for_the_grids_before_it() {
    let mut count = 0;
    for (name, text) in [KERNELS, SHARED].map(|folder| examples::files(Path::new(folder))).concat() {
        let own = text.lines().zip(text.lines().skip(1)).filter(|(line, _)| line.starts_with("KERNEL("));
        for (_, next) in own {
            if next != "  begin_grid();" {
                assert_eq!(next, "  begin_grid([&] { prefetch_vectors(args); });", "{name}");
                // A hint reads for nobody.
                let (_, hints) =
                    text.split_once("DEVICE void prefetch_vectors(const Args& args) {\n").unwrap();
                let (hints, _) = hints.split_once("\n}\n").unwrap();
                let rest = hints.replace("prefetch_sector((const T*)args.x + at);", "");
                assert_ne!(rest, hints, "{name}");
                for reads in ["args.x", "args.y", "args.op", "(args", "*("] {
                    assert!(!rest.contains(reads), "{name}: {reads} in {hints}");
                }
            }
            count += 1;
        }
        // Those that TMA loads for wait once they know what to read, each thread for itself.
        if let Some((_, kernel)) = text.split_once("\nextern \"C\" __global__") {
            let (before, behind) = kernel.split_once("  launch_next_grid();").unwrap();
            // Arguments and shared memory are ready at once.
            assert!(!before.contains("args.") && before.contains("mbarrier_init"), "{name}");
            let (before, consumers) = behind.split_once("    wait_for_grids();").unwrap();
            // A hint reads for nobody.
            let before = before.replace("if (PREFETCHED > 0) prefetch_filters(args);", "");
            let (_, hints) = text.split_once("DEVICE void prefetch_filters(const Args& args) {\n").unwrap();
            let (hints, _) = hints.split_once("\n}\n").unwrap();
            assert_eq!(hints.matches("filters").count(), 2, "{name}: {hints}");
            assert!(hints.ends_with("prefetch_sector(filters + at);"), "{name}: {hints}");
            assert!(!before.contains("(args") && consumers.contains("mainloop("), "{name}");
            assert!(!before.contains("args."), "{name}");
            count += 1;
        }
        for function in ["DEVICE void produce(", "DEVICE void load_operands("] {
            let Some((_, body)) = text.split_once(function) else { continue };
            let Some((head, body)) = body.split_once(" {\n").filter(|(head, _)| !head.contains(';')) else {
                continue;
            };
            let body = body.split_once("\n}\n").map_or(body, |(body, _)| body);
            let waits = ["wait_for_grids(", "wait_for_image(launch)"];
            let first = waits.iter().filter_map(|wait| body.find(wait)).min();
            let before = &body[..first.unwrap_or_else(|| panic!("{name}: {head}"))];
            for reads in ["tma_load", "load_channels(", "launch.args)", "args.x", "args.w"] {
                assert!(!before.contains(reads), "{name}: {reads}");
            }
            // Filters that are just prepared, and what else there is, are not what `wait_for_image` waits for.
            let (image_alone, _) = body.split_once("wait_for_grids(").unwrap_or((body, ""));
            for reads in ["launch.w.words[0]", "args.w", "args.op"] {
                assert!(!image_alone.contains(reads), "{name}: {reads}");
            }
            count += 1;
        }
        // An image may be read before a launch that prepares filters has completed, as that let this one begin once it had waited itself.
        let reads_image = |line: &&str| line.starts_with("DEVICE void wait_for_image(");
        for line in text.lines().filter(reads_image) {
            let plain = "DEVICE void wait_for_image(const Launch&) { wait_for_grids(); }";
            if [plain, "DEVICE void wait_for_image(const Launch& launch);"].contains(&line) {
                continue;
            }
            let behind_prepared = "  if (launch.w.words[1] != JUST_PREPARED) wait_for_grids();\n}\n";
            assert!(text.contains(&format!("{line}\n{behind_prepared}")), "{name}");
            let waits = "DEVICE void prepare(const Launch& launch) {\n  if constexpr (BROUGHT > 0) prefetch_rows(launch);\n  \
                         wait_for_grids();\n  launch_next_grid();\n";
            assert!(text.contains(waits) && !text.contains("begin_grid"), "{name}");
            // A hint reads for nobody.
            let (_, hints) = text.split_once("DEVICE void prefetch_rows(const Launch& launch) {\n").unwrap();
            let hints = hints.split_once("\n}\n").unwrap().0;
            let rest = hints.replace("prefetch_sector((const char*)at.from(launch) + i);", "");
            assert!(rest != hints && !rest.contains("launch") && !rest.contains("*("), "{name}: {hints}");
            count += 1;
        }
    }
    assert!(count > 10, "{count} kernels");
}

#[test]
fn an_example_of_every_kernel_is_kept() {
    let cases = cases::cases();
    let solvers = CudaBackend.solvers().iter().map(|solver| {
        let id = solver.id();
        // The first case of a solver is an ordinary one.
        let (_, _, problem, _) = cases.iter().find(|(_, solver, ..)| *solver == id).unwrap();
        let arch = if id.contains("wgmma") { "sm_90a" } else { "sm_80" };
        let kernel = kernel(id, problem, arch).unwrap();
        let what = format!("{id} on {arch}: {}", kernel.detail);
        let name = id.strip_prefix("cuda.").unwrap().strip_suffix(".v1").unwrap();
        (format!("{name}.cu"), examples::example("fuseplan-cuda", &what, &kernel.geometry, &kernel.source))
    });
    examples::compare(&Path::new(KERNELS).join("examples"), &solvers.collect::<Vec<_>>());
}
