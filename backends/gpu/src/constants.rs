//! The constants of a kernel's text as one structure.

use crate::Text;

/// What a field of such a structure can be.
pub trait Constant {
    /// Adds it to a text under this name.
    fn write(self, name: &str, text: &mut Text);
}

impl Constant for usize {
    fn write(self, name: &str, text: &mut Text) {
        text.constant(name, self);
    }
}

/// 1 or 0.
impl Constant for bool {
    fn write(self, name: &str, text: &mut Text) {
        text.constant(name, self.into());
    }
}

/// One for each spatial dimension: height and width, or depth, height and width, whose letters end the names.
impl<C: Constant, const N: usize> Constant for [C; N] {
    fn write(self, name: &str, text: &mut Text) {
        for (dim, value) in ["D", "H", "W"].into_iter().skip(3 - N).zip(self) {
            value.write(&format!("{name}_{dim}"), text);
        }
    }
}

/// Declares a structure of the constants of a kernel's text. A field `tile_p` is the constant `TILE_P`, and a field
/// `pad: [usize; 2]` is `PAD_H` and `PAD_W`; `write` adds all of them to a text, in the order of the fields.
#[macro_export]
macro_rules! constants {
    ($(#[$outer:meta])* $vis:vis struct $name:ident { $($(#[$inner:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$outer])*
        #[derive(Debug)]
        $vis struct $name {
            $($(#[$inner])* pub(crate) $field: $type,)*
        }

        impl $name {
            /// Adds the constants to a text.
            pub(crate) fn write(self, text: &mut $crate::Text) {
                $($crate::Constant::write(self.$field, &stringify!($field).to_uppercase(), text);)*
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::Text;

    constants! {
        struct Of {
            tile_p: usize,
            resident: bool,
            pad: [usize; 2],
            w: [usize; 3],
            outside: [bool; 2],
        }
    }

    #[test]
    fn fields_are_constants() {
        let mut text = Text::default();
        Of { tile_p: 64, resident: true, pad: [1, 2], w: [3, 4, 5], outside: [true, false] }.write(&mut text);
        let names = [
            "TILE_P{64}",
            "RESIDENT{1}",
            "PAD_H{1}",
            "PAD_W{2}",
            "W_D{3}",
            "W_H{4}",
            "W_W{5}",
            "OUTSIDE_H{1}",
            "OUTSIDE_W{0}",
        ];
        let lines = names.map(|name| format!("constexpr int {name};\n"));
        assert_eq!(text.constants(), lines.concat());
    }
}
