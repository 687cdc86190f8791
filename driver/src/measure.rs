//! Times of executions, and the floor below which a device cannot go.

use std::time::{Duration, Instant};

use fuseplan::{Error, Handle, device::Peaks, error::ExecuteError, problem::Problem};

/// Work that is timed as a whole.
pub(crate) type Work<'a> = &'a mut dyn FnMut() -> Result<(), ExecuteError>;

/// The fewest and the most rounds that [`interleaved`] makes where the time allows.
const ROUNDS: std::ops::RangeInclusive<usize> = 3..=200;

/// Seconds of each work, one list for each: in every round each work is done once, so that all meet the
/// same machine. There are as many rounds as fit in `budget`, but at least three unless these would take
/// more than four times as long, and always one. Works have been done once before.
pub(crate) fn interleaved(
    handle: &Handle,
    budget: Duration,
    works: &mut [Work<'_>],
) -> Result<Vec<Vec<f64>>, Error> {
    let mut times = vec![Vec::new(); works.len()];
    let start = Instant::now();
    for round in 0..*ROUNDS.end() {
        let limit = if round < *ROUNDS.start() { budget * 4 } else { budget };
        if round > 0 && start.elapsed() >= limit {
            break;
        }
        for (work, times) in works.iter_mut().zip(&mut times) {
            let (time, result) = handle.time(&mut **work)?;
            result?;
            times.push(time.as_secs_f64());
        }
    }
    Ok(times)
}

/// The middle one of times, or the mean of the middle two.
pub(crate) fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// The times in seconds that a device needs at least for a problem.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Floor {
    /// All operations at the device's measured rate.
    pub(crate) compute: f64,
    /// Each byte read or written once at the device's measured bandwidth.
    pub(crate) memory: f64,
}

impl Floor {
    pub(crate) fn new(problem: &Problem, peaks: &Peaks) -> Self {
        Floor { compute: problem.flops() / peaks.flops, memory: problem.bytes() / peaks.bytes }
    }

    /// The greater of both.
    pub(crate) fn seconds(&self) -> f64 {
        self.compute.max(self.memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[5.0, 1.0, 3.0]), 3.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), 3.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn works_take_turns_and_slow_ones_are_not_repeated() {
        let handle = Handle::cpu();
        let order = std::cell::RefCell::new(String::new());
        let work = |letter| {
            let order = &order;
            move || {
                order.borrow_mut().push(letter);
                Ok(())
            }
        };
        let (mut first, mut second) = (work('a'), work('b'));
        let times = interleaved(&handle, Duration::from_millis(100), &mut [&mut first, &mut second]).unwrap();
        assert!((3..=200).contains(&times[0].len()) && times[0].len() == times[1].len());
        assert!(order.borrow().starts_with("ababab"));

        let mut slow = || {
            std::thread::sleep(Duration::from_millis(5));
            Ok(())
        };
        assert_eq!(interleaved(&handle, Duration::from_millis(1), &mut [&mut slow]).unwrap()[0].len(), 1);
    }
}
