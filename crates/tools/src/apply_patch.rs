//! `apply_patch`: changes several files at once.
//!
//! ```text
//! parse ─▶ lock every file, in one order ─▶ verify all hunks of all files ─▶ write file by file
//!   refused: nothing has changed ──────────────────────┘            └ an error says which files were written
//! ```

mod hunk;
mod parse;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use domain::ToolClass;
use rustix::fs::FileType;
use serde::Deserialize;
use serde_json::json;
use snapshots::Touched;

use crate::arguments;
use crate::call::{
    Probe, ReadRules, Stopped, ToolCall, ToolContext, ToolDefinition, ToolOutcome, fields, title,
};
use crate::edit::{bounded_diff, content};
use crate::encoding::FileText;
use crate::files::{LocationFiles, OpenFile, Refused, blocking};
use crate::replace::{FileLocks, HeldFiles, Target, hold};
use crate::set::Tool;
use crate::suggest::did_you_mean;
pub(crate) use parse::{FileChange, parse};

/// The largest diff of all files together in the structured result, in bytes; files beyond it are left out of it.
const MAX_DIFF_BYTES: usize = 64 * 1024;

pub(crate) struct ApplyPatch {
    pub(crate) locks: Arc<FileLocks>,
}

/// The arguments, by the names that models have for them.
#[derive(Deserialize)]
pub(crate) struct Arguments {
    #[serde(alias = "patchText", alias = "patch_text", alias = "input")]
    pub(crate) patch: String,
}

#[async_trait]
impl Tool for ApplyPatch {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "apply_patch".into(),
            description: "Adds, changes, moves and deletes text files with one patch. Nothing is written unless every hunk \
                          fits. The patch:\n\
                          *** Begin Patch\n*** Add File: PATH\n+LINE\n*** Delete File: PATH\n*** Update File: PATH\n\
                          *** Move to: NEW PATH\n@@ A LINE ABOVE\n KEPT LINE\n-REMOVED LINE\n+ADDED LINE\n*** End of File\n\
                          *** End Patch\n\
                          Move to, the line after @@ and End of File may be left out. Give three lines of the file around \
                          a change; if they occur more than once, put a line above them, such as a function's, after @@. \
                          Hunks of a file are in its order."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "patch": {"type": "string", "description": "The patch, from *** Begin Patch to *** End Patch"}
                },
                "required": ["patch"]
            }),
            result_schema: Some(fields(&["files", "diff", "diff_is_whole"], &json!({
                "files": {"type": "array", "items": {"type": "string"}},
                "diff": {"type": ["string", "null"]},
                "diff_is_whole": {"type": "boolean"}
            }))),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Probe
    }

    async fn run(&self, call: &ToolCall, context: &ToolContext) -> Result<ToolOutcome, Stopped> {
        let changes = changes(call)?;
        let (context, locks, call) = (context.clone(), self.locks.clone(), call.id.clone());
        blocking(move || {
            let files = LocationFiles::open_root(&context)?;
            let paths = relative(&files, &changes)?;
            let all: Vec<PathBuf> = paths.iter().flatten().cloned().collect();
            let held = locks
                .hold_all(&files, &all)
                .map_err(|refused| refused.told("the files of the patch", &files))?;
            let mut planned = Vec::with_capacity(changes.len());
            for (change, paths) in changes.iter().zip(&paths) {
                let plan = Planned::new(&files, &held, &context.reads, change, paths)?;
                planned.push(plan);
            }
            are_different(&planned)?;
            let _location = hold(context.lock.as_ref())?;
            let mut touched = Touched::Nothing;
            for (done, plan) in planned.iter().enumerate() {
                let written = plan
                    .write(&files, &call)
                    .map_err(|stopped| midway(stopped, &changes[..done]))?;
                touched = touched.and(written);
            }
            Ok(outcome(&changes, Some(&planned)).touching(touched))
        })
        .await
    }

    async fn probe(&self, call: &ToolCall, context: &ToolContext) -> Probe {
        let Ok(changes) = changes(call) else { return Probe::NotDone };
        let context = context.clone();
        let looked = blocking(move || {
            let files = LocationFiles::open_root(&context)?;
            let paths = relative(&files, &changes)?;
            let mut seen =
                changes.iter().zip(&paths).map(|(change, paths)| happened(&files, change, paths));
            let first = seen.next().flatten();
            Ok(match first.filter(|first| seen.all(|other| other == Some(*first))) {
                Some(true) => Probe::Done(outcome(&changes, None).touching(Touched::Anything)),
                Some(false) => Probe::NotDone,
                // Some files were written, and others not: another body would fail on the first of them.
                None => Probe::Unclear,
            })
        });
        looked.await.unwrap_or(Probe::Unclear)
    }
}

