//! How long a device is measured.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use crate::BackendError;

/// Measures by work that starts small and grows until it is enough, for no longer than a budget: of a device that is
/// a thousand times slower than others it asks a thousandth of the work.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// How long all runs may take together, by the host's clock. The first two, of the least amount, are always made.
    pub budget: Duration,
    /// Amounts grow no more when a run takes as long, by its own account.
    pub enough: Duration,
    /// How often the last amount is run, if the budget allows.
    pub rounds: u32,
}

impl Patience {
    /// The last of the growing amounts, and the shortest time of its runs. `run` does an amount of work and says how
    /// long that took.
    ///
    /// Amounts double from the first to the last of `amounts`. What is likely to end behind the budget is not begun,
    /// and what there is no memory for ends the growth. The first run does not count: it may load the kernel.
    ///
    /// # Errors
    /// Those of `run`; no memory for the least amount.
    pub fn fastest(
        &self,
        amounts: RangeInclusive<u64>,
        run: impl FnMut(u64) -> Result<Duration, BackendError>,
    ) -> Result<(u64, Duration), BackendError> {
        let start = Instant::now();
        self.fastest_by(&|| start.elapsed(), amounts, run)
    }

    fn fastest_by(
        &self,
        clock: &dyn Fn() -> Duration,
        amounts: RangeInclusive<u64>,
        mut run: impl FnMut(u64) -> Result<Duration, BackendError>,
    ) -> Result<(u64, Duration), BackendError> {
        let (mut amount, most) = amounts.into_inner();
        run(amount)?;
        let start = clock();
        let mut timed = |amount| {
            let begun = clock();
            let time = run(amount)?;
            Ok((time, clock() - begun))
        };
        let fits = |next: Duration| clock() - start + next <= self.budget;
        let (mut best, mut took) = timed(amount)?;
        while amount < most && best < self.enough && fits(took * 2) {
            let next = amount.saturating_mul(2).min(most);
            match timed(next) {
                Ok(run) => (best, took) = run,
                Err(BackendError::OutOfMemory { .. }) => break,
                Err(error) => return Err(error),
            }
            amount = next;
        }
        for _ in 1..self.rounds {
            if !fits(took) {
                break;
            }
            let (time, last) = timed(amount)?;
            (best, took) = (best.min(time), last);
        }
        Ok((amount, best))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    const PATIENCE: Patience =
        Patience { budget: Duration::from_millis(500), enough: Duration::from_millis(20), rounds: 8 };

    /// Measures a device that needs so long for a unit of work, and has memory for so many: what came of it, the
    /// amounts of all runs, and how long they took together.
    fn measure(
        unit: Duration,
        room: u64,
        most: u64,
    ) -> (Result<(u64, Duration), BackendError>, Vec<u64>, Duration) {
        let (now, amounts) = (Cell::new(Duration::from_secs(7)), RefCell::new(Vec::new()));
        let start = now.get();
        let found = PATIENCE.fastest_by(&|| now.get(), 1..=most, |amount| {
            if amount > room {
                return Err(BackendError::OutOfMemory { backend: "fake", bytes: amount as usize });
            }
            amounts.borrow_mut().push(amount);
            let took = unit * amount as u32;
            now.set(now.get() + took);
            Ok(took)
        });
        (found, amounts.take(), now.get() - start)
    }

    #[test]
    fn fast_devices_get_the_most_work_or_enough() {
        let (found, amounts, _) = measure(Duration::from_nanos(10), u64::MAX, 1000);
        assert_eq!(found.unwrap(), (1000, Duration::from_micros(10)));
        assert_eq!(amounts[..11], [1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert_eq!(amounts[11..], [1000; 8]);
        let (found, ..) = measure(Duration::from_millis(3), u64::MAX, 1 << 20);
        assert_eq!(found.unwrap(), (8, Duration::from_millis(24)));
    }

    #[test]
    fn slow_devices_get_no_more_work_than_the_budget_has_time_for() {
        // Too slow for anything but the least amount, then for a second round, then for all rounds.
        for (unit, runs) in [(900, 2), (240, 3), (70, 8)] {
            let unit = Duration::from_millis(unit);
            let (found, amounts, took) = measure(unit, u64::MAX, 1 << 29);
            assert_eq!((found.unwrap().0, amounts.len()), (1, runs), "{unit:?}");
            assert!(took <= PATIENCE.budget.max(unit) + unit, "{unit:?}: {took:?}");
        }
        // The work grows, and stops growing in time.
        let slow = Patience { enough: Duration::MAX, ..PATIENCE };
        let now = Cell::new(Duration::ZERO);
        let found = slow.fastest_by(&|| now.get(), 1..=u64::MAX, |amount| {
            let took = Duration::from_millis(amount);
            now.set(now.get() + took);
            Ok(took)
        });
        assert_eq!(found.unwrap(), (128, Duration::from_millis(128)));
        assert!(now.get() <= slow.budget + Duration::from_millis(1), "{:?}", now.get());
    }

    #[test]
    fn work_without_memory_ends_the_growth() {
        let (found, amounts, _) = measure(Duration::from_nanos(10), 40, 1 << 20);
        assert_eq!(found.unwrap().0, 32);
        assert_eq!(amounts.iter().filter(|&&amount| amount == 32).count(), 8);
        let (found, ..) = measure(Duration::from_nanos(10), 0, 1 << 20);
        assert_eq!(found.unwrap_err(), BackendError::OutOfMemory { backend: "fake", bytes: 1 });
    }
}
