//! Filters that the first execution prepares beside constant operands.

use std::ptr;
use std::sync::Arc;

use fuseplan_api::*;
use fuseplan_cuda::CudaBackend;
use libtest_mimic::Failed;

use super::client::Fake;
use super::{Memory, by_id, nothing_left};

/// Prepared once, for all streams, and given back with the operands; where they cannot be prepared another kernel runs.
pub(crate) fn prepared(fake: &Fake) -> Result<(), Failed> {
    let device = CudaBackend.open(0)?;
    let streams = [device.create_stream()?, device.create_stream()?];
    let of = |lens: &[usize]| {
        TensorDescriptor::nchw(DataType::Half, [lens[0], lens[1], lens[2], lens[3]]).unwrap()
    };
    let (input, weights) = (of(&[1, 256, 8, 16]), of(&[64, 256, 3, 3]));
    let conv = ConvolutionDescriptor::d2().with_pads([1, 1])?;
    let output = conv.forward_output(&input, &weights)?;
    let problem =
        Problem { input, output, ops: vec![Op::ConvForward { conv, weights }], math: MathMode::Precise };
    let solver = by_id("cuda.conv_wgmma_lines.v1");
    let candidates = solver.configurations(&problem, device.info());
    let streamed = candidates.iter().find(|one| one.configuration.as_str().ends_with("streamed filters"));
    let configuration = &streamed.ok_or("no tile streams filters")?.configuration;
    let executable =
        solver.load(&problem, &device, &solver.compile(&problem, device.info(), configuration)?)?;
    let detail = &executable.info().detail;
    if !detail.contains(
        "; for filters that are not constant, and addresses that are not multiples of 16 bytes: cuda.conv_",
    ) {
        return Err(detail.clone().into());
    }

    let memory = Memory::new(&device, 1 << 20)?;
    let run = |stream: &Stream, prepared: Option<&Arc<Prepared>>| {
        let mut ops = [OpArgs { prepared: prepared.cloned(), ..OpArgs::default() }];
        ops[0].pointers[0] = memory.1;
        let args = RunArgs { input: memory.1, output: memory.1, ops: &ops, workspace: ptr::null_mut() };
        // SAFETY: the fake's kernels touch nothing.
        unsafe { executable.run(stream.raw(), &args) }
    };
    let blocks = |fake: &Fake| fake.live().split(' ').filter(|kind| *kind == "memory").count() - 1;
    // Launches of a run, and memory that there is besides the operands' afterwards.
    let check = |what: &str,
                 stream: usize,
                 prepared: Option<&Arc<Prepared>>,
                 expected: (u64, usize)|
     -> Result<(), Failed> {
        let before = fake.launches(0);
        run(&streams[stream], prepared)?;
        let found = (fake.launches(0) - before, blocks(fake));
        if found == expected {
            Ok(())
        } else {
            Err(format!("{what}: {found:?}, {expected:?} was expected").into())
        }
    };
    check("operands that may change", 0, None, (1, 0))?;
    let kept = Arc::<Prepared>::default();
    // What is launched into a captured stream runs later.
    drop(Graph::capture(&*device, |stream| run(stream, Some(&kept)))?);
    if blocks(fake) != 0 {
        return Err("filters were prepared during a capture".into());
    }
    // The calls of a run: whichever of those that prepare fails, the other kernel runs, and nothing is left.
    for name in ["cuStreamIsCapturing", "cuMemAlloc_v2", "cuStreamSynchronize"] {
        let mut tried = false;
        for nth in 1..20 {
            let other = Arc::<Prepared>::default();
            fake.fail(nth, 2);
            let result = run(&streams[0], Some(&other));
            let failed = fake.failed();
            fake.fail(0, 0);
            if failed == name {
                tried = true;
                result.map_err(|error| format!("{name}: {error}"))?;
                if blocks(fake) != 0 {
                    return Err(format!("{name}: memory is left").into());
                }
            }
        }
        if !tried {
            return Err(format!("{name} was not called").into());
        }
    }
    check("constant operands", 0, Some(&kept), (2, 1))?;
    check("again", 0, Some(&kept), (1, 1))?;
    check("on another stream", 1, Some(&kept), (1, 1))?;
    check("other operands, which go at once", 0, Some(&Arc::default()), (2, 2))?;
    drop(kept);
    if blocks(fake) != 0 {
        return Err("prepared filters outlive their operands".into());
    }
    // A graph that was captured from an execution reads them, whoever has it.
    let kept = Arc::default();
    check("before a capture", 0, Some(&kept), (2, 1))?;
    drop(Graph::capture(&*device, |stream| run(stream, Some(&kept)))?);
    drop(kept);
    if blocks(fake) != 1 {
        return Err("what a graph reads is gone".into());
    }
    drop(memory);
    drop((executable, streams, device));
    nothing_left(fake)
}
