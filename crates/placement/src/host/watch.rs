use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use domain::Incarnation;
use placement_api::Heartbeat;

use crate::rules::Load;

/// What a leader heard of its workers, on a clock that runs only while it could have heard them.
///
/// The clock is advanced by the leader's tick, by at most a few ticks at once: a leader that was itself
/// stopped, or whose machine slept, has learned nothing about its workers and declares nobody dead for it.
pub(crate) struct Watch {
    /// Silence after which a worker is declared dead.
    suspicion: Duration,
    /// How long this leader has been listening.
    listened: Duration,
    workers: BTreeMap<Incarnation, Heard>,
}

struct Heard {
    at: Duration,
    /// By this leader, and not only inherited from the state.
    itself: bool,
    said: Said,
}

/// What a worker said of itself with its last heartbeat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// It takes no new Locations.
    pub(crate) draining: bool,
    /// Drains that it runs.
    pub(crate) busy: u32,
    /// It does not reach the store.
    pub(crate) stranded: bool,
    /// How long ago the store last answered it.
    pub(crate) store_silent: Duration,
}

impl Said {
    pub(crate) fn of(beat: &Heartbeat) -> Self {
        Self {
            draining: beat.draining,
            busy: beat.busy,
            stranded: beat.stranded,
            store_silent: Duration::from_millis(beat.store_silent_ms),
        }
    }
}

/// A worker whose store answered within this time reaches it. Less than the 4.5 s after which a worker says that it
/// does not, by more than two workers may notice one failure apart: when the store is away for all, nobody is taken
/// for one that reaches it.
const STORE_ANSWERS: Duration = Duration::from_millis(2_500);

impl Watch {
    pub(crate) fn new(suspicion: Duration) -> Self {
        Self { suspicion, listened: Duration::ZERO, workers: BTreeMap::new() }
    }

    /// How often to call [`Watch::advance`].
    pub(crate) fn tick(suspicion: Duration) -> Duration {
        suspicion / 20
    }

    /// Lets the leader's clock run, by no more than three ticks.
    pub(crate) fn advance(&mut self, elapsed: Duration) {
        self.listened += elapsed.min(Self::tick(self.suspicion) * 3);
    }

    /// Takes a heartbeat in.
    pub(crate) fn hear(&mut self, incarnation: Incarnation, said: Said) {
        let heard = Heard { at: self.listened, itself: true, said };
        self.workers.insert(incarnation, heard);
    }

    /// The workers among `live` that are silent for longer than the suspicion time. One that this leader
    /// never heard is counted from when it first looked: a new leader waits a full period.
    pub(crate) fn silent(&mut self, live: &BTreeSet<Incarnation>) -> Vec<Incarnation> {
        // A heartbeat comes before its registration: what is not live is kept for a while.
        let (listened, suspicion) = (self.listened, self.suspicion);
        self.workers.retain(|incarnation, heard| {
            live.contains(incarnation) || listened.saturating_sub(heard.at) <= suspicion * 5
        });
        for incarnation in live {
            let inherited = Heard { at: listened, itself: false, said: Said::default() };
            self.workers.entry(*incarnation).or_insert(inherited);
        }
        live.iter().copied().filter(|incarnation| self.is_silent(*incarnation)).collect()
    }

    /// Whether a worker is silent for longer than the suspicion time now.
    pub(crate) fn is_silent(&self, incarnation: Incarnation) -> bool {
        self.workers
            .get(&incarnation)
            .is_some_and(|heard| self.listened.saturating_sub(heard.at) > self.suspicion)
    }

    /// Time since a worker's last heartbeat to this leader.
    pub(crate) fn age(&self, incarnation: Incarnation) -> Option<Duration> {
        let heard = self.workers.get(&incarnation).filter(|heard| heard.itself)?;
        Some(self.listened.saturating_sub(heard.at))
    }

    /// What a worker said last.
    pub(crate) fn said(&self, incarnation: Incarnation) -> Said {
        self.workers.get(&incarnation).map(|heard| heard.said).unwrap_or_default()
    }

