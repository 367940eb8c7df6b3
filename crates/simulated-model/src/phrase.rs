//! Parses plain requests into steps. Pure.
//!
//! `text ─unwrap→ steps (" then ") ─→ actions (" and also ") ─→ tool calls or words (in plan)`

use serde_json::{Value, json};

/// The most words of "say N words", so that a typing error cannot cost gigabytes.
pub(crate) const MAX_WORDS: u32 = 100_000;

/// A plain request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Steps in order. The actions of one step happen at once.
    Steps(Vec<Vec<Action>>),
    /// "fix the failing test": look around, run the tests, report.
    FixTheTest,
}

/// One action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Call this tool.
    Call(Call),
    /// Say this many words.
    Say(u32),
}

/// The tool call for a plain request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) tool: &'static str,
    pub(crate) arguments: Value,
}

impl Call {
    pub(crate) fn new(tool: &'static str, arguments: Value) -> Self {
        Self { tool, arguments }
    }
}

/// Parses a whole prompt; `None` if it is not a plain request.
pub(crate) fn recognise(text: &str) -> Option<Ask> {
    let text = text.trim();
    ask(text).or_else(|| ask(&unwrapped(text)?))
}

/// Removes the quotes around a prompt. The stock client sends several words as `"…"`, with `\"` for quotes inside.
fn unwrapped(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?.trim_end_matches(['.', '!', '?']).strip_suffix('"')?;
    Some(inner.replace("\\\"", "\""))
}

fn ask(text: &str) -> Option<Ask> {
    let start = polite(text.trim());
    if strip(start, "fix the failing test").is_some() {
        return Some(Ask::FixTheTest);
    }
    split(start, " then ", step).map(Ask::Steps)
}

fn step(text: &str) -> Option<Vec<Action>> {
    split(text, " and also ", action)
}

/// Splits at `joint`, but only where both sides parse: a joint inside a command or a file's content belongs to that.
fn split<T>(text: &str, joint: &str, parse: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let lower = text.to_ascii_lowercase(); // keeps every byte's offset
    let joints: Vec<usize> = lower.match_indices(joint).map(|(at, _)| at).collect();
    let mut parsed = Vec::new();
    let mut start = 0;
    for (index, &at) in joints.iter().enumerate() {
        let after = at + joint.len();
        let next_end = joints.get(index + 1).copied().unwrap_or(text.len());
        let next = text.get(after..next_end).and_then(&parse);
        let this = text.get(start..at).and_then(|segment| parse(without_joiner(segment)));
        if let (Some(this), Some(_)) = (this, next) {
            parsed.push(this);
            start = after;
        }
    }
    parsed.push(parse(text.get(start..)?)?);
    Some(parsed)
}

/// Removes the words that lead up to a joint: "…, then", "… and then".
fn without_joiner(segment: &str) -> &str {
    let segment = segment.trim_end().trim_end_matches(',');
    strip_end(segment, " and").unwrap_or(segment).trim_end_matches(',')
}

fn action(text: &str) -> Option<Action> {
    let text = polite(text.trim());
    say(text).or_else(|| {
        list(text)
            .or_else(|| read(text))
            .or_else(|| run(text))
            .or_else(|| create(text))
            .or_else(|| edit(text))
            .or_else(|| search(text))
            .map(Action::Call)
    })
}

fn say(text: &str) -> Option<Action> {
    let (count, unit) = strip(text, "say ")?.trim().split_once(' ')?;
    matches!(sentence(unit).to_ascii_lowercase().as_str(), "word" | "words").then_some(())?;
    let count: u32 = count.parse().ok()?;
    Some(Action::Say(count.min(MAX_WORDS)))
}

fn list(text: &str) -> Option<Call> {
    let rest = ["list the files", "list all files", "list files"]
        .iter()
        .find_map(|start| strip(text, start))?;
    let pattern = match sentence(rest) {
        "" => "*".to_owned(),
        _ => {
            let folder = name(strip(rest, " in ")?)?;
            let folder = folder.trim_end_matches('/');
            if matches!(folder, "." | "") { "*".to_owned() } else { format!("{folder}/*") }
        }
    };
    Some(Call::new("glob", json!({ "pattern": pattern })))
}

fn read(text: &str) -> Option<Call> {
    let path = ["read the file ", "read "].iter().find_map(|start| strip(text, start))?;
    Some(Call::new("read", json!({ "path": name(path)? })))
}

fn run(text: &str) -> Option<Call> {
    let rest = strip(text, "run ")?.trim();
    let command = match quoted_whole(rest, &['`']) {
        Some(command) => command,
        None => match rest.strip_suffix('.') {
            Some(less) if less.ends_with(|c: char| c.is_ascii_alphanumeric()) => less,
            _ => rest, // "run ls ." and "run ls .." keep their dots
        },
    };
    (!command.is_empty()).then(|| Call::new("shell", json!({ "command": command })))
}

fn create(text: &str) -> Option<Call> {
    let rest = strip(text, "create ")?;
    let rest = ["a file ", "the file "].iter().find_map(|start| strip(rest, start)).unwrap_or(rest);
    let (path, content) = cut(rest, " containing ")?;
    Some(Call::new("write", json!({ "path": name(path)?, "content": verbatim(content) })))
}

fn edit(text: &str) -> Option<Call> {
    let (path, change) = cut(strip(text, "edit ")?, " replacing ")?;
    let (old, new) = match quoted_head(change.trim_start()) {
        Some((old, rest)) => (old, strip(rest, " with ")?),
        None => cut(change, " with ")?,
    };
    let arguments = json!({ "path": name(path)?, "old": old.trim(), "new": verbatim(new) });
    Some(Call::new("edit", arguments))
}

