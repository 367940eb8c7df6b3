//! Finds a piece that does not occur exactly: the same lines but for white space at their ends, one constant difference of
//! indentation, line ends, or typographic signs.
//!
//! Invariant: it names one place or none. A place that is only the most alike is never taken.

use std::ops::Range;

use crate::alike::{indentation, same, same_indented, typed};
use crate::line_ends::is_windows_at;

/// The largest content that is searched, in bytes.
const MAX_BYTES: usize = 2 * 1024 * 1024;
/// The most comparisons of lines.
const MAX_COMPARISONS: usize = 20_000_000;
/// The most near places that are named.
const MAX_NEAR: usize = 3;

/// The one place of a piece.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its bytes in the content.
    pub(super) bytes: Range<usize>,
    /// The text to put there.
    pub(super) new: String,
    /// Its first and last line, from 1.
    pub(super) lines: (usize, usize),
}

/// The reason why there is no place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// Several are equally alike, by their first lines.
    Several(Vec<usize>),
    /// None is alike; these lines are near.
    Near(Vec<(usize, usize)>),
}

struct Line<'a> {
    start: usize,
    /// Without its end.
    text: &'a str,
    /// With it.
    end: usize,
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let mut start = 0;
    let split = text.split_inclusive('\n').map(|whole| {
        let line =
            Line { start, text: whole.trim_end_matches(['\n', '\r']), end: start + whole.len() };
        start = line.end;
        line
    });
    split.collect()
}

