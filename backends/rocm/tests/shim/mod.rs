//! A kernel's text as a shared object for this CPU, which `launch.h` describes.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The text's surroundings, which are written beside it.
const FILES: [(&str, &str); 4] = [
    ("shim.h", include_str!("shim.h")),
    ("launch.h", include_str!("launch.h")),
    ("shim.cpp", include_str!("shim.cpp")),
    ("kernel.cpp", include_str!("kernel.cpp")),
];

/// The C++ compiler: clang 19 or later, for its vector types and `_Float16`; none if there is none.
pub(crate) fn compiler() -> Option<&'static str> {
    static FOUND: OnceLock<Option<&str>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let names = ["clang++-19", "clang++-20", "clang++-21", "clang++-22", "clang++"];
        names.into_iter().find(|name| {
            let version = Command::new(name).arg("-dumpversion").output();
            let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            let major =
                version.ok().and_then(|version| version.split('.').next()?.trim().parse::<u32>().ok());
            major.is_some_and(|major| major >= 19)
        })
    })
}

/// The shared object of a text for an architecture such as `gfx942:sramecc+:xnack-`, made in `folder` unless it
/// is there from an earlier call. Callers may be many; a file appears whole.
///
/// # Errors
/// There is no compiler, or it refuses the text: its log.
pub(crate) fn build(text: &str, arch: &str, folder: &Path) -> Result<PathBuf, String> {
    let compiler = compiler().ok_or("no clang++ of version 19 or later")?;
    let processor = arch.split(':').next().unwrap_or(arch);
    let macros = [format!("-D__{processor}__"), format!("-D{}", family(processor)?)];
    let mut hasher = DefaultHasher::new();
    (text, &macros, FILES, compiler).hash(&mut hasher);
    let folder = &std::path::absolute(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let object = folder.join(format!("{:016x}.so", hasher.finish()));
    if object.exists() {
        return Ok(object);
    }
    let words = |error: std::io::Error| format!("{}: {error}", folder.display());
    let place = folder.join(format!("{:016x}-{:x}", hasher.finish(), unique()));
    fs::create_dir_all(&place).map_err(words)?;
    let made = || {
        for (name, content) in FILES.into_iter().chain([("kernel.hip", text)]) {
            fs::write(place.join(name), content).map_err(words)?;
        }
        let runtime = runtime(compiler, folder)?;
        let mut command = command(compiler, &place);
        // The text runs for microseconds and compiles for a hundred milliseconds.
        command.args(["-O0", "-shared", "-Wl,-z,defs", "-DTEXT=\"kernel.hip\""]).args(macros);
        run(command.args(["kernel.cpp", "-o", "kernel.so"]).arg(runtime))?;
        fs::rename(place.join("kernel.so"), &object).map_err(words)
    };
    let result = made();
    let _ = fs::remove_dir_all(&place);
    result.map(|()| object)
}

/// The macro of a processor's family.
fn family(processor: &str) -> Result<&'static str, String> {
    let families =
        [("gfx9", "__GFX9__"), ("gfx10", "__GFX10__"), ("gfx11", "__GFX11__"), ("gfx12", "__GFX12__")];
    let found = families.into_iter().find(|(prefix, _)| processor.starts_with(prefix));
    found.map(|(_, name)| name).ok_or_else(|| format!("{processor} is of no known family"))
}

/// shim.cpp, compiled once.
fn runtime(compiler: &str, folder: &Path) -> Result<PathBuf, String> {
    let mut hasher = DefaultHasher::new();
    (FILES, compiler).hash(&mut hasher);
    let object = folder.join(format!("{:016x}.o", hasher.finish()));
    if object.exists() {
        return Ok(object);
    }
    let words = |error: std::io::Error| format!("{}: {error}", folder.display());
    let place = folder.join(format!("shim-{:x}", unique()));
    fs::create_dir_all(&place).map_err(words)?;
    for (name, content) in FILES {
        fs::write(place.join(name), content).map_err(words)?;
    }
    run(command(compiler, &place).args(["-O2", "-c", "shim.cpp", "-o", "shim.o"]))?;
    fs::rename(place.join("shim.o"), &object).map_err(words)?;
    fs::remove_dir_all(&place).map_err(words)?;
    Ok(object)
}

fn command(compiler: &str, place: &Path) -> Command {
    let mut command = Command::new(compiler);
    command.current_dir(place).args(["-std=c++17", "-march=native", "-fPIC", "-Wno-unknown-attributes"]);
    command
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    output.status.success().then_some(()).ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A number that no other call has, of this process or another.
fn unique() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    u64::from(std::process::id()) << 32 | COUNT.fetch_add(1, Ordering::Relaxed)
}
