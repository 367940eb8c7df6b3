//! The surroundings of a drain: rules, sources, the provider, the ledger of effects, their deaths.

use std::sync::Arc;

use context::{EnvironmentFacts, Loaded, SystemContext, date, environment};
use domain::{
    AttemptId, AttemptStarted, CallId, Seq, SessionIncarnation, ToolClass, ToolIntent, TurnId,
};
use history::{History, hash_hex};
use session_rules::{Observation, Rules, Site, WorkspaceState};

use super::World;
use super::facts::EPOCH;
use crate::check::{Checker, Violation};
use crate::fault::When;
use crate::mutant::{Mutant, ShellMutant};
use crate::provider::{Purpose, Stream};
use crate::store::Basis;

impl World {
    pub(crate) fn is(&self, mutant: ShellMutant) -> bool {
        self.mutant == Some(Mutant::Shell(mutant))
    }

    pub(crate) fn range(&mut self, low: u64, high: u64) -> i64 {
        i64::try_from(self.rng.within(low, high)).unwrap_or(0)
    }

    /// Returns whether a worker stops in good order.
    pub(crate) fn is_stopping(&self, worker: usize) -> bool {
        self.workers[worker].stopping
    }

    /// A worker's clock.
    pub(crate) fn clock(&self, worker: usize) -> i64 {
        EPOCH + self.now + self.workers[worker].skew
    }