/// How the indentation of a place differs from that of the piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shift<'a> {
    None,
    /// The content has this much more.
    More(&'a str),
    /// The piece has this much more.
    Less(&'a str),
}

/// Finds the place of `old` and the text to put there instead of `new`.
pub(super) fn find(content: &str, old: &str, new: &str) -> Result<Place, Missing> {
    let wanted = lines(old);
    if content.len() > MAX_BYTES || wanted.iter().all(|line| line.text.trim().is_empty()) {
        return Err(Missing::Near(Vec::new()));
    }
    if let Some(found) = within_lines(content, old, new) {
        return found;
    }
    let there = lines(content);
    if there.len().saturating_mul(wanted.len()) > MAX_COMPARISONS {
        return Err(Missing::Near(Vec::new()));
    }
    let windows = || there.windows(wanted.len()).enumerate();
    let is_same =
        |window: &[Line<'_>]| window.iter().zip(&wanted).all(|(a, b)| same(a.text, b.text));
    let mut found: Vec<_> =
        windows().filter(|(_, window)| is_same(window)).map(|(at, _)| (at, Shift::None)).collect();
    if found.is_empty() {
        let shifted = windows().filter_map(|(at, window)| Some((at, shift(window, &wanted)?)));
        found = shifted.collect();
    }
    match found[..] {
        [] => Err(Missing::Near(near(&there, &wanted))),
        [(at, shift)] => {
            let window = &there[at..at + wanted.len()];
            let Some(new) = reindented(new, shift) else {
                return Err(Missing::Near(vec![(at + 1, at + wanted.len())]));
            };
            let last = &window[window.len() - 1];
            let end = if old.ends_with('\n') { last.end } else { last.start + last.text.len() };
            let mut new = with_ends(&new, is_windows_at(content, window[0].start));
            let is_open = old.ends_with('\n') && last.end == last.start + last.text.len();
            if is_open && let Some((line, _)) = split_end(&new) {
                let size = line.len();
                new.truncate(size);
            }
            Ok(Place { bytes: window[0].start..end, new, lines: (at + 1, at + wanted.len()) })
        }
        _ => Err(Missing::Several(found.iter().take(10).map(|(at, _)| at + 1).collect())),
    }
}

/// Returns whether the content has a place that is like the piece. For looking only.
pub(super) fn is_like_any(content: &str, piece: &str) -> bool {
    !matches!(find(content, piece, ""), Err(Missing::Near(_)))
}

/// Splits the end of its last line from a text, unless it ends with a line that is empty.
pub(super) fn split_end(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_suffix('\n')?;
    let rest = rest.strip_suffix('\r').unwrap_or(rest);
    (!rest.ends_with('\n')).then(|| text.split_at(rest.len()))
}

fn with_ends(text: &str, is_windows: bool) -> String {
    let text = text.replace("\r\n", "\n");
    if is_windows { text.replace('\n', "\r\n") } else { text }
}

/// Finds a piece that may begin and end within lines, if only typographic signs and line ends differ.
fn within_lines(content: &str, old: &str, new: &str) -> Option<Result<Place, Missing>> {
    let plain = |text: &str| text.chars().map(typed).filter(|c| *c != '\r').collect::<String>();
    let (haystack, needle) = (plain(content), plain(old));
    let places: Vec<usize> = haystack.match_indices(&needle).map(|(at, _)| at).take(11).collect();
    let line_of = |at: usize| haystack[..at].matches('\n').count() + 1;
    let [at] = places[..] else {
        let lines = places.iter().take(10).map(|at| line_of(*at)).collect();
        return (!places.is_empty()).then_some(Err(Missing::Several(lines)));
    };
    // The same number of signs, whatever their bytes.
    let (before, size) = (haystack[..at].chars().count(), needle.chars().count());
    let mut signs = content.char_indices().filter(|(_, c)| *c != '\r').map(|(at, _)| at);
    let start = signs.nth(before)?;
    let mut end = content.len();
    if let Some(next) = signs.nth(size - 1) {
        end = next;
    }
    // A carriage return before the end belongs to the line's end, which stays.
    let end = if content[start..end].ends_with('\r') { end - 1 } else { end };
    let is_windows = is_windows_at(content, start);
    let lines = (line_of(at), line_of(at) + needle.trim_end_matches('\n').matches('\n').count());
    Some(Ok(Place { bytes: start..end, new: with_ends(new, is_windows), lines }))
}

/// Returns the difference of indentation, if it is the same in all lines.
fn shift<'a>(window: &[Line<'a>], wanted: &[Line<'a>]) -> Option<Shift<'a>> {
    let mut found: Option<Shift<'_>> = None;
    for (there, wanted) in window.iter().zip(wanted) {
        if !same_indented(there.text, wanted.text) {
            return None;
        }
        if wanted.text.trim().is_empty() {
            continue;
        }
        let (has, asks) = (indentation(there.text), indentation(wanted.text));
        let this = match (has.strip_suffix(asks), asks.strip_suffix(has)) {
            (Some(""), _) => Shift::None,
            (Some(more), _) => Shift::More(more),
            (None, Some(less)) => Shift::Less(less),
            (None, None) => return None,
        };
        if found.is_some_and(|found| found != this) {
            return None;
        }
        found = Some(this);
    }
    found
}

/// Indents a text like its place. `None` if it has less indentation than is to be taken away.
fn reindented(text: &str, shift: Shift<'_>) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        match shift {
            _ if line.trim().is_empty() => out.push_str(line),
            Shift::None => out.push_str(line),
            Shift::More(more) => out.extend([more, line]),
            Shift::Less(less) => out.push_str(line.strip_prefix(less)?),
        }
    }
    Some(out)
}

