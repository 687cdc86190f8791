//! The command `fuseplan`: runs, checks, explains and measures fusion plans.
//!
//! Its fusion primitives take MIOpenDriver's command line and print its lines; unlike MIOpenDriver it exits
//! with a code that says what happened, see [`failure`].
#![forbid(unsafe_code)]

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
mod output;
mod sequence;
mod verify;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, Command};
use failure::Failure;
use output::Output;

fn main() -> ExitCode {
    fuseplan::log::to_stderr();
    let cli = Cli::parse();
    let output = Output::new(cli.json);
    match run(cli.command, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(&output),
    }
}

fn run(command: Command, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Infer(primitive) => infer::run(&primitive.into(), output),
        Command::Explain { primitive } => explain::run(&primitive.into(), output),
        Command::Supported(options) => inspect::supported_by(&options, output),
        Command::Devices => inspect::devices(output),
        Command::Bench(options) => bench::run(&options, output),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), cli::NAME, &mut std::io::stdout());
            Ok(())
        }
    }
}
