//! One combined limit on the part of a settlement that a model sees: lines or UTF-8 bytes, whichever comes
//! first. Pure.
//!
//! ```text
//! beginning …
//! [… 81234 bytes in 1290 lines were left out here; the complete output is in /tool-output/tool_x: …]
//! … end
//! footer
//! ```

use crate::call::say_count;

/// The limits on the text of one settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    max_lines: usize,
    max_bytes: usize,
}

/// The smallest limits. Below these, a marker and a footer would not fit.
const LEAST: Limits = Limits { max_lines: 16, max_bytes: 2_048 };
/// The line breaks needed between the two ends, the marker and the footer.
const JOINTS: usize = 3;

impl Limits {
    /// Makes limits in lines and UTF-8 bytes; at least 16 and 2,048.
    #[must_use]
    pub fn new(max_lines: usize, max_bytes: usize) -> Self {
        Self {
            max_lines: max_lines.max(LEAST.max_lines),
            max_bytes: max_bytes.max(LEAST.max_bytes),
        }
    }

    /// Returns the limit in lines.
    #[must_use]
    pub fn max_lines(self) -> usize {
        self.max_lines
    }

    /// Returns the limit in UTF-8 bytes.
    #[must_use]
    pub fn max_bytes(self) -> usize {
        self.max_bytes
    }
}

impl Default for Limits {
    /// Returns 2,000 lines and 50 KiB.
    fn default() -> Self {
        Self { max_lines: 2_000, max_bytes: 51_200 }
    }
}

/// The two ends of a text, each at least [`Limits::max_bytes`] long unless `head` is the whole text.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'a> {
    /// The beginning, or the whole text.
    pub head: &'a str,
    /// The end, or the whole text.
    pub tail: &'a str,
    /// The UTF-8 bytes of the whole text.
    pub total_bytes: u64,
    /// The `\n`s in the whole text.
    pub line_breaks: u64,
}

impl<'a> Ends<'a> {
    /// Makes the ends of a text in memory.
    #[must_use]
    pub fn of(text: &'a str) -> Self {
        Self { head: text, tail: text, total_bytes: text.len() as u64, line_breaks: breaks(text) }
    }

    /// Returns whether text and footer fit into the limits, so that nothing is left out.
    #[must_use]
    pub fn fit(&self, footer: &str, limits: Limits) -> bool {
        self.total_bytes + (footer.len() as u64) < limits.max_bytes as u64
            && self.line_breaks + 1 + footer.lines().count() as u64 <= limits.max_lines as u64
    }
}

/// The place of the complete text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// It is in this Managed Tool Output File.
    At(String),
    /// The file has only its first bytes, because the tool wrote more than we keep.
    Partly {
        /// The file.
        path: String,
        /// The number of bytes in the file.
        bytes: u64,
    },
    /// The complete text is gone.
    Lost,
}

/// Returns the text that a model sees: the whole text if it fits, otherwise its beginning and end around a
/// marker, and then the footer. Never exceeds the limits or splits a code point.
#[must_use]
pub fn bound(ends: Ends<'_>, footer: &str, limits: Limits, kept: &Kept) -> String {
    if ends.fit(footer, limits) {
        return joined(&[ends.head, footer]);
    }
    let longest_marker = marker(ends.total_bytes, ends.line_breaks, kept).len();
    let reserved = longest_marker + footer.len() + JOINTS;
    let bytes = limits.max_bytes.saturating_sub(reserved) / 2;
    let lines = limits.max_lines.saturating_sub(footer.lines().count() + 1 + JOINTS) / 2;
    let (head, tail) = (first(ends.head, lines, bytes), last(ends.tail, lines, bytes));
    let shown_bytes = (head.len() + tail.len()) as u64;
    let shown_breaks = breaks(head) + breaks(tail);
    let omitted = marker(
        ends.total_bytes.saturating_sub(shown_bytes),
        ends.line_breaks.saturating_sub(shown_breaks),
        kept,
    );
    joined(&[head, &omitted, tail, footer])
}

fn marker(bytes: u64, line_breaks: u64, kept: &Kept) -> String {
    let lines = line_breaks.max(1);
    let place = match kept {
        Kept::At(path) => {
            format!("the complete output is in {path}: read it with offset and limit, or grep it")
        }
        Kept::Partly { path, bytes } => {
            format!("the first {bytes} bytes of the output are in {path}: read or grep it")
        }
        Kept::Lost => "they could not be kept".to_owned(),
    };
    let (bytes, lines) = (say_count(bytes, "byte"), say_count(lines, "line"));
    format!("[… {bytes} in {lines} were left out here; {place} …]")
}

/// Joins parts, each on its own lines.
fn joined(parts: &[&str]) -> String {
    let mut text = String::with_capacity(parts.iter().map(|part| part.len() + 1).sum());
    for part in parts.iter().filter(|part| !part.is_empty()) {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(part);
    }
    text
}

