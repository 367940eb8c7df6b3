//! `edit`: replaces one piece of a file, exactly as given or nearly so.

mod tolerant;

use std::io::Read as _;
use std::ops::Range;
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
use crate::call::{
    Probe, Stopped, ToolCall, ToolContext, ToolDefinition, ToolOutcome, fields, title,
};
use crate::encoding::{FileText, Form, find_encoding, give_advice, strip_mark};
use crate::files::{LocationFiles, OpenFile, Refused, blocking};
use crate::line_ends::find_style;
use crate::replace::{FileLocks, Target, hold};
use crate::set::Tool;
use crate::suggest::did_you_mean;
use tolerant::Missing;

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

impl Arguments {
    /// Reads the arguments of a call. A mark is outside of the text, so it is in no piece of it.
    fn read_from(call: &ToolCall) -> Result<Self, Stopped> {
        let mut arguments: Self = arguments::parse(call)?;
        for piece in [&mut arguments.old, &mut arguments.new] {
            *piece = strip_mark(piece).to_owned();
        }
        Ok(arguments)
    }
}

#[async_trait]
impl Tool for Edit {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "edit".into(),
            description: "Replaces an exact piece of a text file. `old` must occur in the file exactly as given, with its \
                          indentation and without the line numbers that read shows, and only once unless `all` is true: \
                          give enough surrounding lines to make it unique."
                .into(),
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
            result_schema: Some(fields(&["path"], &json!({
                "path": {"type": "string"},
                "replacements": {"type": "integer", "minimum": 1},
                "diff": {"type": ["string", "null"]},
                "nearly": {"type": "boolean"}
            }))),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Probe
    }

    async fn run(&self, call: &ToolCall, context: &ToolContext) -> Result<ToolOutcome, Stopped> {
        let arguments = Arguments::read_from(call)?;
        let (context, locks, call) = (context.clone(), self.locks.clone(), call.id.clone());
        blocking(move || {
            let files = LocationFiles::open_root(&context)?;
            let below = files.relative(&arguments.path)?;
            let told = |refused: Refused| refused.told(&arguments.path, &files);
            let target = Target::find(&files, &locks, &below).map_err(told)?;
            context.reads.check_changed(&arguments.path, &below, target.path())?;
            if !target.exists() {
                let hint = did_you_mean(&files, &below);
                return Err(Stopped::because(format!("{} does not exist{hint}", arguments.path)));
            }
            let FileText { text: before, form } = content(&files, target.path(), &arguments.path)?;
            let change = replaced(&before, &arguments)?;
            let _held = hold(context.lock.as_ref())?;
            let replaced = target.replace(&form.encode(&change.after), &call);
            let touched = replaced.map_err(|refused| told(refused).midway())?;
            Ok(done(&arguments, Some((&before, &change))).touching(touched))
        })
        .await
    }

    async fn probe(&self, call: &ToolCall, context: &ToolContext) -> Probe {
        let Ok(arguments) = Arguments::read_from(call) else { return Probe::NotDone };
        let context = context.clone();
        let looked = blocking(move || {
            let files = LocationFiles::open_root(&context)?;
            let found = content(&files, &files.relative(&arguments.path)?, &arguments.path)?;
            Ok(match happened(&found.text, &arguments) {
                Some(true) => Probe::Done(done(&arguments, None).touching(Touched::Anything)),
                Some(false) => Probe::NotDone,
                None => Probe::Unclear,
            })
        });
        looked.await.unwrap_or(Probe::Unclear)
    }
}

/// Returns the text of a file that can be edited.
pub(crate) fn content(
    files: &LocationFiles,
    below: &Path,
    path: &str,
) -> Result<FileText, Stopped> {
    let OpenFile { file, kind, .. } =
        files.open_to_read(below).map_err(|refused| refused.told(path, files))?;
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
    if bytes.contains(&0) && !Form::detect_from(&bytes).is_utf16() {
        return Err(Stopped::because(format!(
            "{path} is a binary file; change it with a program in shell"
        )));
    }
    let encoding = find_encoding(&bytes);
    FileText::decode(bytes).ok_or_else(|| {
        Stopped::because(format!(
            "{path} is not UTF-8 text and cannot be edited: {}",
            give_advice(path, encoding)
        ))
    })
}

