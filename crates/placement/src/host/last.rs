//! The node that last had each Location: its disk may still have the files, so that nothing is restored there.
//!
//! Only the leader knows, and only since it leads: a forgotten node costs a restore, nothing more.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use domain::LocationRef;
use tokio::time::Instant;

/// The most Locations that are remembered; the oldest are forgotten first.
const MOST: usize = 50_000;
/// A lease that is given back earlier was of no use: the Location's files or its lock could not be had there. A Location
/// without work is given back after ten minutes.
const TROUBLE: Duration = Duration::from_secs(300);

#[derive(Default)]
pub(crate) struct LastNodes {
    nodes: HashMap<LocationRef, (String, Instant)>,
    order: VecDeque<(LocationRef, Instant)>,
}

impl LastNodes {
    /// Notes that a worker of `node` has the Location.
    pub(crate) fn assigned(&mut self, location: LocationRef, node: String, now: Instant) {
        self.nodes.insert(location.clone(), (node, now));
        self.order.push_back((location, now));
        while self.order.len() > MOST
            && let Some((oldest, since)) = self.order.pop_front()
        {
            // Unless it was assigned again.
            if self.nodes.get(&oldest).is_some_and(|(_, at)| *at == since) {
                self.nodes.remove(&oldest);
            }
        }
    }

    /// Notes that the Location was given back.
    pub(crate) fn released(&mut self, location: &LocationRef, now: Instant) {
        if self.nodes.get(location).is_some_and(|(_, since)| now < *since + TROUBLE) {
            self.nodes.remove(location);
        }
    }

    /// Returns the node that had the Location last.
    pub(crate) fn of(&self, location: &LocationRef) -> Option<&str> {
        self.nodes.get(location).map(|(node, _)| node.as_str())
    }
}

#[cfg(test)]
mod tests {
    use domain::OrgId;

    use super::*;

    fn location(nth: usize) -> LocationRef {
        let location = format!("loc_{nth}").parse().expect("an id");
        LocationRef { org: OrgId::FIRST, location }
    }

    #[test]
    fn a_node_that_had_trouble_is_forgotten() {
        let (mut last, now) = (LastNodes::default(), Instant::now());
        last.assigned(location(1), "a".into(), now);
        assert_eq!(last.of(&location(1)), Some("a"));
        last.released(&location(1), now + TROUBLE);
        assert_eq!(last.of(&location(1)), Some("a"), "it was idle");
        last.assigned(location(1), "b".into(), now);
        last.released(&location(1), now + Duration::from_secs(3));
        assert_eq!(last.of(&location(1)), None);
    }

    #[test]
    fn the_oldest_are_forgotten_first() {
        let (mut last, now) = (LastNodes::default(), Instant::now());
        for nth in 0..=MOST {
            last.assigned(location(nth), "a".into(), now + Duration::from_millis(nth as u64));
        }
        assert_eq!((last.of(&location(0)), last.of(&location(1))), (None, Some("a")));
        assert_eq!(last.nodes.len(), MOST);
    }
}