/// Returns the places where most lines agree, if any does.
fn near(there: &[Line<'_>], wanted: &[Line<'_>]) -> Vec<(usize, usize)> {
    let telling: Vec<usize> =
        (0..wanted.len()).filter(|at| wanted[*at].text.trim().len() > 2).take(200).collect();
    if there.len().saturating_mul(telling.len()) > MAX_COMPARISONS {
        return Vec::new();
    }
    let agreeing = |start: usize| {
        let same = |at: &&usize| {
            there.get(start + **at).is_some_and(|line| same_indented(line.text, wanted[**at].text))
        };
        telling.iter().filter(same).count()
    };
    let mut all: Vec<(usize, usize)> = (0..there.len())
        .map(|start| (agreeing(start), start))
        .filter(|(count, _)| *count > 0)
        .collect();
    all.sort_by_key(|(count, start)| (std::cmp::Reverse(*count), *start));
    let best = all.first().map_or(0, |(count, _)| *count);
    let best = all.iter().filter(|(count, _)| *count == best).take(MAX_NEAR);
    best.map(|(_, start)| (start + 1, (start + wanted.len()).min(there.len()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(content: &str, old: &str, new: &str) -> Result<String, Missing> {
        let place = find(content, old, new)?;
        let mut content = content.to_owned();
        content.replace_range(place.bytes, &place.new);
        Ok(content)
    }

    #[test]
    fn ends_of_lines_and_typographic_signs_do_not_count() {
        for (content, old, new, expected) in [
            ("a  \nb\t\nc\n", "a\nb\n", "x\n", "x\nc\n"),
            ("a\nb\nc\n", "a  \nb \n", "x\n", "x\nc\n"),
            ("say \u{201C}it\u{2019}s\u{201D} now", "\"it's\"", "'no'", "say 'no' now"),
            ("say \"it's\" now", "\u{201C}it\u{2019}s\u{201D}", "no", "say no now"),
            ("a\r\nb\r\nc", "a \nb", "x\ny", "x\r\ny\r\nc"),
            ("a\nb\nc", "a\r\nb\r\n", "x\r\n", "x\nc"),
            ("a\r\nb", "a\u{2014}", "x", "a\r\nb"),
            ("é a\u{2014}b é\r\n", "a-b", "c", "é c é\r\n"),
            ("one\r\ntwo \u{2019}\r\nx", "two '\n", "2\n", "one\r\n2\r\nx"),
            ("one\r\ntwo \nx", "two\n", "2\n3\n", "one\r\n2\n3\nx"),
            ("one\r\ntwo \u{2019}\nx", "two '", "2\n3", "one\r\n2\n3\nx"),
        ] {
            let found = after(content, old, new);
            if expected == content {
                assert!(found.is_err(), "{content:?}");
            } else {
                assert_eq!(found.as_deref(), Ok(expected), "{content:?} {old:?}");
            }
        }
    }

    #[test]
    fn a_constant_indentation_is_added_or_taken_away() {
        let content = "fn a() {\n        if b {\n            c\n        }\n}\n";
        let old = "if b {\n    c\n}";
        let new = "if d {\n    e\n\n    f\n}";
        let expected = "fn a() {\n        if d {\n            e\n\n            f\n        }\n}\n";
        assert_eq!(after(content, old, new).as_deref(), Ok(expected));
        assert_eq!(after("a\n  b\n", "\ta\n\t  b\n", "\tx\n").as_deref(), Ok("x\n"));
        assert!(after("a\n  b\n", "\ta\n\t  b\n", "x\n").is_err(), "less than is to be taken away");
        assert!(after("  a\n    b\n", "a\nb\n", "x").is_err(), "it is not constant");
        assert!(after("\ta\n", "  a", "x").is_err(), "tabs are no spaces");
    }

    #[test]
    fn it_is_one_place_or_none() {
        assert_eq!(after("a \nx\na \n", "a\n", "b\n"), Err(Missing::Several(vec![1, 3])));
        assert_eq!(after("a", " ", "b"), Err(Missing::Near(vec![])));
        let content = "one\ntwo long\nthree long\nfour\n";
        let near = Missing::Near(vec![(2, 4)]);
        assert_eq!(after(content, "two long\nother line\nfour\n", "x"), Err(near));
    }

    proptest::proptest! {
        #[test]
        fn only_the_place_changes(
            content in "[ab \t\u{201C}é\r\n]{0,40}", old in "[ab \"\n]{1,6}", new in "[xy \n]{0,6}",
        ) {
            if let Ok(place) = find(&content, &old, &new) {
                proptest::prop_assert!(content.get(place.bytes.clone()).is_some());
                let taken = &content[place.bytes];
                let bare = |text: &str| text.chars().map(typed).filter(|c| !c.is_whitespace()).collect::<String>();
                proptest::prop_assert_eq!(bare(taken), bare(&old));
            }
        }
    }
}
