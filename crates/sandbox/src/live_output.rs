//! The end of an output while its command runs, for people who watch it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most bytes of one look.
const MAX_BYTES: usize = 8 * 1024;

/// The end of an output that still grows. Clones share it. It holds 16 KiB at most, whatever the command writes.
#[derive(Debug, Clone, Default)]
pub struct LiveOutput(Arc<Mutex<Growing>>);

#[derive(Debug, Default)]
struct Growing {
    tail: String,
    total: u64,
    /// The total at the last look.
    seen: u64,
}

/// The end of an output at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputEnd {
    /// UTF-8 bytes of the output before `text`.
    pub omitted: u64,
    /// The end, at most 8 KiB. It begins with a whole line if it is not the whole output.
    pub text: String,
}

impl LiveOutput {
    /// Adds text of a command.
    pub fn add_text(&self, text: &str) {
        let mut growing = self.lock_growing();
        growing.total += text.len() as u64;
        growing
            .tail
            .push_str(&text[text.ceil_char_boundary(text.len().saturating_sub(MAX_BYTES))..]);
        if growing.tail.len() > 2 * MAX_BYTES {
            let from = growing.tail.len() - MAX_BYTES;
            let from = growing.tail.ceil_char_boundary(from);
            growing.tail.drain(..from);
        }
    }

    /// Returns the end of the output; `None` if nothing was added since the last look.
    #[must_use]
    pub fn take_new(&self) -> Option<OutputEnd> {
        let mut growing = self.lock_growing();
        if growing.seen == growing.total {
            return None;
        }
        growing.seen = growing.total;
        let from = growing.tail.len().saturating_sub(MAX_BYTES);
        let mut text = &growing.tail[growing.tail.ceil_char_boundary(from)..];
        if (text.len() as u64) < growing.total
            && let Some((_, lines)) = text.split_once('\n')
            && !lines.is_empty()
        {
            text = lines;
        }
        Some(OutputEnd { omitted: growing.total - text.len() as u64, text: text.to_owned() })
    }

    fn lock_growing(&self) -> MutexGuard<'_, Growing> {
        // No foreign code runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn see_end(pieces: &[&str]) -> Option<OutputEnd> {
        let live = LiveOutput::default();
        pieces.iter().for_each(|piece| live.add_text(piece));
        live.take_new()
    }

    #[test]
    fn a_look_finds_what_was_added_since_the_last() {
        let live = LiveOutput::default();
        assert_eq!(live.take_new(), None);
        live.clone().add_text("one\n");
        let end = |text: &str| Some(OutputEnd { omitted: 0, text: text.into() });
        assert_eq!(live.take_new(), end("one\n"));
        assert_eq!(live.take_new(), None);
        live.add_text("");
        assert_eq!(live.take_new(), None);
        live.add_text("two");
        assert_eq!(live.take_new(), end("one\ntwo"));
    }

    #[test]
    fn a_long_output_shows_its_last_whole_lines() {
        let lines: Vec<String> = (0..10_000).map(|n| format!("line {n} é\n")).collect();
        let whole = lines.concat();
        let many = see_end(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let once = see_end(&[&whole]);
        assert_eq!(many, once);
        let OutputEnd { omitted, text } = once.expect("there is text");
        assert!(text.len() <= MAX_BYTES && text.len() > MAX_BYTES - 20, "{}", text.len());
        assert!(text.starts_with("line ") && whole.ends_with(&text));
        assert_eq!(omitted, (whole.len() - text.len()) as u64);
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let long = "é".repeat(20_001);
        let OutputEnd { omitted, text } = see_end(&[&long]).expect("there is text");
        assert_eq!(omitted + text.len() as u64, 40_002);
        assert!(text.len() <= MAX_BYTES && text.chars().all(|c| c == 'é'));
        let ended = see_end(&[&long, "\n"]).expect("there is text");
        assert!(ended.text.ends_with("é\n"), "its line is the last one");
    }
}
