//! `grep`: finds lines by a regular expression.

mod search;
mod threads;

use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;

use async_trait::async_trait;
use domain::{RuleAction, ToolClass};
use rustix::fs::FileType;
use sandbox::OutputFile;
use serde::Deserialize;
use serde_json::json;

use crate::arguments;
use crate::call::{
    Stopped, ToolCall, ToolContext, ToolDefinition, ToolOutcome, fields, say_count, title,
};
use crate::files::{LocationFiles, Refused, blocking};
use crate::glob::Pattern;
use crate::names::escape_name;
use crate::outputs::{self, MANAGED_PREFIX};
use crate::set::Tool;
use crate::suggest::did_you_mean;
use crate::walk::walk;
use search::{Found, MAX_MATCHES, Search};

pub(crate) struct Grep;

#[derive(Deserialize)]
struct Arguments {
    pattern: String,
    #[serde(alias = "filePath")]
    path: Option<String>,
    include: Option<String>,
    /// Models know it from elsewhere.
    #[serde(default)]
    multiline: bool,
}

#[async_trait]
impl Tool for Grep {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "grep".into(),
            description: "Searches file contents for a regular expression (Rust syntax; (?i) ignores case) and returns \
                          path:line:text for each matching line, in the order of paths. What .gitignore names and \
                          binary files are left out. At most 200 lines. Complete tool output under /tool-output can be searched too."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "pattern": {"type": "string", "description": "The regular expression"},
                    "path": {"type": "string", "description": "The file or directory to search; the working directory unless given"},
                    "include": {"type": "string", "description": "Only files that match this pattern, such as *.rs"}
                },
                "required": ["pattern"]
            }),
            result_schema: Some(fields(&["count", "more", "skipped"], &json!({
                "count": {"type": "integer", "minimum": 0},
                "more": {"type": "boolean"},
                "skipped": {"type": "integer", "minimum": 0}
            }))),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Pure
    }

    async fn run(&self, call: &ToolCall, context: &ToolContext) -> Result<ToolOutcome, Stopped> {
        let arguments: Arguments = arguments::parse(call)?;
        let context = context.clone();
        let given = arguments.path.clone().filter(|path| !path.is_empty());
        let given = given.unwrap_or_else(|| ".".to_owned());
        if outputs::is_managed(&given) {
            let files = if outputs::is_directory(&given) {
                let names = outputs::names(&context).await?;
                outputs::files(&context, names).await?
            } else {
                let name = given.trim_start_matches(MANAGED_PREFIX).to_owned();
                let content = outputs::managed(&context, &given).await?;
                vec![OutputFile { name, content }]
            };
            return blocking(move || {
                let mut search =
                    Search::new(&arguments.pattern, arguments.multiline, &context.cancel)?;
                let mut found = Found::default();
                for OutputFile { name, content } in &files {
                    if !found.is_full() {
                        search.slice(&format!("{MANAGED_PREFIX}{name}"), content, &mut found);
                    }
                }
                Ok(outcome(found, false, &arguments.pattern))
            })
            .await;
        }
        blocking(move || find(&arguments, &given, &context)).await
    }
}

