//! `glob`: finds files by a pattern of their paths.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

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
use crate::spelling::compose_letters;
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
    let wanted = relate_pattern(&arguments.pattern, &files)?;
    let (base, pattern) = match follow_links(&files, &base, &wanted) {
        Some((base, rest)) => (base, Pattern { names_only: false, ..Pattern::below(&rest)? }),
        None => (base, Pattern::below(&wanted)?),
    };
    let is_hidden = |path: &Path| {
        context.reads.judge(path) == RuleAction::Deny || context.reads.hides_result("glob", path)
    };
    let collect = |pattern: &Pattern| -> Result<(Vec<String>, usize, Walked), Stopped> {
        let (mut found, mut left_out) = (Vec::new(), 0);
        let walked = walk(&files, &base, &context.cancel, |path| {
            let below = path.strip_prefix(&base).unwrap_or(path);
            if pattern.matches(below) {
                // A name is not what is in the file: one that is only asked about may be listed.
                if is_hidden(path) {
                    left_out += 1;
                } else {
                    found.push(path.display().to_string());
                }
            }
            let enough = found.len() > MAX_PATHS;
            Ok(if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok((found, left_out, walked))
    };
    let (mut found, mut left_out, mut walked) = collect(&pattern)?;
    if found.is_empty()
        && left_out == 0
        && let Some(several) = Pattern::from_several(&arguments.pattern, &files)?
    {
        (found, left_out, walked) = collect(&several)?;
    }
    // A file that is asked for by its very path is there, whatever ignores it.
    if let Some(path) = pattern.exact_path(&base)
        && !found.contains(&path)
        && found.len() < MAX_PATHS
        && files.open(Path::new(&path), OFlags::PATH).is_ok_and(|fd| is_file(&fd))
    {
        if is_hidden(Path::new(&path)) {
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

/// Returns a pattern relative to where it is looked for.
fn relate_pattern(given: &str, files: &LocationFiles) -> Result<String, Stopped> {
    if given.starts_with('/') {
        return Ok(files.relative(given)?.display().to_string());
    }
    Ok(given.trim_start_matches("./").to_owned())
}

/// Returns the directory behind the links with which a pattern begins, and the rest of the pattern. A walk follows no link.
fn follow_links(files: &LocationFiles, base: &Path, pattern: &str) -> Option<(PathBuf, String)> {
    let mut reached = base.strip_prefix(".").unwrap_or(base).to_path_buf();
    let (mut behind, mut rest) = (None, pattern);
    while let Some((name, below)) = rest.split_once('/') {
        let path = reached.join(name);
        let opened = files.open(&path, OFlags::PATH | OFlags::DIRECTORY);
        let Ok(real) = opened.and_then(|fd| files.real_relative(&fd)) else { break };
        if real != path {
            behind = Some((real.clone(), below.to_owned()));
        }
        (reached, rest) = (real, below);
    }
    behind
}

/// A pattern for paths below a directory.
pub(crate) struct Pattern {
    given: String,
    /// The pattern, and the pattern with its brackets as letters: directories are named `[id]` in some projects.
    matchers: Vec<GlobMatcher>,
    names_only: bool,
    /// The patterns of which this one is made, if it is, and whether each excludes.
    parts: Vec<(Pattern, bool)>,
}

impl Pattern {
    pub(crate) fn new(given: &str, files: &LocationFiles) -> Result<Self, Stopped> {
        Self::below(&relate_pattern(given, files)?)
    }

    /// Makes one of the several patterns in a text, as other programs read it: `*.ts,*.py`, `*.ts !*.d.ts`. `None` if it has one.
    pub(crate) fn from_several(
        given: &str,
        files: &LocationFiles,
    ) -> Result<Option<Self>, Stopped> {
        let texts = split_patterns(given);
        if texts.len() < 2 && !texts.iter().any(|text| text.starts_with('!')) {
            return Ok(None);
        }
        let mut parts = Vec::with_capacity(texts.len());
        for text in texts {
            let excluded = text.strip_prefix('!');
            let pattern = Self::new(excluded.unwrap_or(text), files)?;
            parts.push((pattern, excluded.is_some()));
        }
        let (given, matchers) = (String::new(), Vec::new());
        Ok(Some(Self { given, matchers, names_only: false, parts }))
    }

    /// Makes one that is relative to where it is looked for.
    fn below(given: &str) -> Result<Self, Stopped> {
        let given = compose_letters(given).into_owned();
        let build = |text: &str| GlobBuilder::new(text).literal_separator(true).build();
        let literal = given.contains(['[', ']', '{', '}']).then(|| build(&quote_brackets(&given)));
        let globs: Vec<globset::Glob> = match (build(&given), literal.and_then(Result::ok)) {
            (Ok(glob), literal) => std::iter::once(glob).chain(literal).collect(),
            (Err(_), Some(literal)) => vec![literal],
            (Err(error), None) => {
                let message = format!("{given} is not a valid pattern: {error}");
                return Err(Stopped::because(message));
            }
        };
        let matchers = globs.iter().map(globset::Glob::compile_matcher).collect();
        Ok(Self { names_only: !given.contains('/'), given, matchers, parts: Vec::new() })
    }

    /// Returns the one path that it means below `base`, if it has no signs of a pattern, or its signs may be letters.
    fn exact_path(&self, base: &Path) -> Option<String> {
        let is_exact = !self.given.is_empty() && !self.given.contains(['*', '?', '\\']);
        let base = base.strip_prefix(".").unwrap_or(base);
        is_exact.then(|| base.join(&self.given).display().to_string())
    }

    pub(crate) fn matches(&self, path: &Path) -> bool {
        if !self.parts.is_empty() {
            let has = |excludes: bool| {
                let mut own = self.parts.iter().filter(|(_, excluded)| *excluded == excludes);
                own.any(|(pattern, _)| pattern.matches(path))
            };
            let takes_all = self.parts.iter().all(|(_, excluded)| *excluded);
            return !has(true) && (takes_all || has(false));
        }
        let name = if self.names_only { path.file_name().map(Path::new) } else { None };
        let path = name.unwrap_or(path);
        let composed = path.to_str().map(compose_letters);
        let path = composed.as_deref().map_or(path, Path::new);
        self.matchers.iter().any(|matcher| matcher.is_match(path))
    }
}

/// Splits a text at commas and white space outside of brackets.
fn split_patterns(given: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let is_between = |c: char| {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && (c == ',' || c.is_whitespace())
    };
    given.split(is_between).filter(|part| !part.is_empty()).collect()
}

/// Returns a pattern whose brackets stand for themselves.
fn quote_brackets(pattern: &str) -> String {
    let mut quoted = String::with_capacity(pattern.len() + 8);
    for c in pattern.chars() {
        match c {
            '[' | ']' | '{' | '}' => quoted.extend(['[', c, ']']),
            c => quoted.push(c),
        }
    }
    quoted
}
