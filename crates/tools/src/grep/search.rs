//! Searches files for an expression, one after the other.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use encoding_rs::Encoding;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, sinks};
use memchr::{memchr, memrchr};
use rustix::fs::FileType;
use tokio_util::sync::CancellationToken;

use crate::call::Stopped;
use crate::encoding::find_encoding;
use crate::files::{LocationFiles, Refused};
use crate::names::escape_name;

/// The most lines in one result.
pub(super) const MAX_MATCHES: usize = 200;
/// The most characters shown of a line.
const MAX_CHARS: usize = 500;
/// The characters shown before a match in a longer line.
const CHARS_BEFORE: usize = 100;
/// The longest line in which a match is looked for, in bytes. Of a longer one the beginning is shown.
const MAX_LOCATED_BYTES: usize = 1024 * 1024;
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

/// The lines that match, as they are shown, in the order in which they were found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) lines: Vec<String>,
    /// The number of files that could not be searched.
    pub(super) skipped: usize,
    /// The number of files that rules keep from being shown.
    pub(super) left_out: usize,
}

/// Whether a file below the root may be shown.
pub(super) type Shows<'s> = dyn Fn(&Path) -> bool + Sync + 's;

impl Found {
    /// Returns whether it is full: one match more than is shown means that there are more.
    pub(super) fn is_full(&self) -> bool {
        self.lines.len() > MAX_MATCHES
    }

    /// Adds a match: a line, or several. Of a long line, the part around a match. Returns whether the search continues.
    fn push(
        &mut self,
        shown: &dyn Display,
        first: u64,
        lines: &str,
        locator: &mut Locator,
    ) -> bool {
        let lines = lines.trim_end_matches(['\r', '\n']).split('\n');
        for (number, line) in (first..).zip(lines) {
            let line = line.trim_end_matches('\r');
            let text = match line.char_indices().nth(MAX_CHARS) {
                Some((end, _)) => format!("{shown}:{number}:{}\n", locator.cut_around(line, end)),
                None => format!("{shown}:{number}:{line}\n"),
            };
            self.lines.push(text);
            if self.is_full() {
                return false;
            }
        }
        true
    }
}

/// Finds where in a line an expression matches. A search says only which lines have it.
#[derive(Clone)]
struct Locator {
    matcher: RegexMatcher,
    searcher: Searcher,
    /// The expression ends where lines end.
    is_at_end: bool,
}

impl Locator {
    /// Returns the part of a long line that has a match, with its column. The first [`MAX_CHARS`] characters end at `end`.
    fn cut_around(&mut self, line: &str, end: usize) -> String {
        let place = if line.len() > MAX_LOCATED_BYTES { 0..0 } else { self.find(line) };
        if place.end <= end {
            return format!("{}…", &line[..end]);
        }
        let before = line[..place.start].chars().count().saturating_sub(CHARS_BEFORE);
        let mut chars = line.char_indices().skip(before).map(|(at, _)| at);
        let start = chars.next().unwrap_or(0);
        let end = chars.nth(MAX_CHARS - 1).unwrap_or(line.len());
        let rest = if end < line.len() { "…" } else { "" };
        let column = before + 1;
        let ahead = if before > 0 { "…" } else { "" };
        format!("{ahead}{}{rest} (from column {column} on)", &line[start..end])
    }

    /// Returns the place of a match: the first one, or that at the line's end.
    fn find(&mut self, line: &str) -> Range<usize> {
        let end = if self.is_at_end { line.len() } else { self.find_first_end(line) };
        self.find_last_start(&line[..end])..end
    }

    /// Returns the length of the shortest beginning that matches.
    fn find_first_end(&mut self, line: &str) -> usize {
        let (mut low, mut high) = (0, line.len());
        while low < high {
            let middle = line.floor_char_boundary(usize::midpoint(low, high));
            if self.is_match(&line[..middle]) {
                high = middle;
            } else {
                low = line.ceil_char_boundary(middle + 1);
            }
        }
        high
    }

