use std::time::Duration;

use jiff::tz::TimeZone;
use session_rules::RuleSettings;
use tools::Limits;

use crate::files::SnapshotSettings;

/// How drains behave. All bounds are stated here.
#[derive(Debug, Clone)]
pub struct DrainSettings {
    /// What decisions depend on.
    pub rules: RuleSettings,
    /// A call's intent is committed on its own when its stream goes on this much longer.
    pub intent_delay: Duration,
    /// A tool's result is committed on its own when its batch takes this much longer.
    pub result_delay: Duration,
    /// Text of a long stream is kept at most this often …
    pub checkpoint_every: Duration,
    /// … or when this many bytes are not kept yet.
    pub checkpoint_bytes: usize,
    /// How long tools that were told to stop may take.
    pub stop_tools: Duration,
    /// How long a drain that has nothing else left to do waits for a title.
    pub title_wait: Duration,
    /// When calls go on without a Workspace Snapshot, and what one holds.
    pub snapshots: SnapshotSettings,
    /// What a model sees of one settlement.
    pub output: Limits,
    /// The time zone of the dates that a model sees.
    pub zone: TimeZone,
    /// Whether instruction files of the project are told; those of the organisation always are.
    pub project_instructions: bool,
}

impl Default for DrainSettings {
    fn default() -> Self {
        Self {
            rules: RuleSettings::default(),
            intent_delay: Duration::from_millis(50),
            result_delay: Duration::from_secs(1),
            checkpoint_every: Duration::from_secs(2),
            checkpoint_bytes: 16 * 1024,
            stop_tools: Duration::from_secs(5),
            title_wait: Duration::from_secs(5),
            snapshots: SnapshotSettings::default(),
            output: Limits::default(),
            zone: TimeZone::UTC,
            project_instructions: true,
        }
    }
}
