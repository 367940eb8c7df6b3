//! Tools as stock clients know them. A client draws a tool by its name, its input and its metadata, so ours are shown
//! under the names of the released tools that do the same. A tool without a line here keeps its own shape.

use serde_json::{Map, Value, json};

/// The lines of a file that a client shows before somebody opens the whole output.
const PREVIEW_LINES: usize = 20;

/// A tool of ours and the released one that it is shown as.
struct Shape {
    ours: &'static str,
    theirs: &'static str,
    /// Names of the input's fields: ours, and theirs.
    fields: &'static [(&'static str, &'static str)],
    /// The field of the input that stands for the call in one line.
    title: &'static str,
    metadata: fn(&Done) -> Value,
}

/// Returns the released name of a tool of ours, or of its permission.
pub(super) fn stock_name(ours: &str) -> &str {
    SHAPES.iter().find(|shape| shape.ours == ours).map_or(ours, |shape| shape.theirs)
}

/// A call that has ended.
struct Done<'a> {
    input: &'a Map<String, Value>,
    output: &'a str,
    structured: &'a Value,
    truncated: bool,
}

const SHAPES: [Shape; 7] = [
    Shape {
        ours: "shell",
        theirs: "bash",
        fields: &[("timeout_ms", "timeout")],
        title: "command",
        metadata: |done| json!({ "output": done.output, "exit": done.structured["exit_code"], "truncated": done.truncated }),
    },
    Shape {
        ours: "edit",
        theirs: "edit",
        fields: &[
            ("path", "filePath"),
            ("old", "oldString"),
            ("new", "newString"),
            ("all", "replaceAll"),
        ],
        title: "filePath",
        metadata: edited,
    },
    Shape {
        ours: "write",
        theirs: "write",
        fields: &[("path", "filePath")],
        title: "filePath",
        metadata: |done| {
            let exists = done.structured["created"] != json!(true);
            json!({ "filepath": done.input.get("filePath"), "exists": exists, "diagnostics": {} })
        },
    },
    Shape {
        ours: "read",
        theirs: "read",
        fields: &[("path", "filePath")],
        title: "filePath",
        metadata: |done| {
            let preview: Vec<&str> = done.output.lines().take(PREVIEW_LINES).collect();
            let is_cut = done.truncated || done.structured["more"] == json!(true);
            json!({ "preview": preview.join("\n"), "loaded": [], "truncated": is_cut })
        },
    },
    Shape {
        ours: "glob",
        theirs: "glob",
        fields: &[],
        title: "pattern",
        metadata: |done| json!({ "count": count(done), "truncated": done.structured["more"] == json!(true) }),
    },
    Shape {
        ours: "grep",
        theirs: "grep",
        fields: &[],
        title: "pattern",
        metadata: |done| json!({ "matches": count(done), "truncated": done.structured["more"] == json!(true) }),
    },
    Shape {
        ours: "skill",
        theirs: "skill",
        fields: &[],
        title: "name",
        metadata: |done| json!({ "name": done.structured["name"], "dir": done.structured["directory"] }),
    },
];

/// Shows the state of one of our tools as that of the released one, and returns the released name.
pub(super) fn as_stock_tool(tool: &str, state: &mut Value) -> Option<&'static str> {
    let shape = SHAPES.iter().find(|shape| shape.ours == tool)?;
    let input = renamed(shape, state["input"].take());
    state["input"] = input.clone().into();
    let metadata = state.get_mut("metadata").and_then(Value::as_object_mut);
    let structured = metadata.and_then(|all| all.remove("structured"));
    // A command that ended with another code than 0 has a result. Clients show the output of a completed call only.
    let ended = structured.as_ref().is_some_and(|result| !result["exit_code"].is_null());
    if state["status"] == "error" && ended {
        state["status"] = "completed".into();
        state["output"] = state["error"].take();
        state.as_object_mut()?.remove("error");
    }
    // A client shows the text of an error as it is.
    if state["status"] == "completed" {
        let done = Done {
            input: &input,
            output: state["output"].as_str().unwrap_or_default(),
            structured: structured.as_ref().unwrap_or(&Value::Null),
            truncated: state["metadata"]["truncated"] == json!(true),
        };
        let Value::Object(fields) = (shape.metadata)(&done) else { return Some(shape.theirs) };
        let title = input.get(shape.title).and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(all) = state["metadata"].as_object_mut() {
            all.extend(fields.into_iter().filter(|(_, value)| !value.is_null()));
        }
        state["title"] = title.into();
    }
    Some(shape.theirs)
}

