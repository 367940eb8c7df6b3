//! Formats a tool call as one line: `✓ read src/lib.rs (120 lines)`, `✗ shell cargo test: exit code 101`.

use domain::{ReplyPart, ToolIntent, ToolOutcomeKind, ToolSettled};
use serde_json::Value;

use super::printable;
use crate::output::Style;

/// The longest subject and the longest reason, in characters.
const MAX_WORDS: usize = 120;

/// Formats a settled call, without a line feed. `intent` is missing if the call started before we began to follow.
#[must_use]
pub fn tool_line(style: Style, intent: Option<&ToolIntent>, settled: &ToolSettled) -> String {
    let structured: Value = settled
        .structured
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let what = match intent {
        Some(intent) => named(&intent.tool, &intent.arguments),
        None => printable::line(&settled.title, MAX_WORDS),
    };
    let (verdict, tail) = verdict(settled, &structured);
    let took = settled.ended - settled.started;
    let took = if took >= 1_000 {
        format!(" {}.{} s", took / 1_000, took % 1_000 / 100)
    } else {
        String::new()
    };
    line(style, verdict, &format!("{what}{tail}"), &took)
}

/// Formats a running call, without a line feed.
#[must_use]
pub fn running_line(style: Style, intent: &ToolIntent) -> String {
    let what = named(&intent.tool, &intent.arguments);
    match style {
        Style::Plain => format!("[running] {what}"),
        Style::Fancy => format!("\x1b[2m… {what}\x1b[0m"),
    }
}

/// Formats a call in a reply that its provider ran, without a line feed; `None` if there is no such call.
#[must_use]
pub fn hosted_line(style: Style, reply: &[ReplyPart], of: &str) -> Option<String> {
    let what = reply.iter().find_map(|part| match part {
        ReplyPart::HostedCall { call, name, input, .. } if call == of => Some(named(name, input)),
        ReplyPart::Text { .. }
        | ReplyPart::Reasoning { .. }
        | ReplyPart::ToolCall { .. }
        | ReplyPart::HostedCall { .. }
        | ReplyPart::HostedResult { .. } => None,
    })?;
    let result = reply.iter().find_map(|part| match part {
        ReplyPart::HostedResult { call, output, is_error, .. } if call == of => {
            Some((output, *is_error))
        }
        ReplyPart::Text { .. }
        | ReplyPart::Reasoning { .. }
        | ReplyPart::ToolCall { .. }
        | ReplyPart::HostedCall { .. }
        | ReplyPart::HostedResult { .. } => None,
    });
    let (verdict, tail) = match result {
        Some((output, true)) => (Verdict::Badly, reason(output)),
        Some((_, false)) | None => (Verdict::Well, String::new()),
    };
    Some(line(style, verdict, &format!("{what}{tail}"), " (by the provider)"))
}

fn line(style: Style, verdict: Verdict, what: &str, aside: &str) -> String {
    match style {
        Style::Plain => format!("[{}] {what}{aside}", verdict.word()),
        Style::Fancy => format!(
            "\x1b[{}m{}\x1b[0m {what}\x1b[2m{aside}\x1b[0m",
            verdict.colour(),
            verdict.mark()
        ),
    }
}

/// Returns the reason of a failure: the first line of the output that is not empty.
fn reason(output: &str) -> String {
    let why = output.lines().map(str::trim).find(|line| !line.is_empty());
    format!(": {}", printable::line(why.unwrap_or("no reason given"), MAX_WORDS))
}

/// Returns the tool and its subject.
pub(super) fn named(tool: &str, arguments: &str) -> String {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    let subject = ["command", "pattern", "path", "filePath", "url", "query", "description"]
        .into_iter()
        .find_map(text)
        .unwrap_or_default();
    let place = match (text("pattern"), text("path")) {
        (Some(_), Some(path)) => format!(" in {path}"),
        _ => String::new(),
    };
    printable::line(&format!("{tool} {subject}{place}"), MAX_WORDS)
}