/// Returns the changes of a call, at least one.
fn changes(call: &ToolCall) -> Result<Vec<FileChange>, Stopped> {
    let Arguments { patch } = arguments::parse(call)?;
    let changes = parse(&patch).map_err(Stopped::because)?;
    if changes.is_empty() {
        Err(Stopped::because("the patch changes no file"))
    } else {
        Ok(changes)
    }
}

/// Returns the paths of each change below the root.
fn relative(files: &LocationFiles, changes: &[FileChange]) -> Result<Vec<Vec<PathBuf>>, Stopped> {
    let of = |change: &FileChange| change.paths().map(|path| files.relative(path)).collect();
    changes.iter().map(of).collect()
}

/// A change of one file that was verified.
struct Planned<'a> {
    change: &'a FileChange,
    /// The file to write, with its content.
    written: Option<(Target<'a>, String)>,
    /// The file to remove: its name, and its place.
    removed: Option<Target<'a>>,
    /// The content before, with how it is written.
    before: FileText,
}

impl<'a> Planned<'a> {
    fn new(
        files: &'a LocationFiles,
        held: &'a HeldFiles<'_>,
        rules: &ReadRules,
        change: &'a FileChange,
        paths: &[PathBuf],
    ) -> Result<Self, Stopped> {
        let find = |at: usize, path: &str| {
            let told = |refused: Refused| refused.told(path, files);
            let target = held.target(files, &paths[at]).map_err(told)?;
            rules.check_changed(path, &paths[at], target.path())?;
            rules.check_changed(path, &paths[at], &target.find_removed().map_err(told)?)?;
            Ok::<_, Stopped>(target)
        };
        let existing = |path: &str| {
            let target = find(0, path)?;
            if !target.exists() {
                let hint = did_you_mean(files, &paths[0]);
                return Err(Stopped::because(format!(
                    "{path} does not exist{hint}; nothing was changed"
                )));
            }
            let before = content(files, target.path(), path)?;
            Ok((target, before))
        };
        let free = |at: usize, path: &str| {
            let target = find(at, path)?;
            if target.exists() {
                return Err(Stopped::because(format!(
                    "{path} exists already: change it with `*** Update File:`; nothing was changed"
                )));
            }
            Ok(target)
        };
        match change {
            FileChange::Add { path, content } => {
                let written = Some((free(0, path)?, content.clone()));
                Ok(Self { change, written, removed: None, before: FileText::default() })
            }
            FileChange::Delete { path } => {
                let (target, before) = existing(path)?;
                Ok(Self { change, written: None, removed: Some(target), before })
            }
            FileChange::Update { path, to, hunks } => {
                let (target, before) = existing(path)?;
                let after = hunk::apply(&before.text, hunks).map_err(|error| {
                    Stopped::because(format!("{path}, {error}; nothing was changed"))
                })?;
                let (written, removed) = match to {
                    Some(to) => (free(1, to)?, Some(target)),
                    None => (target, None),
                };
                Ok(Self { change, written: Some((written, after)), removed, before })
            }
        }
    }

    fn write(&self, files: &LocationFiles, call: &str) -> Result<Touched, Stopped> {
        let path = self.change.paths().next().unwrap_or_default();
        let told = |refused: Refused| refused.told(path, files);
        let mut touched = Touched::Nothing;
        if let Some((target, content)) = &self.written {
            touched =
                touched.and(target.replace(&self.before.form.encode(content), call).map_err(told)?);
        }
        if let Some(target) = &self.removed {
            touched = touched.and(target.remove().map_err(told)?);
        }
        Ok(touched)
    }

