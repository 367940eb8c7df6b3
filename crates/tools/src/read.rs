//! `read`: shows lines of a file, or the names in a directory.

use std::io::{self, BufReader, Cursor, Read as _, Seek};
use std::path::Path;

use async_trait::async_trait;
use domain::{RuleAction, ToolClass};
use rustix::fs::{Dir, FileType};
use serde::Deserialize;
use serde_json::json;

use crate::arguments;
use crate::call::{
    Stopped, ToolCall, ToolContext, ToolDefinition, ToolOutcome, fields, say_count, title,
};
use crate::encoding::{Form, find_encoding, give_advice, make_readable};
use crate::files::{LocationFiles, OpenFile, Refused, blocking};
use crate::grep::{check_links, left_out_note};
use crate::lines::{Page, Shown};
use crate::names::escape_name;
use crate::outputs::{self, managed};
use crate::set::Tool;
use crate::suggest::did_you_mean;

/// The number of lines without a `limit`.
const DEFAULT_LINES: usize = 2_000;
/// The most names of a directory that are sorted and paged; further ones are only counted.
const MAX_NAMES: usize = 10_000;
/// The most bytes that are read of a file that is not UTF-8.
const MAX_DECODED_BYTES: u64 = 64 * 1024 * 1024;
/// The bytes that tell how a file is written.
const START_BYTES: usize = 8 * 1024;
/// The space for notes after the lines, in bytes and lines.
const NOTE_BYTES: usize = 512;
const NOTE_LINES: usize = 4;

pub(crate) struct Read;

#[derive(Deserialize)]
struct Arguments {
    #[serde(alias = "filePath")]
    path: String,
    /// A negative one counts from the end, as `tail` does.
    offset: Option<i64>,
    limit: Option<usize>,
    column: Option<usize>,
}

#[async_trait]
impl Tool for Read {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "read".into(),
            description: "Reads a text file and returns its lines, each with its number. Without offset and limit, the \
                          first 2000 lines; a longer file is read in several calls. Of a line at most 2000 \
                          characters are shown, from column on. A directory gives the names in it. Complete tool output under /tool-output/ can be \
                          read too; reading /tool-output lists it."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "The file or directory, relative to the working directory or absolute"},
                    "offset": {"type": "integer", "minimum": 1, "description": "The first line, counted from 1"},
                    "limit": {"type": "integer", "minimum": 1, "description": "How many lines at most"},
                    "column": {"type": "integer", "minimum": 1, "description": "The first character of each line, counted from 1"}
                },
                "required": ["path"]
            }),
            result_schema: Some(fields(&["path", "offset", "count", "more"], &json!({
                "path": {"type": "string"},
                "offset": {"type": "integer", "minimum": 0},
                "count": {"type": "integer", "minimum": 0},
                "more": {"type": "boolean"}
            }))),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Pure
    }

    async fn run(&self, call: &ToolCall, context: &ToolContext) -> Result<ToolOutcome, Stopped> {
        let Arguments { path, offset, limit, column } = arguments::parse(call)?;
        let limits = context.limits;
        let offset = offset.unwrap_or(1);
        let lines_back = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
        let from_end = if offset < 0 { lines_back } else { 0 };
        let page = Page {
            offset: if offset < 0 { 1 } else { lines_back.max(1) },
            column: column.unwrap_or(1).max(1),
            max_lines: limit.unwrap_or(DEFAULT_LINES).clamp(1, limits.max_lines() - NOTE_LINES),
            max_bytes: limits.max_bytes() - NOTE_BYTES,
        };
        let context = context.clone();
        if outputs::is_directory(&path) {
            let listed = outputs::names(&context).await?;
            return list(&listed, page, from_end, &path, &context);
        }
        if outputs::is_managed(&path) {
            let bytes = managed(&context, &path).await?;
            return blocking(move || lines(Cursor::new(bytes), page, from_end, &path, &context))
                .await;
        }
        blocking(move || {
            let files = LocationFiles::open_root(&context)?;
            let below = files.relative(&path)?;
            let OpenFile { file, kind, .. } =
                files.open_to_read(&below).map_err(|refused| match refused {
                    Refused::Missing => {
                        let hint = did_you_mean(&files, &below);
                        Stopped::because(format!("{path} does not exist{hint}"))
                    }
                    other @ (Refused::Outside
                    | Refused::Hidden
                    | Refused::GitsOwn
                    | Refused::Io(_)) => other.told(&path, &files),
                })?;
            check_links(&files, &context, &path, &below, &file)?;
            if kind == FileType::Directory {
                let real = files.real_of(&file).map_err(|refused| refused.told(&path, &files))?;
                return names(file.into(), &real, page, from_end, &path, &context);
            }
            lines(file, page, from_end, &path, &context)
        })
        .await
    }
}

