use std::time::Duration;

use jiff::tz::TimeZone;
use llm_client::retry::Schedule;
use tools::Limits;

/// How drains behave. All bounds are stated here.
#[derive(Debug, Clone)]
pub struct DrainSettings {
    /// The agent's own instructions.
    pub agent: String,
    /// Turns in a row without new input; the last allowed one must answer without tools.
    pub max_steps: i32,
    /// When a failed wire request is tried again; one budget for all failures between two whole replies.
    pub retry: Schedule,
    /// A call's intent is committed on its own when its stream goes on this much longer.
    pub intent_delay: Duration,
    /// A tool's result is committed on its own when its batch takes this much longer.
    pub result_delay: Duration,
    /// Text of a long stream is kept at most this often …
    pub checkpoint_every: Duration,
    /// … or when this many bytes are not kept yet.
    pub checkpoint_bytes: usize,
    /// Takeovers in a row without progress before the drain gives up.
    pub max_recoveries: i16,
    /// Bodies of one *pure* call.
    pub max_bodies: i32,
    /// How long tools that were told to stop may take.
    pub stop_tools: Duration,
    /// What a model sees of one settlement.
    pub output: Limits,
    /// The time zone of the dates that a model sees.
    pub zone: TimeZone,
}

/// What the `build` agent is told.
const BUILD_AGENT: &str = "\
You are OpenCode, a coding agent that works in a workspace through tools.
Do what the user asks, completely, and no more than that. Look before you change: read the files that \
matter, follow the conventions that you find, and keep changes small.
Use the tools to act; several independent calls may be made at once. When something can be checked by \
running it, run it. A tool result that says its outcome is unknown may have had its effect: look before \
you repeat it.
Answer briefly and in plain text. Say what you did, what you saw, and what is left.";

impl Default for DrainSettings {
    fn default() -> Self {
        Self {
            agent: BUILD_AGENT.to_owned(),
            max_steps: 200,
            retry: Schedule::default(),
            intent_delay: Duration::from_millis(50),
            result_delay: Duration::from_secs(1),
            checkpoint_every: Duration::from_secs(2),
            checkpoint_bytes: 16 * 1024,
            max_recoveries: 3,
            max_bodies: 3,
            stop_tools: Duration::from_secs(5),
            output: Limits::default(),
            zone: TimeZone::UTC,
        }
    }
}
