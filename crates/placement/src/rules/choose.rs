use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use domain::{Incarnation, LocationRef};

use super::state::{Standing, State};

/// What the leader knows of its workers beside the state: it decides, but is not agreed on.
#[derive(Debug, Clone, Default)]
pub struct Load {
    /// Workers that said that they shut down: they get nothing.
    pub draining: BTreeSet<Incarnation>,
    /// Workers that were not heard lately: they get what nobody else can take.
    pub quiet: BTreeSet<Incarnation>,
    /// Locations on their way to a worker, not in the state yet.
    pub planned: BTreeMap<Incarnation, usize>,
}

/// Who should get a Location: the worker with the fewest leases for its slots, among those that are
/// heard, do not drain and have slots. Ties go by a hash of Location and worker, so that they spread,
/// and so that a new leader decides as the old one did. `None` when nobody takes any.
#[must_use]
pub fn choose(state: &State, load: &Load, location: &LocationRef) -> Option<Incarnation> {
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
            .then_with(|| fullness(a, b, load))
            .then_with(|| affinity(location, left).cmp(&affinity(location, right)))
    };
    state.workers().filter(takes).min_by(better).map(|standing| standing.worker.incarnation)
}

/// Compares leases per slot without division.
fn fullness(a: &Standing, b: &Standing, load: &Load) -> Ordering {
    let leases = |standing: &Standing| {
        let planned = load.planned.get(&standing.worker.incarnation).copied().unwrap_or(0);
        (standing.count() + planned) as u128
    };
    let (left, right) =
        (leases(a) * u128::from(b.worker.slots), leases(b) * u128::from(a.worker.slots));
    left.cmp(&right)
}

/// Highest-random-weight hashing (FNV-1a, which is the same in every build and on every machine).
fn affinity(location: &LocationRef, incarnation: Incarnation) -> u64 {
    let words = [location.org.0.as_bytes().as_slice(), location.location.as_str().as_bytes()];
    let bytes = words.into_iter().flatten().chain(incarnation.0.as_bytes());
    crate::fnv::hash(bytes.copied())
}
