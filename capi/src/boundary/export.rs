//! Functions as C calls them: what their parameters are, and the macro that exports them.
//!
//! Parameters carry their contract in their type: [`Out`] and [`In`] are pointers as C passes them, whose
//! only source is a C caller (or a test) that promises what the header says of pointers: NULL, or memory of
//! that type. Handles are [`Ref`]s and promise nothing at all.

use std::ffi::{c_int, c_uint, c_void};

use super::failure::{Failure, bad_parm};
use super::table::{Object, Ref};

/// A C `bool`, of which nobody proves that it is 0 or 1.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct Bool(u8);

impl Bool {
    pub(crate) fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Bool {
    fn from(value: bool) -> Self {
        Bool(value.into())
    }
}

/// A pointer that a function reads: NULL, or `T`s, as many as the function's contract says, at any address.
#[repr(transparent)]
#[derive(Debug)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T> In<T> {
    /// C's NULL.
    pub(crate) const NULL: Self = In(std::ptr::null());

    /// # Safety
    /// NULL, or as many readable `T`s as the function that it is handed to says.
    pub unsafe fn new(pointer: *const T) -> Self {
        In(pointer)
    }

    /// The address.
    pub(crate) fn addr(self) -> usize {
        self.0.addr()
    }

    /// The same pointer, to what the function's contract says that it really points to.
    pub(crate) fn cast<U>(self) -> In<U> {
        In(self.0.cast())
    }
}

impl<T: Copy> In<T> {
    pub(crate) fn as_ptr(self) -> *const T {
        self.0
    }

    /// The first value, `None` for NULL.
    pub(crate) fn get(self) -> Option<T> {
        // SAFETY: not NULL, so a readable `T`, as the C caller promises.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }

    /// The first `count` values, `None` for NULL. `count` is what the function's contract says.
    pub(crate) fn list(self, count: usize) -> Option<Vec<T>> {
        // SAFETY: not NULL, so `count` readable `T`s, as the C caller promises.
        let at = |index| unsafe { self.0.add(index).read_unaligned() };
        (!self.0.is_null()).then(|| (0..count).map(at).collect())
    }
}

/// A pointer that a function writes: NULL, or `T`s, as many as the function's contract says, at any address.
#[repr(transparent)]
#[derive(Debug)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// The address.
    pub(crate) fn addr(self) -> usize {
        self.0.addr()
    }
}

impl<T: Copy> Out<T> {
    /// # Safety
    /// NULL, or as many writable `T`s as the function that it is handed to says.
    pub unsafe fn new(pointer: *mut T) -> Self {
        Out(pointer)
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The same pointer, refused when it is NULL.
    pub(crate) fn required(self, name: &str) -> Result<Self, Failure> {
        if self.is_null() { Err(bad_parm(format!("`{name}` is NULL"))) } else { Ok(self) }
    }

    /// Writes unless NULL.
    pub(crate) fn set(self, value: T) {
        self.set_all(&[value]);
    }

    /// Writes as many values as there are, unless NULL.
    pub(crate) fn set_all(self, values: &[T]) {
        if self.0.is_null() {
            return;
        }
        for (index, value) in values.iter().enumerate() {
            // SAFETY: not NULL, so writable for as many `T`s as the C caller promises, which is as many as
            // the function that calls this hands in.
            unsafe { self.0.add(index).write_unaligned(*value) };
        }
    }

    /// The value that is there, `None` for NULL.
    pub(crate) fn get(self) -> Option<T> {
        In(self.0.cast_const()).get()
    }
}

/// A C length, stride or count.
pub(crate) fn to_size(value: c_int, what: &str) -> Result<usize, Failure> {
    usize::try_from(value).map_err(|_| bad_parm(format!("{what} is {value}; it must not be negative")))
}

/// A number for a C `int`.
pub(crate) fn to_int(value: usize, what: &str) -> Result<c_int, Failure> {
    c_int::try_from(value).map_err(|_| bad_parm(format!("{what} is {value}, which does not fit an int")))
}

/// The prototype of an exported function as written in Rust, and the function itself.
#[derive(Debug, Clone, Copy)]
pub struct Prototype {
    /// The exported name.
    pub name: &'static str,
    /// The types of the parameters, as written.
    pub parameters: &'static [&'static str],
    /// The names of the parameters.
    pub names: &'static [&'static str],
    /// Calls the function with parameters of these bits, 0 for what is not given.
    ///
    /// # Safety
    /// Parameters that are pointers are as the header says.
    pub call: unsafe fn(&[u64]) -> c_uint,
}