/// Returns a text whose lines all end with LF.
fn without_returns(text: &str) -> String {
    text.replace("\r\n", "\n")
}

impl Arguments {
    /// Returns whether `old` means lines with any end: a model writes `\n` even for files with `\r\n`. An edit of nothing but
    /// line ends means what it says.
    fn means_any_end(&self) -> bool {
        !self.old.contains('\r') && without_returns(&self.new) != self.old
    }

    /// Returns where `old` is.
    fn find_places(&self, content: &str) -> Vec<Range<usize>> {
        let old = self.old.as_str();
        if !self.means_any_end() {
            return content.match_indices(old).map(|(at, _)| at..at + old.len()).collect();
        }
        let ends = content.match_indices("\r\n").enumerate();
        // Where the text with LF has the line ends that are longer in the content.
        let longer: Vec<usize> = ends.map(|(earlier, (at, _))| at - earlier).collect();
        let in_content = |at: usize| at + longer.partition_point(|end| *end < at);
        let places = without_returns(content);
        let places = places.match_indices(old);
        places.map(|(at, _)| in_content(at)..in_content(at + old.len())).collect()
    }

    /// Returns the content with `new` at these places, with the line ends of each.
    fn put_new(&self, content: &str, places: &[Range<usize>]) -> String {
        let (mut after, mut copied) = (String::with_capacity(content.len()), 0);
        let long = without_returns(&self.new).replace('\n', "\r\n");
        let means_any_end = self.means_any_end();
        // Many places may be in one line.
        let (mut known, mut is_windows) = (0, false);
        for place in places {
            if means_any_end && place.start >= known {
                (known, is_windows) = find_style(content, place.start);
            }
            after.push_str(&content[copied..place.start]);
            after.push_str(if is_windows { &long } else { &self.new });
            copied = place.end;
        }
        after + &content[copied..]
    }
}

/// An edit that can be made.
struct Change {
    /// The content after it.
    after: String,
    /// The number of replacements.
    count: usize,
    /// The first and last line of the one place, if `old` does not occur exactly.
    nearly: Option<(usize, usize)>,
}

/// Returns the edit of a content.
fn replaced(content: &str, arguments: &Arguments) -> Result<Change, Stopped> {
    let path = &arguments.path;
    if arguments.old.is_empty() {
        return Err(Stopped::because("old is empty; use write to make or replace a whole file"));
    }
    if arguments.old == arguments.new {
        return Err(Stopped::because("old and new are the same: there is nothing to change"));
    }
    let places = arguments.find_places(content);
    match places.len() {
        0 => nearly(content, arguments),
        count if count > 1 && !arguments.all => Err(Stopped::because(format!(
            "old occurs {count} times in {path}; give more of the text around it, or set all to true"
        ))),
        count => {
            let after = arguments.put_new(content, &places);
            if !is_visible(content, &after, arguments) {
                return Err(Stopped::because(format!(
                    "old occurs in {path} within a text that looks like new, or new would leave old there again; give more \
                     of the text around it"
                )));
            }
            Ok(Change { after, count, nearly: None })
        }
    }
}

/// Returns whether a takeover can tell if the edit was made. Otherwise it might be made twice or not at all.
fn is_visible(before: &str, after: &str, arguments: &Arguments) -> bool {
    happened(before, arguments) != Some(true) && happened(after, arguments) != Some(false)
}

