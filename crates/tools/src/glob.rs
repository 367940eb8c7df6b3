//! `glob`: finds files by a pattern of their paths.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;

use async_trait::async_trait;
use domain::{RuleAction, ToolClass};
use globset::{GlobBuilder, GlobMatcher};
use rustix::fs::{FileType, OFlags, fstat};
use serde::Deserialize;
use serde_json::json;

use crate::arguments;
use crate::call::{Stopped, ToolCall, ToolContext, ToolDefinition, ToolOutcome, fields, title};
use crate::files::{LocationFiles, blocking};
use crate::grep::{IGNORED_NOTE, left_out_note};
use crate::names::escape_name;
use crate::outputs::{self, MANAGED_PREFIX};
use crate::set::Tool;
use crate::walk::{Walked, walk};

/// The most paths in one result.
const MAX_PATHS: usize = 200;

pub(crate) struct Glob;

#[derive(Deserialize)]
struct Arguments {
    pattern: String,
    #[serde(alias = "filePath")]
    path: Option<String>,
}

#[async_trait]
impl Tool for Glob {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "glob".into(),
            description: "Finds files whose path matches a pattern such as **/*.rs or src/*.ts, in the order of their \
                          paths. A pattern without a slash matches file names in every directory. What .gitignore \
                          names is left out. At most 200 paths. With the path /tool-output, complete outputs of earlier calls."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "pattern": {"type": "string", "description": "The pattern, relative to path"},
                    "path": {"type": "string", "description": "The directory to search; the working directory unless given"}
                },
                "required": ["pattern"]
            }),
            result_schema: Some(fields(&["count", "more"], &json!({
                "count": {"type": "integer", "minimum": 0},
                "more": {"type": "boolean"}
            }))),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Pure
    }

    async fn run(&self, call: &ToolCall, context: &ToolContext) -> Result<ToolOutcome, Stopped> {
        let arguments: Arguments = arguments::parse(call)?;
        if arguments.path.as_deref().is_some_and(outputs::is_directory) {
            let files = outputs::names(context).await?;
            let pattern = Pattern::below(&arguments.pattern)?;
            let found = files.iter().filter(|name| pattern.matches(Path::new(name)));
            let found = found.map(|name| format!("{MANAGED_PREFIX}{name}")).collect();
            return Ok(outcome(found, &arguments.pattern, &Walked::default()));
        }
        let context = context.clone();
        blocking(move || find(&arguments, &context)).await
    }
}

fn find(arguments: &Arguments, context: &ToolContext) -> Result<ToolOutcome, Stopped> {
    let files = LocationFiles::open_root(context)?;
    let given = arguments.path.as_deref().filter(|path| !path.is_empty()).unwrap_or(".");
    let told = |refused: crate::files::Refused| refused.told(given, &files);
    let directory = OFlags::PATH | OFlags::DIRECTORY;
    let base = files.open(&files.relative(given)?, directory).map_err(told)?;
    let base = files.real_relative(&base).map_err(told)?;
    let pattern = Pattern::new(&arguments.pattern, &files)?;
    let (mut found, mut left_out) = (Vec::new(), 0);
    let walked = walk(&files, &base, &context.cancel, |path| {
        let below = path.strip_prefix(&base).unwrap_or(path);
        if pattern.matches(below) {
            // A name is not what is in the file: one that is only asked about may be listed.
            if context.reads.judge(path) == RuleAction::Deny {
                left_out += 1;
            } else {
                found.push(path.display().to_string());
            }
        }
        let enough = found.len() > MAX_PATHS;
        Ok(if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    // A file that is asked for by its very path is there, whatever ignores it.
    if let Some(path) = pattern.exact_path(&base)
        && !found.contains(&path)
        && found.len() < MAX_PATHS
        && files.open(Path::new(&path), OFlags::PATH).is_ok_and(|fd| is_file(&fd))
    {
        if context.reads.judge(Path::new(&path)) == RuleAction::Deny {
            left_out += 1;
        } else {
            found.push(path);
            found.sort_unstable();
        }
    }
    let is_none = found.is_empty() && left_out == 0;
    let mut outcome = outcome(found, &arguments.pattern, &walked);
    if is_none && walked.ignored {
        outcome.footer += IGNORED_NOTE;
    }
    if left_out > 0 {
        outcome.footer += &left_out_note(left_out);
    }
    Ok(outcome)
}

fn outcome(mut found: Vec<String>, pattern: &str, walked: &Walked) -> ToolOutcome {
    let more = found.len() > MAX_PATHS;
    found.truncate(MAX_PATHS);
    let structured = json!({"count": found.len(), "more": more || walked.gave_up});
    let text = found.iter().fold(String::new(), |text, path| text + &escape_name(path) + "\n");
    let mut outcome = ToolOutcome::completed(title("Find", pattern), text, Some(structured));
    outcome.footer = match (more || walked.gave_up, found.len()) {
        (true, count) => format!("(only the first {count}: use a narrower pattern or path)"),
        (false, 0) => "(no file matches)".to_owned(),
        (false, 1) => "(1 file)".to_owned(),
        (false, count) => format!("({count} files)"),
    };
    if walked.unreadable > 0 {
        let entries = if walked.unreadable == 1 { "entry" } else { "entries" };
        outcome.footer += &format!(" ({} {entries} could not be read)", walked.unreadable);
    }
    outcome
}

fn is_file(fd: &OwnedFd) -> bool {
    let kind = fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
    kind.is_ok_and(|kind| kind == FileType::RegularFile)
}

/// A pattern for paths below a directory.
pub(crate) struct Pattern {
    matcher: GlobMatcher,
    names_only: bool,
}

impl Pattern {
    pub(crate) fn new(given: &str, files: &LocationFiles) -> Result<Self, Stopped> {
        if given.starts_with('/') {
            return Self::below(&files.relative(given)?.display().to_string());
        }
        Self::below(given.trim_start_matches("./"))
    }

    /// Makes one that is relative to where it is looked for.
    fn below(given: &str) -> Result<Self, Stopped> {
        let glob = GlobBuilder::new(given).literal_separator(true).build().map_err(|error| {
            Stopped::because(format!("{given} is not a valid pattern: {error}"))
        })?;
        Ok(Self { matcher: glob.compile_matcher(), names_only: !given.contains('/') })
    }

    /// Returns the one path that it means below `base`, if it has no signs of a pattern.
    fn exact_path(&self, base: &Path) -> Option<String> {
        let given = self.matcher.glob().glob();
        let is_exact = !given.is_empty() && !given.contains(['*', '?', '[', '{', '\\']);
        let base = base.strip_prefix(".").unwrap_or(base);
        is_exact.then(|| base.join(given).display().to_string())
    }

    pub(crate) fn matches(&self, path: &Path) -> bool {
        match path.file_name() {
            Some(name) if self.names_only => self.matcher.is_match(name),
            Some(_) | None => self.matcher.is_match(path),
        }
    }
}
