//! `write`: creates or replaces a file with exactly this content.

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
    Probe, Stopped, ToolCall, ToolContext, ToolDefinition, ToolOutcome, fields, number_of, title,
};
use crate::encoding::Form;
use crate::files::{LocationFiles, OpenFile, blocking};
use crate::replace::{FileLocks, Target, hold};
use crate::set::Tool;

pub(crate) struct Write {
    pub(crate) locks: Arc<FileLocks>,
}

#[derive(Deserialize)]
struct Arguments {
    #[serde(alias = "filePath")]
    path: String,
    content: String,
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
        let arguments: Arguments = arguments::parse(call)?;
        let (context, locks, call) = (context.clone(), self.locks.clone(), call.id.clone());
        blocking(move || {
            let files = LocationFiles::open_root(&context)?;
            let below = files.relative(&arguments.path)?;
            let told = |refused: crate::files::Refused| refused.told(&arguments.path, &files);
            let target = Target::find(&files, &locks, &below).map_err(told)?;
            let _held = hold(context.lock.as_ref())?;
            // A file keeps its mark, and what it says about the bytes.
            let form = if target.exists() { form_of(&files, target.path()) } else { Form::Utf8 };
            let replaced = target.replace(&form.encode(&arguments.content), &call);
            let touched = replaced.map_err(|refused| told(refused).midway())?;
            Ok(done(&arguments, Some(!target.exists())).touching(touched))
        })
        .await
    }

    async fn probe(&self, call: &ToolCall, context: &ToolContext) -> Probe {
        let Ok(arguments) = arguments::parse::<Arguments>(call) else { return Probe::NotDone };
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
    let most = content.len() as u64 * 2 + 4;
    let read = file.take(most + 1).read_to_end(&mut found);
    read.is_ok()
        && (found == content.as_bytes() || found == *Form::detect_from(&found).encode(content))
}

/// Returns how a file is written.
fn form_of(files: &LocationFiles, path: &Path) -> Form {
    let mut start = Vec::new();
    match files.open_to_read(path) {
        Ok(OpenFile { file, kind: FileType::RegularFile, .. }) => {
            let read = file.take(4).read_to_end(&mut start);
            read.map_or(Form::Utf8, |_| Form::detect_from(&start))
        }
        Ok(_) | Err(_) => Form::Utf8,
    }
}

/// Makes the outcome. After a takeover, `created` is unknown.
fn done(arguments: &Arguments, created: Option<bool>) -> ToolOutcome {
    let Arguments { path, content } = arguments;
    let verb = if created == Some(true) { "Created" } else { "Wrote" };
    let bytes = number_of(content.len(), "byte");
    let text = format!("{verb} {path} ({bytes}, {})", number_of(content.lines().count(), "line"));
    let structured = json!({"path": path, "bytes": content.len(), "created": created});
    ToolOutcome::completed(title(verb, path), text, Some(structured))
}