/// Returns the edit of the one place that is nearly like `old`.
fn nearly(content: &str, arguments: &Arguments) -> Result<Change, Stopped> {
    let Arguments { path, old, new, .. } = arguments;
    if [old, new].iter().any(|text| text.replace("\r\n", "").contains('\r')) {
        return Err(Stopped::because(format!(
            "old does not occur in {path}, and it or new has a carriage return that ends no line; read the file, and give \
             the text exactly as it is there"
        )));
    }
    let place = tolerant::find(content, old, new).map_err(|missing| {
        Stopped::because(match missing {
            Missing::Several(lines) => {
                let lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
                format!(
                    "old does not occur in {path} exactly, and nearly so at several places (lines {}); read the file, and \
                     give the text exactly as it is there, with more of the text around it",
                    lines.join(", ")
                )
            }
            Missing::Near(places) if places.is_empty() => format!(
                "old does not occur in {path}; read the file, and give the text exactly as it is there"
            ),
            Missing::Near(places) => {
                let places: Vec<_> = places.iter().map(range).collect();
                format!(
                    "old does not occur in {path}; {} are near: read them, and give the text exactly as it is there",
                    places.join(" or ")
                )
            }
        })
    })?;
    let mut after = content.to_owned();
    after.replace_range(place.bytes, &place.new);
    if after == content {
        return Err(Stopped::because(format!(
            "{path} has new already, at {}: there is nothing to change",
            range(&place.lines)
        )));
    }
    if !is_visible(content, &after, arguments) {
        return Err(Stopped::because(format!(
            "old does not occur in {path} exactly, and {} can only be changed with the exact text: read them, and give it",
            range(&place.lines)
        )));
    }
    Ok(Change { after, count: 1, nearly: Some(place.lines) })
}

fn range((first, last): &(usize, usize)) -> String {
    if first == last { format!("line {first}") } else { format!("lines {first}-{last}") }
}

/// Returns the content with an end of its last line if `new` is there but for that end: an edit puts none where none was.
fn end_last_line(content: &str, old: &str, new: &str) -> Option<String> {
    let (line, end) = tolerant::split_end(new).filter(|_| old.ends_with('\n'))?;
    let before = content.strip_suffix(line)?;
    (before.is_empty() || before.ends_with('\n')).then(|| format!("{content}{end}"))
}

/// Returns whether a file looks like after the edit; `None` if that cannot be determined.
///
/// After an edit, `old` occurs only inside `new`, so any other `old` means that it has not happened. The same is true of what is
/// nearly `old`, unless `new` is nearly `old` itself.
fn happened(content: &str, arguments: &Arguments) -> Option<bool> {
    let Arguments { old, new, .. } = arguments;
    // Where any line end is meant, none counts.
    let bare = arguments.means_any_end().then(|| (without_returns(content), without_returns(new)));
    let (content, new) = match &bare {
        Some((content, new)) => (content.as_str(), new.as_str()),
        None => (content, new.as_str()),
    };
    let old = old.as_str();
    let ended = end_last_line(content, old, new);
    let content = ended.as_deref().unwrap_or(content);
    if old.is_empty() || new.is_empty() {
        return content.contains(old).then_some(false).filter(|_| !old.is_empty());
    }
    let mut outside = content.to_owned();
    if new.contains(old) {
        // As it was put there, with the line ends of its place.
        let short = without_returns(new);
        for new in [new, &short.replace('\n', "\r\n"), &short] {
            outside = outside.replace(new, "\0");
        }
    }
    match (outside.contains(old), content.contains(new)) {
        (true, _) => Some(false),
        (false, true) if new.contains(old) => Some(true),
        // Some other place that is nearly `old` may have been there before.
        (false, true) => (!tolerant::is_like_any(content, old)).then_some(true),
        // Of what is blank nothing can be seen.
        (false, false) if new.trim().is_empty() || tolerant::is_like_any(new, old) => None,
        (false, false) => {
            let is_there = |piece: &str| tolerant::is_like_any(content, piece);
            match (is_there(old), is_there(new)) {
                (true, false) => Some(false),
                (false, true) => Some(true),
                (true, true) | (false, false) => None,
            }
        }
    }
}

/// Makes the outcome. After a takeover the change is unknown.
fn done(arguments: &Arguments, change: Option<(&str, &Change)>) -> ToolOutcome {
    let path = &arguments.path;
    let title = title("Edited", path);
    let Some((before, Change { after, count, nearly })) = change else {
        let text = format!("Edited {path}");
        return ToolOutcome::completed(title, text, Some(json!({"path": path})));
    };
    let count = *count;
    let places = if count == 1 { "1 place".to_owned() } else { format!("{count} places") };
    let diff = bounded_diff(before, after);
    let mut structured = json!({"path": path, "replacements": count, "diff": diff});
    let mut text = format!("Edited {path} in {places}");
    if let Some(lines) = nearly {
        structured["nearly"] = json!(true);
        text += &format!(
            ". `old` is not in the file exactly: {} were taken, which differ from it in white space or typographic signs. \
             Read them if that matters",
            range(lines)
        );
    }
    ToolOutcome::completed(title, text, Some(structured))
}

