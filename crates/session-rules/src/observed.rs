//! The one place where decisions meet the System Context.

use context::{
    Blocked, ContextSnapshot, EnvironmentFacts, Initialized, Reconciled, SystemContext, date,
    environment,
};
use domain::{ContextUpdated, MessageId, SessionError};
use jiff::tz::TimeZone;

use crate::draft::Draft;

/// What was seen of the Context Sources before a write; rendered within it, against the snapshot.
#[derive(Debug, Clone)]
pub struct Observation {
    /// The environment.
    pub facts: EnvironmentFacts,
    /// When.
    pub now_ms: i64,
    /// The zone of the dates that a model sees.
    pub zone: TimeZone,
}

impl Observation {
    /// The System Context, in the stable order of its keys' registration.
    fn context(&self, told: Option<&ContextSnapshot>) -> SystemContext {
        SystemContext::combine([environment(&self.facts), date(self.now_ms, &self.zone, told)])
            .expect("the built-in sources have distinct keys")
    }

    /// The Baseline System Context and the snapshot of a new epoch.
    pub(crate) fn initialize(&self) -> Result<Initialized, Blocked> {
        self.context(None).initialize()
    }

    /// At most one Mid-Conversation System Message, after what was promoted or settled.
    pub(crate) fn reconcile(&self, draft: &mut Draft<'_>) -> Result<(), SessionError> {
        let Some(epoch) = draft.history().epoch() else { return Ok(()) };
        let told = ContextSnapshot::read(&epoch.snapshot).map_err(|error| SessionError {
            code: "context.unreadable".into(),
            message: format!("the session's Context Snapshot cannot be read: {error}"),
        })?;
        match self.context(Some(&told)).reconcile(&told) {
            Reconciled::Unchanged => {}
            Reconciled::Updated { rendered, snapshot } => {
                let message = MessageId::mint(draft.mint());
                draft.push(ContextUpdated { message, rendered, snapshot: snapshot.text() });
            }
        }
        Ok(())
    }
}
