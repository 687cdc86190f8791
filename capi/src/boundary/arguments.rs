//! The arguments of calls as `MIOPEN_ENABLE_LOGGING` has them printed.

use std::ffi::c_void;
use std::fmt::{self, Write};

use super::export::{Bool, In, Out};
use super::parallel::Loop;
use super::table::{Object, Ref};

/// `name = value, name = value`: numbers as they are, pointers as addresses that nothing looks behind, handles with
/// what they name, where they name something.
#[derive(Debug, Default)]
pub(crate) struct Arguments(String);

impl Arguments {
    pub(crate) fn push(&mut self, name: &str, argument: &dyn Argument) {
        let separator = if self.0.is_empty() { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{separator}{name} = ").and_then(|()| argument.print(&mut self.0));
    }
}

impl fmt::Display for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A type of parameters.
pub(crate) trait Argument {
    fn print(&self, to: &mut String) -> fmt::Result;
}

macro_rules! arguments {
    ($($(<$($generic:ident)*>)? for $type:ty: |$this:ident| $value:expr, $format:literal;)*) => {$(
        impl $(<$($generic)*>)? Argument for $type {
            fn print(&self, to: &mut String) -> std::fmt::Result {
                use std::fmt::Write as _;
                let $this = self;
                write!(to, $format, $value)
            }
        }
    )*};
}

pub(crate) use arguments;

arguments! {
    for i32: |number| number, "{}";
    for u32: |number| number, "{}";
    for u64: |number| number, "{}";
    for usize: |number| number, "{}";
    for f32: |number| number, "{:?}";
    for f64: |number| number, "{:?}";
    for Bool: |value| value.get(), "{}";
    for *mut c_void: |pointer| pointer.addr(), "{:#x}";
    for *const c_void: |pointer| pointer.addr(), "{:#x}";
    <T> for In<T>: |pointer| pointer.addr(), "{:#x}";
    <T> for Out<T>: |pointer| pointer.addr(), "{:#x}";
    for Loop: |function| function.map_or(0, |function| function as usize), "{:#x}";
}

impl<T: Object> Argument for Ref<T> {
    fn print(&self, to: &mut String) -> fmt::Result {
        write!(to, "{:#x}", self.bits())?;
        match self.get().ok().and_then(|object| object.describe()) {
            Some(description) => write!(to, " ({description})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::table::object;

    #[derive(Debug)]
    struct Thing;
    object!(Thing, Op);

    #[test]
    fn every_kind_of_parameter_is_put_down() {
        let mut list = Arguments::default();
        list.push("count", &-3);
        list.push("epsilon", &1e-5);
        list.push("enable", &Bool::from(true));
        list.push("loop", &(None as Loop));
        list.push("x", &std::ptr::without_provenance::<c_void>(0x1000));
        // SAFETY: printing looks behind no pointer.
        list.push("alpha", &unsafe { In::new(std::ptr::without_provenance::<c_void>(1)) });
        list.push("plan", &Ref::<Thing>::from_bits(0xdead));
        let expected =
            "count = -3, epsilon = 1e-5, enable = true, loop = 0x0, x = 0x1000, alpha = 0x1, plan = 0xdead";
        assert_eq!(list.to_string(), expected);
    }
}