#[derive(Clone, Copy)]
enum Verdict {
    Well,
    Badly,
    Interrupted,
    Unknown,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Well => "ok",
            Self::Badly => "failed",
            Self::Interrupted => "interrupted",
            Self::Unknown => "unknown",
        }
    }

    fn mark(self) -> &'static str {
        match self {
            Self::Well => "✓",
            Self::Badly => "✗",
            Self::Interrupted => "■",
            Self::Unknown => "?",
        }
    }

    fn colour(self) -> &'static str {
        match self {
            Self::Well => "32",
            Self::Badly => "31",
            Self::Interrupted | Self::Unknown => "33",
        }
    }
}

/// Returns the verdict for people, and the words after the subject. A command that returned an error is *completed*
/// to the runtime, but a failure to the reader.
fn verdict(settled: &ToolSettled, structured: &Value) -> (Verdict, String) {
    match settled.outcome {
        ToolOutcomeKind::Completed => {
            let number = |name: &str| structured.get(name).and_then(Value::as_i64);
            match (number("exit_code"), number("signal")) {
                (Some(code), _) if code != 0 => (Verdict::Badly, format!(": exit code {code}")),
                (None, Some(signal)) => (Verdict::Badly, format!(": ended by signal {signal}")),
                _ => (Verdict::Well, measure(structured)),
            }
        }
        ToolOutcomeKind::Failed => {
            let timed_out = structured.get("timed_out").and_then(Value::as_bool) == Some(true);
            let why: &str = if timed_out { "killed at its timeout" } else { &settled.output };
            (Verdict::Badly, reason(why))
        }
        ToolOutcomeKind::Interrupted => (Verdict::Interrupted, ": interrupted".to_owned()),
        ToolOutcomeKind::Unknown => {
            (Verdict::Unknown, ": its worker died; whether it took effect is not known".to_owned())
        }
    }
}

/// Describes how much a call found or changed, from the counts in its structured result.
fn measure(structured: &Value) -> String {
    let number = |name: &str| structured.get(name).and_then(Value::as_i64);
    let is = |name: &str| structured.get(name).and_then(Value::as_bool) == Some(true);
    let more = if is("more") { ", more follow" } else { "" };
    if let Some(count) = number("count") {
        let thing = if structured.get("path").is_some() { "line" } else { "result" };
        return format!(" ({}{more})", counted(count, thing));
    }
    if let Some(count) = number("replacements") {
        return format!(" ({})", counted(count, "replacement"));
    }
    if let Some(count) = number("bytes") {
        let created = if is("created") { "new, " } else { "" };
        return format!(" ({created}{})", counted(count, "byte"));
    }
    String::new()
}

