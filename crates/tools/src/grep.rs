//! `grep`: finds lines by a regular expression.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;

use async_trait::async_trait;
use domain::ToolClass;
use encoding_rs::Encoding;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, sinks};
use memchr::memchr;
use rustix::fs::FileType;
use sandbox::OutputFile;
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::arguments;
use crate::call::{Stopped, ToolCall, ToolContext, ToolDefinition, ToolOutcome, fields, title};
use crate::files::{LocationFiles, Refused, blocking};
use crate::glob::Pattern;
use crate::outputs::{self, MANAGED_PREFIX};
use crate::set::Tool;
use crate::suggest::did_you_mean;
use crate::walk::walk;

/// The most lines in one result.
const MAX_MATCHES: usize = 200;
/// The most characters shown of a line.
const MAX_CHARS: usize = 500;
/// The largest file that a directory search reads, in bytes; larger ones are skipped.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
/// The most bytes read of a file that was given by name; the rest is not searched.
const MAX_NAMED_BYTES: u64 = 4 * 1024 * 1024 * 1024;
/// The memory limit of a compiled expression, in bytes.
const MAX_REGEX_BYTES: usize = 10 * 1024 * 1024;
/// The memory limit of an expression's cached states, in bytes.
const MAX_DFA_BYTES: usize = 10 * 1024 * 1024;
/// The memory limit of one line, in bytes; a file with a longer line is skipped.
const HEAP_BYTES: usize = 16 * 1024 * 1024;
/// The bytes that are read at once. A file that ends within them is searched where it was read.
const WHOLE_BYTES: usize = 256 * 1024;

pub(crate) struct Grep;

#[derive(Deserialize)]
struct Arguments {
    pattern: String,
    #[serde(alias = "filePath")]
    path: Option<String>,
    include: Option<String>,
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
                let mut search = Search::new(&arguments.pattern, &context.cancel)?;
                for OutputFile { name, content } in &files {
                    if !search.is_full() {
                        search.slice(&format!("{MANAGED_PREFIX}{name}"), content);
                    }
                }
                Ok(search.into_outcome(&arguments.pattern))
            })
            .await;
        }
        blocking(move || find(&arguments, &given, &context)).await
    }
}

