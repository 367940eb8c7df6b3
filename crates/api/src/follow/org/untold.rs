//! Sentences for a released client that was refused before it opened its event stream, as `opencode run --share`
//! is: its next stream begins with them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::OrgId;
use tokio::time::Instant;

use super::frame::StockFrame;

/// How long a sentence waits for a stream.
const WAITS_FOR: Duration = Duration::from_secs(10);
/// The most sentences that wait in one organisation. Older ones are dropped.
const MAX_SENTENCES: usize = 16;

#[derive(Debug)]
pub(super) struct Untold {
    kept: Mutex<HashMap<OrgId, Vec<(Instant, StockFrame)>>>,
    waits_for: Duration,
}

impl Default for Untold {
    fn default() -> Self {
        Self { kept: Mutex::default(), waits_for: WAITS_FOR }
    }
}

impl Untold {
    pub(super) fn keep(&self, org: OrgId, frame: StockFrame) {
        let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, kept| {
            kept.retain(|(since, _)| since.elapsed() < self.waits_for);
            !kept.is_empty()
        });
        let kept = all.entry(org).or_default();
        if kept.len() == MAX_SENTENCES {
            kept.remove(0);
        }
        kept.push((Instant::now(), frame));
    }

    /// Returns the sentences that wait in an organisation, once.
    pub(super) fn take(&self, org: OrgId) -> Vec<StockFrame> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(&org);
        let fresh = |(since, frame): (Instant, StockFrame)| {
            (since.elapsed() < self.waits_for).then_some(frame)
        };
        kept.into_iter().flatten().filter_map(fresh).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::frame::FrameSource;
    use super::*;

    #[test]
    fn a_sentence_is_told_once_and_not_late() {
        let (untold, org) = (Untold::default(), OrgId::FIRST);
        let source = || FrameSource::new("/w".into(), "prj_a");
        let one = || StockFrame::new(source(), &json!({ "type": "session.error" }));
        untold.keep(org, one());
        assert_eq!(untold.take(OrgId::random()).len(), 0);
        assert_eq!((untold.take(org).len(), untold.take(org).len()), (1, 0));
        (0..MAX_SENTENCES + 3).for_each(|_| untold.keep(org, one()));
        assert_eq!(untold.take(org).len(), MAX_SENTENCES);
        let late = Untold { waits_for: Duration::ZERO, ..Untold::default() };
        late.keep(org, one());
        assert_eq!(late.take(org).len(), 0);
    }
}
