//! Many processes at once, processes killed while they write, and what the environment says.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Instant;

use fuseplan_api::Backend;

use super::fake::{BACKEND, RECORDS, problem};
use super::*;
use crate::CompileOptions;
use crate::build;
use crate::target::Target;

const ROLE: &str = "FUSEPLAN_TEST_ROLE";

/// A command that runs `child` below in a process of its own, with no cache variable but those given.
fn child_command(executable: impl AsRef<OsStr>, role: &str, variables: &[(&str, &OsStr)]) -> Command {
    let mut command = Command::new(executable);
    command.args(["--exact", "cache::tests::processes::child", "--ignored", "--nocapture"]);
    for name in ["MIOPEN_DISABLE_CACHE", "FUSEPLAN_TRUST_CACHE_DIR", "XDG_CACHE_HOME", RECORDS] {
        command.env_remove(name);
    }
    // Whatever goes wrong, never the cache of whoever runs the tests.
    command.env("HOME", "/nonexistent/home").env("MIOPEN_CUSTOM_CACHE_DIR", "/nonexistent/cache");
    command.env(ROLE, role).envs(variables.iter().copied());
    command
}

fn start(role: &str, variables: &[(&str, &OsStr)]) -> Child {
    let mut command = child_command(std::env::current_exe().unwrap(), role, variables);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

fn run(role: &str, variables: &[(&str, &OsStr)]) -> String {
    finished(child_command(std::env::current_exe().unwrap(), role, variables).output().unwrap())
}

fn finished(output: Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Compiles and loads a numbered problem the way that plans are.
fn build_number(number: usize) {
    let target = Target::of(&BACKEND, BACKEND.info());
    let device = BACKEND.open(0).unwrap();
    build::choose(&target, &device, &problem(number), &CompileOptions::default()).unwrap();
}

const SHARED: usize = 64;

#[test]
#[ignore = "the tests below run it in processes of their own"]
fn child() {
    let role = std::env::var(ROLE).expect("FUSEPLAN_TEST_ROLE says what a test's process of its own does");
    match role.as_str() {
        "all" => {
            let mut random = Random(std::process::id().into());
            let mut numbers: Vec<usize> = (0..SHARED).collect();
            (1..SHARED).rev().for_each(|i| numbers.swap(i, random.below(i + 1)));
            numbers.into_iter().for_each(build_number);
        }
        "write for ever" => {
            let disk = open(Path::new(&std::env::var_os("MIOPEN_CUSTOM_CACHE_DIR").unwrap()));
            println!("ready");
            let mut random = Random(std::process::id().into());
            loop {
                ask_sized(&disk, random.below(1000) as u64, 50_000);
            }
        }
        "die compiling" => {
            let disk = open(Path::new(&std::env::var_os("MIOPEN_CUSTOM_CACHE_DIR").unwrap()));
            let compile = || {
                println!("ready");
                loop {
                    thread::park();
                }
            };
            disk.get_or_build(&subject(1), |_| Ok::<_, BuildError>(()), compile).unwrap();
        }
        "one" => println!("warnings: {}", warnings(|| [0, 1, 0].into_iter().for_each(build_number))),
        "cpu" => {
            let plan = fake::plan(1);
            plan.compile(&crate::Handle::cpu()).unwrap();
            plan.compile_for(crate::Handle::cpu(), &CompileOptions::default()).unwrap();
        }
        role => panic!("{role}"),
    }
}

fn wait_until_ready(child: &mut Child) {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("ready")));
}

#[test]
fn sixteen_processes_compile_each_of_64_plans_about_once() {
    let (cache, records) = (temporary(), temporary());
    let variables: [(&str, &OsStr); 2] =
        [("MIOPEN_CUSTOM_CACHE_DIR", cache.path().as_ref()), (RECORDS, records.path().as_ref())];
    let children: Vec<Child> = (0..16).map(|_| start("all", &variables)).collect();
    // A child that is handed a wrong or torn binary fails.
    children.into_iter().for_each(|child| drop(finished(child.wait_with_output().unwrap())));
    let mut compiles = [0; SHARED];
    for record in names(records.path(), "") {
        compiles[record.split_once('.').unwrap().0.parse::<usize>().unwrap() - 1] += 1;
    }
    assert!(compiles.iter().all(|&n| n == 1 || n == 2), "{compiles:?}");
    assert_eq!(names(cache.path(), ".bin").len(), SHARED);
    assert!(names(cache.path(), ".tmp").is_empty() && names(cache.path(), ".bad").is_empty());
}

