use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use domain::Incarnation;
use placement_api::Heartbeat;

use crate::rules::Load;

/// A leader's record of its workers' heartbeats, on a clock that runs only while it could have heard them.
///
/// The leader's tick advances the clock, by a few ticks at most. A leader that was stopped itself, or whose
/// machine slept, has learned nothing about its workers and declares none of them dead for it.
pub(crate) struct Watch {
    /// The silence after which a worker is declared dead.
    suspicion: Duration,
    /// The time that this leader has been listening.
    listened: Duration,
    workers: BTreeMap<Incarnation, Heard>,
}

struct Heard {
    at: Duration,
    /// This leader heard it; otherwise the entry comes from the state.
    itself: bool,
    said: Said,
    /// How many Locations it got, by tick, for the last [`UNCOUNTED`].
    got: VecDeque<(Duration, usize)>,
}

/// How long a Location may be given before a heartbeat counts its drain: two heartbeats.
const UNCOUNTED: Duration = Duration::from_secs(1);

/// The content of a worker's last heartbeat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// It takes no new Locations.
    pub(crate) draining: bool,
    /// Number of drains that it runs.
    pub(crate) busy: u32,
    /// It does not reach the store.
    pub(crate) stranded: bool,
    /// The time since the store last answered it.
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

/// The longest time since the store's last answer at which a worker counts as reaching it. A worker reports
/// failure after 4.5 s. The difference exceeds the time between two workers' notice of the same failure, so
/// if the store is away for all, no worker counts as reaching it.
const STORE_ANSWERS: Duration = Duration::from_millis(2_500);

impl Watch {
    pub(crate) fn new(suspicion: Duration) -> Self {
        Self { suspicion, listened: Duration::ZERO, workers: BTreeMap::new() }
    }

    /// Returns the interval at which to call [`Watch::advance`].
    pub(crate) fn tick(suspicion: Duration) -> Duration {
        suspicion / 20
    }

    /// Advances the leader's clock, by at most three ticks.
    pub(crate) fn advance(&mut self, elapsed: Duration) {
        self.listened += elapsed.min(Self::tick(self.suspicion) * 3);
    }

    /// Records a heartbeat.
    pub(crate) fn hear(&mut self, incarnation: Incarnation, said: Said) {
        let got = self.workers.remove(&incarnation).map(|heard| heard.got).unwrap_or_default();
        let heard = Heard { at: self.listened, itself: true, said, got };
        self.workers.insert(incarnation, heard);
    }

    /// Records that a worker got a Location, which it will work on.
    pub(crate) fn note_assignment(&mut self, incarnation: Incarnation) {
        let Some(heard) = self.workers.get_mut(&incarnation) else { return };
        let now = self.listened;
        heard.got.retain(|(at, _)| now < *at + UNCOUNTED);
        match heard.got.back_mut() {
            Some((at, count)) if *at == now => *count += 1,
            Some(_) | None => heard.got.push_back((now, 1)),
        }
    }

    /// Returns a worker's drains, with those of Locations that its heartbeats cannot count yet.
    fn count_work(&self, incarnation: Incarnation) -> usize {
        let Some(Heard { said, got, .. }) = self.workers.get(&incarnation) else { return 0 };
        let recent = got.iter().filter(|(at, _)| self.listened < *at + UNCOUNTED);
        let recent: usize = recent.map(|(_, count)| count).sum();
        usize::try_from(said.busy).unwrap_or(usize::MAX).saturating_add(recent)
    }

    /// Returns the workers in `live` that are silent for longer than the suspicion time. A worker that this
    /// leader never heard counts from the leader's first look, so a new leader waits a full period.
    pub(crate) fn silent(&mut self, live: &BTreeSet<Incarnation>) -> Vec<Incarnation> {
        // A heartbeat comes before its registration, so entries outside `live` are kept for a while.
        let (listened, suspicion) = (self.listened, self.suspicion);
        self.workers.retain(|incarnation, heard| {
            live.contains(incarnation) || listened.saturating_sub(heard.at) <= suspicion * 5
        });
        for incarnation in live {
            let inherited =
                Heard { at: listened, itself: false, said: Said::default(), got: VecDeque::new() };
            self.workers.entry(*incarnation).or_insert(inherited);
        }
        live.iter().copied().filter(|incarnation| self.is_silent(*incarnation)).collect()
    }

    /// Returns whether a worker is silent for longer than the suspicion time now.
    pub(crate) fn is_silent(&self, incarnation: Incarnation) -> bool {
        self.workers
            .get(&incarnation)
            .is_some_and(|heard| self.listened.saturating_sub(heard.at) > self.suspicion)
    }

    /// Returns the time since a worker's last heartbeat to this leader.
    pub(crate) fn age(&self, incarnation: Incarnation) -> Option<Duration> {
        let heard = self.workers.get(&incarnation).filter(|heard| heard.itself)?;
        Some(self.listened.saturating_sub(heard.at))
    }

    /// Returns the content of a worker's last heartbeat.
    pub(crate) fn said(&self, incarnation: Incarnation) -> Said {
        self.workers.get(&incarnation).map(|heard| heard.said).unwrap_or_default()
    }

    /// Returns whether a worker was heard recently, takes Locations, and reaches the store.
    pub(crate) fn is_fit(&self, incarnation: Incarnation) -> bool {
        let said = self.said(incarnation);
        !said.draining
            && !said.stranded
            && self.age(incarnation).is_some_and(|age| said.store_silent + age <= STORE_ANSWERS)
    }

    /// Returns the input of [`crate::rules::choose`].
    pub(crate) fn load(&self, live: impl Iterator<Item = Incarnation>) -> Load {
        let quiet_after = self.suspicion * 3 / 5;
        let mut load = Load::default();
        for incarnation in live {
            let said = self.said(incarnation);
            load.work.insert(incarnation, self.count_work(incarnation));
            if said.draining {
                load.draining.insert(incarnation);
            }
            // A stranded worker is the last choice. If all are stranded, the store will be back for all at
            // once.
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

    // Finding ops S4: a new worker got all new Locations, however busy it was by then.
    #[test]
    fn a_location_is_work_until_heartbeats_count_its_drain() {
        let (mut watch, worker) = (Watch::new(SUSPICION), Incarnation::random());
        let beat = |watch: &mut Watch, busy| {
            watch.hear(worker, Said { busy, ..Said::default() });
        };
        let work = |watch: &Watch| watch.load([worker].into_iter()).work[&worker];
        watch.note_assignment(worker);
        assert_eq!(work(&watch), 0, "nobody was heard yet");
        beat(&mut watch, 1);
        watch.note_assignment(worker);
        watch.note_assignment(worker);
        assert_eq!(work(&watch), 3);
        listen(&mut watch, 5);
        beat(&mut watch, 1);
        watch.note_assignment(worker);
        assert_eq!(work(&watch), 4, "this heartbeat may have been too early for the first two");
        listen(&mut watch, 5);
        beat(&mut watch, 3);
        assert_eq!(work(&watch), 4);
        listen(&mut watch, 5);
        beat(&mut watch, 2);
        assert_eq!(work(&watch), 2, "by now each drain was counted, or has ended");
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
