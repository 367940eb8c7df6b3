//! Tells thoughts from the answer where a server leaves them in the text, between tags.
//!
//! LM Studio, Ollama and proxies hand on what the model wrote: `<think>…</think>` and then the answer. Only tags at the
//! beginning of an answer count, so that an answer may be about them.

use std::mem::take;

/// The tags around thoughts, of many models. The last are those of Magistral, Gemini, MiniMax and Seed.
pub const THOUGHT_TAGS: [(&str, &str); 7] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
    ("<thought>", "</thought>"),
    ("<mm:think>", "</mm:think>"),
    ("<seed:think>", "</seed:think>"),
];

/// The most blanks before a tag, in bytes.
const MAX_BLANKS: usize = 1_024;

/// A piece of an answer's text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TextSpan {
    /// Of a thought.
    Thought(String),
    /// Of the answer.
    Answer(String),
}

/// Splits the text of one answer into thoughts and the answer.
#[derive(Debug, Default)]
pub(super) struct ThinkTags {
    place: Place,
    /// The text that later text decides about.
    held: String,
}

/// The place of the next text.
#[derive(Clone, Copy, Debug, Default)]
enum Place {
    /// Before the answer.
    #[default]
    Start,
    /// After a thought, and before the answer or another thought.
    AfterThought,
    /// Within a thought that ends with this tag.
    Thought {
        end: &'static str,
        /// The thought has said anything but blanks.
        begun: bool,
    },
    Answer,
}

impl ThinkTags {
    /// Takes the next text, and returns the spans that it completes, in order.
    pub(super) fn split_piece(&mut self, text: String) -> Vec<TextSpan> {
        if matches!(self.place, Place::Answer) {
            return vec![TextSpan::Answer(text)];
        }
        self.held.push_str(&text);
        let mut spans = Vec::new();
        while self.advance(&mut spans) {}
        spans
    }

    /// Takes one step in the held text; returns whether there may be another.
    fn advance(&mut self, spans: &mut Vec<TextSpan>) -> bool {
        match self.place {
            Place::Start => self.begin(spans),
            Place::AfterThought => {
                self.held = self.held.trim_start().to_owned();
                self.begin(spans)
            }
            Place::Thought { end, begun } => self.think(end, begun, spans),
            Place::Answer => {
                spans.push(TextSpan::Answer(take(&mut self.held)));
                false
            }
        }
    }

    /// Returns the text that is still held when the answer ends or something else than text follows.
    pub(super) fn take_held(&mut self) -> Option<TextSpan> {
        let held = take(&mut self.held);
        if held.is_empty() {
            return None;
        }
        match self.place {
            Place::Thought { .. } => Some(TextSpan::Thought(held)),
            Place::Start | Place::AfterThought | Place::Answer => {
                self.place = Place::Answer;
                Some(TextSpan::Answer(held))
            }
        }
    }

    /// Decides what the held text begins with; returns whether it could.
    fn begin(&mut self, spans: &mut Vec<TextSpan>) -> bool {
        let start = self.held.trim_start();
        if let Some((tag, end)) = THOUGHT_TAGS.into_iter().find(|(tag, _)| start.starts_with(tag)) {
            self.held = start[tag.len()..].to_owned();
            self.place = Place::Thought { end, begun: false };
            return true;
        }
        let may_begin = THOUGHT_TAGS.iter().any(|(tag, _)| tag.starts_with(start));
        if may_begin && self.held.len() <= MAX_BLANKS {
            return false;
        }
        let whole = matches!(self.place, Place::Start).then(|| split_unopened(&self.held));
        self.place = Place::Answer;
        if let Some((thought, answer)) = whole.flatten() {
            spans.push(TextSpan::Thought(thought));
            self.held = answer;
        }
        true
    }

