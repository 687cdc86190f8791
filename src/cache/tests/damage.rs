//! Bytes that are not those that were written, and what names an entry.

use std::collections::HashSet;
use std::fs;
use std::thread;
use std::time::Duration;

use fuseplan_api::{Configuration, DeviceInfo, MathMode, Problem, Solver};

use super::fake::{BACKEND, SOLVER, problem};
use super::*;
use crate::cache::format::{BinaryError, VERSION, decode, encode};
use crate::{
    ActivationForward, ActivationMode, BatchNormInference, BatchNormMode, BiasForward, ConvForward,
    ConvolutionDescriptor, DataType, FusionPlan, TensorDescriptor, traits::Operator,
};

#[test]
fn what_is_stored_is_found_again_and_by_others() {
    let directory = temporary();
    assert!(ask(&open(directory.path()), 1));
    let disk = open(directory.path());
    assert!(!ask(&disk, 1) && ask(&disk, 2) && !ask(&disk, 2));
    assert_eq!(names(directory.path(), ".bin").len(), 2);
}

/// Puts bytes in an entry's place: they must be set aside, and the entry be as it was afterwards.
fn rebuilt(path: &Path, whole: &[u8], damaged: &[u8]) {
    let file = path.join(entry(7));
    fs::write(&file, damaged).unwrap();
    let disk = open(path);
    assert!(ask(&disk, 7), "{} bytes were accepted", damaged.len());
    assert!(!ask(&disk, 7));
    assert!(fs::read(&file).unwrap() == whole);
    assert!(fs::read(file.with_extension("bad")).unwrap() == damaged);
}

#[test]
fn every_byte_flipped_and_every_prefix_is_rebuilt() {
    let directory = temporary();
    assert!(ask(&open(directory.path()), 7));
    let whole = fs::read(directory.path().join(entry(7))).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        rebuilt(directory.path(), &whole, &damaged);
        rebuilt(directory.path(), &whole, &whole[..at]);
    }
    rebuilt(directory.path(), &whole, &[&*whole, b"x"].concat());
    assert!(names(directory.path(), ".tmp").is_empty());
}

#[test]
fn random_edits_are_never_accepted() {
    let whole = encode(&subject(3), &payload(3, 200));
    let mut random = Random(11);
    for _ in 0..10_000 {
        let mut damaged = whole.clone();
        for _ in 0..=random.below(8) {
            let at = random.below(damaged.len());
            match random.below(4) {
                0 => damaged[at] = random.next() as u8,
                1 => damaged.insert(at, random.next() as u8),
                2 => drop(damaged.drain(at..(at + 1 + random.below(9)).min(damaged.len() - 1))),
                _ => damaged[at..].reverse(),
            }
        }
        assert!(damaged == whole || decode(&damaged).is_err());
    }
}

/// A parser that gets past the digest, as a forger's bytes would: no panic, and what it accepts is what
/// `encode` writes.
#[test]
fn sealed_nonsense_does_not_break_the_parser() {
    let whole = encode(&subject(3), &payload(3, 60));
    let mut random = Random(5);
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        bytes.truncate(20 + random.below(whole.len() - 20));
        for _ in 0..random.below(4) {
            let at = 20 + random.below(bytes.len().max(21) - 20);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = [0, 1, 0x7f, 0xff, random.next() as u8][random.below(5)];
            }
        }
        let length = bytes.len() as u64 + 32;
        bytes[12..20].copy_from_slice(&length.to_le_bytes());
        let digest = blake3::hash(&bytes);
        bytes.extend(digest.as_bytes());
        if let Ok((subject, payload)) = decode(&bytes) {
            assert_eq!(encode(&subject, payload), bytes);
            accepted += 1;
        }
    }
    assert!(accepted > 100, "the test does not reach the end of the parser");
}

/// What the fuzz target `cache_entry` keeps, as it takes it: the bytes alone, and sealed as those of an entry.
#[test]
fn what_fuzzing_keeps_stays_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/cache_entry");
    let (mut tried, mut accepted) = (0, 0);
    for file in fs::read_dir(folder).unwrap() {
        let bytes = fs::read(file.unwrap().path()).unwrap();
        let length = 20 + bytes.len() as u64 + 32;
        let mut sealed = [b"FUSEPLAN", &VERSION.to_le_bytes()[..], &length.to_le_bytes(), &bytes].concat();
        sealed.extend(blake3::hash(&sealed).as_bytes());
        for bytes in [bytes, sealed] {
            tried += 1;
            if let Ok((subject, payload)) = decode(&bytes) {
                assert_eq!(encode(&subject, payload), bytes);
                accepted += 1;
            }
        }
    }
    assert!(tried >= 20 && accepted > 0, "{tried} tried, {accepted} accepted");
}

