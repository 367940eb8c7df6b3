use std::time::Duration;

use tokio::time::Instant;

/// The pause before a member that failed is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// The members that one call may ask, and when. Does no I/O and reads no clock.
///
/// A request to a member is *under way* from [`Candidates::pick`] until its result is reported. A member
/// never has two requests at once.
pub(crate) struct Candidates {
    all: Vec<Candidate>,
    /// A member that another one has just named as the leader. Ask it at once.
    named: Option<usize>,
}

struct Candidate {
    url: String,
    /// The number of requests to it.
    asks: u32,
    /// The time from which it may be asked; `None` while a request is under way.
    free_at: Option<Instant>,
}

impl Candidates {
    /// Makes candidates from `urls`, each once, in this order.
    pub(crate) fn new<'a>(urls: impl Iterator<Item = &'a String>, now: Instant) -> Self {
        let mut candidates = Self { all: Vec::new(), named: None };
        for url in urls {
            candidates.place(url, now);
        }
        candidates
    }

    fn place(&mut self, url: &str, now: Instant) -> usize {
        match self.all.iter().position(|known| known.url == url) {
            Some(at) => at,
            None => {
                self.all.push(Candidate { url: url.to_owned(), asks: 0, free_at: Some(now) });
                self.all.len() - 1
            }
        }
    }

    pub(crate) fn url(&self, at: usize) -> &str {
        &self.all[at].url
    }

    /// Returns the member to ask now, if any: the one that was just named, or, if `due`, the one that was
    /// asked least.
    pub(crate) fn pick(&mut self, now: Instant, due: bool) -> Option<usize> {
        let is_free = |candidate: &Candidate| candidate.free_at.is_some_and(|free| free <= now);
        let named = self.named.take().filter(|at| is_free(&self.all[*at]));
        let in_turn = || {
            let free = (0..self.all.len()).filter(|at| is_free(&self.all[*at]));
            free.min_by_key(|at| self.all[*at].asks)
        };
        let at = named.or_else(|| due.then(in_turn).flatten())?;
        self.all[at].asks += 1;
        self.all[at].free_at = None;
        Some(at)
    }

    /// Returns the time when the next member may be asked; `None` while all requests are under way.
    pub(crate) fn free_at(&self) -> Option<Instant> {
        self.all.iter().filter_map(|candidate| candidate.free_at).min()
    }

    /// Records that a request to a member failed.
    pub(crate) fn failed(&mut self, at: usize, now: Instant) {
        self.all[at].free_at = Some(now + PAUSE);
    }

    /// Records that a member does not lead, and the leader that it names. From `pass_at` on, it may be asked
    /// to pass the call on, so it is worth asking again while the leader's request is under way.
    pub(crate) fn elsewhere(
        &mut self,
        at: usize,
        leader: Option<&str>,
        now: Instant,
        pass_at: Instant,
    ) {
        let mut free_at = now + PAUSE;
        if let Some(leader) = leader {
            let leader = self.place(leader.trim_end_matches('/'), now);
            if self.all[leader].free_at.is_none() {
                free_at = free_at.max(pass_at);
            } else if leader != at {
                self.named = Some(leader);
            }
        }
        self.all[at].free_at = Some(free_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(count: usize) -> Vec<String> {
        (0..count).map(|nth| format!("http://p{nth}")).collect()
    }

    #[test]
    fn each_is_asked_in_turn_and_a_named_leader_at_once() {
        let (urls, now) = (urls(3), Instant::now());
        let mut candidates = Candidates::new(urls.iter(), now);
        assert_eq!(candidates.pick(now, true), Some(0));
        assert_eq!(candidates.pick(now, false), None, "it is not due yet");
        assert_eq!(candidates.pick(now, true), Some(1));
        candidates.elsewhere(1, Some("http://p9/"), now, now);
        assert_eq!(candidates.pick(now, false), Some(3));
        assert_eq!(candidates.url(3), "http://p9");
        assert_eq!(candidates.pick(now, true), Some(2));
        assert_eq!(candidates.pick(now, true), None);
        assert_eq!(candidates.free_at(), Some(now + PAUSE));
        candidates.failed(3, now);
        assert_eq!(candidates.pick(now + PAUSE, true), Some(1));
    }

    #[test]
    fn one_that_names_a_leader_under_way_waits_until_it_may_pass_on() {
        let (urls, now) = (urls(2), Instant::now());
        let mut candidates = Candidates::new(urls.iter(), now);
        let pass_at = now + Duration::from_millis(150);
        assert_eq!((candidates.pick(now, true), candidates.pick(now, true)), (Some(0), Some(1)));
        candidates.elsewhere(1, Some("http://p0"), now, pass_at);
        assert_eq!(candidates.pick(now + PAUSE, true), None);
        assert_eq!(candidates.pick(pass_at, true), Some(1));
    }

    #[test]
    fn two_that_name_each_other_are_asked_no_faster_than_the_pause() {
        let (urls, now) = (urls(2), Instant::now());
        let mut candidates = Candidates::new(urls.iter(), now);
        assert_eq!(candidates.pick(now, true), Some(0));
        candidates.elsewhere(0, Some("http://p1"), now, now);
        assert_eq!(candidates.pick(now, false), Some(1));
        candidates.elsewhere(1, Some("http://p0"), now, now);
        assert_eq!(candidates.pick(now, true), None);
        assert_eq!(candidates.pick(now + PAUSE, true), Some(0));
    }
}
