//! The memory of a worker's folds: how many bytes of logs its running drains may hold together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A fold that is smaller does not count: a worker's slots bound how many of them there are.
const SMALL: usize = 256 * 1024;

/// A budget of bytes for the folds of a worker's drains. Cheap to clone.
#[derive(Debug, Clone)]
pub struct FoldBudget(Arc<Budget>);

#[derive(Debug)]
struct Budget {
    most: usize,
    used: Mutex<usize>,
}

impl Default for FoldBudget {
    /// Returns a budget without a bound.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl FoldBudget {
    /// Returns a budget of so many bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Budget { most, used: Mutex::new(0) }))
    }

    /// Returns whether a fold of so many bytes would get a share now. One that is larger than the budget gets it once
    /// nobody else has one.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.fits(*self.used(), bytes)
    }

    /// Takes a share of so many bytes; `None` if there is no room.
    pub(crate) fn take(&self, bytes: usize) -> Option<FoldShare> {
        let mut used = self.used();
        if !self.fits(*used, bytes) {
            return None;
        }
        *used = used.saturating_add(counted(bytes));
        Some(FoldShare { budget: self.clone(), bytes: counted(bytes) })
    }

    fn fits(&self, used: usize, bytes: usize) -> bool {
        used == 0 || bytes < SMALL || used.saturating_add(bytes) <= self.0.most
    }

    fn used(&self) -> MutexGuard<'_, usize> {
        // Nothing panics under this lock.
        self.0.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn counted(bytes: usize) -> usize {
    if bytes < SMALL { 0 } else { bytes }
}

/// A drain's share of a budget, until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct FoldShare {
    budget: FoldBudget,
    bytes: usize,
}

impl FoldShare {
    /// Returns whether it is of nothing that counts.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Follows the fold, which has grown or shrunk. Work that runs is not stopped for its size.
    pub(crate) fn resize(&mut self, bytes: usize) {
        let mut used = self.budget.used();
        *used = used.saturating_sub(self.bytes).saturating_add(counted(bytes));
        self.bytes = counted(bytes);
    }
}

impl Drop for FoldShare {
    fn drop(&mut self) {
        let mut used = self.budget.used();
        *used = used.saturating_sub(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    // Finding core-3 C2: a worker held the folds of all its drains, whatever their size.
    #[test]
    fn folds_beyond_the_budget_get_no_share_until_others_end() {
        let budget = FoldBudget::new(4 * MIB);
        let first = budget.take(3 * MIB).expect("room");
        assert!(budget.take(2 * MIB).is_none());
        let small: Vec<_> = (0..100).map(|_| budget.take(SMALL - 1).expect("room")).collect();
        let second = budget.take(MIB).expect("room");
        drop((first, small));
        assert!(budget.has_room(3 * MIB) && !budget.has_room(3 * MIB + 1));
        drop(second);
        let whole = budget.take(100 * MIB).expect("alone");
        assert!(!budget.has_room(MIB) && budget.has_room(SMALL - 1));
        drop(whole);
        assert_eq!(*budget.used(), 0);
    }

    #[test]
    fn a_fold_that_grows_takes_more_of_the_budget() {
        let budget = FoldBudget::new(4 * MIB);
        let mut share = budget.take(1).expect("room");
        assert_eq!(*budget.used(), 0);
        share.resize(3 * MIB);
        assert!(!budget.has_room(2 * MIB));
        share.resize(1);
        assert!(budget.has_room(4 * MIB));
    }
}
