//! Sessions that are deleted and made anew under their ids, often while a drain works on them.

use domain::{PromptPart, SessionEvent};
use history::History;

use super::World;
use super::facts::{LOCATIONS, SESSIONS};
use crate::check::Checker;
use crate::fault::Fault;

impl World {
    /// A client deletes a session with its children, makes them anew, and prompts it.
    pub(super) fn make_anew(&mut self) {
        let session = self.one_at_work();
        self.reborn(session);
        if session == 0 {
            self.reborn(SESSIONS - 1); // its child
        }
        for _ in 0..self.rng.below(3) {
            self.scheduled += 1; // each prompt has a text of its own
            let prompt = self.with_mint(Self::prompt);
            self.admit(session, prompt);
        }
    }

    /// Picks a session: mostly one in which a drain is about to start, or one with a drain.
    fn one_at_work(&mut self) -> usize {
        let drains = self.workers.iter().flat_map(|worker| worker.drains.values());
        let mut found: Vec<_> =
            drains.map(|drain| (drain.claim().is_some(), drain.session)).collect();
        found.sort_unstable();
        match found.first() {
            Some((_, session)) if self.rng.chance(80) => *session,
            _ => self.rng.index(self.store.sessions.len()),
        }
    }

    fn reborn(&mut self, session: usize) {
        self.faults.note(Fault::MadeAnew);
        let before = self.store.sessions[session].head.location;
        let location = if self.rng.chance(70) { before } else { self.rng.index(LOCATIONS) };
        let is_child = session == SESSIONS - 1;
        let parent = is_child.then(|| self.facts.sessions[0][0].session.clone());
        let created = self.facts.created(location, false, parent);
        let deleted = self.prompts_of(session);
        self.with_mint(|world, mint, now| {
            world.store.make_anew(session, location, created.into(), mint, now);
        });
        self.visitors[location].insert(session);
        self.acknowledged.retain(|(of, _)| *of != session);
        self.checkers[session] = Checker::made_anew(&self.checkers[session], deleted);
    }

    /// Checks that a drain begins with a fold of its session's own log. A worker's cache may have one of a deleted
    /// session with the same id, or of a log that the database has forgotten.
    pub(crate) fn begins_with(&mut self, session: usize, drain: u64, known: &History) {
        if self.reborn.is_none() && self.shorter.is_none() {
            return; // no session is deleted, and nothing is forgotten
        }
        let log = &self.store.sessions[session].events;
        let length = usize::try_from(known.seq().0).unwrap_or(usize::MAX);
        let is_own = log.get(..length).is_some_and(|log| {
            let mut fresh = History::new();
            fresh.belong_to(known.incarnation());
            fresh.extend(log);
            let mut known = known.clone();
            fresh.give_up_hidden();
            known.give_up_hidden();
            format!("{fresh:?}") == format!("{known:?}")
        });
        if !is_own {
            self.fail(format!("I7: drain {drain} begins with the fold of another log"));
        }
    }

    /// The texts of a session's prompts, whether they were promoted or not.
    fn prompts_of(&self, session: usize) -> Vec<String> {
        let mut texts = Vec::new();
        for event in &self.store.sessions[session].events {
            #[expect(clippy::wildcard_enum_match_arm, reason = "only these have a prompt's text")]
            let parts = match &event.event {
                SessionEvent::PromptAdmitted(prompt) => &prompt.parts,
                SessionEvent::PromptPromoted(prompt) => &prompt.parts,
                _ => continue,
            };
            texts.extend(parts.iter().map(|PromptPart::Text { text, .. }| text.clone()));
        }
        texts
    }
}
