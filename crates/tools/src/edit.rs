//! `edit`: replaces one exact piece of a file.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::ToolClass;
use rustix::fs::FileType;
use serde::Deserialize;
use serde_json::json;
use similar::TextDiff;
use snapshots::Touched;

use crate::arguments;
use crate::call::{Probe, Stopped, ToolCall, ToolContext, ToolDefinition, ToolOutcome, title};
use crate::files::{LocationFiles, Refused, blocking};
use crate::registry::Tool;
use crate::replace::{FileLocks, Target, hold};
use crate::suggest::did_you_mean;

/// The largest file that can be edited, in bytes.
const MAX_BYTES: u64 = 10 * 1024 * 1024;
/// The largest diff in the structured result, in bytes; a larger one is left out.
const MAX_DIFF_BYTES: usize = 64 * 1024;

pub(crate) struct Edit {
    pub(crate) locks: Arc<FileLocks>,
}

#[derive(Deserialize)]
struct Arguments {
    #[serde(alias = "filePath")]
    path: String,
    #[serde(alias = "oldString")]
    old: String,
    #[serde(alias = "newString")]
    new: String,
    #[serde(default, alias = "replaceAll")]
    all: bool,
}

#[async_trait]
impl Tool for Edit {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "edit",
            description: "Replaces an exact piece of a text file. `old` must occur in the file exactly as given, with its \
                          indentation and without the line numbers that read shows, and only once unless `all` is true: \
                          give enough surrounding lines to make it unique.",
            input_schema: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "The file, relative to the working directory or absolute"},
                    "old": {"type": "string", "description": "The text to replace"},
                    "new": {"type": "string", "description": "The text to put in its place"},
                    "all": {"type": "boolean", "description": "Replace every occurrence; false unless given"}
                },
                "required": ["path", "old", "new"]
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Probe
    }

    async fn run(&self, call: &ToolCall, context: &ToolContext) -> Result<ToolOutcome, Stopped> {
        let arguments: Arguments = arguments::parse(call)?;
        let (context, locks, call) = (context.clone(), self.locks.clone(), call.id.clone());
        blocking(move || {
            let files = LocationFiles::open_root(&context.root, &context.shown_root)?;
            let below = files.relative(&arguments.path)?;
            let told = |refused: Refused| refused.told(&arguments.path, &files);
            let target = Target::find(&files, &locks, &below).map_err(told)?;
            if !target.exists() {
                let hint = did_you_mean(&files, &below);
                return Err(Stopped::because(format!("{} does not exist{hint}", arguments.path)));
            }
            let before = content(&files, target.path(), &arguments.path)?;
            let (after, count) = replaced(&before, &arguments)?;
            let _held = hold(context.lock.as_ref())?;
            let replaced = target.replace(after.as_bytes(), &call);
            let touched = replaced.map_err(|refused| told(refused).midway())?;
            Ok(done(&arguments, Some((&before, &after, count))).touching(touched))
        })
        .await
    }

    async fn probe(&self, call: &ToolCall, context: &ToolContext) -> Probe {
        let Ok(arguments) = arguments::parse::<Arguments>(call) else { return Probe::NotDone };
        let context = context.clone();
        let looked = blocking(move || {
            let files = LocationFiles::open_root(&context.root, &context.shown_root)?;
            let found = content(&files, &files.relative(&arguments.path)?, &arguments.path)?;
            Ok(match happened(&found, &arguments) {
                Some(true) => Probe::Done(done(&arguments, None).touching(Touched::Anything)),
                Some(false) => Probe::NotDone,
                None => Probe::Unclear,
            })
        });
        looked.await.unwrap_or(Probe::Unclear)
    }
}

fn content(files: &LocationFiles, below: &Path, path: &str) -> Result<String, Stopped> {
    let (file, kind) = files.open_to_read(below).map_err(|refused| refused.told(path, files))?;
    if kind != FileType::RegularFile {
        return Err(Stopped::because(format!("{path} is a directory")));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Stopped::because(format!("cannot read {path}: {error}")))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Stopped::because(format!(
            "{path} is larger than {MAX_BYTES} bytes; use shell"
        )));
    }
    String::from_utf8(bytes)
        .map_err(|_| Stopped::because(format!("{path} is not UTF-8 text and cannot be edited")))
}

/// Returns the pieces with the file's line ends: a model writes `\n` even for files with `\r\n`.
fn pieces(content: &str, arguments: &Arguments) -> (String, String) {
    let Arguments { old, new, .. } = arguments;
    let windows = content.contains("\r\n") && !old.contains('\r');
    if windows && (!content.contains(old.as_str()) || old.contains('\n') || new.contains('\n')) {
        let to_windows = |text: &str| text.replace("\r\n", "\n").replace('\n', "\r\n");
        return (to_windows(old), to_windows(new));
    }
    (old.clone(), new.clone())
}