/// Returns the input with the released names of its fields. Models know those names too, so some use them anyway.
fn renamed(shape: &Shape, input: Value) -> Map<String, Value> {
    let Value::Object(mut input) = input else { return Map::new() };
    for (ours, theirs) in shape.fields {
        if let Some(value) = input.remove(*ours) {
            input.entry(*theirs).or_insert(value);
        }
    }
    input
}

fn count(done: &Done) -> Value {
    done.structured["count"].clone()
}

fn edited(done: &Done) -> Value {
    let diff = done.structured["diff"].as_str().unwrap_or_default();
    let lines = |sign: char, header: &str| {
        diff.lines().filter(|line| line.starts_with(sign) && !line.starts_with(header)).count()
    };
    let file = json!({
        "file": done.input.get("filePath"),
        "patch": diff,
        "additions": lines('+', "+++ "),
        "deletions": lines('-', "--- "),
    });
    json!({ "diff": diff, "filediff": file, "diagnostics": {} })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(tool: &str, mut state: Value) -> (Option<&'static str>, Value) {
        (as_stock_tool(tool, &mut state), state)
    }

    #[test]
    fn a_command_is_bash_with_its_output_and_exit_code() {
        let state = json!({
            "status": "error", "input": {"command": "false", "timeout_ms": 5}, "error": "gone",
            "metadata": {"outcome": "failed", "structured": {"exit_code": 1}}, "time": {"start": 1, "end": 2},
        });
        let expected = json!({
            "status": "completed", "input": {"command": "false", "timeout": 5}, "output": "gone", "title": "false",
            "metadata": {"outcome": "failed", "output": "gone", "exit": 1, "truncated": false},
            "time": {"start": 1, "end": 2},
        });
        assert_eq!(shown("shell", state), (Some("bash"), expected));
    }

    #[test]
    fn a_killed_command_stays_an_error() {
        let state = json!({
            "status": "error", "input": {"command": "sleep 9"}, "error": "killed",
            "metadata": {"structured": {"exit_code": null, "timed_out": true}},
        });
        let (tool, state) = shown("shell", state);
        assert_eq!((tool, &state["status"]), (Some("bash"), &json!("error")));
        assert_eq!((&state["error"], &state["metadata"]), (&json!("killed"), &json!({})));
    }

    #[test]
    fn an_edit_has_its_diff_and_counts_lines() {
        let diff = "@@ -1 +1,2 @@\n-a\n+b\n+c\n";
        let state = json!({
            "status": "completed", "input": {"path": "x.rs", "old": "a", "new": "b\nc"}, "output": "Edited", "title": "t",
            "metadata": {"structured": {"path": "x.rs", "diff": diff}},
        });
        let (_, state) = shown("edit", state);
        let file = json!({ "file": "x.rs", "patch": diff, "additions": 2, "deletions": 1 });
        assert_eq!(state["metadata"], json!({ "diff": diff, "filediff": file, "diagnostics": {} }));
        assert_eq!(
            state["input"],
            json!({ "filePath": "x.rs", "oldString": "a", "newString": "b\nc" })
        );
        assert_eq!(state["title"], "x.rs");
    }

    #[test]
    fn a_call_under_way_only_has_other_names() {
        let running = json!({ "status": "running", "input": {"path": "a"}, "time": {"start": 1} });
        let expected =
            json!({ "status": "running", "input": {"filePath": "a"}, "time": {"start": 1} });
        assert_eq!(shown("write", running), (Some("write"), expected));
        let other = json!({ "status": "running", "input": {"path": "a"} });
        assert_eq!(shown("web_search", other.clone()), (None, other));
    }
}
