//! Shows what a call did, below its line: the diff of an edit, the end of an output, a list of tasks.

use domain::{ToolIntent, ToolOutcomeKind, ToolSettled};
use serde::Deserialize;
use serde_json::Value;

use super::printable;
use crate::output::Style;

/// The most lines of a diff or of a new file.
const DIFF: usize = 40;
/// The most lines of an output: its end, where programs say how they ended.
const TAIL: usize = 10;

/// Returns the code of a terminal's colour for a line of a patch: added ones are green, removed ones red.
#[must_use]
pub fn choose_diff_colour(line: &str) -> &'static str {
    match line.as_bytes() {
        [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => "1",
        [b'+', ..] => "32",
        [b'-', ..] => "31",
        [b'@', b'@', ..] => "36",
        _ => "0",
    }
}

/// Returns the lines below the line of a call, without line feeds.
pub(super) fn describe_details(
    style: Style,
    intent: Option<&ToolIntent>,
    settled: &ToolSettled,
) -> Vec<String> {
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let structured = settled.structured.as_deref().map(read).unwrap_or_default();
    let tool = intent.map_or("", |intent| intent.tool.as_str());
    let is_done = settled.outcome == ToolOutcomeKind::Completed;
    let text = |value: &Value, name: &str| value[name].as_str().map(str::to_owned);
    if let (true, Ok(tasks)) = (is_done, Vec::<Task>::deserialize(&structured))
        && tool.starts_with("todo")
    {
        return tasks.iter().map(|task| write_task(style, task)).collect();
    }
    if let Some(diff) = text(&structured, "diff").filter(|_| is_done) {
        return write_diff(style, &diff);
    }
    let arguments = intent.map(|intent| read(&intent.arguments)).unwrap_or_default();
    if let (true, "write", Some(content)) = (is_done, tool, text(&arguments, "content")) {
        let is_new = structured["created"] == true;
        let sign = if is_new { "+" } else { " " };
        let diff: String = content.lines().map(|line| format!("{sign}{line}\n")).collect();
        return write_diff(style, &diff);
    }
    if structured.get("exit_code").is_some() {
        return write_tail(style, &settled.output);
    }
    Vec::new()
}

#[derive(Deserialize)]
struct Task {
    content: String,
    status: String,
}

fn write_task(style: Style, task: &Task) -> String {
    let text = printable::line(&task.content, 200);
    let (plain, fancy, colour) = match task.status.as_str() {
        "completed" => ("[x]", "✓", "32"),
        "in_progress" => ("[>]", "▸", "1"),
        "cancelled" => ("[-]", "✗", "2"),
        _ => ("[ ]", "□", "0"),
    };
    match style {
        Style::Plain => format!("  {plain} {text}"),
        Style::Fancy => format!("  \x1b[{colour}m{fancy} {text}\x1b[0m"),
    }
}

fn write_diff(style: Style, diff: &str) -> Vec<String> {
    let is_header = |line: &&str| line.starts_with("--- ") || line.starts_with("+++ ");
    let all: Vec<&str> = diff.lines().filter(|line| !is_header(line)).collect();
    let mut lines: Vec<String> = all
        .iter()
        .take(DIFF)
        .map(|line| colour_line(style, line, choose_diff_colour(line)))
        .collect();
    if all.len() > DIFF {
        let more = count_lines(all.len() - DIFF);
        lines.push(colour_line(style, &format!("… {more} more; `session diff` shows all"), "2"));
    }
    lines
}

fn write_tail(style: Style, output: &str) -> Vec<String> {
    let is_footer = |line: &&str| line.starts_with("(exit code ") && line.ends_with(')');
    let all: Vec<&str> = output.trim_end().lines().filter(|line| !is_footer(line)).collect();
    let all = match all.iter().rposition(|line| !line.trim().is_empty()) {
        Some(last) => &all[..=last],
        None => return Vec::new(),
    };
    let skipped = all.len().saturating_sub(TAIL);
    let mut lines = Vec::new();
    if skipped > 0 {
        lines.push(colour_line(style, &format!("… {} before", count_lines(skipped)), "2"));
    }
    lines.extend(all[skipped..].iter().map(|line| colour_line(style, line, "2")));
    lines
}