fn counted(count: i64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intent(tool: &str, arguments: &str) -> ToolIntent {
        ToolIntent {
            call: "call_1".parse().expect("an id"),
            part: "prt_1".parse().expect("an id"),
            provider_call: "1".into(),
            tool: tool.into(),
            arguments: arguments.into(),
            metadata: None,
        }
    }

    fn settled(outcome: ToolOutcomeKind, output: &str, structured: &str) -> ToolSettled {
        ToolSettled {
            turn: "trn_1".parse().expect("an id"),
            call: "call_1".parse().expect("an id"),
            outcome,
            output: output.into(),
            title: "Title of it".into(),
            structured: Some(structured.into()),
            managed_path: None,
            truncated: false,
            started: 1_000,
            ended: 1_400,
        }
    }

    fn plain(tool: &str, arguments: &str, settled: &ToolSettled) -> String {
        tool_line(Style::Plain, Some(&intent(tool, arguments)), settled)
    }

    #[test]
    fn what_was_done_and_how_much_fits_a_line() {
        use ToolOutcomeKind::{Completed, Failed, Interrupted, Unknown};
        let read = settled(Completed, "", r#"{"path":"src/lib.rs","count":120,"more":false}"#);
        assert_eq!(
            plain("read", r#"{"path":"src/lib.rs"}"#, &read),
            "[ok] read src/lib.rs (120 lines)"
        );
        let grep = settled(Completed, "", r#"{"count":1,"more":true}"#);
        assert_eq!(
            plain("grep", r#"{"pattern":"fn main","path":"src"}"#, &grep),
            "[ok] grep fn main in src (1 result, more follow)"
        );
        let write = settled(Completed, "", r#"{"path":"a","bytes":5,"created":true}"#);
        assert_eq!(plain("write", r#"{"filePath":"a"}"#, &write), "[ok] write a (new, 5 bytes)");
        let shell = settled(Completed, "boom", r#"{"exit_code":101,"signal":null}"#);
        assert_eq!(
            plain("shell", r#"{"command":"cargo test"}"#, &shell),
            "[failed] shell cargo test: exit code 101"
        );
        let killed = settled(Completed, "", r#"{"exit_code":null,"signal":9}"#);
        assert_eq!(
            plain("shell", r#"{"command":"x"}"#, &killed),
            "[failed] shell x: ended by signal 9"
        );
        let failed = settled(Failed, "\nno such file: b\nmore", "not json");
        assert_eq!(plain("read", r#"{"path":"b"}"#, &failed), "[failed] read b: no such file: b");
        let stopped = settled(Interrupted, "", "{}");
        assert_eq!(
            plain("shell", r#"{"command":"sleep 9"}"#, &stopped),
            "[interrupted] shell sleep 9: interrupted"
        );
        let unknown = settled(Unknown, "", "{}");
        assert!(plain("shell", r#"{"command":"x"}"#, &unknown).starts_with("[unknown] shell x: "));
    }

    #[test]
    fn what_the_provider_ran_is_a_line_too() {
        let reply: Vec<ReplyPart> = serde_json::from_value(serde_json::json!([
            {"type": "hosted-call", "id": "prt_1", "call": "s1", "name": "web_search", "input": r#"{"query":"rust"}"#},
            {"type": "hosted-result", "id": "prt_2", "call": "s1", "name": "web_search", "output": "found"},
            {"type": "hosted-call", "id": "prt_3", "call": "s2", "name": "fetch", "input": "{}"},
            {"type": "hosted-result", "id": "prt_4", "call": "s2", "name": "fetch", "output": "\ngone\nfor good",
             "is_error": true},
        ]))
        .expect("a reply");
        let plain = |call: &str| hosted_line(Style::Plain, &reply, call);
        assert_eq!(plain("s1").as_deref(), Some("[ok] web_search rust (by the provider)"));
        assert_eq!(plain("s2").as_deref(), Some("[failed] fetch: gone (by the provider)"));
        assert_eq!(plain("s3"), None);
    }

    #[test]
    fn a_terminal_gets_marks_colours_and_the_time_of_what_was_slow() {
        let mut slow = settled(ToolOutcomeKind::Completed, "", r#"{"exit_code":0}"#);
        slow.ended = slow.started + 2_345;
        let line = tool_line(Style::Fancy, Some(&intent("shell", r#"{"command":"make"}"#)), &slow);
        assert_eq!(line, "\x1b[32m✓\x1b[0m shell make\x1b[2m 2.3 s\x1b[0m");
    }

    #[test]
    fn arguments_that_are_no_json_and_hostile_words_do_no_harm() {
        let done = settled(ToolOutcomeKind::Completed, "", "{}");
        assert_eq!(plain("shell", "{broken", &done), "[ok] shell");
        let line = plain("shell", r#"{"command":"a\u001b[2J\nb"}"#, &done);
        assert_eq!(line, "[ok] shell a [2J b");
        assert_eq!(tool_line(Style::Plain, None, &done), "[ok] Title of it");
    }
}
