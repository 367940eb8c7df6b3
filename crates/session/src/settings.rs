use std::time::Duration;

use jiff::tz::TimeZone;
use sandbox::{HiddenPaths, Reach};
use session_rules::RuleSettings;
use tools::Limits;

use crate::files::SnapshotSettings;

/// The settings of drains, with all bounds.
#[derive(Debug, Clone)]
pub struct DrainSettings {
    /// The settings of decisions.
    pub rules: RuleSettings,
    /// How much longer a stream may run before a call's intent is committed separately.
    pub intent_delay: Duration,
    /// How much longer a batch may run before a tool's result is committed separately.
    pub result_delay: Duration,
    /// The shortest time between two checkpoints of a long stream's text …
    pub checkpoint_every: Duration,
    /// … unless this many bytes are not kept yet.
    pub checkpoint_bytes: usize,
    /// How long tools may take to stop.
    pub stop_tools: Duration,
    /// How long a drain with nothing else to do waits for a title.
    pub title_wait: Duration,
    /// The settings of Workspace Snapshots.
    pub snapshots: SnapshotSettings,
    /// The bounds of a tool's output for the model.
    pub output: Limits,
    /// The time zone of the dates that a model sees.
    pub zone: TimeZone,
    /// Whether the project's instruction files are used. The organisation's always are.
    pub project_instructions: bool,
    /// How far commands get into networks.
    pub network: Reach,
    /// The paths that sessions do not see in directories that contain it.
    pub hidden: HiddenPaths,
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
            network: Reach::None,
            hidden: HiddenPaths::default(),
        }
    }
}