/// Returns the content after the edit, and the number of replacements.
fn replaced(content: &str, arguments: &Arguments) -> Result<(String, usize), Stopped> {
    let path = &arguments.path;
    if arguments.old.is_empty() {
        return Err(Stopped::because("old is empty; use write to make or replace a whole file"));
    }
    if arguments.old == arguments.new {
        return Err(Stopped::because("old and new are the same: there is nothing to change"));
    }
    let (old, new) = pieces(content, arguments);
    match content.matches(old.as_str()).count() {
        0 => Err(Stopped::because(format!(
            "old does not occur in {path}; read the file, and give the text exactly as it is there"
        ))),
        count if count > 1 && !arguments.all => Err(Stopped::because(format!(
            "old occurs {count} times in {path}; give more of the text around it, or set all to true"
        ))),
        count => Ok((content.replace(old.as_str(), &new), count)),
    }
}

/// Returns whether a file looks like after the edit; `None` if that cannot be determined.
///
/// After an edit, `old` occurs only inside `new`, so any other `old` means that it has not happened.
fn happened(content: &str, arguments: &Arguments) -> Option<bool> {
    let (old, new) = pieces(content, arguments);
    if old.is_empty() || new.is_empty() {
        return content.contains(&old).then_some(false).filter(|_| !old.is_empty());
    }
    let outside = if new.contains(&old) { content.replace(&new, "\0") } else { content.to_owned() };
    match (outside.contains(&old), content.contains(&new)) {
        (true, _) => Some(false),
        (false, true) => Some(true),
        (false, false) => None,
    }
}

/// Makes the outcome. After a takeover the change is unknown.
fn done(arguments: &Arguments, change: Option<(&str, &str, usize)>) -> ToolOutcome {
    let path = &arguments.path;
    let title = title("Edited", path);
    let Some((before, after, count)) = change else {
        let text = format!("Edited {path}");
        return ToolOutcome::completed(title, text, Some(json!({"path": path})));
    };
    let places = if count == 1 { "1 place".to_owned() } else { format!("{count} places") };
    let diff = TextDiff::configure()
        .timeout(Duration::from_millis(200))
        .diff_lines(before, after)
        .unified_diff()
        .context_radius(3)
        .to_string();
    let diff = Some(diff).filter(|diff| diff.len() <= MAX_DIFF_BYTES);
    let structured = json!({"path": path, "replacements": count, "diff": diff});
    ToolOutcome::completed(title, format!("Edited {path} in {places}"), Some(structured))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(old: &str, new: &str, all: bool) -> Arguments {
        Arguments { path: "f".into(), old: old.into(), new: new.into(), all }
    }

    fn after(content: &str, old: &str, new: &str, all: bool) -> Result<String, String> {
        match replaced(content, &arguments(old, new, all)) {
            Ok((after, _)) => Ok(after),
            Err(Stopped::Failed(message)) => Err(message),
            Err(other) => panic!("a piece of text is replaced or not: {other:?}"),
        }
    }

    #[test]
    fn only_an_exact_and_unique_piece_is_replaced() {
        assert_eq!(after("a b c", "b", "x", false), Ok("a x c".into()));
        assert_eq!(after("b b", "b", "x", true), Ok("x x".into()));
        assert!(after("b b", "b", "x", false).unwrap_err().contains("occurs 2 times"));
        assert!(after("a", "b", "x", false).unwrap_err().contains("does not occur"));
        assert!(after("a", "", "x", false).unwrap_err().contains("use write"));
        assert!(after("a", "a", "a", false).unwrap_err().contains("the same"));
    }

    #[test]
    fn line_ends_and_byte_order_marks_stay() {
        let windows = "\u{FEFF}one\r\ntwo\r\nthree\r\n";
        assert_eq!(
            after(windows, "one\ntwo", "1\n2", false),
            Ok("\u{FEFF}1\r\n2\r\nthree\r\n".into())
        );
        assert_eq!(
            after(windows, "two", "2\n2b", false),
            Ok("\u{FEFF}one\r\n2\r\n2b\r\nthree\r\n".into())
        );
        assert_eq!(after("a\nb\n", "a\n", "c\n", false), Ok("c\nb\n".into()));
    }

    #[test]
    fn whether_an_edit_happened_is_seen_or_said_to_be_unclear() {
        let seen =
            |content: &str, old: &str, new: &str| happened(content, &arguments(old, new, false));
        assert_eq!(seen("a old c", "old", "new"), Some(false));
        assert_eq!(seen("a new c", "old", "new"), Some(true));
        assert_eq!(seen("something else", "old", "new"), None);
        assert_eq!(seen("fn a()", "fn a()", "fn a() -> b"), Some(false));
        assert_eq!(seen("fn a() -> b", "fn a()", "fn a() -> b"), Some(true));
        assert_eq!(seen("ab", "ab", "a"), Some(false));
        assert_eq!(seen("gone", "x", ""), None);
        assert_eq!(seen("x here", "x", ""), Some(false));
        assert_eq!(seen("new\r\nline\r\n", "old\nline", "new\nline"), Some(true));
    }

    proptest::proptest! {
        #[test]
        fn an_edit_is_recognised_before_and_never_denied_after(
            content in "[abc\n]{0,12}", old in "[abc\n]{1,3}", new in "[abc\n]{0,4}",
        ) {
            let arguments = arguments(&old, &new, true);
            if let Ok((after, _)) = replaced(&content, &arguments)
                && !new.contains(&old) && !after.contains(&old)
            {
                assert_eq!(happened(&content, &arguments), Some(false));
                assert_ne!(happened(&after, &arguments), Some(false));
            }
        }
    }
}
