//! Files of kernel text, as binaries have them.

/// The text of a file of `kernels/`, named as by [`include_str!`], without its comments, of which compilers have no use:
/// these are a quarter of all text, and the wheel has a limit of size.
#[macro_export]
macro_rules! kernel_text {
    ($path:literal) => {{
        const FILE: &str = include_str!($path);
        const TEXT: [u8; $crate::file::length(FILE)] = $crate::file::text(FILE);
        const {
            match str::from_utf8(&TEXT) {
                Ok(text) => text,
                Err(_) => panic!("whole lines were left out"),
            }
        }
    }};
}

/// The bytes that [`text`] leaves.
pub const fn length(file: &str) -> usize {
    without_comments::<0>(file.as_bytes()).1
}

/// A file without the lines that are only a comment; `N` is its [`length`].
pub const fn text<const N: usize>(file: &str) -> [u8; N] {
    without_comments(file.as_bytes()).0
}

/// The first `N` bytes of the lines that stay, and how many bytes these have.
const fn without_comments<const N: usize>(file: &[u8]) -> ([u8; N], usize) {
    let (mut kept, mut length) = ([0; N], 0);
    let mut line = 0;
    while line < file.len() {
        let mut word = line;
        while word < file.len() && file[word] == b' ' {
            word += 1;
        }
        let is_comment = word + 1 < file.len() && file[word] == b'/' && file[word + 1] == b'/';
        let mut at = line;
        loop {
            if !is_comment {
                if length < N {
                    kept[length] = file[at];
                }
                length += 1;
            }
            at += 1;
            if at >= file.len() || file[at - 1] == b'\n' {
                break;
            }
        }
        line = at;
    }
    (kept, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_only_a_comment_are_left_out() {
        const FILE: &str = "// Needs nothing.\nint f() {\n  // The answer.\n  asm(\"// no comment\\n\");  // Kept.\n\n  //\n}\n//";
        const TEXT: [u8; length(FILE)] = text(FILE);
        assert_eq!(
            str::from_utf8(&TEXT).unwrap(),
            "int f() {\n  asm(\"// no comment\\n\");  // Kept.\n\n}\n"
        );
        assert_eq!(length(""), 0);
        assert_eq!(length("\n"), 1);
        assert_eq!(text::<3>("a/b"), *b"a/b");
    }
}
