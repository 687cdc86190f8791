//! CUDA that is missing, or is not what it should be, is an error in words and never a panic.

use std::path::Path;
use std::process::Command;

use fuseplan_api::*;
use fuseplan_cuda::CudaBackend;

/// Set in the process whose loader finds other libraries.
const CHILD: &str = "FUSEPLAN_TEST_CHILD";

/// Asks everything of the backend that can be asked and prints the answers.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    for note in CudaBackend.discover().notes {
        println!("note: {note}");
    }
    println!("open: {}", CudaBackend.open(0).unwrap_err());
    let target = CudaBackend.target("sm_90a").unwrap();
    println!("target: {}", target.toolchain);
    let x = TensorDescriptor::nchw(DataType::Half, [1, 2, 3, 4]).unwrap();
    let ops = vec![Op::ActivationForward { mode: ActivationMode::Relu }];
    let problem = Problem { input: x, output: x, ops, math: MathMode::Precise };
    for solver in CudaBackend.solvers().iter().filter(|solver| solver.applies(&problem, &target).is_ok()) {
        println!("compile: {}", solver.compile(&problem, &target).unwrap_err());
    }
}

/// What the child says when its loader looks into `folder` first.
fn answers(folder: &Path) -> String {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, "1")
        .env("LD_LIBRARY_PATH", folder)
        .env_remove("FUSEPLAN_NVRTC_PATH")
        .env_remove("CUDA_PATH")
        .env_remove("CUDA_HOME")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success(), "{text}\n{}", String::from_utf8_lossy(&child.stderr));
    text
}

/// A library under this name, made of C.
fn library(folder: &Path, name: &str, text: &str) {
    let source = folder.join("library.c");
    std::fs::write(&source, text).unwrap();
    let status = Command::new("cc")
        .args(["-w", "-shared", "-o"])
        .arg(folder.join(name))
        .arg(&source)
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
#[cfg(target_os = "linux")]
fn missing_and_foreign_libraries_are_errors() {
    if !CudaBackend.discover().devices.is_empty() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("fuseplan-absent-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let text = answers(&folder);
    assert!(
        text.contains("note: cuda: not available: the driver is not installed: libcuda.so.1: "),
        "{text}"
    );
    assert!(text.contains("open: cuda: not available: the driver is not installed"), "{text}");
    if text.contains("target: \n") {
        assert!(
            text.contains("note: cuda: not available: the run-time compiler NVRTC is not installed"),
            "{text}"
        );
        assert!(text.contains("compile: cuda: not available: the run-time compiler NVRTC"), "{text}");
    }
    // Libraries of the right names that lack functions.
    library(&folder, "libcuda.so.1", "int cuInit(int flags) { return 0; }");
    library(&folder, "libnvrtc.so", "int nvrtcVersion(int *major, int *minor) { return 1; }");
    let text = answers(&folder);
    assert!(text.contains("open: cuda: not available: libcuda has no function cuDeviceGetCount"), "{text}");
    assert!(
        text.contains("compile: cuda: not available: libnvrtc has no function nvrtcCreateProgram"),
        "{text}"
    );
    // Of two compilers the one whose code the driver can load, though it is the older.
    let version = |major| format!("int nvrtcVersion(int *a, int *b) {{ *a = {major}; *b = 4; return 0; }}");
    library(&folder, "libnvrtc.so.13", &version(13));
    library(&folder, "libnvrtc.so.12", &version(12));
    assert!(answers(&folder).contains("target: NVRTC 13.4"));
    library(&folder, "libcuda.so.1", "int cuDriverGetVersion(int *version) { *version = 12080; return 0; }");
    assert!(answers(&folder).contains("target: NVRTC 12.4"));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A set-user-id program must not load what the environment of its caller points to.
#[test]
#[cfg(target_os = "linux")]
fn elevated_processes_load_no_compiler_that_the_environment_names() {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    if !CudaBackend.discover().devices.is_empty() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("fuseplan-elevated-{}", std::process::id()));
    fs::create_dir_all(folder.join("lib64")).unwrap();
    let version = "int nvrtcVersion(int *a, int *b) { *a = 13; *b = 97; return 0; }";
    library(&folder, "libnvrtc.so.13", version);
    library(&folder.join("lib64"), "libnvrtc.so.13", version);
    for path in [&folder, &folder.join("lib64")] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let program = folder.join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let run_as_nobody = |mode, variable| {
        fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
        let mut command = Command::new(&program);
        command.args(["--exact", "child", "--nocapture"]).env(CHILD, "1").current_dir("/");
        for name in fuseplan_cuda::FOLDERS {
            command.env_remove(name);
        }
        let output = command.env(variable, &folder).uid(NOBODY).gid(NOBODY).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    for variable in fuseplan_cuda::FOLDERS {
        match run_as_nobody(0o755, variable) {
            Ok(text) if fs::metadata(&program).unwrap().uid() == 0 => {
                // Where the loader knows a compiler, toolkits are not looked into.
                assert!(text.contains("target: NVRTC 13.97") || variable != "FUSEPLAN_NVRTC_PATH", "{text}");
                let text = run_as_nobody(0o4755, variable).unwrap();
                assert!(text.contains("target: ") && !text.contains("NVRTC 13.97"), "{variable}: {text}");
            }
            _ => eprintln!("not checked: only root can make a program that runs as root"),
        }
    }
    fs::remove_dir_all(&folder).unwrap();
}
