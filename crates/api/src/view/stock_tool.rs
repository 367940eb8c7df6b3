//! Tools as stock clients know them. A client draws a tool by its name, its input and its metadata, so ours are shown
//! under the names of the released tools that do the same. A tool without a line here keeps its own shape.

use serde_json::{Map, Value, json};

/// The lines of a file that a client shows before somebody opens the whole output.
const PREVIEW_LINES: usize = 20;

/// The line below the output of a command that went well.
const SUCCESS: &str = "(exit code 0)";

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

const SHAPES: [Shape; 12] = [
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
    Shape {
        ours: "apply_patch",
        theirs: "apply_patch",
        fields: &[("patch", "patchText")],
        title: "",
        metadata: |done| json!({ "diff": done.structured["diff"], "files": patched(done), "diagnostics": {} }),
    },
    Shape {
        ours: "question",
        theirs: "question",
        fields: &[],
        title: "",
        metadata: |done| json!({ "answers": done.structured["answers"] }),
    },
    Shape {
        ours: "todoread",
        theirs: "todoread",
        fields: &[],
        title: "",
        metadata: |done| json!({ "todos": done.structured }),
    },
    Shape {
        ours: "todowrite",
        theirs: "todowrite",
        fields: &[],
        title: "",
        metadata: |done| json!({ "todos": done.structured }),
    },
    Shape {
        ours: "webfetch",
        theirs: "webfetch",
        fields: &[],
        title: "url",
        metadata: |_| json!({}),
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
    if tool == "shell" && structured.as_ref().is_some_and(|result| result["exit_code"] == 0) {
        let output = state["output"].as_str().map(without_success);
        state["output"] = output.unwrap_or_default().into();
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
        let title = input.get(shape.title).and_then(Value::as_str).map(str::to_owned);
        if let Some(all) = state["metadata"].as_object_mut() {
            all.extend(fields.into_iter().filter(|(_, value)| !value.is_null()));
        }
        if let Some(title) = title {
            state["title"] = title.into();
        }
    }
    Some(shape.theirs)
}

/// Returns the output of a command that went well without the line that tells the model so: people see that it did.
fn without_success(output: &str) -> String {
    let Some(at) = output.rfind(SUCCESS) else { return output.to_owned() };
    let (before, after) = (&output[..at], &output[at + SUCCESS.len()..]);
    let begins_a_line = before.is_empty() || before.ends_with('\n');
    // Behind it are only other lines of ours.
    if !begins_a_line || !(after.is_empty() || after.starts_with("\n(")) {
        return output.to_owned();
    }
    let kept = [before.strip_suffix('\n').unwrap_or(before), after.trim_start_matches('\n')];
    kept.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("\n")
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

/// Takes the one diff of a patch apart: a line for each file, as in `files`, and below it the file's own changes.
fn patched(done: &Done) -> Value {
    let names = done.structured["files"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let diff = done.structured["diff"].as_str().unwrap_or_default();
    let mut files: Vec<(&str, String)> = names.map(|name| (name, String::new())).collect();
    let mut at = None;
    for line in diff.split_inclusive('\n') {
        // Lines of a diff begin with a sign of their own.
        match files.iter().position(|(name, _)| *name == line.trim_end_matches('\n')) {
            Some(found) => at = Some(found),
            None => {
                if let Some((_, changes)) = at.and_then(|at: usize| files.get_mut(at)) {
                    *changes += line;
                }
            }
        }
    }
    files.into_iter().map(|(name, diff)| patched_file(name, &diff)).collect()
}

/// Shows a file of a patch: `A` for a new one, `D` for a deleted, `M` for a changed one, with `->` before its new place.
fn patched_file(name: &str, diff: &str) -> Value {
    let (sign, path) = name.split_once(' ').unwrap_or(("M", name));
    let (from, to) = path.split_once(" -> ").unwrap_or((path, path));
    let kind = match sign {
        "A" => "add",
        "D" => "delete",
        _ if from != to => "move",
        _ => "update",
    };
    let lines = |sign: char| diff.lines().filter(|line| line.starts_with(sign)).count();
    json!({
        "filePath": from, "relativePath": to, "type": kind, "diff": diff, "patch": diff,
        "additions": lines('+'), "deletions": lines('-'),
    })
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

    // Check heldout-3: "(exit code 0)" was below every command's output.
    #[test]
    fn a_command_that_went_well_shows_its_output_alone() {
        for (output, expected) in [
            ("a.txt\n(exit code 0)", "a.txt"),
            ("(exit code 0)", ""),
            ("a\n\n(exit code 0)", "a\n"),
            ("(exit code 0)\n(exit code 0)", "(exit code 0)"),
            (
                "a\n(exit code 0)\n(processes left in the background were ended: 1)",
                "a\n(processes left in the background were ended: 1)",
            ),
            ("said (exit code 0)", "said (exit code 0)"),
            ("(exit code 0)\nand more", "(exit code 0)\nand more"),
        ] {
            let state = json!({
                "status": "completed", "input": {"command": "ls"}, "output": output,
                "metadata": {"structured": {"exit_code": 0}},
            });
            let (_, state) = shown("shell", state);
            assert_eq!(state["output"], expected, "{output:?}");
            assert_eq!(state["metadata"]["output"], expected, "{output:?}");
        }
        let state = json!({
            "status": "completed", "input": {}, "output": "no\n(exit code 1)", "metadata": {"structured": {"exit_code": 1}},
        });
        assert_eq!(shown("shell", state).1["output"], "no\n(exit code 1)");
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

    #[test]
    fn a_patch_has_the_changes_of_each_file() {
        let diff = "A a.rs\n@@ -0,0 +1 @@\n+a\nM b.rs -> c.rs\n@@ -1 +1,2 @@\n-b\n+c\n+d\n";
        let files = json!(["A a.rs", "D gone.rs", "M b.rs -> c.rs"]);
        let state = json!({
            "status": "completed", "input": {"patch": "*** Begin Patch"}, "output": "Applied", "title": "Patched 3 files",
            "metadata": {"structured": {"files": files, "diff": diff, "diff_is_whole": true}},
        });
        let (tool, state) = shown("apply_patch", state);
        let files: Vec<_> =
            state["metadata"]["files"].as_array().expect("there are files").iter().collect();
        let kinds = files.iter().map(|file| {
            (&file["type"], &file["relativePath"], &file["additions"], &file["deletions"])
        });
        let expected = [("add", "a.rs", 1, 0), ("delete", "gone.rs", 0, 0), ("move", "c.rs", 2, 1)];
        let expected = expected.map(|(kind, path, more, less)| json!([kind, path, more, less]));
        assert_eq!(kinds.map(|(a, b, c, d)| json!([a, b, c, d])).collect::<Vec<_>>(), expected);
        assert_eq!(files[2]["patch"], "@@ -1 +1,2 @@\n-b\n+c\n+d\n");
        assert_eq!((tool, &state["title"]), (Some("apply_patch"), &json!("Patched 3 files")));
        assert_eq!(state["input"], json!({ "patchText": "*** Begin Patch" }));
    }

    #[test]
    fn tasks_are_metadata_of_their_call() {
        let todos = json!([{"content": "one", "status": "pending", "priority": "low"}]);
        let state = json!({
            "status": "completed", "input": {"todos": todos}, "output": "The list", "title": "Tasks: 1 open",
            "metadata": {"structured": todos},
        });
        let (tool, state) = shown("todowrite", state);
        assert_eq!((tool, &state["metadata"]["todos"]), (Some("todowrite"), &todos));
        assert_eq!(state["title"], "Tasks: 1 open");
    }
}
