use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The silence of a member before it is logged. One lost packet is not worth a line.
const NEWS_AFTER: Duration = Duration::from_secs(1);

/// The members that do not answer. Raft tries several times a second and would log each failure. Here, a
/// member that goes away is one line, and its return another.
#[derive(Clone, Default)]
pub(crate) struct Reach(Arc<Mutex<BTreeMap<u64, Away>>>);

#[derive(Clone, Copy)]
struct Away {
    since: Instant,
    told: bool,
}

/// A change worth logging.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Gone,
    Back { away: Duration },
}

impl Reach {
    /// Records the result of one message to a member.
    pub(crate) fn note(&self, member: u64, url: &str, error: Option<&(impl Error + 'static)>) {
        match (self.change(member, error.is_some(), Instant::now()), error) {
            (Some(News::Gone), Some(error)) => {
                let error = error as &(dyn Error + 'static);
                tracing::warn!(member, url, error, "a placement member does not answer");
            }
            (Some(News::Back { away }), _) => {
                let away_ms = u64::try_from(away.as_millis()).unwrap_or(u64::MAX);
                tracing::info!(member, url, away_ms, "a placement member answers again");
            }
            (Some(News::Gone) | None, _) => {}
        }
    }

    fn change(&self, member: u64, failed: bool, now: Instant) -> Option<News> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !failed {
            let before = all.remove(&member)?;
            return before.told.then(|| News::Back { away: now.duration_since(before.since) });
        }
        let away = all.entry(member).or_insert(Away { since: now, told: false });
        if away.told || now.duration_since(away.since) < NEWS_AFTER {
            return None;
        }
        away.told = true;
        Some(News::Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Finding cluster 9: one absent member caused 7.5 to 12 KB of log a second.
    #[test]
    fn a_member_that_goes_and_comes_is_told_once_each() {
        let (reach, begun) = (Reach::default(), Instant::now());
        let at = |millis| begun + Duration::from_millis(millis);
        assert_eq!(reach.change(2, true, at(0)), None);
        assert_eq!(reach.change(2, false, at(200)), None, "one lost message is no news");
        let told: Vec<News> =
            (2..300).filter_map(|nth| reach.change(2, true, at(nth * 150))).collect();
        assert_eq!(told, [News::Gone]);
        assert_eq!(reach.change(3, false, at(45_000)), None, "another one was never away");
        let away = Duration::from_millis(60_000 - 300);
        assert_eq!(reach.change(2, false, at(60_000)), Some(News::Back { away }));
        assert_eq!(reach.change(2, false, at(60_150)), None);
    }
}
