//! fuseplan's side of the CPU comparison. The protocol is that of `peers/onednn_server.cpp`: `setup`, `run` and
//! `output`, one line each. Takes the number of threads as its argument.

mod side;

use std::io::{self, BufRead, Write};

use fuseplan::Handle;
use half::{bf16, f16};

use side::{Failure, Keys, Lines};

fn main() -> Result<(), Failure> {
    let threads = std::env::args().nth(1).ok_or("the number of threads is missing")?.parse()?;
    let handle = Handle::cpu_with_threads(threads)?;
    let mut lines = io::stdin().lock().lines();
    let mut next = lines.next().transpose()?;
    // A configuration is served until the next one is set up.
    while let Some(line) = next.take() {
        let served = match line.strip_prefix("setup ") {
            Some(keys) => serve(&handle, &Keys::new(keys), &mut lines),
            None => Err("not set up".into()),
        };
        next = match served {
            Ok(next) => next,
            Err(error) => {
                answer(&format!("error {error}"))?;
                lines.next().transpose()?
            }
        };
    }
    Ok(())
}

fn serve(handle: &Handle, keys: &Keys<'_>, lines: &mut Lines<'_>) -> Result<Option<String>, Failure> {
    match keys.text("dtype")? {
        "f32" => side::serve::<f32>(handle, keys, lines),
        "f16" => side::serve::<f16>(handle, keys, lines),
        "bf16" => side::serve::<bf16>(handle, keys, lines),
        other => Err(format!("unknown dtype {other}").into()),
    }
}

fn answer(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", text.replace('\n', " "))?;
    out.flush()
}