    /// Returns where the shortest end begins that matches.
    fn find_last_start(&mut self, line: &str) -> usize {
        let (mut low, mut high) = (0, line.len());
        while low < high {
            let middle = line.ceil_char_boundary(usize::midpoint(low, high) + 1);
            if self.is_match(&line[middle..]) {
                low = middle;
            } else {
                high = line.floor_char_boundary(middle - 1);
            }
        }
        low
    }

    fn is_match(&mut self, text: &str) -> bool {
        let mut is_match = false;
        let sink = sinks::Lossy(|_, _| {
            is_match = true;
            Ok(false)
        });
        let searched = self.searcher.search_slice(&self.matcher, text.as_bytes(), sink);
        searched.is_ok() && is_match
    }
}

/// An expression, with the memory that a search for it takes. A clone has its own memory.
#[derive(Clone)]
pub(super) struct Search {
    matcher: RegexMatcher,
    /// Makes searchers like `searcher`.
    builder: SearcherBuilder,
    /// Reads, decodes, and stops at what is binary.
    searcher: Searcher,
    /// Searches text that is in memory.
    text: Searcher,
    locator: Locator,
    /// The beginning of the file that is being searched.
    read: Vec<u8>,
    cancel: CancellationToken,
}

/// How much of a text a match may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Line,
    Lines,
    /// Several lines, and a dot stands for a line's end too.
    LinesByDots,
}

impl Search {
    /// Makes a search for lines, or for several lines if the pattern names a line's end or `multiline` is wanted.
    ///
    /// # Errors
    /// When the pattern cannot be used, with the reason.
    pub(super) fn new(
        pattern: &str,
        multiline: bool,
        cancel: &CancellationToken,
    ) -> Result<Self, Stopped> {
        // Who looks for CR itself means the one at the end of a line too.
        let names_returns = pattern.contains('\r') || pattern.contains("\\r");
        let names_ends = pattern.contains('\n') || pattern.contains("\\n");
        let build = |reach: Reach| {
            RegexMatcherBuilder::new()
                .multi_line(true)
                .crlf(!names_returns)
                .line_terminator((reach == Reach::Line).then_some(b'\n'))
                .dot_matches_new_line(reach == Reach::LinesByDots)
                .size_limit(MAX_REGEX_BYTES)
                .dfa_size_limit(MAX_DFA_BYTES)
                .build(pattern)
                .map(|matcher| (matcher, reach))
        };
        let built = if multiline {
            build(Reach::LinesByDots)
        } else {
            // A search of single lines refuses their ends.
            build(Reach::Line)
                .or_else(|error| if names_ends { build(Reach::Lines) } else { Err(error) })
        };
        let (matcher, reach) = built.map_err(|error| {
            let error = error.to_string();
            // The words of the crate `regex-syntax`.
            let unsupported = ["look-around, including", "backreferences are not supported"];
            let is_unsupported = unsupported.iter().any(|words| error.contains(words));
            let advice = if is_unsupported {
                "do without it, or search with `grep -P` in shell"
            } else {
                "mend or simplify it"
            };
            Stopped::because(format!(
                "{pattern} cannot be used as a regular expression: {error}; {advice}"
            ))
        })?;
        let mut builder = SearcherBuilder::new();
        builder.line_number(true).heap_limit(Some(HEAP_BYTES)).multi_line(reach != Reach::Line);
        let text = builder.build();
        let locator = Locator {
            matcher: matcher.clone(),
            searcher: text.clone(),
            is_at_end: pattern.ends_with('$'),
        };
        builder.binary_detection(BinaryDetection::quit(0));
        let searcher = builder.build();
        let (read, cancel) = (vec![0; WHOLE_BYTES], cancel.clone());
        Ok(Self { matcher, builder, searcher, text, locator, read, cancel })
    }

