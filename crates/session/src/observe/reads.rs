use std::collections::BTreeSet;

use domain::{ToolOutcomeKind, ToolSettled};
use history::History;

/// The tool whose successful calls are reads.
const READ: &str = "read";

/// Returns the paths that the model has read in settled turns and in the open one. `done` are results of the open
/// turn that will be written together with this observation.
pub(super) fn reads(history: &History, done: &[ToolSettled]) -> BTreeSet<String> {
    let mut reads = history.read_paths().clone();
    let calls = history.open_turn().map(|open| open.calls.iter()).into_iter().flatten();
    for (id, call) in calls.filter(|(_, call)| call.intent.tool == READ) {
        let settled = call.settled.as_ref().or_else(|| done.iter().find(|done| done.call == *id));
        reads.extend(settled.and_then(path));
    }
    reads
}

fn path(settled: &ToolSettled) -> Option<String> {
    if settled.outcome != ToolOutcomeKind::Completed {
        return None;
    }
    let result: serde_json::Value = serde_json::from_str(settled.structured.as_deref()?).ok()?;
    Some(result["path"].as_str()?.to_owned())
}
