use domain::{ToolOutcomeKind, ToolState};
use serde_json::{Map, Value, json};
use store::CallRow;

/// Returns the state of a tool part: `pending`, `running`, `completed` or `error`.
pub(crate) fn call_state(call: &CallRow) -> Value {
    let input = input(&call.arguments);
    let start = call.started_ms.unwrap_or(call.called_ms);
    let end = call.ended_ms.unwrap_or(start);
    let output = call.output.as_deref().unwrap_or_default();
    let title = call.title.as_deref().unwrap_or(&call.tool);
    match call.state.known() {
        Some(ToolState::Settled) if has_completed(call) => json!({
            "status": "completed",
            "input": input,
            "output": output,
            "title": title,
            "metadata": metadata(call),
            "time": { "start": start, "end": end },
        }),
        Some(ToolState::Settled) => json!({
            "status": "error",
            "input": input,
            "error": output,
            "metadata": metadata(call),
            "time": { "start": start, "end": end },
        }),
        // Clients show the dialog of a call beside it once it runs.
        Some(ToolState::Started | ToolState::Asked) => {
            json!({ "status": "running", "input": input, "time": { "start": start } })
        }
        Some(ToolState::Intended) | None => {
            json!({ "status": "pending", "input": {}, "raw": call.arguments })
        }
    }
}

fn has_completed(call: &CallRow) -> bool {
    call.outcome.as_ref().is_some_and(|outcome| *outcome == ToolOutcomeKind::Completed)
}

/// Returns the arguments if the model sent an object. Clients show nothing else.
fn input(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(fields)) => Value::Object(fields),
        _ => Value::Object(Map::new()),
    }
}

fn metadata(call: &CallRow) -> Value {
    let mut fields = Map::new();
    if call.hosted {
        fields.insert("providerExecuted".into(), true.into());
    }
    if let Some(outcome) = call.outcome.as_ref().filter(|_| !has_completed(call)) {
        fields.insert("outcome".into(), outcome.as_str().into());
    }
    if call.truncated == Some(true) {
        fields.insert("truncated".into(), true.into());
    }
    if let Some(path) = &call.managed_path {
        fields.insert("outputPath".into(), path.clone().into());
    }
    let structured = call.structured.as_deref().and_then(|text| serde_json::from_str(text).ok());
    if let Some(structured @ (Value::Object(_) | Value::Array(_))) = structured {
        fields.insert("structured".into(), structured);
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use domain::Stored;

    use super::*;

    fn call(state: ToolState, outcome: Option<ToolOutcomeKind>) -> CallRow {
        CallRow {
            id: "call_a".parse().expect("an id"),
            provider_call: "call_0".into(),
            tool: "read".into(),
            state: state.into(),
            arguments: r#"{"path":"a"}"#.into(),
            called_ms: 5,
            outcome: outcome.map(Stored::from),
            title: None,
            output: outcome.map(|_| "text".to_owned()),
            structured: None,
            managed_path: None,
            truncated: None,
            started_ms: None,
            ended_ms: None,
            hosted: false,
        }
    }

    #[test]
    fn a_call_goes_from_pending_over_running_to_its_end() {
        let status = |state, outcome| call_state(&call(state, outcome))["status"].clone();
        assert_eq!(status(ToolState::Intended, None), "pending");
        assert_eq!(status(ToolState::Started, None), "running");
        assert_eq!(status(ToolState::Settled, Some(ToolOutcomeKind::Completed)), "completed");
        assert_eq!(status(ToolState::Settled, Some(ToolOutcomeKind::Unknown)), "error");
        let unknown = call_state(&call(ToolState::Settled, Some(ToolOutcomeKind::Unknown)));
        assert_eq!(unknown["metadata"]["outcome"], "unknown");
        assert_eq!(unknown["input"], json!({ "path": "a" }));
    }

    #[test]
    fn a_call_that_its_provider_ran_says_so() {
        let part = "prt_1".parse().expect("an id");
        let mut call = CallRow::hosted(&part, 7, "srv_1", "web_search", r#"{"query":"x"}"#);
        let call = call.as_mut().expect("an id");
        assert_eq!(call.id.as_str(), "call_1");
        assert!(!call.told("srv_2", "", false) && call.told("srv_1", "found", false));
        assert!(!call.told("srv_1", "twice", true), "it has its result");
        let expected = json!({
            "status": "completed", "input": {"query": "x"}, "output": "found", "title": "web_search",
            "metadata": {"providerExecuted": true}, "time": {"start": 7, "end": 7},
        });
        assert_eq!(call_state(call), expected);
    }

    #[test]
    fn arguments_that_are_no_object_are_shown_as_none() {
        assert_eq!(input("[1]"), json!({}));
        assert_eq!(input("{"), json!({}));
    }
}