/// Shows lines of a file. `from_end`: the last ones, so many.
fn lines(
    mut file: impl io::Read + Seek,
    page: Page,
    from_end: usize,
    path: &str,
    context: &ToolContext,
) -> Result<ToolOutcome, Stopped> {
    let failed = |error: io::Error| {
        if error.kind() == io::ErrorKind::Interrupted {
            return Stopped::Interrupted;
        }
        Stopped::because(format!("cannot read {path}: {error}"))
    };
    let mut start = Vec::new();
    file.by_ref().take(START_BYTES as u64).read_to_end(&mut start).map_err(failed)?;
    let form = Form::detect_from(&start);
    // Up to the last line's end: no letter ends behind that.
    let whole_lines = match memchr::memrchr(b'\n', &start) {
        Some(end) if start.len() == START_BYTES => &start[..end],
        Some(_) | None => &start[..],
    };
    let encoding = if form.is_utf16() { None } else { find_encoding(whole_lines) };
    file.rewind().map_err(failed)?;
    let decoded: Option<Vec<u8>> = if form.is_utf16() || encoding.is_some() {
        let mut bytes = Vec::new();
        file.by_ref().take(MAX_DECODED_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        match encoding {
            Some(encoding) => encoding
                .decode_without_bom_handling_and_without_replacement(&bytes)
                .map(|text| text.into_owned().into_bytes()),
            None => Some(make_readable(&bytes).into_owned()),
        }
    } else {
        None
    };
    if decoded.is_none() && is_binary(&start) {
        return Err(Stopped::because(format!(
            "{path} is a binary file and cannot be shown as text; look at it with a program in shell, such as `file` or `xxd`"
        )));
    }
    let stop = || context.cancel.is_cancelled();
    let mark = if form == Form::MarkedUtf8 { 3 } else { 0 };
    let mut show = |page: Page| match &decoded {
        Some(bytes) => page.of(bytes.as_slice(), stop),
        None => {
            file.seek(io::SeekFrom::Start(mark))?;
            page.of(BufReader::with_capacity(64 * 1024, &mut file), stop)
        }
    };
    let mut page = page;
    if from_end > 0 {
        let all = show(Page { offset: usize::MAX, ..page }).map_err(failed)?.seen;
        page.offset = all.saturating_sub(from_end) + 1;
    }
    let shown = show(page).map_err(failed)?;
    if shown.count == 0 && shown.seen > 0 {
        let total = shown.seen;
        return Err(Stopped::because(format!(
            "{path} has only {}: no line {}",
            say_count(total, "line"),
            page.offset
        )));
    }
    let is_mended = shown.is_mended;
    let mut outcome = outcome(shown, page, path, ("line", "lines"));
    if form.is_utf16() {
        outcome.footer += " (the file is UTF-16, and stays that when it is changed)";
    } else if decoded.is_some() {
        outcome.footer +=
            &format!(" (not UTF-8, and shown decoded: {})", give_advice(path, encoding));
    } else if is_mended {
        outcome.footer += &format!(
            " (not UTF-8: \u{FFFD} stands for other bytes; {})",
            give_advice(path, encoding)
        );
    }
    Ok(outcome)
}

fn names(
    directory: std::os::fd::OwnedFd,
    below: &Path,
    page: Page,
    from_end: usize,
    path: &str,
    context: &ToolContext,
) -> Result<ToolOutcome, Stopped> {
    let failed = |error: io::Error| Stopped::because(format!("cannot list {path}: {error}"));
    let (mut names, mut left_out) = (Vec::new(), 0);
    for entry in Dir::new(directory).map_err(|errno| failed(errno.into()))? {
        let entry = entry.map_err(|errno| failed(errno.into()))?;
        let name = entry.file_name().to_string_lossy();
        if name == "." || name == ".." {
            continue;
        }
        if names.len() == MAX_NAMES {
            return Err(Stopped::because(format!(
                "{path} has more than {MAX_NAMES} entries; use glob with a pattern"
            )));
        }
        if context.reads.judge(&below.join(&*name)) == RuleAction::Deny {
            left_out += 1;
            continue;
        }
        let slash = if entry.file_type() == FileType::Directory { "/" } else { "" };
        names.push(format!("{}{slash}", escape_name(&name)));
    }
    names.sort();
    let mut outcome = list(&names, page, from_end, path, context)?;
    if left_out > 0 {
        outcome.footer += &left_out_note(left_out);
    }
    Ok(outcome)
}

/// Shows names, one on each line.
fn list(
    names: &[String],
    mut page: Page,
    from_end: usize,
    path: &str,
    context: &ToolContext,
) -> Result<ToolOutcome, Stopped> {
    if from_end > 0 {
        page.offset = names.len().saturating_sub(from_end) + 1;
    }
    let failed = |error: io::Error| Stopped::because(format!("cannot list {path}: {error}"));
    let stop = || context.cancel.is_cancelled();
    let lines = names.iter().fold(String::new(), |lines, name| lines + name + "\n");
    let shown = page.of(lines.as_bytes(), stop).map_err(failed)?;
    let plain = shown.text.lines().map(|line| line.split_once(": ").map_or(line, |(_, name)| name));
    let text = plain.fold(String::new(), |text, name| text + name + "\n");
    Ok(outcome(Shown { text, ..shown }, page, path, ("entry", "entries")))
}

/// Makes the outcome. `one` and `many` name a thing that is shown.
fn outcome(shown: Shown, page: Page, path: &str, (one, many): (&str, &str)) -> ToolOutcome {
    let next = shown.seen + 1;
    let structured = json!({
        "path": path, "offset": page.offset, "count": shown.count, "more": shown.more,
    });
    let mut outcome = ToolOutcome::completed(title("Read", path), shown.text, Some(structured));
    outcome.footer = match (shown.more, shown.seen) {
        (true, _) => format!("({many} follow; go on with offset={next})"),
        (false, 0) => format!("(empty: no {many})"),
        (false, 1) => format!("(end: 1 {one} in all)"),
        (false, total) => format!("(end: {total} {many} in all)"),
    };
    outcome
}

/// Returns whether a file looks binary: a NUL, or more than three in ten characters are control characters or
/// invalid UTF-8.
pub(crate) fn is_binary(start: &[u8]) -> bool {
    let odd = String::from_utf8_lossy(start)
        .chars()
        .filter(|c| *c == '\u{FFFD}' || (c.is_control() && !"\n\r\t\u{c}\u{1b}\u{8}".contains(*c)))
        .count();
    start.contains(&0) || odd * 10 > start.len() * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_is_told_from_text() {
        for text in ["", "fn main() {}\r\n\t", "grüße 🦀", "\u{1b}[1mbold"] {
            assert!(!is_binary(text.as_bytes()), "{text:?}");
        }
        assert!(is_binary(b"\x7fELF\x02\x01\x01\0") && is_binary(&[0x80, 0x91, 0x85, b'a']));
    }
}