    /// Searches a file of a directory, if it is one.
    pub(super) fn path(
        &mut self,
        files: &LocationFiles,
        path: &Path,
        shows: &Shows<'_>,
        found: &mut Found,
    ) {
        match files.open_walked(path) {
            Ok(opened) if opened.kind != FileType::RegularFile => {
                // The target of a symlink.
            }
            Ok(opened) if opened.bytes > MAX_FILE_BYTES => found.skipped += 1,
            // A link may lead to what must not be shown.
            Ok(opened)
                if opened.is_linked
                    && !files.real_of(&opened.file).is_ok_and(|real| shows(&real)) =>
            {
                found.left_out += 1;
            }
            Ok(opened) => {
                self.file(&escape_name(&path.to_string_lossy()), opened.file, MAX_FILE_BYTES, found)
            }
            Err(Refused::Missing | Refused::Outside | Refused::Hidden) => {}
            Err(Refused::GitsOwn | Refused::Io(_)) => found.skipped += 1,
        }
    }

    /// Searches a file that was asked for by its name.
    pub(super) fn named(&mut self, shown: &dyn Display, file: File, found: &mut Found) {
        self.file(shown, file, MAX_NAMED_BYTES, found);
    }

    /// Searches at most `max_bytes` of a file, because it may grow while it is read.
    fn file(&mut self, shown: &dyn Display, file: File, max_bytes: u64, found: &mut Found) {
        let cancel = self.cancel.clone();
        let mut file = Cancellable { file, cancel: &cancel };
        let mut beginning = std::mem::take(&mut self.read);
        let searched = match fill(&mut file, &mut beginning) {
            Ok(Extent::Whole(length)) => self.bytes(shown, &beginning[..length], found),
            Ok(Extent::Partly) => {
                let read = beginning.len() as u64;
                // Up to the last line's end: no letter ends behind that.
                let end = memrchr(b'\n', &beginning).unwrap_or(beginning.len());
                let encoding = find_encoding(&beginning[..end]);
                let all = beginning.chain(file.take(max_bytes.saturating_sub(read)));
                let label = encoding.map(Encoding::name);
                match label.and_then(|label| grep_searcher::Encoding::new(label).ok()) {
                    Some(encoding) => {
                        let decoding = self.builder.clone().encoding(Some(encoding)).build();
                        let plain = std::mem::replace(&mut self.searcher, decoding);
                        let searched = self.reader(shown, all, found);
                        self.searcher = plain;
                        searched
                    }
                    None => self.reader(shown, all, found),
                }
            }
            Err(unreadable) => Err(unreadable),
        };
        self.read = beginning;
        found.skipped += usize::from(searched.is_err());
    }

    /// Searches a complete file.
    fn bytes(&mut self, shown: &dyn Display, bytes: &[u8], found: &mut Found) -> io::Result<()> {
        if Encoding::for_bom(bytes).is_some() {
            return self.reader(shown, bytes, found);
        }
        if memchr(0, bytes).is_some() {
            return Ok(()); // it is binary
        }
        let decode = |encoding: &'static Encoding| {
            encoding.decode_without_bom_handling_and_without_replacement(bytes)
        };
        let decoded = find_encoding(bytes).and_then(decode);
        let bytes = decoded.as_deref().map_or(bytes, str::as_bytes);
        let Self { matcher, text, locator, .. } = self;
        let sink = sinks::Lossy(|number, line| Ok(found.push(shown, number, line, locator)));
        text.search_slice(&*matcher, bytes, sink)
    }

    fn reader(
        &mut self,
        shown: &dyn Display,
        bytes: impl Read,
        found: &mut Found,
    ) -> io::Result<()> {
        let Self { matcher, searcher, locator, .. } = self;
        let sink = sinks::Lossy(|number, line| Ok(found.push(shown, number, line, locator)));
        searcher.search_reader(&*matcher, bytes, sink)
    }

    /// Searches what is in memory.
    pub(super) fn slice(&mut self, shown: &dyn Display, bytes: &[u8], found: &mut Found) {
        let Self { matcher, searcher, locator, .. } = self;
        let sink = sinks::Lossy(|number, line| Ok(found.push(shown, number, line, locator)));
        if searcher.search_slice(&*matcher, bytes, sink).is_err() {
            found.skipped += 1;
        }
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
