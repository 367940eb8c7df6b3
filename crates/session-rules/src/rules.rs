use std::sync::Arc;
use std::time::Duration;

use domain::{
    DrainEnd, FencingToken, SavedPermission, Seq, SessionError, SessionRef, SnapshotTree, Taken,
};
use history::History;
use llm_protocol::retry::Schedule;
use settings::{Effective, Permissions};

use crate::agents::Agents;
use crate::inbox::PromotionBounds;
use crate::models::Models;
use crate::permission::Layers;
use crate::permission::ReadScope;
use crate::tools::{ChangedTools, ToolFacts};

/// The facts that a drain's decisions use besides its log: data alone. They do not change during a decision, so that
/// it can be repeated on a newer log.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// Bounds and texts.
    pub settings: &'a RuleSettings,
    /// The callable models.
    pub models: &'a Models,
    /// The offered tools.
    pub tools: &'a ToolFacts,
    /// How they differ from those that the open turn was offered, if another drain began it.
    pub changed: Option<&'a ChangedTools>,
    /// The permissions that people have given the project for good, as far as anybody has looked.
    pub saved: &'a [SavedPermission],
    /// The session of the drain.
    pub session: &'a SessionRef,
    /// Whether the Location's files are available.
    pub workspace: WorkspaceState<'a>,
    /// The worker stops: hand over at the next boundary.
    pub stopping: bool,
    /// Others wait for the drain's slot, and it has had a turn: yield at the next boundary where its work does not
    /// continue.
    pub crowded: bool,
    /// The worker has no room for the log and its inbox: hand over at the next boundary where anything is left to do.
    /// Inputs that wait in the inbox stay there.
    pub cramped: bool,
    /// The newest interrupt that this drain must not apply.
    pub interrupts_before: Seq,
}

/// Whether a Location's files are available here.
#[derive(Debug, Clone, Copy)]
pub enum WorkspaceState<'a> {
    /// They are there, with every change.
    Here,
    /// They are there, restored on the worker's own disk, without changes after the newest Capture.
    Restored {
        /// The token of the restore.
        token: FencingToken,
        /// The restored tree; `None` if there was no Capture.
        tree: Option<&'a SnapshotTree>,
    },
    /// They are missing, for this reason.
    Missing(&'a SessionError),
}

/// The settings of decisions.
#[derive(Debug, Clone)]
pub struct RuleSettings {
    /// The agents that prompts may choose.
    pub agents: Agents,
    /// The permission rules of the Location's settings, for all agents.
    pub permissions: Permissions,
    /// The lines that the session's users are told of the project's settings files.
    pub notices: Arc<[String]>,
    /// The most turns in a row without new input, unless the agent sets it. The last one must answer without tools.
    pub max_steps: i32,
    /// The retries of a failed wire request: one budget for all failures between two whole replies.
    pub retry: Schedule,
    /// Takeovers in a row without progress before the drain gives up.
    pub max_recoveries: i16,
    /// The most bodies of one *pure* call.
    pub max_bodies: i32,
    /// When a conversation is summarised.
    pub compaction: CompactionSettings,
    /// The most that one boundary promotes.
    pub promotion: PromotionBounds,
    /// Whether models give titles to sessions without one.
    pub titles: bool,
    /// Whether replies keep provider state and hosted calls.
    pub provider_state: bool,
    /// Whether people can be asked about calls, and how long an answer is waited for.
    pub asks: Option<Duration>,
}

/// When a conversation is summarised, and how much stays. In tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionSettings {
    /// Whether to summarise at the model's limits and when a provider refuses a request as too large; otherwise only
    /// on request.
    pub auto: bool,
    /// Tokens of the model's context that stay free, if that is more than …
    pub buffer: u64,
    /// … its longest answer, of which at most this many tokens count.
    pub output_cap: u64,
    /// The most tokens of the recent conversation that stay.
    pub keep: u64,
    /// Whether a request for a summary may show less than the conversation, and a prompt may stay beside the summary
    /// while its work continues. Off while older builds run that cannot read such rows.
    pub cuts: bool,
}

impl Default for CompactionSettings {
    fn default() -> Self {
        Self { auto: true, buffer: 20_000, output_cap: 32_000, keep: 15_000, cuts: true }
    }
}

impl Default for RuleSettings {
    fn default() -> Self {
        Self {
            agents: Agents::default(),
            permissions: Effective::default().permissions,
            notices: Arc::default(),
            max_steps: 200,
            retry: Schedule::default(),
            max_recoveries: 3,
            max_bodies: 3,
            compaction: CompactionSettings::default(),
            promotion: PromotionBounds::default(),
            titles: true,
            provider_state: true,
            asks: Some(Duration::from_secs(24 * 60 * 60)),
        }
    }
}

impl Rules<'_> {
    /// Returns the rules about files and pages to which tools come without being asked for them by name, for calls of the open
    /// turn.
    #[must_use]
    pub fn read_scope(&self, history: &History) -> ReadScope {
        ReadScope::new(self.layers(history), history.directory(), self.saved.to_vec())
    }

    /// Returns the newest interrupt that a new drain must not apply. An interrupt of work that is still open is the
    /// drain's own; any other is history. `newest` is the head's.
    #[must_use]
    pub fn interrupts_before(history: &History, taken: Taken, newest: Seq) -> Seq {
        match history.interrupt() {
            Some(seq) if taken.was_open => Seq(seq.0 - 1),
            _ => newest,
        }
    }

    /// Returns the rules about the session's calls.
    pub(crate) fn layers<'a>(&'a self, history: &'a History) -> Layers<'a> {
        Layers {
            permissions: &self.settings.permissions,
            agent: self.turn_agent(history).0,
            session: history.tool_rules(),
            can_ask: self.settings.asks.is_some(),
            needs: self.tools.needs,
        }
    }

    /// Returns how an interrupted drain ends. If somebody has woken the session since, it stays open for the next drain, so
    /// that the prompt without an answer is taken up again.
    pub(crate) fn interrupted_end(history: &History) -> DrainEnd {
        if history.is_resumed() { DrainEnd::HandOver } else { DrainEnd::Close }
    }

    /// Returns whether `history` has an interrupt that this drain must apply.
    #[must_use]
    pub fn is_interrupted(&self, history: &History) -> bool {
        !mutated!(InterruptIgnored)
            && history.interrupt().is_some_and(|seq| seq > self.interrupts_before)
    }
}