/// A parameter's value as bits, for callers that know a function by its prototype only.
pub(crate) trait FromBits {
    /// # Safety
    /// What is a pointer is as the header says.
    unsafe fn from_bits(bits: u64) -> Self;
}

macro_rules! from_bits {
    ($($(<$generic:ident>)? for $type:ty: |$bits:ident| $value:expr;)*) => {$(
        impl $(<$generic: Copy>)? FromBits for $type {
            unsafe fn from_bits($bits: u64) -> Self {
                $value
            }
        }
    )*};
}

from_bits! {
    for i32: |bits| bits as i32;
    for u32: |bits| bits as u32;
    for u64: |bits| bits;
    for usize: |bits| bits as usize;
    for f32: |bits| f32::from_bits(bits as u32);
    for f64: |bits| f64::from_bits(bits);
    for Bool: |bits| Bool(bits as u8);
    for *mut c_void: |bits| std::ptr::with_exposed_provenance_mut(bits as usize);
    for *const c_void: |bits| std::ptr::with_exposed_provenance(bits as usize);
    <T> for Out<T>: |bits| Out(std::ptr::with_exposed_provenance_mut(bits as usize));
}

impl<T> FromBits for In<T> {
    unsafe fn from_bits(bits: u64) -> Self {
        In(std::ptr::with_exposed_provenance(bits as usize))
    }
}

impl<T: Object> FromBits for Ref<T> {
    unsafe fn from_bits(bits: u64) -> Self {
        Ref::from_bits(bits)
    }
}

/// The address of an exported function.
pub(crate) struct Exported(#[allow(dead_code, reason = "the linker reads it")] pub(crate) *const ());

// SAFETY: nothing reads what a function's address points to.
unsafe impl Sync for Exported {}

/// Exports functions of the C interface. The body is a block that may return early with a
/// [`Failure`](crate::boundary::failure::Failure); panics and failures become statuses at this boundary, and nowhere
/// else.
///
/// With symbol versions the function is exported by an assembler alias: a name that rustc does not know,
/// and so leaves to the library's own version script.
macro_rules! export {
    ($(
        $(#[$meta:meta])*
        fn $name:ident($($parameter:ident: $type:ty),* $(,)?) $body:block
    )*) => {
        /// What this file exports.
        pub(crate) const PROTOTYPES: &[$crate::boundary::export::Prototype] = &[$($crate::boundary::export::Prototype {
            name: stringify!($name),
            parameters: &[$(stringify!($type)),*],
            names: &[$(stringify!($parameter)),*],
            call: |bits| {
                let mut bits = bits.iter().copied();
                let mut next = || bits.next().unwrap_or(0);
                let _ = &mut next;
                // SAFETY: as the caller promises.
                unsafe { $name($(<$type as $crate::boundary::export::FromBits>::from_bits(next())),*) }
            },
        }),*];

        $(
            $(#[$meta])*
            #[doc = concat!("`", stringify!($name), "` of the header.\n\n# Safety\nPointers are as the header says.")]
            #[allow(non_snake_case, reason = "MIOpen's own names")]
            #[allow(clippy::too_many_arguments, reason = "MIOpen's own argument lists")]
            #[cfg_attr(not(versioned_symbols), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name($($parameter: $type),*) -> std::ffi::c_uint {
                let arguments = |list: &mut $crate::boundary::arguments::Arguments| {
                    let _ = &list;
                    $(list.push(stringify!($parameter), &$parameter);)*
                };
                $crate::boundary::guard::guard_call(stringify!($name), &arguments, move || {
                    $body
                    #[allow(unreachable_code, reason = "bodies may end in a return")]
                    Ok(())
                })
            }

            $crate::boundary::export::export_symbol!($name, $name);
        )*
    };
}

/// Gives a function its exported name.
macro_rules! export_symbol {
    ($name:ident, $function:path) => {
        #[cfg(all(versioned_symbols, not(miri)))]
        std::arch::global_asm!(
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ", %function"),
            concat!(".set ", stringify!($name), ", {function}"),
            function = sym $function,
        );
        // Nothing else would name the function in a library that has this crate in it.
        #[cfg(all(versioned_symbols, not(miri)))]
        const _: () = {
            #[used]
            static EXPORTED: $crate::boundary::export::Exported = $crate::boundary::export::Exported($function as *const ());
        };
    };
}

pub(crate) use {export, export_symbol};