    fn after(&self) -> &str {
        self.written.as_ref().map_or("", |(_, content)| content)
    }
}

/// Refuses a patch that has two names for one file, for example by a symlink.
fn are_different(planned: &[Planned<'_>]) -> Result<(), Stopped> {
    let mut known = BTreeSet::new();
    for plan in planned {
        let written = plan.written.as_ref().map(|(target, _)| target);
        for target in written.into_iter().chain(&plan.removed) {
            let shown = target.path().display().to_string();
            if !known.insert(target.path()) {
                return Err(Stopped::because(format!(
                    "two names of the patch are one file, {shown}; put all of its changes in one place. Nothing was changed"
                )));
            }
        }
    }
    Ok(())
}

fn midway(stopped: Stopped, done: &[FileChange]) -> Stopped {
    let (Stopped::Failed(message) | Stopped::Midway(message)) = stopped else { return stopped };
    let done: Vec<_> = done.iter().map(summary).collect();
    let done = if done.is_empty() { "none".to_owned() } else { done.join(", ") };
    Stopped::Midway(format!(
        "{message}. Written before that: {done}. Read the files, and send a patch with what is missing"
    ))
}

fn summary(change: &FileChange) -> String {
    match change {
        FileChange::Add { path, .. } => format!("A {path}"),
        FileChange::Delete { path } => format!("D {path}"),
        FileChange::Update { path, to: None, .. } => format!("M {path}"),
        FileChange::Update { path, to: Some(to), .. } => format!("M {path} -> {to}"),
    }
}

/// Returns whether a change looks made; `None` if that cannot be determined.
fn happened(files: &LocationFiles, change: &FileChange, paths: &[PathBuf]) -> Option<bool> {
    // `None` inside: there is no such file.
    let look = |at: usize| -> Option<Option<String>> {
        match files.open_to_read(&paths[at]) {
            Err(Refused::Missing) => Some(None),
            Ok(OpenFile { kind: FileType::RegularFile, .. }) => {
                content(files, &paths[at], "").ok().map(|found| Some(found.text))
            }
            Ok(_) | Err(Refused::Outside | Refused::Hidden | Refused::GitsOwn | Refused::Io(_)) => {
                None
            }
        }
    };
    match change {
        FileChange::Add { content, .. } => match look(0)? {
            None => Some(false),
            Some(found) => (found == *content).then_some(true),
        },
        FileChange::Delete { .. } => Some(look(0)?.is_none()),
        FileChange::Update { to: None, hunks, .. } => {
            let found = look(0)??;
            match (hunk::apply(&found, hunks).is_ok(), hunk::is_applied(&found, hunks)) {
                (true, false) => Some(false),
                (false, true) => Some(true),
                (true, true) | (false, false) => None,
            }
        }
        FileChange::Update { to: Some(_), hunks, .. } => match (look(0)?, look(1)?) {
            (Some(before), None) => hunk::apply(&before, hunks).is_ok().then_some(false),
            (None, Some(after)) => hunk::is_applied(&after, hunks).then_some(true),
            (Some(_), Some(_)) | (None, None) => None,
        },
    }
}

/// Makes the outcome. After a takeover, the contents are unknown.
fn outcome(changes: &[FileChange], planned: Option<&[Planned<'_>]>) -> ToolOutcome {
    let lines: Vec<String> = changes.iter().map(summary).collect();
    let mut diff = String::new();
    let mut is_whole = true;
    for plan in planned.into_iter().flatten() {
        let own = bounded_diff(&plan.before.text, plan.after())
            .map(|own| format!("{}\n{own}", summary(plan.change)));
        match own.filter(|own| diff.len() + own.len() <= MAX_DIFF_BYTES) {
            Some(own) => diff += &own,
            None => is_whole = false,
        }
    }
    let diff = planned.map(|_| diff);
    let structured =
        json!({"files": lines, "diff": diff, "diff_is_whole": is_whole && diff.is_some()});
    let what = match changes {
        [one] => one.paths().next().unwrap_or_default().to_owned(),
        all => format!("{} files", all.len()),
    };
    let text = format!("Applied:\n{}", lines.join("\n"));
    ToolOutcome::completed(title("Patched", &what), text, Some(structured))
}
