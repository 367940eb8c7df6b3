use domain::{FencingToken, Seq, SessionError, SessionRef, SnapshotTree, Taken};
use history::History;
use llm_protocol::retry::Schedule;

use crate::agents::Agents;
use crate::models::Models;
use crate::tools::ToolFacts;

/// What a drain's decisions are made of besides its log: data alone. Nothing here changes while one is
/// made, so that it can be made again when the log has grown meanwhile.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// Bounds and texts.
    pub settings: &'a RuleSettings,
    /// The models that can be called.
    pub models: &'a Models,
    /// The tools that are offered.
    pub tools: &'a ToolFacts,
    /// Whose drain it is.
    pub session: &'a SessionRef,
    /// Whether the Location's files can be had.
    pub workspace: WorkspaceState<'a>,
    /// The worker stops: hand over at the next boundary.
    pub stopping: bool,
    /// Others wait for the drain's slot, and it has had a turn: yield at the next boundary at which its
    /// work does not continue.
    pub crowded: bool,
    /// The newest interrupt that is not this drain's to apply.
    pub interrupts_before: Seq,
}

/// Whether a Location's files can be had here.
#[derive(Debug, Clone, Copy)]
pub enum WorkspaceState<'a> {
    /// They are there, with all that was ever done to them.
    Here,
    /// They are there, made anew on a disk of the worker's own, without what came after the newest Capture.
    Restored {
        /// The token under which that was done.
        token: FencingToken,
        /// What they were made of; `None`: of nothing.
        tree: Option<&'a SnapshotTree>,
    },
    /// They are not, for this reason.
    Missing(&'a SessionError),
}

/// The settings that decisions depend on.
#[derive(Debug, Clone)]
pub struct RuleSettings {
    /// The agents that prompts may choose.
    pub agents: Agents,
    /// Turns in a row without new input, of an agent that does not say; the last allowed one must answer without
    /// tools.
    pub max_steps: i32,
    /// When a failed wire request is tried again; one budget for all failures between two whole replies.
    pub retry: Schedule,
    /// Takeovers in a row without progress before the drain gives up.
    pub max_recoveries: i16,
    /// Bodies of one *pure* call.
    pub max_bodies: i32,
    /// When a conversation is summarised.
    pub compaction: CompactionSettings,
    /// Whether sessions that nobody named are given titles by their models.
    pub titles: bool,
    /// Whether replies keep what providers want to see again, and what they ran themselves.
    pub provider_state: bool,
}

/// When a conversation is summarised, and what of it stays. In tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionSettings {
    /// At the model's limits, and when a provider refuses a request as too large; otherwise only on request.
    pub auto: bool,
    /// Kept free of the model's context besides …
    pub buffer: u64,
    /// … its longest answer, as far as that is not above this.
    pub output_cap: u64,
    /// The most that stays of the recent conversation.
    pub keep: u64,
    /// Whether a request for a summary may show less than the conversation, and a prompt in the middle of its work stay
    /// beside the summary. Not while older builds run that cannot read such rows.
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
            max_steps: 200,
            retry: Schedule::default(),
            max_recoveries: 3,
            max_bodies: 3,
            compaction: CompactionSettings::default(),
            titles: true,
            provider_state: true,
        }
    }
}

impl Rules<'_> {
    /// The newest interrupt that a drain which starts is not to apply: one of work that is still open is
    /// its own, any other is history. `newest` is the head's.
    #[must_use]
    pub fn interrupts_before(history: &History, taken: Taken, newest: Seq) -> Seq {
        match history.interrupt() {
            Some(seq) if taken.was_open => Seq(seq.0 - 1),
            _ => newest,
        }
    }

    /// Whether `history` holds an interrupt that this drain must apply.
    #[must_use]
    pub fn is_interrupted(&self, history: &History) -> bool {
        !mutated!(InterruptIgnored)
            && history.interrupt().is_some_and(|seq| seq > self.interrupts_before)
    }
}