    /// Returns the rules by which a drain that has its files decides now. `begun`: it has had a turn.
    pub(crate) fn rules(
        &self,
        session: usize,
        worker: usize,
        at: usize,
        interrupts_before: Seq,
        begun: bool,
        drain: u64,
    ) -> Rules<'_> {
        let facts = &self.facts;
        Rules {
            settings: &facts.settings,
            models: &facts.models,
            tools: self.tools_of(worker),
            changed: self.releases.changed(drain),
            saved: &[],
            session: &facts.sessions[session][at],
            workspace: if let Some((token, tree)) = &self.disks[at].restored {
                WorkspaceState::Restored { token: *token, tree: tree.as_ref() }
            } else {
                WorkspaceState::Here
            },
            stopping: self.workers[worker].stopping,
            crowded: self.workers[worker].crowded && begun,
            cramped: false, // its write is that of a worker that stops
            interrupts_before,
        }
    }

    /// Returns how a drain that began without files finds them.
    pub(crate) fn no_files(&self) -> WorkspaceState<'_> {
        WorkspaceState::Missing(&self.facts.missing)
    }

    pub(crate) fn observe(&mut self, at: usize, worker: usize, history: &History) -> Observation {
        let now = self.clock(worker);
        let place = &self.places[at];
        let loaded = if place.unavailable {
            Loaded::Unavailable("the disk is asleep".to_owned())
        } else {
            Loaded::Value(EnvironmentFacts {
                directory: "/workspace".into(),
                platform: "linux".into(),
                repository: true,
                branch: Some(format!("branch{}", place.branch)),
            })
        };
        let seen =
            SystemContext::combine([environment(loaded), date(now, &jiff::tz::TimeZone::UTC)]);
        Observation::new(seen, Arc::new(history.read_paths().clone()))
    }

    /// Returns the crash that a commit at `site` meets.
    pub(crate) fn crash(&mut self, site: Site) -> Option<When> {
        if self.quiet {
            return None;
        }
        let now = self.now;
        let point =
            self.crash_points.iter().position(|(at, _, from)| *at == site && *from <= now)?;
        let (_, when, _) = self.crash_points.swap_remove(point);
        self.faults.crashed(site, when);
        Some(when)
    }

    /// Checks a write of a drain: its token, its events, and what they say of files.
    pub(crate) fn written(
        &mut self,
        session: usize,
        (drain, token): (u64, i64),
        basis: Basis,
        events: usize,
    ) {
        let fence = self.store.fences[basis.at];
        if token != fence {
            let wrote = if basis.starts.is_some() { "started" } else { "wrote" };
            self.fail(format!("I10: drain {drain} {wrote} under token {token} at fence {fence}"));
        }
        self.trace.count(basis.claim());
        self.trace.count(i64::try_from(events).unwrap_or(0));
        self.check_session(session, Some(drain));
        self.check_files(session, basis.at, events);
    }

    /// A request comes to the provider.
    pub(crate) fn request(
        &mut self,
        whose: (usize, SessionIncarnation),
        started: &AttemptStarted,
        body: &[u8],
        purpose: Purpose,
    ) -> Stream {
        let components = format!("{:?}", started.components);
        let AttemptStarted { attempt, turn, .. } = started;
        let is_forgotten = self.forgets_attempt(attempt);
        let checker = self.checker(whose);
        let checked = checker
            .filter(|_| !is_forgotten)
            .map(|checker| checker.request(turn, attempt, &hash_hex(body), &components, body));
        if let Some(Err(violation)) = checked {
            self.fail(violation);
        }
        self.trace.add(&started.body_hash);
        let Self { provider, rng, faults, quiet, now, .. } = self;
        let purpose = match purpose {
            // A model may call although it was told not to.
            Purpose::Turn { calls } => {
                Purpose::Turn { calls: !*quiet && (calls || rng.chance(30)) }
            }
            Purpose::Summary | Purpose::Title => purpose,
        };
        provider.answer((&started.attempt, body.len()), purpose, *now, *quiet, rng, faults)
    }

    /// Followers have seen something of an attempt's answer.
    pub(crate) fn show(&mut self, attempt: &AttemptId) {
        self.provider.shown.insert(attempt.clone());
    }

    /// Returns the checker of a session's log. `None` if the session was deleted: no log has the work of its drain,
    /// until the drain hears of the deletion.
    fn checker(&mut self, whose: (usize, SessionIncarnation)) -> Option<&mut Checker> {
        let (session, incarnation) = whose;
        let lives = self.store.sessions[session].head.incarnation == incarnation.0;
        self.checkers.get_mut(session).filter(|_| lives)
    }

    /// A body of a call starts.
    pub(crate) fn body_started(
        &mut self,
        whose: (usize, SessionIncarnation),
        worker: usize,
        turn: &TurnId,
        intent: &ToolIntent,
    ) {
        self.check_tool(worker, turn, &intent.call, &intent.tool);
        let call = &intent.call;
        if self.forgets_call(call) {
            return;
        }
        if let Some(Err(violation)) = self.checker(whose).map(|checker| checker.body(call)) {
            self.fail(violation);
        }
    }

    /// A body has its effect. `changes`: on files.
    pub(crate) fn effect(
        &mut self,
        whose: (usize, SessionIncarnation),
        at: usize,
        call: &CallId,
        changes: bool,
    ) {
        if changes {
            self.touch(at, call);
        }
        if self.forgets_call(call) {
            return;
        }
        if let Some(Err(violation)) = self.checker(whose).map(|checker| checker.effect(call)) {
            self.fail(violation);
        }
    }

    /// Returns whether a token is still the fence of its Location.
    pub(crate) fn holds(&self, at: usize, token: i64) -> bool {
        self.store.fences[at] == token
    }

    /// A worker looks for the effect of a call.
    pub(crate) fn had_effect(
        &mut self,
        at: usize,
        worker: usize,
        turn: &TurnId,
        intent: &ToolIntent,
    ) -> bool {
        self.check_tool(worker, turn, &intent.call, &intent.tool);
        let call = &intent.call;
        self.disks[at].content.done.contains(call)
    }

    /// Returns the class of a tool, which says how a takeover treats its calls.
    pub(crate) fn class(&self, tool: &str) -> ToolClass {
        self.facts.releases[0].class(tool)
    }

    /// A capture of a session's changes failed, or the drain waits for it no longer.
    pub(crate) fn goes_on_uncaptured(&mut self, whose: (usize, SessionIncarnation)) {
        let calls = self.checker(whose).map(Checker::goes_on_uncaptured);
        self.keep_uncaptured(calls.unwrap_or_default());
    }

    pub(crate) fn fail(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }
}