fn breaks(text: &str) -> u64 {
    text.bytes().filter(|byte| *byte == b'\n').count() as u64
}

/// Returns the longest beginning within the bounds. It ends after a line unless that would waste half of the
/// space.
fn first(text: &str, lines: usize, bytes: usize) -> &str {
    let by_lines =
        text.match_indices('\n').nth(lines.saturating_sub(1)).map_or(text.len(), |(at, _)| at + 1);
    let cut = text.floor_char_boundary(bytes.min(by_lines));
    if cut == text.len() || text[..cut].ends_with('\n') {
        return &text[..cut];
    }
    let line_end = text[..cut].rfind('\n').map_or(0, |at| at + 1);
    &text[..if line_end * 2 >= cut { line_end } else { cut }]
}

/// Returns the longest end within the bounds. It begins with a line unless that would waste half of the
/// space.
fn last(text: &str, lines: usize, bytes: usize) -> &str {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let by_lines =
        body.rmatch_indices('\n').nth(lines.saturating_sub(1)).map_or(0, |(at, _)| at + 1);
    let cut = text.ceil_char_boundary(text.len().saturating_sub(bytes).max(by_lines));
    if cut == 0 || text[..cut].ends_with('\n') {
        return &text[cut..];
    }
    let line_start = text[cut..].find('\n').map_or(text.len(), |at| cut + at + 1);
    let keeps_half = (text.len() - line_start) * 2 >= text.len() - cut;
    &text[if keeps_half { line_start } else { cut }..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn within(text: &str, limits: Limits) -> bool {
        text.len() <= limits.max_bytes && text.lines().count() <= limits.max_lines
    }

    fn some_text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            3 => "[a-z]{0,120}\n",
            1 => "[a-zé€🦀]{0,900}",
            1 => "\n{1,30}",
        ];
        prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        #[test]
        fn a_bounded_text_is_within_its_limits_and_made_of_real_ends(
            text in some_text(),
            footer in "[a-z]{0,40}(\n[a-z]{1,40}){0,3}",
            max_lines in 0_usize..80,
            max_bytes in 0_usize..6_000,
            kept in prop_oneof![
                Just(Kept::Lost),
                Just(Kept::At("/tool-output/tool_0123456789".to_owned())),
                Just(Kept::Partly { path: "/tool-output/tool_0".to_owned(), bytes: 1 << 25 }),
            ],
        ) {
            let limits = Limits::new(max_lines, max_bytes);
            let ends = Ends::of(&text);
            let seen = bound(ends, &footer, limits, &kept);
            prop_assert!(within(&seen, limits), "{} bytes, {} lines", seen.len(), seen.lines().count());
            prop_assert!(seen.ends_with(&footer));
            if ends.fit(&footer, limits) {
                prop_assert!(seen.starts_with(&text));
            } else {
                let (head, rest) = seen.split_once("[… ").unwrap();
                let (marker, tail) = rest.split_once(" …]").unwrap();
                let tail = tail[..tail.len() - footer.len()].trim_start_matches('\n');
                prop_assert!(text.starts_with(head.trim_end_matches('\n')));
                prop_assert!(text.trim_end_matches('\n').ends_with(tail.trim_end_matches('\n')));
                let omitted: usize = marker.split(' ').next().unwrap().parse().unwrap();
                prop_assert!(omitted > 0 && omitted + head.len() + tail.len() <= text.len() + 64);
            }
        }
    }

    #[test]
    fn the_marker_counts_exactly_and_names_the_file() {
        let text: String = (1..=100).map(|n| format!("{n:>99}\n")).collect();
        let kept = Kept::At("/tool-output/tool_x".to_owned());
        let seen = bound(Ends::of(&text), "(exit code 1)", Limits::new(20, 100_000), &kept);
        let lines: Vec<&str> = seen.lines().map(str::trim_start).collect();
        let expected = ["1", "2", "3", "4", "5", "6", "7"];
        assert_eq!(lines[..7], expected);
        assert_eq!(
            lines[7],
            "[… 8600 bytes in 86 lines were left out here; the complete output is in \
             /tool-output/tool_x: read it with offset and limit, or grep it …]"
        );
        assert_eq!(lines[8..], ["94", "95", "96", "97", "98", "99", "100", "(exit code 1)"]);
    }

    #[test]
    fn one_endless_line_keeps_both_ends() {
        let text = "€".repeat(10_000);
        let seen = bound(Ends::of(&text), "", Limits::new(0, 0), &Kept::Lost);
        assert!(seen.starts_with("€€") && seen.ends_with("€€") && seen.len() > 1_800);
        assert!(seen.contains("could not be kept"));
    }
}