#[test]
fn each_kind_of_damage_has_its_name() {
    let whole = encode(&subject(3), &payload(3, 60));
    assert_eq!(decode(b""), Err(BinaryError::NotABinary));
    assert_eq!(decode(b"\x7fELF, and more than twenty bytes"), Err(BinaryError::NotABinary));
    let mut other = whole.clone();
    other[8] += 1;
    assert_eq!(decode(&other), Err(BinaryError::Format { found: VERSION + 1, expected: VERSION }));
    other[8] -= 2;
    assert_eq!(decode(&other), Err(BinaryError::Format { found: VERSION - 1, expected: VERSION }));
    let (found, expected) = (whole.len() as u64 - 1, whole.len() as u64);
    assert_eq!(decode(&whole[..whole.len() - 1]), Err(BinaryError::Length { found, expected }));
    let mut other = whole.clone();
    other[50] ^= 1;
    assert_eq!(decode(&other), Err(BinaryError::Damaged));
    assert!(decode(&whole).is_ok_and(|(found, bytes)| found == subject(3) && bytes == payload(3, 60)));
}

#[test]
fn a_sound_entry_of_something_else_is_not_taken() {
    let directory = temporary();
    assert!(ask(&open(directory.path()), 1));
    let disk = open(directory.path());
    let own = fs::read(directory.path().join(entry(1))).unwrap();
    write(&directory.path().join(entry(2)), own);
    assert!(ask(&disk, 2), "the binary of 1 was taken for that of 2");
}

#[test]
fn every_field_but_the_compiler_decides_the_key() {
    let base = subject(1);
    let mut keys = HashSet::from([base.key()]);
    let changes: [fn(&mut Subject); 5] = [
        |s| s.version = "1.2.4".into(),
        |s| s.solver = "fake.copy.v2".into(),
        |s| s.arch = "fake_90a".into(),
        |s| s.content = vec![1],
        // The same bytes, divided otherwise.
        |s| (s.solver, s.arch) = ("fake.copy.v1fake".into(), "_90".into()),
    ];
    for change in changes {
        let mut other = base.clone();
        change(&mut other);
        assert!(keys.insert(other.key()), "{other:?}");
    }
}

/// What one compiler made is not taken by another, which replaces it; where there is none, it is.
#[test]
fn a_compiler_replaces_what_another_made_and_none_takes_it() {
    let directory = temporary();
    let disk = open(directory.path());
    let asked = |toolchain: &str, made: &[u8]| -> Vec<u8> {
        let subject = Subject { toolchain: toolchain.into(), ..subject(1) };
        let load = |found: &[u8]| Ok::<_, BuildError>(found.to_vec());
        disk.get_or_build(&subject, load, || Ok(made.to_vec())).unwrap()
    };
    assert_eq!(asked("fakec 1", b"one"), b"one");
    assert_eq!(asked("fakec 1", b"not asked for"), b"one");
    assert_eq!(asked("", b"not asked for"), b"one");
    assert_eq!(asked("fakec 2", b"two"), b"two");
    assert_eq!(asked("", b"not asked for"), b"two");
    assert_eq!(asked("fakec 1", b"one again"), b"one again");
    assert!(names(directory.path(), ".bad").is_empty());
    assert_eq!(names(directory.path(), ".bin").len(), 1);
}

#[test]
fn every_property_of_a_problem_decides_the_key() {
    let key = |problem: &Problem, info: &DeviceInfo| {
        Subject::stored(&SOLVER, problem, info, &Configuration::default())
            .expect("the fake solver's binaries are stored")
            .key()
    };
    let mut keys = HashSet::new();
    let mut insert = |problem: &Problem| assert!(keys.insert(key(problem, &BACKEND.info())), "{problem}");

    let x = |data_type| TensorDescriptor::nchw(data_type, [2, 4, 9, 9]).unwrap();
    let convolution = |input: TensorDescriptor, conv: ConvolutionDescriptor| {
        let mut plan = FusionPlan::new(input).unwrap();
        let lens = [4, 4 / conv.groups(), 3, 3];
        plan.append(ConvForward::new(conv, TensorDescriptor::nchw(input.data_type(), lens).unwrap()))
            .unwrap();
        plan
    };
    let plain = ConvolutionDescriptor::d2().with_pads([1, 1]).unwrap();
    let nhwc = TensorDescriptor::nhwc(DataType::Float, [2, 4, 9, 9]).unwrap();
    let gaps = TensorDescriptor::new(DataType::Float, &[2, 4, 9, 9], &[400, 100, 10, 1]).unwrap();
    for input in [x(DataType::Float), x(DataType::Half), nhwc, gaps] {
        insert(&convolution(input, plain).problem());
    }
    let convs = [
        plain.with_pads([1, 0]).unwrap(),
        plain.with_strides([1, 2]).unwrap(),
        plain.with_dilations([2, 1]).unwrap(),
        plain.with_groups(2).unwrap(),
    ];
    for conv in convs {
        insert(&convolution(x(DataType::Float), conv).problem());
    }
    let base = convolution(x(DataType::Float), plain);
    let mut tf32 = base.clone();
    tf32.set_math_mode(MathMode::AllowTf32);
    insert(&tf32.problem());
    fn with<O: Operator>(plan: &FusionPlan, operator: O) -> Problem {
        let mut plan = plan.clone();
        plan.append(operator).unwrap();
        plan.problem()
    }
    insert(&with(&base, BiasForward::new()));
    insert(&with(&base, BiasForward::residual()));
    for mode in [BatchNormMode::Spatial, BatchNormMode::PerActivation] {
        insert(&with(&base, BatchNormInference::new(mode)));
    }
    for mode in [ActivationMode::Relu, ActivationMode::Tanh] {
        insert(&with(&base, ActivationForward::new(mode)));
    }

    let (one, here) = (problem(1), BACKEND.info());
    assert_eq!(key(&one, &here), key(&problem(1), &BACKEND.info()));
    assert_ne!(key(&one, &here), key(&one, &DeviceInfo { arch: "other".into(), ..BACKEND.info() }));
    assert_eq!(key(&one, &here), key(&one, &DeviceInfo { toolchain: "other".into(), ..BACKEND.info() }));
    assert_eq!(key(&one, &here), key(&one, &DeviceInfo { ordinal: 1, memory: 1, ..BACKEND.info() }));
}