fn find(arguments: &Arguments, given: &str, context: &ToolContext) -> Result<ToolOutcome, Stopped> {
    let files = LocationFiles::open_root(context)?;
    let mut search = Search::new(&arguments.pattern, arguments.multiline, &context.cancel)?;
    let mut include =
        arguments.include.as_deref().map(|given| Pattern::new(given, &files)).transpose()?;
    let below = files.relative(given)?;
    let opened = files.open_to_read(&below).map_err(|refused| match refused {
        Refused::Missing => {
            Stopped::because(format!("{given} does not exist{}", did_you_mean(&files, &below)))
        }
        other @ (Refused::Outside | Refused::Hidden | Refused::GitsOwn | Refused::Io(_)) => {
            other.told(given, &files)
        }
    })?;
    if opened.kind == FileType::RegularFile {
        check_links(&files, context, given, &below, &opened.file)?;
        let mut found = Found::default();
        search.named(&escape_name(given), opened.file, &mut found);
        if context.cancel.is_cancelled() {
            return Err(Stopped::Interrupted);
        }
        return Ok(outcome(found, false, &arguments.pattern));
    }
    let base =
        files.real_relative(&opened.file.into()).map_err(|refused| refused.told(given, &files))?;
    let shows = |path: &Path| {
        context.reads.judge(path) == RuleAction::Allow && !context.reads.hides_result("grep", path)
    };
    // Returns besides whether any file was wanted, and how many of them may not be shown.
    let search_wanted = |include: Option<&Pattern>| {
        let (mut is_any, mut left_out) = (false, 0);
        let searched = threads::search(&files, search.clone(), &shows, |found| {
            walk(&files, &base, &context.cancel, |path| {
                let wanted =
                    |pattern: &Pattern| pattern.matches(path.strip_prefix(&base).unwrap_or(path));
                if !include.is_none_or(wanted) {
                    return Ok(ControlFlow::Continue(()));
                }
                is_any = true;
                if !shows(path) {
                    left_out += 1;
                    return Ok(ControlFlow::Continue(()));
                }
                Ok(found.add(path))
            })
        });
        searched.map(|(walked, found)| (walked, found, is_any, left_out))
    };
    let (mut walked, mut found, is_any, mut left_out) = search_wanted(include.as_ref())?;
    if !is_any && let Some(given) = arguments.include.as_deref() {
        include = Pattern::from_several(given, &files)?;
        if include.is_some() {
            (walked, found, _, left_out) = search_wanted(include.as_ref())?;
        }
    }
    found.left_out += left_out;
    if context.cancel.is_cancelled() {
        return Err(Stopped::Interrupted);
    }
    // How far the walk came when enough was found depends on the threads.
    if !found.is_full() {
        found.skipped += walked.unreadable;
    }
    let is_none = found.lines.is_empty() && walked.ignored;
    let mut outcome = outcome(found, walked.gave_up, &arguments.pattern);
    if is_none {
        outcome.footer += IGNORED_NOTE;
    }
    Ok(outcome)
}

/// Refuses a file that links lead to, unless `read` may show it.
pub(crate) fn check_links(
    files: &LocationFiles,
    context: &ToolContext,
    given: &str,
    below: &Path,
    file: &File,
) -> Result<(), Stopped> {
    let real = files.real_of(file).map_err(|refused| refused.told(given, files))?;
    context.reads.check_links(given, below, &real)
}

/// The note when nothing was found and something was ignored.
pub(crate) const IGNORED_NOTE: &str = " (what .gitignore names was left out: `git status --ignored` in shell lists it; name \
                                       a file or directory of it as `path` to search there)";

/// Returns the note on files that are not shown because of rules.
pub(crate) fn left_out_note(count: usize) -> String {
    let (files, were) = (say_count(count, "file"), if count == 1 { "was" } else { "were" });
    format!(
        " ({files} {were} left out: rules about `read` keep them from you; read one by its name to ask for it)"
    )
}

fn outcome(mut found: Found, gave_up: bool, pattern: &str) -> ToolOutcome {
    let more = found.is_full() || gave_up;
    found.lines.truncate(MAX_MATCHES);
    let count = found.lines.len();
    let structured = json!({"count": count, "more": more, "skipped": found.skipped});
    let text = found.lines.concat();
    let mut outcome = ToolOutcome::completed(title("Search", pattern), text, Some(structured));
    outcome.footer = match (more, count) {
        (true, _) => {
            let lines = say_count(count, "line");
            format!("(only the first {lines}: use a narrower pattern, path or include)")
        }
        (false, 0) => "(no line matches)".to_owned(),
        (false, _) => format!("({})", say_count(count, "line")),
    };
    if found.skipped > 0 {
        outcome.footer += &format!(" ({} could not be searched)", say_count(found.skipped, "file"));
    }
    if found.left_out > 0 {
        outcome.footer += &left_out_note(found.left_out);
    }
    outcome
}
