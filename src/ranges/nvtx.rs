//! NVTX, the client's side. NVTX 3 has no library: it is headers, whose code loads the tool that `NVTX_INJECTION64_PATH` names
//! (Nsight's tools and CUPTI set it), and hands it tables of places for functions, which the tool fills. This is what the
//! headers' code does, in `nvtxInit.h` and `nvtxImpl.h`. libnvToolsExt, which older programs link to, is not part of CUDA 13.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{LazyLock, OnceLock};

use fuseplan_api::Variable;
use libloading::Library;

use super::Profiler;

/// NVTX's version.
const VERSION: u16 = 3;

/// How many functions each of NVTX's modules has places for: none, CORE, CUDA, OPENCL, CUDART, CORE2, SYNC. Only functions
/// of CORE2 are called; a tool may expect the others to be there.
const MODULES: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];

/// The module of functions that know domains, and the places of some of them.
const CORE2: usize = 5;
const DOMAIN_RANGE_PUSH_EX: usize = 4;
const DOMAIN_RANGE_POP: usize = 5;
const DOMAIN_CREATE_A: usize = 12;

/// A message is a C string.
const MESSAGE_ASCII: i32 = 1;

type Domain = *mut c_void;
type CreateDomain = unsafe extern "C" fn(*const c_char) -> Domain;
type Push = unsafe extern "C" fn(Domain, *const Attributes) -> c_int;
type Pop = unsafe extern "C" fn(Domain) -> c_int;
type GetExportTable = extern "C" fn(u32) -> *const c_void;
type Initialize = unsafe extern "C" fn(GetExportTable) -> c_int;

/// `nvtxEventAttributes_t`.
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_char,
}

/// The places for a module's functions, and their addresses, which is what a tool gets. The first place is no function's.
struct Module {
    functions: Box<[AtomicPtr<c_void>]>,
    table: Box<[AtomicPtr<AtomicPtr<c_void>>]>,
}

impl Module {
    fn new(size: usize) -> Self {
        let functions: Box<[AtomicPtr<c_void>]> = (0..size).map(|_| AtomicPtr::new(null_mut())).collect();
        let place = |(index, place): (usize, &AtomicPtr<c_void>)| match index {
            0 => null_mut(),
            _ => std::ptr::from_ref(place).cast_mut(),
        };
        // A null ends the table.
        let table = functions.iter().enumerate().map(place).chain([null_mut()]).map(AtomicPtr::new).collect();
        Module { functions, table }
    }

    fn function(&self, index: usize) -> Option<*mut c_void> {
        Some(self.functions[index].load(Ordering::Acquire)).filter(|function| !function.is_null())
    }
}

static TABLES: LazyLock<[Module; MODULES.len()]> = LazyLock::new(|| MODULES.map(Module::new));

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    size: usize,
    get_module_function_table:
        unsafe extern "C" fn(c_uint, *mut *const AtomicPtr<AtomicPtr<c_void>>, *mut c_uint) -> c_int,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
struct VersionInfo {
    size: usize,
    version: u32,
    reserved: u32,
    set_injection_version: extern "C" fn(u32),
}

static CALLBACKS: Callbacks =
    Callbacks { size: size_of::<Callbacks>(), get_module_function_table: module_functions };
static VERSION_INFO: VersionInfo = VersionInfo {
    size: size_of::<VersionInfo>(),
    version: VERSION as u32,
    reserved: 0,
    set_injection_version: take_version,
};

/// `nvtxGetExportTable`.
extern "C" fn export_table(id: u32) -> *const c_void {
    match id {
        1 => std::ptr::from_ref(&CALLBACKS).cast(),
        3 => std::ptr::from_ref(&VERSION_INFO).cast(),
        _ => null(),
    }
}

/// The tool's version has no part in anything, as in NVTX's own code.
extern "C" fn take_version(_version: u32) {}

