//! Applies the hunks of a patch to a text. Pure.

use std::ops::Range;

use crate::alike::{same, same_indented};
use crate::line_ends::find_line_end;

/// The most comparisons of lines for one file.
const MAX_COMPARISONS: usize = 50_000_000;

/// A line of a hunk, without its mark and its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Kept(String),
    Removed(String),
    Added(String),
}

impl Part {
    fn is_added(&self) -> bool {
        matches!(self, Self::Added(_))
    }
}

/// Lines that follow each other, and what happens to them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hunk {
    /// Lines above it, each below the one before.
    pub(crate) headers: Vec<String>,
    pub(crate) parts: Vec<Part>,
    /// Its last line is the file's.
    pub(crate) is_at_end: bool,
    /// Its `@@` names nothing.
    pub(crate) is_unnamed: bool,
}

/// The state of a file that hunks look for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

impl Hunk {
    fn lines(&self, side: Side) -> Vec<&str> {
        let parts = self.parts.iter().filter_map(|part| match part {
            Part::Kept(line) => Some(line),
            Part::Removed(line) => (side == Side::Before).then_some(line),
            Part::Added(line) => (side == Side::After).then_some(line),
        });
        parts.map(String::as_str).collect()
    }
}

/// Returns the text after all hunks. The error says which hunk does not fit, and what to do.
pub(crate) fn apply(content: &str, hunks: &[Hunk]) -> Result<String, String> {
    let lines: Vec<&str> = content.split_inclusive('\n').collect();
    let mut after = String::with_capacity(content.len());
    let mut finder = Finder { lines: &lines, from: 0, compared: 0 };
    let mut copied = 0;
    for (number, hunk) in hunks.iter().enumerate() {
        let place = finder.find(hunk, Side::Before);
        let place = place.map_err(|error| format!("hunk {}: {error}", number + 1))?;
        copy(&mut after, &lines, copied..place);
        let mut at = place;
        for part in &hunk.parts {
            match part {
                Part::Kept(_) => {
                    copy(&mut after, &lines, at..at + 1);
                    at += 1;
                }
                Part::Removed(_) => at += 1,
                Part::Added(line) => {
                    let line_end = find_line_end(&lines, at);
                    end_line(&mut after, line_end);
                    after.push_str(line);
                    after.push_str(line_end);
                }
            }
        }
        copied = at;
    }
    let ends_added = copied == lines.len()
        && hunks.last().and_then(|hunk| hunk.parts.last()).is_some_and(Part::is_added);
    copy(&mut after, &lines, copied..lines.len());
    // A patch does not say whether the last line ends: it does as the file's last line did.
    if ends_added && !content.is_empty() && !content.ends_with('\n') {
        after.truncate(after.len() - find_line_end(&lines, lines.len()).len());
    }
    Ok(after)
}

/// Returns whether a text looks like after all hunks.
pub(crate) fn is_applied(content: &str, hunks: &[Hunk]) -> bool {
    let lines: Vec<&str> = content.split_inclusive('\n').collect();
    let mut finder = Finder { lines: &lines, from: 0, compared: 0 };
    hunks.iter().all(|hunk| finder.find(hunk, Side::After).is_ok())
}

fn copy(after: &mut String, lines: &[&str], range: Range<usize>) {
    if !range.is_empty() {
        end_line(after, find_line_end(lines, range.start));
    }
    after.extend(lines[range].iter().copied());
}

/// Ends the last line, which may have been the file's last one without an end.
fn end_line(after: &mut String, line_end: &str) {
    if !after.is_empty() && !after.ends_with('\n') {
        after.push_str(line_end);
    }
}

struct Finder<'a> {
    lines: &'a [&'a str],
    /// Hunks are in the order of their places.
    from: usize,
    compared: usize,
}