    /// Whether a worker was heard lately, takes Locations as far as it says, and reaches the store.
    pub(crate) fn is_fit(&self, incarnation: Incarnation) -> bool {
        let said = self.said(incarnation);
        !said.draining
            && !said.stranded
            && self.age(incarnation).is_some_and(|age| said.store_silent + age <= STORE_ANSWERS)
    }

    /// What [`crate::rules::choose`] should know.
    pub(crate) fn load(&self, live: impl Iterator<Item = Incarnation>) -> Load {
        let quiet_after = self.suspicion * 3 / 5;
        let mut load = Load::default();
        for incarnation in live {
            let said = self.said(incarnation);
            if said.draining {
                load.draining.insert(incarnation);
            }
            // One without the store gets only what nobody else can take: when all are, it is back for all at once.
            if said.stranded || self.age(incarnation).is_none_or(|age| age > quiet_after) {
                load.quiet.insert(incarnation);
            }
        }
        load
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUSPICION: Duration = Duration::from_secs(2);

    fn listen(watch: &mut Watch, ticks: u32) {
        for _ in 0..ticks {
            watch.advance(Watch::tick(SUSPICION));
        }
    }

    #[test]
    fn a_worker_is_silent_after_the_suspicion_time_and_not_before() {
        let (mut watch, worker) = (Watch::new(SUSPICION), Incarnation::random());
        let live = [worker].into();
        watch.hear(worker, Said { busy: 3, ..Said::default() });
        listen(&mut watch, 20);
        assert_eq!(watch.silent(&live), []);
        assert_eq!(watch.age(worker), Some(SUSPICION));
        listen(&mut watch, 1);
        assert_eq!(watch.silent(&live), [worker]);
        watch.hear(worker, Said { draining: true, ..Said::default() });
        assert_eq!(watch.silent(&live), []);
        assert!(!watch.is_silent(worker));
        assert_eq!((watch.said(worker).draining, watch.said(worker).busy), (true, 0));
    }

    #[test]
    fn a_new_leader_waits_a_full_period_for_workers_that_it_never_heard() {
        let (mut watch, worker) = (Watch::new(SUSPICION), Incarnation::random());
        let live = [worker].into();
        assert_eq!(watch.silent(&live), []);
        assert_eq!(watch.age(worker), None);
        listen(&mut watch, 20);
        assert_eq!(watch.silent(&live), []);
        listen(&mut watch, 1);
        assert_eq!(watch.silent(&live), [worker]);
    }

    #[test]
    fn a_leader_that_was_stopped_declares_nobody_dead_for_it() {
        let (mut watch, worker) = (Watch::new(SUSPICION), Incarnation::random());
        watch.hear(worker, Said::default());
        watch.advance(Duration::from_secs(3_600));
        assert_eq!(watch.silent(&[worker].into()), []);
    }

    #[test]
    fn who_was_not_heard_lately_is_quiet_and_who_drains_is_told_apart() {
        let mut watch = Watch::new(SUSPICION);
        let [quiet, heard, drains, unknown] = [(); 4].map(|()| Incarnation::random());
        watch.hear(quiet, Said::default());
        listen(&mut watch, 13);
        watch.hear(heard, Said::default());
        watch.hear(drains, Said { draining: true, ..Said::default() });
        let load = watch.load([quiet, heard, drains, unknown].into_iter());
        assert_eq!(load.quiet, [quiet, unknown].into());
        assert_eq!(load.draining, [drains].into());
    }

    // Finding cluster 4: a worker that could not reach Postgres kept its Locations while others were idle.
    #[test]
    fn a_worker_without_the_store_is_the_last_choice() {
        let mut watch = Watch::new(SUSPICION);
        let [stranded, fit, late] = [(); 3].map(|()| Incarnation::random());
        let silent =
            |millis| Said { store_silent: Duration::from_millis(millis), ..Said::default() };
        watch.hear(stranded, Said { stranded: true, ..silent(4_500) });
        watch.hear(fit, silent(900));
        watch.hear(late, silent(3_500));
        let all = [stranded, fit, late];
        assert_eq!(all.map(|one| watch.is_fit(one)), [false, true, false]);
        assert_eq!(watch.load(all.into_iter()).quiet, [stranded].into());
        listen(&mut watch, 18);
        assert!(!watch.is_fit(fit), "what it said is too old by now");
    }
}
