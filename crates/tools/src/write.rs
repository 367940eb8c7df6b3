//! `write`: creates or replaces a file with exactly this content, in the file's encoding and with its line ends.

use std::borrow::Cow;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use domain::ToolClass;
use rustix::fs::FileType;
use serde::Deserialize;
use serde_json::json;
use snapshots::Touched;

use crate::arguments;
use crate::call::{
    Probe, Stopped, ToolCall, ToolContext, ToolDefinition, ToolOutcome, fields, say_count, title,
};
use crate::encoding::{Form, make_readable};
use crate::files::{LocationFiles, OpenFile, blocking};
use crate::replace::{FileLocks, Target, hold};
use crate::set::Tool;

/// The bytes of a file that tell how it is written.
const START_BYTES: u64 = 64 * 1024;

pub(crate) struct Write {
    pub(crate) locks: Arc<FileLocks>,
}

#[derive(Deserialize)]
struct Arguments {
    #[serde(alias = "filePath")]
    path: String,
    content: String,
    /// Other programs add to the file then.
    #[serde(default)]
    append: bool,
}

impl Arguments {
    /// Reads the arguments of a call. One that would add to the file is refused: here it would replace what is there.
    fn read_from(call: &ToolCall) -> Result<Self, Stopped> {
        let arguments: Self = arguments::parse(call)?;
        if arguments.append {
            let path = &arguments.path;
            return Err(Stopped::because(format!(
                "write replaces the whole file and cannot append; add to {path} with edit, or with `cat >>` in shell"
            )));
        }
        Ok(arguments)
    }
}

#[async_trait]
impl Tool for Write {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "write".into(),
            description: "Writes a file: makes it, with missing directories, or replaces all of its content. To change a \
                          part of a file, use edit."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "The file, relative to the working directory or absolute"},
                    "content": {"type": "string", "description": "All of its new content"}
                },
                "required": ["path", "content"]
            }),
            result_schema: Some(fields(&["path", "bytes", "created"], &json!({
                "path": {"type": "string"},
                "bytes": {"type": "integer", "minimum": 0},
                "created": {"type": ["boolean", "null"]}
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
            let told = |refused: crate::files::Refused| refused.told(&arguments.path, &files);
            let target = Target::find(&files, &locks, &below).map_err(told)?;
            context.reads.check_changed(&arguments.path, &below, target.path())?;
            let _held = hold(context.lock.as_ref())?;
            // A file keeps its mark, what it says about the bytes, and its line ends, which `read` does not show.
            let exists = target.exists();
            let style = if exists { detect_style(&files, target.path()) } else { Style::default() };
            let content = style.end_lines(&arguments.content);
            let replaced = target.replace(&style.form.encode(&content), &call);
            let touched = replaced.map_err(|refused| told(refused).midway())?;
            let mut outcome = done(&arguments, Some(!exists));
            if matches!(content, Cow::Owned(_)) {
                outcome.footer = "(its lines end with CR LF, as before)".to_owned();
            }
            Ok(outcome.touching(touched))
        })
        .await
    }

    async fn probe(&self, call: &ToolCall, context: &ToolContext) -> Probe {
        let Ok(arguments) = Arguments::read_from(call) else { return Probe::NotDone };
        let context = context.clone();
        let looked = blocking(move || {
            let files = LocationFiles::open_root(&context)?;
            let below = files.relative(&arguments.path)?;
            Ok(if holds(&files, &below, &arguments.content) {
                Probe::Done(done(&arguments, None).touching(Touched::Anything))
            } else {
                Probe::NotDone
            })
        });
        looked.await.unwrap_or(Probe::NotDone)
    }
}

/// Returns whether the file has exactly this content. Reads at most one byte beyond what that can have.
fn holds(files: &LocationFiles, path: &Path, content: &str) -> bool {
    let Ok(OpenFile { file, kind: FileType::RegularFile, .. }) = files.open_to_read(path) else {
        return false;
    };
    let mut found = Vec::new();
    let most = content.len() as u64 * 4 + 4;
    let read = file.take(most + 1).read_to_end(&mut found);
    let style = Style::detect_from(&found);
    read.is_ok()
        && (found == content.as_bytes()
            || found == *style.form.encode(content)
            || found == *style.form.encode(&style.end_lines(content)))
}

/// How a file is written.
#[derive(Debug, Default)]
struct Style {
    form: Form,
    /// All its lines end with CR LF, and it has some.
    is_windows: bool,
}

impl Style {
    fn detect_from(start: &[u8]) -> Self {
        let text = make_readable(start);
        let ends = memchr::memchr_iter(b'\n', &text).count();
        let windows = memchr::memmem::find_iter(&text, b"\r\n").count();
        Self { form: Form::detect_from(start), is_windows: ends > 0 && ends == windows }
    }

    /// Returns the content with the file's line ends. A model writes `\n` even for files with `\r\n`.
    fn end_lines<'a>(&self, content: &'a str) -> Cow<'a, str> {
        let is_other = self.is_windows && content.contains('\n') && !content.contains('\r');
        if is_other { Cow::Owned(content.replace('\n', "\r\n")) } else { Cow::Borrowed(content) }
    }
}

/// Returns how a file is written, by its beginning.
fn detect_style(files: &LocationFiles, path: &Path) -> Style {
    let mut start = Vec::new();
    match files.open_to_read(path) {
        Ok(OpenFile { file, kind: FileType::RegularFile, .. }) => {
            let read = file.take(START_BYTES).read_to_end(&mut start);
            read.map_or(Style::default(), |_| Style::detect_from(&start))
        }
        Ok(_) | Err(_) => Style::default(),
    }
}

/// Makes the outcome. After a takeover, `created` is unknown.
fn done(arguments: &Arguments, created: Option<bool>) -> ToolOutcome {
    let Arguments { path, content, append: _ } = arguments;
    let verb = if created == Some(true) { "Created" } else { "Wrote" };
    let bytes = say_count(content.len(), "byte");
    let text = format!("{verb} {path} ({bytes}, {})", say_count(content.lines().count(), "line"));
    let structured = json!({"path": path, "bytes": content.len(), "created": created});
    ToolOutcome::completed(title(verb, path), text, Some(structured))
}