impl Finder<'_> {
    /// Returns the index of the first line of a hunk's place, and goes behind the place.
    fn find(&mut self, hunk: &Hunk, side: Side) -> Result<usize, String> {
        for header in &hunk.headers {
            let find = |header: &str| {
                self.lines[self.from..].iter().position(|line| same_indented(line, header))
            };
            // Models close a header like one of a unified diff.
            let found = find(header).or_else(|| find(header.strip_suffix("@@")?.trim()));
            let found = found.ok_or_else(|| {
                format!(
                    "no line `{header}` follows line {}; give a line of the file after `@@`",
                    self.from
                )
            })?;
            self.from += found + 1;
        }
        let wanted = hunk.lines(side);
        let place = match self.place(hunk, &wanted) {
            // A header may be the first line of the hunk as well.
            Err(missing) if !hunk.headers.is_empty() => {
                self.from -= 1;
                self.place(hunk, &wanted).map_err(|_| missing)?
            }
            other => other?,
        };
        self.from = place + wanted.len();
        Ok(place)
    }

    fn place(&mut self, hunk: &Hunk, wanted: &[&str]) -> Result<usize, String> {
        let rest = self.lines.len().saturating_sub(self.from);
        if wanted.is_empty() {
            let is_here = !hunk.headers.is_empty() && !hunk.is_at_end;
            return Ok(if is_here { self.from } else { self.lines.len() });
        }
        self.compared = self.compared.saturating_add(rest.saturating_mul(wanted.len()));
        if self.compared > MAX_COMPARISONS {
            return Err("the file is too large for so many hunks; send several patches".to_owned());
        }
        let exactly = |line: &str, wanted: &str| line.trim_end_matches(['\n', '\r']) == wanted;
        for is_like in [exactly, same as fn(&str, &str) -> bool] {
            let starts = self.from..(self.lines.len() + 1).saturating_sub(wanted.len());
            let fits = |start: &usize| {
                let there = &self.lines[*start..*start + wanted.len()];
                let is_end = !hunk.is_at_end || start + wanted.len() == self.lines.len();
                is_end && there.iter().zip(wanted).all(|(line, wanted)| is_like(line, wanted))
            };
            let mut found = starts.filter(fits);
            let Some(first) = found.next() else { continue };
            return match found.next() {
                // A line above says which is meant: the first below it.
                Some(second) if hunk.headers.is_empty() => Err(format!(
                    "its lines are at line {} and again at line {}; put a line above the place after `@@`, or give more lines \
                     around the change",
                    first + 1,
                    second + 1
                )),
                Some(_) | None => Ok(first),
            };
        }
        Err(format!(
            "its lines are not in the file after line {}{}; read the file, and give its lines as they are",
            self.from,
            self.near(wanted)
        ))
    }

    /// Names a place where the first telling line is.
    fn near(&self, wanted: &[&str]) -> String {
        let telling = wanted.iter().enumerate().find(|(_, line)| line.trim().len() > 2);
        let found = telling.and_then(|(at, wanted)| {
            let is_it = |line: &&str| same_indented(line, wanted);
            let found = self.lines.iter().position(is_it)?;
            Some(format!(" (line {} is like its line {})", found + 1, at + 1))
        });
        found.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::{FileChange, parse};
    use super::*;

    fn hunks(body: &str) -> Vec<Hunk> {
        let patch = format!("*** Begin Patch\n*** Update File: f\n{body}\n*** End Patch");
        match parse(&patch).unwrap().pop() {
            Some(FileChange::Update { hunks, .. }) => hunks,
            other => panic!("{other:?}"),
        }
    }

    fn after(content: &str, body: &str) -> Result<String, String> {
        apply(content, &hunks(body))
    }

    #[test]
    fn hunks_change_their_places_in_order() {
        for (content, body, expected) in [
            ("a\nb\nc\n", "@@\n a\n-b\n+x\n c", "a\nx\nc\n"),
            ("a\nb\nc\nd\n", "@@\n-a\n+1\n@@\n c\n+2", "1\nb\nc\n2\nd\n"),
            ("a\nb", " a\n-b\n+x", "a\nx"),
            ("a\nb", "@@\n b\n+c", "a\nb\nc"),
            ("a\r\nb", "@@\n-b\n+c", "a\r\nc"),
            ("a\nb", "@@\n-a\n+x", "x\nb"),
            ("a\nb", "@@\n a\n-b", "a\n"),
            ("f\n x\ng\n x\n", "@@ g\n- x\n+ y", "f\n x\ng\n y\n"),
            ("f\n x\ng\n x\n", "@@ g @@\n- x\n+ y", "f\n x\ng\n y\n"),
            ("a @@\nx\na\nx\n", "@@ a @@\n-x\n+y", "a @@\ny\na\nx\n"),
            ("f\n x\ng\n x\n", "@@ g\n g\n- x\n+ y", "f\n x\ng\n y\n"),
            ("f\n x\ng\n f\n x\n x\n", "@@ g\n@@ f\n- x\n+ y", "f\n x\ng\n f\n y\n x\n"),
            ("x\ny\nx\n", "@@\n-x\n+z\n*** End of File", "x\ny\nz\n"),
            ("a\r\nb\r\n", "@@\n a\n-b\n+x\n+y", "a\r\nx\r\ny\r\n"),
            ("a\nb\nc\r\n", "@@\n a\n-b\n+x\n+y", "a\nx\ny\nc\r\n"),
            ("a\nb\r\nc\n", "@@\n-b\n+x\n+y\n c", "a\nx\r\ny\r\nc\n"),
            ("a\r\nb\n", "@@\n+x\n a", "x\r\na\r\nb\n"),
            ("a\r\nb\nc", "@@\n c\n+x", "a\r\nb\nc\nx"),
            ("a  \nit\u{2019}s\n", "@@\n a\n-it's\n+x", "a  \nx\n"),
            ("a\n", "@@\n+b", "a\nb\n"),
            ("f\nb\n", "@@ f\n+a", "f\na\nb\n"),
            ("", "@@\n+b", "b\n"),
            ("a\n", "@@\n-a", ""),
        ] {
            assert_eq!(after(content, body).as_deref(), Ok(expected), "{content:?} {body:?}");
        }
    }

    #[test]
    fn a_hunk_that_does_not_fit_says_why() {
        for (content, body, said) in [
            ("a\nx\na\n", "@@\n-a", "at line 1 and again at line 3"),
            ("a\n", "@@\n-b", "hunk 1: its lines are not in the file"),
            ("a\nbcd\n", "@@\n-x\n-bcd", "line 2 is like its line 2"),
            ("a\nb\n", "@@\n-b\n@@\n-a", "hunk 2: its lines are not in the file after line 2"),
            ("a\n", "@@ f\n-a", "no line `f`"),
            ("a\nb\n", "@@\n-a\n*** End of File", "not in the file"),
            ("  a\n", "@@\n-a", "not in the file"),
        ] {
            let error = after(content, body).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_applied_is_seen_and_the_rest_stays(
            lines in proptest::collection::vec("[ab]", 0..8), at in 0_usize..8, added in "[xy]", removed in 0_usize..3,
        ) {
            let content: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let at = at.min(lines.len());
            let end = (at + removed).min(lines.len());
            let parts = lines[..at].iter().map(|line| Part::Kept(line.clone()))
                .chain(lines[at..end].iter().map(|line| Part::Removed(line.clone())))
                .chain([Part::Added(added.clone())])
                .chain(lines[end..].iter().map(|line| Part::Kept(line.clone())));
            let all = [Hunk { parts: parts.collect(), ..Hunk::default() }];
            let after = apply(&content, &all).unwrap();
            let expected: Vec<&str> = lines[..at].iter().map(String::as_str).chain([added.as_str()])
                .chain(lines[end..].iter().map(String::as_str)).collect();
            proptest::prop_assert_eq!(after.lines().collect::<Vec<_>>(), expected);
            proptest::prop_assert!(is_applied(&after, &all) && !is_applied(&content, &all));
        }
    }
}