    /// Takes the held text into the thought; returns whether the thought has ended.
    fn think(&mut self, end: &'static str, begun: bool, spans: &mut Vec<TextSpan>) -> bool {
        if !begun {
            self.held = self.held.trim_start().to_owned();
        }
        if let Some((thought, rest)) = self.held.split_once(end) {
            let (thought, rest) = (thought.to_owned(), rest.to_owned());
            if !thought.is_empty() {
                spans.push(TextSpan::Thought(thought));
            }
            self.held = rest;
            self.place = Place::AfterThought;
            return true;
        }
        let known = self.held.len() - overlap(&self.held, end);
        if known > 0 {
            let rest = self.held.split_off(known);
            spans.push(TextSpan::Thought(std::mem::replace(&mut self.held, rest)));
            self.place = Place::Thought { end, begun: true };
        }
        false
    }
}

/// Returns how many bytes at the end of `text` may be the beginning of `tag`, which is ASCII.
fn overlap(text: &str, tag: &str) -> usize {
    (1..tag.len()).rev().find(|length| text.ends_with(&tag[..*length])).unwrap_or(0)
}

/// Splits an answer that came whole and has only the end of its thoughts: the prompt's template held the beginning
/// (DeepSeek's models in vLLM). The tag ends its line, which an answer's words about it seldom do.
fn split_unopened(text: &str) -> Option<(String, String)> {
    let (begin, end) = THOUGHT_TAGS[0];
    let (thought, answer) = text.split_once(end)?;
    let ends_line = answer.is_empty() || answer.starts_with(['\n', '\r']);
    let is_one = !thought.contains(begin) && !answer.contains(end);
    let answer = answer.trim_start();
    (ends_line && is_one).then(|| (thought.trim_start().to_owned(), answer.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the thoughts and the answer of a text that comes in these pieces.
    fn split_all(pieces: &[&str]) -> (String, String) {
        let mut tags = ThinkTags::default();
        let mut spans: Vec<_> =
            pieces.iter().flat_map(|piece| tags.split_piece((*piece).to_owned())).collect();
        spans.extend(tags.take_held());
        let (mut thoughts, mut answer) = (String::new(), String::new());
        for span in spans {
            match span {
                TextSpan::Thought(text) => thoughts.push_str(&text),
                TextSpan::Answer(text) => answer.push_str(&text),
            }
        }
        (thoughts, answer)
    }

    // Finding next report 24: thoughts stood in the answer, with their tags.
    #[test]
    fn thoughts_between_tags_are_no_answer() {
        let cases = [
            ("<think>secret plan</think>\n\nHello", "secret plan", "Hello"),
            (" \n<thinking>\na < b\n</thinking>So.", "a < b\n", "So."),
            ("<think>\n\n</think>\n\nHello", "", "Hello"),
            ("<think>a</think>\n<think>b</think>\nc", "ab", "c"),
            ("<think>never ends </thin", "never ends </thin", ""),
            ("Use <think>x</think> here", "", "Use <think>x</think> here"),
            (" \n<thing> is it", "", " \n<thing> is it"),
            ("<thin", "", "<thin"),
            ("  ", "", "  "),
            ("é</thinking>", "", "é</thinking>"),
        ];
        for (text, thoughts, answer) in cases {
            let expected = (thoughts.to_owned(), answer.to_owned());
            assert_eq!(split_all(&[text]), expected, "{text}");
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(split_all(&letters), expected, "{text}, letter by letter");
        }
    }

    // Finding: report 30-a14 (RooCodeInc/Roo-Code#8522).
    #[test]
    fn thoughts_are_known_by_the_tags_of_many_models() {
        for (begin, end) in THOUGHT_TAGS {
            let expected = ("Let me see".to_owned(), "Done.".to_owned());
            let text = format!("{begin}Let me see{end}Done.");
            assert_eq!(split_all(&[&text]), expected, "{text}");
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(split_all(&letters), expected, "{text}, letter by letter");
        }
        for text in ["[1, 2]", "[TH", "<seed> is a tag", "See [THINK]x[/THINK]"] {
            assert_eq!(split_all(&[text]), (String::new(), text.to_owned()));
        }
    }

    #[test]
    fn a_whole_answer_may_lack_the_beginning_of_its_thoughts() {
        let expected = ("a plan\n".to_owned(), "Hello".to_owned());
        assert_eq!(split_all(&["a plan\n</think>\n\nHello"]), expected);
        let about = "Write `</think>` at its end.";
        assert_eq!(split_all(&[about]), (String::new(), about.to_owned()));
    }
}
