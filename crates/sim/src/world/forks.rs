//! Forks: sessions that begin with the conversation of another, at its Location or at their own.

use std::collections::BTreeSet;

use domain::{CallId, RecordedEvent, Seq, SessionEvent, SessionForked, SnapshotTree};
use history::History;
use session_rules::Forked;

use super::facts::{FORKS, LOCATIONS, SESSIONS};
use super::{Action, World};
use crate::check::{Checker, copies};
use crate::mutant::ShellMutant;

/// The number of the first copied event.
const FIRST: Seq = Seq(3);

impl World {
    /// A client forks a session before a message, or at its end.
    pub(super) fn fork(&mut self, session: usize) {
        let fork = self.store.sessions.len();
        if fork == SESSIONS + FORKS {
            return;
        }
        let before = if self.rng.chance(75) { self.any_message(session) } else { None };
        let own = self.rng.chance(50);
        let log = self.store.sessions[session].events.clone();
        let copy =
            self.with_mint(|_, mint, _| session_rules::fork(&log, before.as_ref(), FIRST, mint));
        let Some(copy) = copy else { return }; // the message may be gone
        let files = own.then(|| self.files_then(session, &log, &copy)).flatten();
        let at = match &files {
            Some(_) => LOCATIONS + (fork - SESSIONS),
            None => self.store.sessions[session].head.location,
        };
        let Forked { events, through } = copy;
        let forked = SessionForked {
            parent: self.facts.sessions[session][at].session.clone(),
            through,
            before,
            copied: i64::try_from(events.len()).unwrap_or(i64::MAX),
            files: files.clone(),
        };
        let created = self.facts.created(at, is_titled(&log), None);
        self.with_mint(|world, mint, now| {
            let begins = (created.into(), forked);
            world.store.fork(session, at, begins, events, mint, now);
        });
        if let Some(tree) = files {
            self.seed(at, &tree);
            self.after(300, 2_000, Action::Place { location: at });
        }
        self.visitors[at].insert(fork);
        let events = &self.store.sessions[fork].events;
        let copied = copies(&log, through, events);
        let checker = Checker::of_fork(&self.checkers[session], events, through);
        self.checkers.push(checker);
        if let Err(violation) = copied {
            self.fail(violation);
        }
    }

    /// The files at the cut, as far as captures have them.
    fn files_then(
        &mut self,
        session: usize,
        log: &[RecordedEvent],
        copy: &Forked,
    ) -> Option<SnapshotTree> {
        let mut history = History::new();
        history.extend(log);
        let next = Seq(copy.through.0 + 1);
        let at = self.store.sessions[session].head.location;
        let then = history.tree_before(next)?.clone();
        let tree = if self.is(ShellMutant::ForkHasNewestFiles) {
            self.newest_tree(at).unwrap_or(then)
        } else {
            then
        };
        // At a shared Location, captures also have the changes of other sessions.
        if history.moved() < next && self.visitors[at].len() == 1 {
            let later = calls_from(log, next);
            let found = self.writers_of(&tree).find(|call| later.contains(call)).cloned();
            if let Some(call) = found {
                self.fail(format!("fork: its files have what {call} did after the cut"));
            }
        }
        Some(tree)
    }
}

/// The calls from an event on.
fn calls_from(log: &[RecordedEvent], from: Seq) -> BTreeSet<CallId> {
    let called = log.iter().filter(|event| event.seq >= from).filter_map(|event| {
        let SessionEvent::ToolCalled(called) = &event.event else { return None };
        Some(called.intent.call.clone())
    });
    called.collect()
}

fn is_titled(log: &[RecordedEvent]) -> bool {
    log.iter().any(|event| {
        matches!(&event.event, SessionEvent::SessionRenamed(_))
            || matches!(&event.event, SessionEvent::SessionCreated(created) if created.named)
    })
}