/// As many kills at random points as fit the time, or as `FUSEPLAN_TEST_KILLS` asks for.
#[test]
fn processes_killed_while_they_write_leave_nothing_wrong() {
    let asked: Option<usize> = std::env::var("FUSEPLAN_TEST_KILLS").ok().map(|text| text.parse().unwrap());
    let directory = temporary();
    let path = directory.path();
    let mut random = Random(77);
    let (start_time, mut kills, mut stranded) = (Instant::now(), 0, 0);
    let more = |kills| asked.map_or(start_time.elapsed() < Duration::from_secs(5), |asked| kills < asked);
    while more(kills) {
        let mut children: Vec<Child> =
            (0..2).map(|_| start("write for ever", &[("MIOPEN_CUSTOM_CACHE_DIR", path.as_ref())])).collect();
        children.iter_mut().for_each(wait_until_ready);
        thread::sleep(Duration::from_micros(random.below(8000) as u64));
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
        }
        let left = names(path, ".tmp").len();
        assert!(left <= 2, "{left} temporary files of 2 processes");
        stranded += left;
        let disk = open(path);
        for file in names(path, ".bin") {
            let bytes = fs::read(path.join(&file)).unwrap();
            assert!(crate::cache::format::decode(&bytes).is_ok(), "{file} is torn");
        }
        // The next store sweeps.
        fs::remove_file(path.join(entry(5000))).ok();
        assert!(ask(&disk, 5000));
        assert!(names(path, ".tmp").is_empty());
    }
    println!("{kills} kills, {stranded} while a file was being written");
    assert!(kills >= asked.unwrap_or(20) && stranded > 0);
    assert!(names(path, ".bad").is_empty());
}

#[test]
fn the_lock_of_a_dead_process_is_free() {
    let directory = temporary();
    let path = directory.path();
    let mut child = start("die compiling", &[("MIOPEN_CUSTOM_CACHE_DIR", path.as_ref())]);
    wait_until_ready(&mut child);
    let begin = Instant::now();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| ask(&open(path), 1));
        thread::sleep(Duration::from_millis(100));
        assert!(!waiter.is_finished(), "it did not wait for the lock");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(waiter.join().unwrap());
    });
    assert!(begin.elapsed() < WAIT.wait / 2, "{:?}", begin.elapsed());
}

#[test]
fn the_environment_says_where_the_cache_is() {
    let home = temporary();
    let custom = home.path().join("custom");
    let run = |variables: &[(&str, &OsStr)]| run("one", variables);

    let said = run(&[("MIOPEN_CUSTOM_CACHE_DIR", custom.as_ref())]);
    assert!(said.contains("warnings: 0"), "{said}");
    assert_eq!(names(&custom, ".bin").len(), 2);
    assert_eq!(fs::metadata(&custom).unwrap().mode() & 0o7777, 0o700);

    let none = ("MIOPEN_CUSTOM_CACHE_DIR", OsStr::new(""));
    run(&[none, ("XDG_CACHE_HOME", home.path().join("xdg").as_ref())]);
    assert_eq!(names(&home.path().join("xdg/fuseplan"), ".bin").len(), 2);
    run(&[none, ("HOME", home.path().as_ref())]);
    assert_eq!(names(&home.path().join(".cache/fuseplan"), ".bin").len(), 2);

    let off = home.path().join("off");
    for yes in ["1", "True", "enabled"] {
        let said = run(&[("MIOPEN_CUSTOM_CACHE_DIR", off.as_ref()), ("MIOPEN_DISABLE_CACHE", yes.as_ref())]);
        assert!(said.contains("warnings: 0") && !off.exists(), "{said}");
    }
}

#[test]
fn a_directory_that_cannot_be_had_is_one_warning() {
    let home = temporary();
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    let open = home.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    for path in [&file, &file.join("below"), &open] {
        let said = run("one", &[("MIOPEN_CUSTOM_CACHE_DIR", path.as_ref())]);
        assert!(said.contains("warnings: 1"), "{}: {said}", path.display());
    }
    assert!(names(&open, "").is_empty());
    let shared = [("MIOPEN_CUSTOM_CACHE_DIR", open.as_ref()), ("FUSEPLAN_TRUST_CACHE_DIR", "1".as_ref())];
    let said = run("one", &shared);
    assert!(said.contains("warnings: 0") && names(&open, ".bin").len() == 2, "{said}");
}

#[test]
fn the_cpu_never_touches_the_disk() {
    let home = temporary();
    let path = home.path().join("cache");
    run("cpu", &[("MIOPEN_CUSTOM_CACHE_DIR", path.as_ref())]);
    assert!(!path.exists());
}

/// A set-user-id program must not load what the environment of its caller points to.
#[test]
#[ignore = "needs root; `.ci/run test` runs it there"]
fn elevated_processes_have_no_disk_cache() {
    const NOBODY: u32 = 65534;
    let home = temporary();
    let program = home.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = home.path().join("cache");
    let run_as_nobody = |mode| {
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        let mut command = child_command(&program, "one", &[("MIOPEN_CUSTOM_CACHE_DIR", path.as_ref())]);
        let output = command.current_dir("/").uid(NOBODY).gid(NOBODY).output();
        output.expect("only root can run a program as somebody else")
    };
    let owner = fs::metadata(&program).unwrap().uid();
    assert_eq!(owner, 0, "only root can make a program that runs as root");
    // As root it could make the directory, and without the check would.
    let said = finished(run_as_nobody(0o4755));
    assert!(said.contains("warnings: 0") && !path.exists(), "{said}");
}