fn count_lines(count: usize) -> String {
    crate::table::count(count as u64, "line")
}

fn colour_line(style: Style, line: &str, code: &str) -> String {
    let line = printable::block(line).replace('\t', "    ");
    match style {
        Style::Plain => format!("  {line}"),
        Style::Fancy => format!("  \x1b[{code}m{line}\x1b[0m"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(
        tool: &str,
        arguments: &Value,
        outcome: &str,
        output: &str,
        structured: &Value,
    ) -> String {
        let intent = json!({"call": "call_1", "part": "prt_1", "provider_call": "1", "tool": tool,
                            "arguments": arguments.to_string()});
        let settled = json!({"turn": "trn_1", "call": "call_1", "outcome": outcome, "output": output, "title": "t",
                             "structured": structured.to_string(), "truncated": false, "started": 0, "ended": 1});
        let intent: ToolIntent = serde_json::from_value(intent).expect("an intent");
        let settled: ToolSettled = serde_json::from_value(settled).expect("a result");
        describe_details(Style::Plain, Some(&intent), &settled).join("\n")
    }

    // Finding trial-3 19: an edit was one line without what it changed, and a command one without its output.
    #[test]
    fn a_call_shows_what_it_changed_or_said() {
        let none = json!({});
        let edit =
            json!({"path": "a", "replacements": 1, "diff": "@@ -1 +1 @@\n-one\n+t\u{1b}[2Jwo\n"});
        assert_eq!(
            shown("edit", &none, "completed", "", &edit),
            "  @@ -1 +1 @@\n  -one\n  +t[2Jwo"
        );
        let patch =
            json!({"files": ["M a"], "diff": "M a\n--- a\n+++ b\n-one\n", "diff_is_whole": true});
        assert_eq!(shown("apply_patch", &none, "completed", "", &patch), "  M a\n  -one");
        let content = json!({"path": "a", "content": "one\n\ttwo\n"});
        let created = json!({"path": "a", "bytes": 8, "created": true});
        assert_eq!(shown("write", &content, "completed", "", &created), "  +one\n  +    two");
        let written = json!({"path": "a", "bytes": 8, "created": false});
        assert_eq!(shown("write", &content, "completed", "", &written), "   one\n       two");
        assert_eq!(shown("write", &content, "failed", "no room", &none), "");
        let code = json!({"exit_code": 101});
        let output = "running 2 tests\n\nfailed\n\n(exit code 101)";
        assert_eq!(
            shown("shell", &none, "completed", output, &code),
            "  running 2 tests\n  \n  failed"
        );
        assert_eq!(shown("shell", &none, "completed", "(exit code 0)", &code), "");
        let many: String = (1..=13).map(|number| format!("{number}\n")).collect();
        let tail = shown("shell", &none, "completed", &many, &code);
        assert!(
            tail.starts_with("  … 3 lines before\n  4\n") && tail.ends_with("\n  13"),
            "{tail}"
        );
        let many = json!({"path": "a", "content": "x\n".repeat(41)});
        let told = shown("write", &many, "completed", "", &created);
        assert!(told.ends_with("  +x\n  … 1 line more; `session diff` shows all"), "{told}");
        assert_eq!(shown("read", &none, "completed", "all of it", &json!({"count": 1})), "");
    }

    #[test]
    fn tasks_are_a_list_with_their_states() {
        let task = |content: &str, status: &str| json!({"content": content, "status": status, "priority": "low"});
        let list = json!([
            task("look", "completed"),
            task("mend", "in_progress"),
            task("test", "pending"),
            task("sing", "cancelled"),
        ]);
        let told = shown("todowrite", &json!({}), "completed", "", &list);
        assert_eq!(told, "  [x] look\n  [>] mend\n  [ ] test\n  [-] sing");
        let line = write_task(
            Style::Fancy,
            &Task { content: "a\u{1b}b".into(), status: "completed".into() },
        );
        assert_eq!(line, "  \u{1b}[32m✓ a b\u{1b}[0m");
    }
}
