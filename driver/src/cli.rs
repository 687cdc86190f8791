//! The commands.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use serde_json::json;

use crate::bench;
use crate::element::Precision;
use crate::failure::Failure;
use crate::flags::{FusionFlags, Request};
use crate::onnx::NetworkFlags;
use crate::output::Output;
use crate::run::PlanFlags;

/// The name of the program.
pub(crate) const NAME: &str = "fuseplan";

/// Run, check, explain and measure fusion plans.
///
/// Exit codes: 0 all is well, 1 a wrong result, 2 a command line or a file that makes no sense, 3 a plan that is not
/// supported, 4 no such device, no compiler for it, or not enough memory.
#[derive(Debug, Parser)]
#[command(name = NAME, version, args_override_self = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Print one JSON object a line on standard output, and text for people on standard error
    #[arg(long, global = true, help_heading = "fuseplan's own flags")]
    pub(crate) json: bool,

    /// Print help, as MIOpenDriver does
    #[arg(short = '?', global = true, action = ArgAction::Help, hide = true)]
    question: Option<bool>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Infer(Primitive),
    /// Run a plan that is written as text, as the library prints it, and time it
    Run {
        /// Verify the result of the first execution against the CPU reference
        #[arg(long, help_heading = "fuseplan's own flags")]
        verify: bool,
        #[command(flatten)]
        plan: PlanFlags,
    },
    /// Say which solver takes a plan and why others do not, and how far it is from what the device can do; of a network
    /// in an ONNX file, what of it is computed by fused plans, what is not, and why
    #[command(subcommand_negates_reqs = true)]
    Explain {
        /// Do not measure what the device can do at most: there is no floor then. For devices that are very slow
        #[arg(long, global = true, help_heading = "fuseplan's own flags")]
        no_peaks: bool,
        #[command(flatten)]
        plan: PlanFlags,
        #[command(flatten)]
        network: NetworkFlags,
        #[command(subcommand)]
        primitive: Option<Primitive>,
    },
    /// Print the table of what is supported
    Supported(SupportedOptions),
    /// Print the devices of this machine, and what was looked for where there is none
    Devices,
    /// Measure fused against unfused plans over a named list
    Bench(bench::Options),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// MIOpenDriver's fusion primitives. CA… are further names of CBA…: the fusion mode decides.
#[derive(Debug, Subcommand)]
pub(crate) enum Primitive {
    /// Run a fusion on fp32 data and verify it, as MIOpenDriver does
    #[command(name = "CBAInfer")]
    CbaFp32(FusionFlags),
    /// The same on fp16 data
    #[command(name = "CBAInferfp16")]
    CbaFp16(FusionFlags),
    /// The same on bfp16 data
    #[command(name = "CBAInferbfp16")]
    CbaBfp16(FusionFlags),
    /// Another name of CBAInfer
    #[command(name = "CAInfer")]
    CaFp32(FusionFlags),
    /// Another name of CBAInferfp16
    #[command(name = "CAInferfp16")]
    CaFp16(FusionFlags),
    /// Another name of CBAInferbfp16
    #[command(name = "CAInferbfp16")]
    CaBfp16(FusionFlags),
}

impl From<Primitive> for Request {
    fn from(primitive: Primitive) -> Self {
        let (precision, flags) = match primitive {
            Primitive::CbaFp32(flags) | Primitive::CaFp32(flags) => (Precision::Fp32, flags),
            Primitive::CbaFp16(flags) | Primitive::CaFp16(flags) => (Precision::Fp16, flags),
            Primitive::CbaBfp16(flags) | Primitive::CaBfp16(flags) => (Precision::Bfp16, flags),
        };
        Request { precision, flags }
    }
}

#[derive(Debug, Args)]
pub(crate) struct SupportedOptions {
    /// Only this backend
    #[arg(long)]
    pub(crate) backend: Option<String>,
    /// An architecture instead of this machine's devices, such as x86-64+avx2; needs --backend
    #[arg(long, requires = "backend")]
    pub(crate) arch: Option<String>,
}

/// Whether a command line that was not understood, or that asks for help, asks for objects.
pub(crate) fn asks_for_json(words: impl Iterator<Item = OsString>) -> bool {
    words.take_while(|word| word != "--").any(|word| word == "--json")
}

/// Gives clap's answer where there is nothing to run: help and version, or what is wrong with the command line.
pub(crate) fn answer(answer: clap::Error, output: &Output) -> Result<(), Failure> {
    let kind = match answer.kind() {
        ErrorKind::DisplayHelp => "help",
        ErrorKind::DisplayVersion => "version",
        _ => return Err(Failure::CommandLine(answer)),
    };
    if output.is_json() {
        return Ok(output.object(kind, json!({ "text": answer.to_string() }))?);
    }
    Ok(answer.print()?)
}

/// Prints the completion script of a shell.
pub(crate) fn completions(shell: Shell, output: &Output) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
    let script = String::from_utf8_lossy(&script);
    if output.is_json() {
        return Ok(output.object("completions", json!({ "shell": shell.to_string(), "text": script }))?);
    }
    Ok(output.text(&script)?)
}
