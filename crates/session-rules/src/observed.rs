//! The only place where decisions use the System Context.

use std::collections::BTreeSet;
use std::sync::Arc;

use context::{
    Blocked, ContextSnapshot, DuplicateKey, Initialized, Loaded, NESTED_KEY, Reconciled, Skill,
    SystemContext, entries, skill_guidance,
};
use domain::{
    Author, ContextUpdated, EpochReason, EpochStarted, ErrorCode, MessageId, Permitted,
    SessionError,
};
use history::History;

use crate::draft::Draft;
use crate::spending::SpendingStop;

/// The observation of the Context Sources before a write. The write compares it with the snapshot.
#[derive(Debug, Clone)]
pub struct Observation {
    seen: Result<SystemContext, DuplicateKey>,
    reads: Arc<BTreeSet<String>>,
    skills: Loaded<Arc<[Skill]>>,
    stop: Arc<SpendingStop>,
    /// Whether anybody has looked.
    is_seen: bool,
}

impl Observation {
    /// Returns the observation of the Location's System Context Registry, made with the knowledge that the model has
    /// read `reads`.
    #[must_use]
    pub fn new(seen: Result<SystemContext, DuplicateKey>, reads: Arc<BTreeSet<String>>) -> Self {
        let (skills, stop) = (Loaded::Absent, Arc::default());
        Self { seen, reads, skills, stop, is_seen: true }
    }

    /// Adds the Location's skills, whoever may load them.
    #[must_use]
    pub fn with_skills(self, skills: Loaded<Arc<[Skill]>>) -> Self {
        Self { skills, ..self }
    }

    /// Adds who may begin no turn because of a monthly limit.
    #[must_use]
    pub fn with_stop(self, stop: Arc<SpendingStop>) -> Self {
        Self { stop, ..self }
    }

    /// Returns why work for a prompt of `author` must not begin.
    pub(crate) fn stop(&self, author: Option<&Author>) -> Option<&SessionError> {
        self.stop.of(author)
    }

    /// Returns an empty observation, for a write that is not expected to tell any context. If it must after all, it
    /// asks for a look first ([`Replied::LookFirst`](crate::Replied::LookFirst)).
    #[must_use]
    pub fn unseen() -> Self {
        let seen = SystemContext::combine([]);
        let (reads, skills, stop) = (Arc::default(), Loaded::Absent, Arc::default());
        Self { seen, reads, skills, stop, is_seen: false }
    }

    /// Returns whether anybody has looked.
    pub(crate) fn is_seen(&self) -> bool {
        self.is_seen
    }

    /// Returns those of the observed skills that an agent `may` load and rules show, as what it may load. All, if rules hide
    /// none.
    pub(crate) fn permit_skills(&self, may: &Permitted, shows: impl Fn(&str) -> bool) -> Permitted {
        let Loaded::Value(skills) = &self.skills else { return may.clone() };
        if skills.iter().all(|skill| shows(&skill.name)) {
            return may.clone();
        }
        let shown = skills.iter().filter(|skill| may.allows(&skill.name) && shows(&skill.name));
        Permitted::only(shown.map(|skill| skill.name.clone()))
    }

    /// Returns the System Context of a session: the observation of its Location, then its own entries as of now, then
    /// the observed skills that its agent `may` load.
    fn context(&self, history: &History, may: &Permitted) -> Result<SystemContext, SessionError> {
        let mut seen = self.seen.clone().map_err(|error| duplicate(&error))?;
        if !history.read_paths().is_subset(&self.reads) {
            // Another owner has continued the session since, so the observation is incomplete.
            seen = seen.unavailable(&NESTED_KEY, "it was looked for too early");
        }
        let skills = self
            .skills
            .clone()
            .map(|skills| skills.iter().filter(|skill| may.allows(&skill.name)).cloned().collect());
        let all = [seen, entries(history.entries()), skill_guidance(skills)];
        SystemContext::combine(all).map_err(|error| duplicate(&error))
    }

    /// Returns the Baseline System Context and the snapshot of a first epoch.
    ///
    /// # Errors
    /// `context.unavailable` while something is missing: nothing may be promoted.
    pub fn initialize(
        &self,
        history: &History,
        may: &Permitted,
    ) -> Result<Initialized, SessionError> {
        self.context(history, may)?.initialize().map_err(|blocked| unavailable(&blocked))
    }

