use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use domain::{Incarnation, LocationRef};

use super::state::{Standing, State};

/// The leader's own knowledge of its workers. It affects decisions but is not agreed on.
#[derive(Debug, Clone, Default)]
pub struct Load {
    /// Workers that are shutting down. They get nothing.
    pub draining: BTreeSet<Incarnation>,
    /// Workers that were not heard recently. They get only Locations that no other worker can take.
    pub quiet: BTreeSet<Incarnation>,
    /// Locations on their way to a worker, not yet in the state.
    pub planned: BTreeMap<Incarnation, usize>,
    /// The work of each worker: the drains that it runs, and Locations that it got so recently that no heartbeat of it
    /// could count their drains.
    pub work: BTreeMap<Incarnation, usize>,
}

/// Chooses the worker for a Location: the one with the least work per slot, and of those the one with the fewest leases
/// per slot, among those that are heard, do not drain and have slots. A lease outlives its work by minutes, so leases
/// alone say little. A hash of Location and worker breaks ties, so that Locations spread and a new leader decides like
/// the old one. A worker of the node `last`, which had the Location last, comes first: it may have the files, unless it is
/// much fuller. `None` if no worker takes any.
#[must_use]
pub fn choose(
    state: &State,
    load: &Load,
    location: &LocationRef,
    last: Option<&str>,
) -> Option<Incarnation> {
    let takes = |standing: &&Standing| {
        standing.worker.slots > 0
            && !load.draining.contains(&standing.worker.incarnation)
            && !state.is_drained(&standing.worker.node)
    };
    let better = |a: &&Standing, b: &&Standing| {
        let (left, right) = (a.worker.incarnation, b.worker.incarnation);
        load.quiet
            .contains(&left)
            .cmp(&load.quiet.contains(&right))
            .then_with(|| fullness(a, b, |one| count_work(one, load)))
            .then_with(|| fullness(a, b, |one| leases(one, load)))
            .then_with(|| affinity(location, left).cmp(&affinity(location, right)))
    };
    let best = state.workers().filter(takes).min_by(better)?;
    let had = |standing: &&Standing| {
        last == Some(standing.worker.node.as_str())
            && !load.quiet.contains(&standing.worker.incarnation)
    };
    let known = state.workers().filter(takes).filter(had).min_by(better);
    let known = known.filter(|known| !is_much_fuller(known, best, load));
    Some(known.unwrap_or(best).worker.incarnation)
}

/// How much work, and how many leases, more than twice those of the best worker a known disk is worth.
const WORTH: usize = 8;

fn is_much_fuller(known: &Standing, best: &Standing, load: &Load) -> bool {
    let is_over = |count: fn(&Standing, &Load) -> usize| {
        let (left, right) = (count(known, load), 2 * count(best, load) + WORTH);
        (left as u128) * u128::from(best.worker.slots)
            > (right as u128) * u128::from(known.worker.slots)
    };
    is_over(count_work) || is_over(leases)
}

fn count_work(standing: &Standing, load: &Load) -> usize {
    let incarnation = standing.worker.incarnation;
    let count = |counts: &BTreeMap<Incarnation, usize>| counts.get(&incarnation).copied();
    count(&load.work).unwrap_or(0) + count(&load.planned).unwrap_or(0)
}

fn leases(standing: &Standing, load: &Load) -> usize {
    standing.count() + load.planned.get(&standing.worker.incarnation).copied().unwrap_or(0)
}

/// Compares a count per slot without division.
fn fullness(a: &Standing, b: &Standing, count: impl Fn(&Standing) -> usize) -> Ordering {
    let count = |standing: &Standing| count(standing) as u128;
    let (left, right) =
        (count(a) * u128::from(b.worker.slots), count(b) * u128::from(a.worker.slots));
    left.cmp(&right)
}

/// Returns the weight for highest-random-weight hashing (FNV-1a, the same in every build and on every
/// machine).
fn affinity(location: &LocationRef, incarnation: Incarnation) -> u64 {
    let words = [location.org.0.as_bytes().as_slice(), location.location.as_str().as_bytes()];
    let bytes = words.into_iter().flatten().chain(incarnation.0.as_bytes());
    crate::fnv::hash(bytes.copied())
}