/// Returns the unified diff of a text; `None` if it is too large.
pub(crate) fn bounded_diff(before: &str, after: &str) -> Option<String> {
    let diff = TextDiff::configure()
        .timeout(Duration::from_millis(200))
        .diff_lines(before, after)
        .unified_diff()
        .context_radius(3)
        .to_string();
    Some(diff).filter(|diff| diff.len() <= MAX_DIFF_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(old: &str, new: &str, all: bool) -> Arguments {
        Arguments { path: "f".into(), old: old.into(), new: new.into(), all }
    }

    fn after(content: &str, old: &str, new: &str, all: bool) -> Result<String, String> {
        match replaced(content, &arguments(old, new, all)) {
            Ok(change) => Ok(change.after),
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
        assert!(after("xab", "a", "ab", false).unwrap_err().contains("give more"));
        assert_eq!(after("xab", "xab", "xabb", false), Ok("xabb".into()));
        assert!(after("abb", "ab", "a", false).unwrap_err().contains("give more"));
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

    // The public report opencode#45880: one line with CR LF made all new lines end so.
    #[test]
    fn new_lines_end_as_those_of_their_place() {
        for (content, old, new, expected) in [
            ("alpha\nbeta\r\n", "alpha", "one\ntwo", "one\ntwo\nbeta\r\n"),
            ("alpha\nbeta\r\n", "beta", "one\ntwo", "alpha\none\r\ntwo\r\n"),
            ("a\nb\nc\nd\r\n", "a\nb", "x\ny\nz", "x\ny\nz\nc\nd\r\n"),
            ("a\nb\r\nc\r\nd", "b\nc\n", "x\ny\nz\n", "a\nx\r\ny\r\nz\r\nd"),
            ("a\nb\r\nc\r\nd", "\nc", "\nx\ny", "a\nb\r\nx\r\ny\r\nd"),
            ("a\nb\r\nc", "c", "x\ny", "a\nb\r\nx\r\ny"),
            ("a\r\nb\nc\n", "a\nb\n", "x\n", "x\r\nc\n"),
            ("grün\r\nb\n", "b", "x\ny", "grün\r\nx\ny\n"),
            ("a\nb\n", "a\nb", "a\r\nb", "a\r\nb\n"),
            ("x a\n", "x a", "x b\r\nc", "x b\r\nc\n"),
        ] {
            let found = after(content, old, new, false);
            assert_eq!(found.as_deref(), Ok(expected), "{content:?} {old:?}");
            let edit = arguments(old, new, false);
            assert_ne!(happened(expected, &edit), Some(false), "{content:?} {old:?}");
        }
        let all = after("a\nx\r\na\r\n", "a", "b\nc", true);
        assert_eq!(all, Ok("b\nc\nx\r\nb\r\nc\r\n".into()));
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

    #[test]
    fn a_piece_that_is_nearly_there_is_replaced_and_told() {
        let edit = arguments("if a {\n    b\n}", "if c {\n    b\n}", false);
        let content = "fn f() {\n    if a {\n        b  \n    }\n}\n";
        let change = replaced(content, &edit).unwrap_or_else(|other| panic!("{other:?}"));
        assert_eq!(change.after, "fn f() {\n    if c {\n        b\n    }\n}\n");
        let outcome = done(&edit, Some((content, &change)));
        let crate::Text::Whole(text) = outcome.text else { panic!("it is short") };
        assert!(text.contains("lines 2-4 were taken"), "{text}");
        assert_eq!(outcome.structured.unwrap()["nearly"], true);
        assert!(after("a \nb\na \n", "a\n", "x", true).unwrap_err().contains("lines 1, 3"));
        let near = after("let a = 1;\nlet b = 2;\n", "let a = 1;\nlet c = 2;", "x", false);
        assert!(near.unwrap_err().contains("lines 1-2 are near"));
        assert!(after("a  b", "a", "a", false).unwrap_err().contains("the same"));
        let twice = after("a\nb\n", "  a\n  b", "    a\n    b", false);
        assert!(twice.unwrap_err().contains("only be changed with the exact text"));
        assert!(after("a\u{2019}\n", "a'", "a\u{2019}", false).unwrap_err().contains("already"));
    }

    // Finding: report 30-d8 (langchain-ai/deepagents#3031).
    #[test]
    fn a_last_line_without_an_end_gets_none() {
        for (content, old, new, expected) in [
            ("x\nthree", "three\n", "THREE\n", "x\nTHREE"),
            ("x\nthree", "three\n", "three\nfour\n", "x\nthree\nfour"),
            ("x\r\nthree", "three\n", "a\nb\n", "x\r\na\r\nb"),
            ("x\r\nthree", "three\r\n", "three\r\nb\r\n", "x\r\nthree\r\nb"),
            ("  x\n  y", "x\ny\n", "z\n", "  z"),
            ("x\nthree", "three\n", "", "x\n"),
            ("x\nthree\n", "three\n", "THREE\n", "x\nTHREE\n"),
        ] {
            let found = after(content, old, new, false);
            assert_eq!(found.as_deref(), Ok(expected), "{content:?} {old:?}");
            let edit = arguments(old, new, false);
            assert_ne!(happened(expected, &edit), Some(false), "{content:?} {old:?}");
            assert_ne!(happened(content, &edit), Some(true), "{content:?} {old:?}");
        }
        let part = after("return foobar", "return foo\n", "return 1\n", false);
        assert!(part.unwrap_err().contains("does not occur"));
    }

    #[test]
    fn whether_a_near_edit_happened_is_seen_or_unclear() {
        let seen =
            |content: &str, old: &str, new: &str| happened(content, &arguments(old, new, false));
        assert_eq!(seen("    old x\n", "old x  ", "new"), Some(false));
        assert_eq!(seen("    old x\n", "old x  ", "  old x"), None, "new is nearly old");
        assert_eq!(seen("new\n  old x\n", "old x ", "new"), None, "new may have been there");
        assert_eq!(seen("    new\n", "old x\n", "new\n"), Some(true));
        assert_eq!(seen("other", "old x ", "new"), None);
        assert_eq!(
            seen("\u{2019}\n\n\t", "'\n", "\r\n"),
            None,
            "what comes together is like old again"
        );
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(3_000))]
        #[test]
        fn a_near_edit_is_never_made_twice_or_denied(
            content in "[ab \t\r\n\u{2019}]{0,16}", old in "[ab '\r\n]{1,5}", new in "[abx \r\n]{0,5}",
        ) {
            let edit = arguments(&old, &new, false);
            if let Ok(Change { after, nearly: Some(_), .. }) = replaced(&content, &edit) {
                assert_ne!(happened(&content, &edit), Some(true), "it had not happened");
                assert_ne!(happened(&after, &edit), Some(false), "it has happened");
            }
        }

        // Finding core-3 Low: an edit that had not happened counted as done at a takeover.
        #[test]
        fn an_exact_edit_is_never_made_twice_or_denied(
            content in "[ab\r\n]{0,12}", old in "[ab\r\n]{1,3}", new in "[ab\r\n]{0,4}",
            all in proptest::prelude::any::<bool>(),
        ) {
            let edit = arguments(&old, &new, all);
            if let Ok(Change { after, nearly: None, .. }) = replaced(&content, &edit) {
                assert_ne!(happened(&content, &edit), Some(true), "it had not happened");
                assert_ne!(happened(&after, &edit), Some(false), "it has happened");
            }
        }

        #[test]
        fn an_edit_is_recognised_before_and_never_denied_after(
            content in "[abc\n]{0,12}", old in "[abc\n]{1,3}", new in "[abc\n]{0,4}",
        ) {
            let arguments = arguments(&old, &new, true);
            if let Ok(Change { after, nearly: None, .. }) = replaced(&content, &arguments)
                && !new.contains(&old) && !after.contains(&old)
            {
                assert_eq!(happened(&content, &arguments), Some(false));
                assert_ne!(happened(&after, &arguments), Some(false));
            }
        }
    }
}