#[test]
fn solvers_without_a_key_are_not_stored() {
    for &backend in crate::device::backends() {
        let Some(target) = backend.discover().devices.into_iter().next() else { continue };
        let takes = |solver: &&&dyn Solver| solver.applies(&problem(1), &target).is_ok();
        for solver in backend.solvers().iter().filter(takes) {
            let nothing =
                solver.compile_preferred(&problem(1), &target).is_ok_and(|binary| binary.bytes.is_empty());
            assert_eq!(
                solver.cache_key(&problem(1), &target, &solver.preferred(&problem(1), &target)).is_none(),
                nothing,
                "{}",
                solver.id()
            );
        }
    }
}

#[test]
fn what_was_not_used_for_longest_is_removed() {
    let directory = temporary();
    let size = encode(&subject(0), &payload(0, 200)).len() as u64;
    let disk = open_with(directory.path(), Limits { bytes: 4 * size, ..WAIT });
    // File times have the resolution of the system's clock tick.
    let tick = || thread::sleep(Duration::from_millis(20));
    for number in 0..4 {
        assert!(ask(&disk, number));
        tick();
    }
    assert!(!ask(&disk, 0));
    tick();
    assert!(ask(&disk, 4));
    assert_eq!(names(directory.path(), ".bin").len(), 4);
    assert!(!ask(&disk, 0) && !ask(&disk, 2) && !ask(&disk, 3) && !ask(&disk, 4));
    assert!(ask(&disk, 1), "it was used less recently than 0");
    // What is larger than the whole cache is not stored at all.
    assert!(ask_sized(&disk, 9, 4 * size as usize) && ask_sized(&disk, 9, 4 * size as usize));
}

/// A directory of the user's choice may be any directory.
#[test]
fn files_of_others_are_left_alone() {
    let directory = temporary();
    let path = directory.path();
    let key = subject(1).key().to_string();
    let others = ["weights.bin", "notes.tmp", "gfx90a.ukdb", "x.bad", &key, &format!("{key}.txt")];
    others.iter().for_each(|name| write(&path.join(name), [0; 1000]));
    let disk = open_with(path, Limits { bytes: 500, ..WAIT });
    for number in 10..14 {
        assert!(ask(&disk, number));
    }
    assert!(others.iter().all(|name| path.join(name).exists()));
    assert_eq!(names(path, ".bin").len(), 2, "one entry has room, and there are the weights");
}

/// A driver that refuses what it made itself, say after it was changed behind the toolchain's name.
#[test]
fn a_binary_that_does_not_load_is_compiled_again() {
    let directory = temporary();
    let disk = open(directory.path());
    assert!(ask(&disk, 1));
    let subject = subject(1);
    let fresh = payload(50, 99);
    let load = |found: &[u8]| match found == fresh {
        true => Ok(found.len()),
        false => Err(BuildError::Binary { solver: "fake.copy.v1", reason: "refused".into() }),
    };
    let compile = || Ok(fresh.clone());
    assert_eq!(disk.get_or_build(&subject, load, compile), Ok(99));
    let never = || panic!("compiled although the new binary was stored");
    assert_eq!(disk.get_or_build(&subject, load, never), Ok(99));
}

#[test]
fn errors_of_the_compiler_are_the_users() {
    let directory = temporary();
    let error = || BuildError::Compiler { solver: "fake.copy.v1", log: "no".into() };
    let disk = open(directory.path());
    let failed = disk.get_or_build(&subject(1), |_| Ok(()), || Err(error()));
    assert_eq!(failed, Err(error()));
    assert!(ask(&disk, 1), "the failure was stored");
}