/// `nvtxEtiGetModuleFunctionTable`.
///
/// # Safety
/// Pointers that are not null are to places that may be written.
unsafe extern "C" fn module_functions(
    module: c_uint,
    table: *mut *const AtomicPtr<AtomicPtr<c_void>>,
    size: *mut c_uint,
) -> c_int {
    let Some(found) = TABLES.get(module as usize).filter(|module| !module.functions.is_empty()) else {
        return 0;
    };
    if !size.is_null() {
        // SAFETY: the tool gave a place for a number.
        unsafe { *size = found.functions.len() as c_uint };
    }
    if !table.is_null() {
        // SAFETY: the tool gave a place for a pointer; the table lives as long as the process.
        unsafe { *table = found.table.as_ptr() };
    }
    1
}

/// The tool's functions are where it puts them, now or later: CUPTI fills tables when somebody listens.
struct Nvtx {
    /// The tool's name of this library, from the first range on.
    domain: OnceLock<usize>,
}

impl Nvtx {
    /// The function of CORE2 at this place, if the tool has put one there.
    fn function(index: usize) -> Option<*mut c_void> {
        TABLES[CORE2].function(index)
    }

    fn domain(&self) -> Option<Domain> {
        if self.domain.get().is_none() {
            let create = Self::function(DOMAIN_CREATE_A)?;
            // SAFETY: the tool has put the function of this type at its place.
            let create: CreateDomain = unsafe { std::mem::transmute(create) };
            // SAFETY: a C string, which the tool copies.
            self.domain.get_or_init(|| unsafe { create(c"fuseplan".as_ptr()) }.expose_provenance());
        }
        self.domain.get().map(|&domain| std::ptr::with_exposed_provenance_mut(domain))
    }
}

impl Profiler for Nvtx {
    fn push(&self, name: &CStr) {
        let (Some(domain), Some(push)) = (self.domain(), Self::function(DOMAIN_RANGE_PUSH_EX)) else {
            return;
        };
        let attributes = Attributes {
            version: VERSION,
            size: size_of::<Attributes>() as u16,
            category: 0,
            color_type: 0,
            color: 0,
            payload_type: 0,
            reserved: 0,
            payload: 0,
            message_type: MESSAGE_ASCII,
            message: name.as_ptr(),
        };
        // SAFETY: the tool has put the function of this type at its place.
        let push: Push = unsafe { std::mem::transmute(push) };
        // SAFETY: the attributes and the name that they point to live during the call; the tool is never unloaded.
        unsafe { push(domain, &attributes) };
    }

    fn pop(&self) {
        let (Some(domain), Some(pop)) = (self.domain(), Self::function(DOMAIN_RANGE_POP)) else { return };
        // SAFETY: the tool has put the function of this type at its place.
        let pop: Pop = unsafe { std::mem::transmute(pop) };
        // SAFETY: the domain is the tool's own, and the tool is never unloaded.
        unsafe { pop(domain) };
    }
}

/// NVTX, if this process was started by a tool that takes it.
pub(super) fn load() -> Option<Box<dyn Profiler>> {
    let file = Variable::NVTX_INJECTION.library_path()?;
    // SAFETY: a tool's library, which is made to be loaded by programs; the environment names it only where it may.
    let library = unsafe { Library::new(&file) };
    let library = library.inspect_err(|error| unusable(&file, error)).ok()?;
    // SAFETY: the function has this type in NVTX's headers.
    let initialize = unsafe { library.get::<Initialize>(b"InitializeInjectionNvtx2\0") };
    let initialize = *initialize.inspect_err(|error| unusable(&file, error)).ok()?;
    // The tool keeps the tables, and its functions are called until the process ends.
    std::mem::forget(library);
    // SAFETY: the tool gets the function that it asks for tables by; tables live as long as the process.
    if unsafe { initialize(export_table) } == 0 {
        unusable(&file, &"it refuses to be initialised");
        return None;
    }
    Some(Box::new(Nvtx { domain: OnceLock::new() }))
}

fn unusable(file: &std::path::Path, reason: &dyn std::fmt::Display) {
    let file = file.display();
    tracing::warn!(target: "fuseplan::ranges", "no NVTX ranges: {file}: {reason}");
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Attributes>() == 48);