fn search(text: &str) -> Option<Call> {
    let rest = strip(text, "search for ")?.trim();
    if let Some((pattern, tail)) = quoted_head(rest)
        && let Some(folder) = strip(tail, " in ")
    {
        let arguments = json!({ "pattern": pattern, "path": name(folder)? });
        return Some(Call::new("grep", arguments));
    }
    let rest = sentence(rest);
    let pattern = quoted_whole(rest, QUOTES).unwrap_or(rest);
    (!pattern.is_empty()).then(|| Call::new("grep", json!({ "pattern": pattern })))
}

const QUOTES: &[char] = &['"', '\'', '`'];

/// Parses a path: quoted, or one word. Two bare words are a sentence, not a path.
fn name(text: &str) -> Option<String> {
    let text = text.trim();
    let bare = match sentence(text) {
        "" => text, // "." and ".." are paths, not punctuation
        trimmed => trimmed,
    };
    if let Some(inner) = quoted_whole(bare, QUOTES) {
        return Some(inner.to_owned());
    }
    (!bare.is_empty() && !bare.contains(char::is_whitespace)).then(|| bare.to_owned())
}

/// Returns the text for a file: unchanged, except for one pair of quotes or backticks around it.
fn verbatim(text: &str) -> &str {
    let text = text.trim();
    quoted_whole(sentence(text), &['"', '`']).unwrap_or(text)
}

fn quoted_whole<'a>(text: &'a str, quotes: &[char]) -> Option<&'a str> {
    let (inner, rest) = quoted_head(text)?;
    (rest.is_empty() && text.starts_with(quotes)).then_some(inner)
}

/// Parses `'inner' rest`, with any kind of quote.
fn quoted_head(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|first| QUOTES.contains(first))?;
    text[1..].split_once(quote)
}

/// Removes white space and punctuation at the end of a sentence.
fn sentence(text: &str) -> &str {
    text.trim().trim_end_matches(['.', '!', '?', ',', ';', ':']).trim_end()
}

fn polite(text: &str) -> &str {
    strip(text, "please ").map_or(text, str::trim_start)
}

fn strip<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(start.len())?;
    head.eq_ignore_ascii_case(start).then_some(rest)
}

fn strip_end<'a>(text: &'a str, end: &str) -> Option<&'a str> {
    let (rest, tail) = text.split_at_checked(text.len().checked_sub(end.len())?)?;
    tail.eq_ignore_ascii_case(end).then_some(rest)
}

fn cut<'a>(text: &'a str, joint: &str) -> Option<(&'a str, &'a str)> {
    let at = text.to_ascii_lowercase().find(joint)?;
    Some((text.get(..at)?, text.get(at + joint.len()..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: &'static str, arguments: Value) -> Action {
        Action::Call(Call::new(tool, arguments))
    }

    #[track_caller]
    fn one(text: &str, tool: &'static str, arguments: Value) {
        assert_eq!(recognise(text), Some(Ask::Steps(vec![vec![call(tool, arguments)]])), "{text}");
    }

    #[test]
    fn plain_requests_become_calls() {
        one("list the files", "glob", json!({"pattern": "*"}));
        one("List the files.", "glob", json!({"pattern": "*"}));
        one("list the files in src/", "glob", json!({"pattern": "src/*"}));
        one("list files in .", "glob", json!({"pattern": "*"}));
        one("\"list the files in src\"", "glob", json!({"pattern": "src/*"}));
        one("please read a.txt!", "read", json!({"path": "a.txt"}));
        one("READ 'my file.txt'", "read", json!({"path": "my file.txt"}));
        one("run ls -la .", "shell", json!({"command": "ls -la ."}));
        one("run cargo test.", "shell", json!({"command": "cargo test"}));
        one("run `echo a.`", "shell", json!({"command": "echo a."}));
        one("create a.txt containing hi.", "write", json!({"path": "a.txt", "content": "hi."}));
        one("create a file a containing `x y`", "write", json!({"path": "a", "content": "x y"}));
        let change = json!({"path": "a", "old": "x", "new": "y z"});
        one("edit a replacing x with y z", "edit", change);
        let change = json!({"path": "a", "old": "p with q", "new": "r"});
        one("edit a replacing \"p with q\" with r", "edit", change);
        one("search for TODO?", "grep", json!({"pattern": "TODO"}));
        one("search for 'fn main' in src", "grep", json!({"pattern": "fn main", "path": "src"}));
    }

    #[test]
    fn the_stock_clients_quotes_are_undone() {
        let text = r#""create a.txt containing \"hi there\"""#;
        one(text, "write", json!({"path": "a.txt", "content": "hi there"}));
    }

    #[test]
    fn steps_are_split_only_where_a_request_follows() {
        let Some(Ask::Steps(steps)) = recognise(
            "create a.txt containing now then later, and then run cat a.txt THEN say 3 words.",
        ) else {
            panic!("not recognised");
        };
        let write = call("write", json!({"path": "a.txt", "content": "now then later"}));
        let run = call("shell", json!({"command": "cat a.txt"}));
        assert_eq!(steps, vec![vec![write], vec![run], vec![Action::Say(3)]]);
        one(
            "run if true; then echo hi; fi",
            "shell",
            json!({"command": "if true; then echo hi; fi"}),
        );
    }

    #[test]
    fn parallel_actions_share_a_step() {
        let Some(Ask::Steps(steps)) = recognise("read a and also read b then list the files")
        else {
            panic!("not recognised");
        };
        assert_eq!(steps.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn other_text_is_not_recognised() {
        for text in ["", "hello", "read the manual and tell me", "say hello", "run ", "\"", "é"] {
            assert_eq!(recognise(text), None, "{text}");
        }
        assert_eq!(recognise("Fix the failing test!"), Some(Ask::FixTheTest));
    }
}
