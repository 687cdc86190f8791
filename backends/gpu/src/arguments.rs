//! The one argument of a kernel, as words.

use fuseplan_api::{OpArgs, Problem, RunArgs};

/// Most words of a kernel's argument: drivers take 4096 bytes.
pub const MAX_WORDS: usize = 512;
/// Words before the operators: input, output, beta.
pub(crate) const FIRST_OP: usize = 3;

/// Pointers of each operator in the text's `struct Op`: as many as any of the problem's operators has operands, and
/// one where none has any, since C++ has no empty arrays.
pub(crate) fn pointers(problem: &Problem) -> usize {
    problem.ops.iter().map(|op| op.kind().operands().len()).max().unwrap_or(0).max(1)
}

/// What a kernel's argument has besides an execution's pointers and scalars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentLayout {
    /// Pointers of each operator.
    pub pointers: usize,
    /// The text's `struct Shape`.
    pub sizes: Vec<i64>,
}

impl ArgumentLayout {
    /// Writes the text's `struct Args` to the front of `words`, which have room for it; the number of words.
    pub fn pack(&self, args: &RunArgs<'_>, words: &mut [u64]) -> usize {
        let beta = args.ops.last().map_or(0.0, |op| op.beta);
        words[..FIRST_OP].copy_from_slice(&[args.input as u64, args.output as u64, two(beta, 0.0)]);
        let mut next = FIRST_OP;
        for OpArgs { alpha, pointers, scalars, .. } in args.ops {
            let mut push = |word| {
                words[next] = word;
                next += 1;
            };
            pointers[..self.pointers].iter().for_each(|pointer| push(*pointer as u64));
            let [a, b, c] = scalars.map(|scalar| scalar as f32);
            push(two(*alpha, a));
            push(two(b, c));
        }
        for (word, size) in words[next..].iter_mut().zip(&self.sizes) {
            *word = *size as u64;
        }
        next + self.sizes.len()
    }
}

/// A word of two numbers.
fn two(low: f32, high: f32) -> u64 {
    u64::from(low.to_bits()) | u64::from(high.to_bits()) << 32
}