fn find(arguments: &Arguments, given: &str, context: &ToolContext) -> Result<ToolOutcome, Stopped> {
    let files = LocationFiles::open_root(&context.root, &context.shown_root)?;
    let mut search = Search::new(&arguments.pattern, &context.cancel)?;
    let include =
        arguments.include.as_deref().map(|given| Pattern::new(given, &files)).transpose()?;
    let below = files.relative(given)?;
    let opened = files.open_to_read(&below).map_err(|refused| match refused {
        Refused::Missing => {
            Stopped::because(format!("{given} does not exist{}", did_you_mean(&files, &below)))
        }
        other @ (Refused::Outside | Refused::Io(_)) => other.told(given, &files),
    })?;
    if opened.kind == FileType::RegularFile {
        search.file(&given, opened.file, MAX_NAMED_BYTES);
        if context.cancel.is_cancelled() {
            return Err(Stopped::Interrupted);
        }
        return Ok(search.into_outcome(&arguments.pattern));
    }
    let base =
        files.real_relative(&opened.file.into()).map_err(|refused| refused.told(given, &files))?;
    let walked = walk(&files, &base, &context.cancel, |path| {
        let wanted = |pattern: &Pattern| pattern.matches(path.strip_prefix(&base).unwrap_or(path));
        if include.as_ref().is_none_or(wanted) {
            search.path(&files, path);
        }
        Ok(if search.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    search.skipped += walked.unreadable;
    search.gave_up = walked.gave_up;
    Ok(search.into_outcome(&arguments.pattern))
}

/// A search in progress.
struct Search {
    matcher: RegexMatcher,
    /// Reads, decodes, and stops at what is binary.
    searcher: Searcher,
    /// Searches text that is in memory.
    text: Searcher,
    /// The beginning of the file that is being searched.
    read: Vec<u8>,
    cancel: CancellationToken,
    lines: Vec<String>,
    skipped: usize,
    gave_up: bool,
}

impl Search {
    fn new(pattern: &str, cancel: &CancellationToken) -> Result<Self, Stopped> {
        let matcher = RegexMatcherBuilder::new()
            .line_terminator(Some(b'\n'))
            .size_limit(MAX_REGEX_BYTES)
            .dfa_size_limit(MAX_DFA_BYTES)
            .build(pattern)
            .map_err(|error| {
                Stopped::because(format!(
                    "{pattern} cannot be used as a regular expression: {error}; mend or simplify it"
                ))
            })?;
        let mut builder = SearcherBuilder::new();
        builder.line_number(true).heap_limit(Some(HEAP_BYTES));
        let text = builder.build();
        let searcher = builder.binary_detection(BinaryDetection::quit(0)).build();
        let (read, cancel, lines) = (vec![0; WHOLE_BYTES], cancel.clone(), Vec::new());
        Ok(Self { matcher, searcher, text, read, cancel, lines, skipped: 0, gave_up: false })
    }

    /// Returns whether the result is full: one match more than is shown means that there are more.
    fn is_full(&self) -> bool {
        self.lines.len() > MAX_MATCHES
    }

    fn path(&mut self, files: &LocationFiles, path: &Path) {
        match files.open_to_read(path) {
            Ok(opened) if opened.kind != FileType::RegularFile => {
                // The target of a symlink.
            }
            Ok(opened) if opened.bytes > MAX_FILE_BYTES => self.skipped += 1,
            Ok(opened) => self.file(&path.display(), opened.file, MAX_FILE_BYTES),
            Err(Refused::Missing | Refused::Outside) => {}
            Err(Refused::Io(_)) => self.skipped += 1,
        }
    }

    /// Searches at most `max_bytes` of a file, because it may grow while it is read.
    fn file(&mut self, shown: &dyn Display, file: File, max_bytes: u64) {
        let cancel = self.cancel.clone();
        let mut file = Cancellable { file, cancel: &cancel };
        let mut beginning = std::mem::take(&mut self.read);
        let searched = match fill(&mut file, &mut beginning) {
            Ok(Extent::Whole(length)) => self.bytes(shown, &beginning[..length]),
            Ok(Extent::Partly) => {
                let read = beginning.len() as u64;
                let all = beginning.chain(file.take(max_bytes.saturating_sub(read)));
                self.reader(shown, all)
            }
            Err(unreadable) => Err(unreadable),
        };
        self.read = beginning;
        self.skipped += usize::from(searched.is_err());
    }

    /// Searches a complete file.
    fn bytes(&mut self, shown: &dyn Display, bytes: &[u8]) -> io::Result<()> {
        if Encoding::for_bom(bytes).is_some() {
            return self.reader(shown, bytes);
        }
        if memchr(0, bytes).is_some() {
            return Ok(()); // it is binary
        }
        let Self { matcher, text: searcher, lines, .. } = self;
        let sink = sinks::Lossy(|number, line| Ok(push(lines, shown, number, line)));
        searcher.search_slice(&*matcher, bytes, sink)
    }

    fn reader(&mut self, shown: &dyn Display, bytes: impl Read) -> io::Result<()> {
        let Self { matcher, searcher, lines, .. } = self;
        let sink = sinks::Lossy(|number, line| Ok(push(lines, shown, number, line)));
        searcher.search_reader(&*matcher, bytes, sink)
    }

    fn slice(&mut self, shown: &str, bytes: &[u8]) {
        let Self { matcher, searcher, lines, .. } = self;
        let sink = sinks::Lossy(|number, line| Ok(push(lines, &shown, number, line)));
        if searcher.search_slice(&*matcher, bytes, sink).is_err() {
            self.skipped += 1;
        }
    }

    fn into_outcome(mut self, pattern: &str) -> ToolOutcome {
        let more = self.is_full() || self.gave_up;
        self.lines.truncate(MAX_MATCHES);
        let count = self.lines.len();
        let structured = json!({"count": count, "more": more, "skipped": self.skipped});
        let text = self.lines.concat();
        let mut outcome = ToolOutcome::completed(title("Search", pattern), text, Some(structured));
        outcome.footer = match (more, count) {
            (true, _) => {
                format!("(only the first {count} lines: use a narrower pattern, path or include)")
            }
            (false, 0) => "(no line matches)".to_owned(),
            (false, 1) => "(1 line)".to_owned(),
            (false, _) => format!("({count} lines)"),
        };
        if self.skipped > 0 {
            outcome.footer += &format!(" ({} files could not be searched)", self.skipped);
        }
        outcome
    }
}

/// A file whose reading ends once `cancel` is cancelled.
struct Cancellable<'c> {
    file: File,
    cancel: &'c CancellationToken,
}

impl Read for Cancellable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("the search was cancelled"));
        }
        self.file.read(buffer)
    }
}

/// How much of a file a buffer took.
enum Extent {
    /// The file ends after this many bytes.
    Whole(usize),
    /// The buffer is full.
    Partly,
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<Extent> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => return Ok(Extent::Whole(filled)),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Extent::Partly)
}

/// Adds a line. Returns whether the search continues.
fn push(lines: &mut Vec<String>, shown: &dyn Display, number: u64, line: &str) -> bool {
    let line = line.trim_end_matches(['\r', '\n']);
    let text = match line.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{shown}:{number}:{}…\n", &line[..end]),
        None => format!("{shown}:{number}:{line}\n"),
    };
    lines.push(text);
    lines.len() <= MAX_MATCHES
}