    /// Returns those of the epoch after the active one, or of a first one.
    ///
    /// # Errors
    /// `context.unavailable` while a source that the model knows cannot be read: the active epoch stays.
    pub fn replace(&self, history: &History, may: &Permitted) -> Result<Initialized, SessionError> {
        let context = self.context(history, may)?;
        let fresh = match told(history) {
            Some(told) => context.replace(&told),
            None => context.initialize(),
        };
        fresh.map_err(|blocked| unavailable(&blocked))
    }

    /// Adds at most one Mid-Conversation System Message after promotions and settlements. A change that no message
    /// can express starts another epoch, or waits for the next boundary.
    ///
    /// # Errors
    /// When the sources do not compose.
    pub(crate) fn reconcile(
        &self,
        draft: &mut Draft<'_>,
        may: &Permitted,
    ) -> Result<(), SessionError> {
        if draft.history().epoch().is_none() {
            return Ok(());
        }
        let context = self.context(draft.history(), may)?;
        let reconciled = match told(draft.history()) {
            Some(told) => context.reconcile(&told),
            None => context.initialize().into(),
        };
        match reconciled {
            Reconciled::Unchanged | Reconciled::ReplacementBlocked(_) => {}
            Reconciled::Updated { rendered, snapshot } => {
                let message = MessageId::mint(draft.mint());
                let before = draft.history().epoch().map(|epoch| epoch.snapshot.clone());
                let snapshot = match before {
                    Some(before) if mutated!(SnapshotApart) => before,
                    _ => snapshot.text(),
                };
                draft.push(ContextUpdated { message, rendered, snapshot });
            }
            Reconciled::ReplacementReady(fresh) => {
                let epoch = next_epoch(draft.history())?;
                draft.push(EpochStarted {
                    epoch,
                    baseline: fresh.baseline,
                    snapshot: fresh.snapshot.text(),
                    reason: Some(EpochReason::Replaced),
                });
            }
        }
        Ok(())
    }
}

/// Returns the number of the next epoch.
///
/// # Errors
/// `context.unavailable` when the log has the highest possible number, which came with an import of an older build.
pub(crate) fn next_epoch(history: &History) -> Result<i32, SessionError> {
    history.next_epoch().ok_or_else(|| SessionError {
        code: ErrorCode::ContextUnavailable.into(),
        message: format!(
            "the session's log has {} as the number of a context epoch, and none comes after it: start a new session",
            history.last_epoch()
        ),
    })
}

/// Returns the snapshot that the model last received. `None` without an epoch, or if another release wrote one that
/// we cannot read: then everything must be sent again.
fn told(history: &History) -> Option<ContextSnapshot> {
    ContextSnapshot::read(&history.epoch()?.snapshot).ok()
}

fn unavailable(blocked: &Blocked) -> SessionError {
    // The kernel's words.
    let is_closed = |(_, why): &(_, String)| why.starts_with("Permission denied");
    let advice = if blocked.sources.iter().all(is_closed) {
        "the service's user may not read the session's directory: give it the right to, then send another prompt, or \
         begin a session in another directory"
    } else {
        "send another prompt to try again"
    };
    SessionError {
        code: ErrorCode::ContextUnavailable.into(),
        message: format!("{blocked}; {advice}"),
    }
}

fn duplicate(error: &DuplicateKey) -> SessionError {
    SessionError {
        code: ErrorCode::ContextDuplicateKey.into(),
        message: format!(
            "{error}; take away one of the plugins that contribute it, then send another prompt"
        ),
    }
}

#[cfg(test)]
mod tests {
    use context::{
        DATE_KEY, InstructionFile, SourceKey, date, environment, instructions, nested_instructions,
        nested_unavailable,
    };
    use domain::{
        CallId, EntryRemoved, EntrySet, IdMint, ModelRef, PartId, Seq, SessionEvent, Stamp,
        ToolCalled, ToolClass, ToolIntent, ToolOutcomeKind, ToolState, TurnId, TurnOutcome,
        TurnSettled, TurnStarted, TurnUsage,
    };
    use jiff::tz::TimeZone;

    use super::*;
    use crate::settle::settled_as;

    const NOON: i64 = 1_795_262_400_000;

