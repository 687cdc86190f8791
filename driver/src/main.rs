//! The command `fuseplan`: runs, checks, explains and measures fusion plans.
//!
//! Its fusion primitives take MIOpenDriver's command line and print its lines; unlike MIOpenDriver it exits
//! with a code that says what happened, see [`failure`].
#![forbid(unsafe_code)]

mod amd;
mod bench;
mod chain;
mod cli;
mod device;
mod element;
mod explain;
mod failure;
mod flags;
mod fusion_mode;
mod infer;
mod inspect;
mod measure;
mod memory;
mod miopen;
mod onnx;
mod output;
mod run;
mod sequence;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use failure::Failure;
use output::Output;

fn main() -> ExitCode {
    fuseplan::log::to_stderr();
    let (output, done) = match Cli::try_parse() {
        Ok(cli) => {
            let output = Output::new(cli.json);
            let done = execute(cli.command, &output);
            (output, done)
        }
        Err(answer) => {
            let output = Output::new(cli::asks_for_json(std::env::args_os().skip(1)));
            let done = cli::answer(answer, &output);
            (output, done)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(&output),
    }
}

fn execute(command: Command, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Infer(primitive) => infer::run(&primitive.into(), output),
        Command::Run { verify, plan } => run::run(&plan, verify, output),
        Command::Explain { no_peaks, plan, network, primitive } => match primitive {
            Some(_) if plan.is_given() || network.is_given() => {
                Err(Failure::Usage("a plan as text, or a primitive with flags of its own: not both".into()))
            }
            Some(primitive) => explain::primitive(&primitive.into(), !no_peaks, output),
            None => explain::given(&plan, &network, !no_peaks, output),
        },
        Command::Supported(options) => inspect::supported_by(&options, output),
        Command::Devices => inspect::devices(output),
        Command::Bench(options) => bench::run(&options, output),
        Command::Completions { shell } => cli::completions(shell, output),
    }
}