    fn seen(contexts: impl IntoIterator<Item = SystemContext>) -> Observation {
        Observation::new(SystemContext::combine(contexts), Arc::default())
    }

    fn today() -> Observation {
        seen([date(NOON, &TimeZone::UTC)])
    }

    fn draft(history: &mut History) -> Draft<'_> {
        Draft::new(history, IdMint::after(Stamp::default(), 1), 1)
    }

    fn push(history: &mut History, event: impl Into<SessionEvent>) {
        let seq = Seq(history.seq().0 + 1);
        history.apply(seq, 1, &event.into());
    }

    fn epoch(history: &mut History, snapshot: &str) {
        let (epoch, baseline) = (1, "earlier".into());
        push(history, EpochStarted { epoch, baseline, snapshot: snapshot.into(), reason: None });
    }

    /// Adds a turn in which the model read a file.
    fn read(history: &mut History, path: &str) {
        let mut mint = IdMint::after(Stamp::default(), 1);
        let (turn, message) = (TurnId::mint(&mut mint), MessageId::mint(&mut mint));
        let model = ModelRef::new("simulated", "simulated");
        let intent = ToolIntent {
            call: CallId::mint(&mut mint),
            part: PartId::mint(&mut mint),
            provider_call: "call_1".into(),
            tool: "read".into(),
            arguments: "{}".into(),
            metadata: None,
        };
        let call = intent.call.clone();
        let (parent, agent) = (message.clone(), "build".to_owned());
        let (turn_id, id) = (turn.clone(), message.clone());
        push(
            history,
            TurnStarted {
                turn: turn_id,
                message: id,
                parent,
                agent,
                model,
                epoch: 1,
                step: 1,
                notice: None,
            },
        );
        let (class, state) = (ToolClass::Pure, ToolState::Started);
        let (turn_id, id) = (turn.clone(), message.clone());
        push(history, ToolCalled { turn: turn_id, message: id, intent, class, state });
        let mut settled = settled_as(turn.clone(), call, ToolOutcomeKind::Completed, "text", 1);
        settled.structured = Some(format!("{{\"path\":\"{path}\"}}"));
        push(history, settled);
        let (outcome, usage) = (TurnOutcome::Completed, TurnUsage::default());
        push(history, TurnSettled { turn, message, outcome, usage, error: None });
    }

    /// Returns the message of a boundary to the model, if there is one.
    fn message(observed: &Observation, history: &mut History) -> Option<String> {
        let before = history.conversation().messages().len();
        observed.reconcile(&mut draft(history), &Permitted::All).expect("distinct keys");
        let message = history.conversation().messages().get(before)?;
        Some(message.content.iter().map(|part| format!("{part:?}")).collect())
    }

    fn set(history: &mut History, value: &str) {
        push(history, EntrySet { key: "ticket".into(), value: value.into() });
    }

    // A newcomer was told to send another prompt.
    #[test]
    fn a_closed_directory_is_told_with_what_to_do() {
        let told = |why: &str| {
            let sources = vec![(DATE_KEY, why.to_owned())];
            unavailable(&Blocked { sources }).message
        };
        let closed = told("Permission denied (os error 13)");
        assert!(closed.contains("may not read the session's directory"), "{closed}");
        assert!(told("asleep").ends_with("; send another prompt to try again"));
    }

    #[test]
    fn entries_are_told_when_they_are_set_changed_and_removed() {
        let mut history = History::new();
        set(&mut history, "7");
        let first = today().initialize(&history, &Permitted::All).expect("available");
        let entry = "\n\n<context key=\"ticket\">\n7\n</context>";
        assert_eq!(first.baseline, format!("Today's date: Sat Nov 21 2026{entry}"));
        epoch(&mut history, &first.snapshot.text());
        assert_eq!(message(&today(), &mut history), None);
        set(&mut history, "null");
        let changed = message(&today(), &mut history).expect("null is a value");
        assert!(
            changed.contains("This context entry is now") && changed.contains("null"),
            "{changed}"
        );
        assert_eq!(message(&today(), &mut history), None);
        push(&mut history, EntryRemoved { key: "ticket".into() });
        let gone = message(&today(), &mut history).expect("it is gone");
        assert!(gone.contains("no longer applies"), "{gone}");
        assert_eq!(message(&today(), &mut history), None);
    }

    #[test]
    fn what_no_message_can_tell_starts_the_next_epoch() {
        for unreadable in
            [r#"{"core/date":{"value":7}}"#, "no snapshot", r#"{"old/x":{"value":1}}"#]
        {
            let mut history = History::new();
            epoch(&mut history, unreadable);
            today().reconcile(&mut draft(&mut history), &Permitted::All).expect("distinct keys");
            let started = history.epoch().expect("an epoch");
            let fresh = today().initialize(&History::new(), &Permitted::All).expect("available");
            assert_eq!((started.number, &started.baseline), (2, &fresh.baseline), "{unreadable}");
            assert_eq!(message(&today(), &mut history), None, "{unreadable}");
            assert_eq!(history.epoch().map(|epoch| epoch.number), Some(2), "{unreadable}");
        }
    }

    #[test]
    fn an_epoch_stays_while_its_replacement_is_blocked() {
        let asleep = environment(Loaded::Unavailable("the disk is asleep".into()));
        let observed = seen([date(NOON, &TimeZone::UTC), asleep]);
        for told in [r#"{"core/date":{"value":7},"core/environment":{"value":1}}"#, "no snapshot"] {
            let mut history = History::new();
            epoch(&mut history, told);
            assert_eq!(message(&observed, &mut history), None);
            assert_eq!(history.epoch().map(|epoch| epoch.number), Some(1));
            let error = observed.replace(&history, &Permitted::All).expect_err("blocked");
            assert_eq!(error.code, ErrorCode::ContextUnavailable);
            assert!(error.message.contains("core/environment (the disk is asleep)"), "{error:?}");
        }
    }

    #[test]
    fn a_new_epoch_folds_everything_that_was_told_into_one_baseline() {
        let file = InstructionFile::new("/w/AGENTS.md", "Use tabs.", false);
        let observed =
            seen([date(NOON, &TimeZone::UTC), instructions(None, file.into_iter().collect())]);
        let mut history = History::new();
        epoch(&mut history, r#"{"core/date":{"value":"2026-11-20"}}"#);
        assert!(message(&observed, &mut history).expect("both").contains("Use tabs."));
        let fresh = observed.replace(&history, &Permitted::All).expect("ready");
        assert_eq!(fresh, observed.initialize(&history, &Permitted::All).expect("available"));
        assert_eq!(fresh.snapshot.text(), history.epoch().expect("an epoch").snapshot);
    }

    #[test]
    fn nested_instructions_that_were_looked_for_too_early_are_not_taken_back() {
        let mut history = History::new();
        let file = InstructionFile::new("/w/a/AGENTS.md", "Use tabs.", false);
        let found = nested_instructions(file.into_iter().collect());
        let now = seen([found]);
        let first = now.initialize(&history, &Permitted::All).expect("available");
        epoch(&mut history, &first.snapshot.text());
        let reads =
            |paths: &[&str]| Arc::new(paths.iter().map(|path| (*path).to_owned()).collect());
        let early = Observation::new(Ok(nested_instructions(Vec::new())), reads(&[]));
        assert!(
            message(&early, &mut history.clone()).expect("all of it").contains("no longer apply")
        );
        read(&mut history, "a/x");
        assert_eq!(message(&early, &mut history), None, "it knew of fewer reads");
        let late = Observation::new(Ok(nested_unavailable("asleep".into())), reads(&["a/x"]));
        assert_eq!(message(&late, &mut history), None);
        let gone = Observation::new(Ok(nested_instructions(Vec::new())), reads(&["a/x", "b/y"]));
        assert!(message(&gone, &mut history).is_some());
    }

    #[test]
    fn sources_that_do_not_compose_are_an_error_that_names_them() {
        let twice = seen([date(NOON, &TimeZone::UTC), date(NOON, &TimeZone::UTC)]);
        let error = twice.initialize(&History::new(), &Permitted::All).expect_err("twice");
        assert_eq!(error.code, ErrorCode::ContextDuplicateKey);
        assert!(error.message.contains(DATE_KEY.as_str()), "{error:?}");
        let entry = SourceKey::new("entry/ticket").expect("a key");
        let mut history = History::new();
        set(&mut history, "7");
        let theirs = SystemContext::make::<context::EnvironmentFacts>(entry, Loaded::Absent);
        assert!(seen([theirs]).initialize(&history, &Permitted::All).is_err());
    }
}
