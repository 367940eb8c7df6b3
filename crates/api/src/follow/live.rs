//! The text of unsettled replies, assembled from deltas that may be lost, duplicated or late. Pure: no I/O, no clock.

use std::collections::VecDeque;

use domain::{CallId, MessageId, SessionEvent};
use signals::{CallOutput, Delta, DeltaKind};

/// The most text kept per session for followers that join during a reply. The rest of a longer reply goes out live
/// but is not repeated to them.
const MAX_KEPT_BYTES: usize = 2 * 1024 * 1024;
/// The number of ended messages whose late deltas are recognised.
const MAX_ENDED: usize = 32;
/// The most running calls of a session whose output is kept for followers that join, and the most ended calls whose
/// late output is recognised.
const MAX_CALLS: usize = 64;

#[derive(Debug)]
struct LivePart {
    message: MessageId,
    part: domain::PartId,
    kind: DeltaKind,
    /// UTF-8 bytes known without a gap.
    len: u64,
    /// The text; `None` once the bound was exceeded.
    text: Option<String>,
}

/// The effect of a delta.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// New text for followers.
    New(Delta),
    /// Nothing: the text is known, or its message has ended.
    Nothing,
    /// A piece before it is missing, so the whole text must be requested.
    Gap,
}

#[derive(Debug, Default)]
pub(super) struct Live {
    parts: Vec<LivePart>,
    /// The message of the turn that started last.
    begun: Option<MessageId>,
    ended: VecDeque<MessageId>,
    kept: usize,
    /// The newest output of each call that runs.
    outputs: Vec<CallOutput>,
    ended_calls: VecDeque<CallId>,
}

impl Live {
    /// Adds a delta.
    pub(super) fn extend(&mut self, delta: Delta) -> Added {
        if self.ended.contains(&delta.message) {
            return Added::Nothing;
        }
        let place = match self.parts.iter().position(|live| live.part == delta.part) {
            Some(place) => place,
            None => {
                self.parts.push(LivePart {
                    message: delta.message.clone(),
                    part: delta.part.clone(),
                    kind: delta.kind,
                    len: 0,
                    text: Some(String::new()),
                });
                self.parts.len() - 1
            }
        };
        let live = &mut self.parts[place];
        let Some(known) = live.len.checked_sub(delta.offset) else { return Added::Gap };
        let Some(fresh) = usize::try_from(known).ok().and_then(|known| delta.text.get(known..))
        else {
            return Added::Nothing;
        };
        if fresh.is_empty() {
            return Added::Nothing;
        }
        let offset = live.len;
        live.len += fresh.len() as u64;
        if self.kept + fresh.len() > MAX_KEPT_BYTES {
            self.kept -= live.text.take().map_or(0, |text| text.len());
        } else if let Some(text) = &mut live.text {
            text.push_str(fresh);
            self.kept += fresh.len();
        }
        let text = if known == 0 { delta.text } else { fresh.to_owned() };
        Added::New(Delta { offset, text, ..delta })
    }

    /// Keeps the newest output of a call that runs. Returns `false` if the call has ended.
    pub(super) fn show(&mut self, output: &CallOutput) -> bool {
        if self.ended_calls.contains(&output.call) {
            return false;
        }
        if let Some(known) = self.outputs.iter_mut().find(|known| known.call == output.call) {
            known.clone_from(output);
        } else if self.outputs.len() < MAX_CALLS {
            self.outputs.push(output.clone());
        }
        true
    }

    /// Returns the newest output of each call that runs, for a new follower.
    pub(super) fn outputs(&self) -> Vec<CallOutput> {
        self.outputs.clone()
    }

    /// Returns the text so far for a new follower, one delta per part.
    pub(super) fn snapshot(&self) -> Vec<Delta> {
        let known = |live: &LivePart| {
            let text = live.text.clone().filter(|text| !text.is_empty())?;
            Some(Delta {
                message: live.message.clone(),
                part: live.part.clone(),
                kind: live.kind,
                offset: 0,
                text,
            })
        };
        self.parts.iter().filter_map(known).collect()
    }

    /// Returns whether no earlier delta or event has mentioned this message.
    pub(super) fn is_unknown(&self, message: &MessageId) -> bool {
        self.begun.as_ref() != Some(message)
            && !self.ended.contains(message)
            && !self.parts.iter().any(|live| live.message == *message)
    }

    /// Applies a durable event. A checkpoint may hold text whose deltas were lost; that text is returned.
    pub(super) fn note(&mut self, event: &SessionEvent) -> Added {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only these concern live text")]
        match event {
            SessionEvent::TurnStarted(turn) => {
                self.begun = Some(turn.message.clone());
                Added::Nothing
            }
            SessionEvent::TextCheckpointed(checkpoint) => {
                // Only deltas tell the part's message. The event has the text anyway.
                let Some(live) = self.parts.iter().find(|live| live.part == checkpoint.part) else {
                    return Added::Nothing;
                };
                let offset = u64::try_from(checkpoint.offset).unwrap_or(0);
                let piece = Delta {
                    message: live.message.clone(),
                    part: checkpoint.part.clone(),
                    kind: live.kind,
                    offset,
                    text: checkpoint.text.clone(),
                };
                self.extend(piece)
            }
            SessionEvent::TurnReplied(replied) => {
                self.end(&replied.message);
                Added::Nothing
            }
            SessionEvent::ToolSettled(settled) => {
                self.outputs.retain(|output| output.call != settled.call);
                self.ended_calls.push_back(settled.call.clone());
                if self.ended_calls.len() > MAX_CALLS {
                    self.ended_calls.pop_front();
                }
                Added::Nothing
            }
            SessionEvent::TurnSettled(settled) => {
                self.outputs.retain(|output| output.message != settled.message);
                self.end(&settled.message);
                Added::Nothing
            }
            _ => Added::Nothing,
        }
    }

    fn end(&mut self, message: &MessageId) {
        self.parts.retain(|live| live.message != *message);
        self.kept = self.parts.iter().filter_map(|live| live.text.as_ref()).map(String::len).sum();
        if !self.ended.contains(message) {
            self.ended.push_back(message.clone());
            if self.ended.len() > MAX_ENDED {
                self.ended.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::{ModelRef, PartId, TextCheckpointed, TurnReplied, TurnStarted};

    use super::*;

    fn piece(offset: u64, text: &str) -> Delta {
        Delta {
            message: "msg_a".parse().expect("an id"),
            part: "prt_a".parse().expect("an id"),
            kind: DeltaKind::Text,
            offset,
            text: text.into(),
        }
    }

    #[test]
    fn pieces_that_overlap_add_only_what_is_new() {
        let mut live = Live::default();
        assert_eq!(live.extend(piece(0, "one ")), Added::New(piece(0, "one ")));
        assert_eq!(live.extend(piece(0, "one ")), Added::Nothing);
        assert_eq!(live.extend(piece(0, "one two")), Added::New(piece(4, "two")));
        assert_eq!(live.extend(piece(2, "e ")), Added::Nothing);
        assert_eq!(live.snapshot(), vec![piece(0, "one two")]);
    }

    fn output(call: &str, text: &str) -> CallOutput {
        let (message, part) = ("msg_a".parse().expect("an id"), "prt_c".parse().expect("an id"));
        let call = call.parse().expect("an id");
        CallOutput { message, part, call, omitted: 0, text: text.into() }
    }

    #[test]
    fn the_newest_output_of_a_running_call_is_kept_until_its_end() {
        let mut live = Live::default();
        assert!(live.show(&output("call_a", "1")) && live.show(&output("call_b", "x")));
        assert!(live.show(&output("call_a", "1\n2")));
        assert_eq!(live.outputs(), [output("call_a", "1\n2"), output("call_b", "x")]);
        live.note(&crate::fold::tests::call_settled("call_a"));
        assert!(!live.show(&output("call_a", "late")), "its result is known");
        assert_eq!(live.outputs(), [output("call_b", "x")]);
        for n in 0..2 * MAX_CALLS {
            assert!(live.show(&output(&format!("call_n{n}"), "x")));
        }
        assert_eq!(live.outputs().len(), MAX_CALLS);
    }

    #[test]
    fn a_gap_is_seen_and_closed_by_the_text_from_the_start() {
        let mut live = Live::default();
        live.extend(piece(0, "a"));
        assert_eq!(live.extend(piece(2, "c")), Added::Gap);
        assert_eq!(live.extend(piece(0, "abc")), Added::New(piece(1, "bc")));
    }

    #[test]
    fn a_piece_that_would_split_a_code_point_adds_nothing() {
        let mut live = Live::default();
        live.extend(piece(0, "ab"));
        assert_eq!(live.extend(piece(1, "\u{e9}x")), Added::Nothing);
    }

    #[test]
    fn a_checkpoint_gives_the_text_whose_deltas_were_lost() {
        let mut live = Live::default();
        live.extend(piece(0, "one "));
        let checkpoint = SessionEvent::from(TextCheckpointed {
            turn: "trn_a".parse().expect("an id"),
            part: "prt_a".parse().expect("an id"),
            offset: 0,
            text: "one two ".into(),
        });
        assert_eq!(live.note(&checkpoint), Added::New(piece(4, "two ")));
    }

    #[test]
    fn a_message_that_has_ended_takes_no_late_text() {
        let mut live = Live::default();
        live.extend(piece(0, "one"));
        live.note(&SessionEvent::from(TurnReplied {
            turn: "trn_a".parse().expect("an id"),
            message: "msg_a".parse().expect("an id"),
            parts: Vec::new(),
            finish: domain::Finish::Stop.into(),
        }));
        assert_eq!(live.extend(piece(3, " two")), Added::Nothing);
        assert!(live.snapshot().is_empty());
        let other: PartId = "prt_b".parse().expect("an id");
        assert!(live.parts.iter().all(|part| part.part != other));
    }

    #[test]
    fn a_message_is_known_from_the_start_of_its_turn() {
        let mut live = Live::default();
        let first = piece(0, "one");
        assert!(live.is_unknown(&first.message));
        live.note(&SessionEvent::from(TurnStarted {
            turn: "trn_a".parse().expect("an id"),
            message: first.message.clone(),
            parent: "msg_u".parse().expect("an id"),
            agent: "build".into(),
            model: ModelRef::new("p", "m"),
            epoch: 1,
            step: 1,
            notice: None,
        }));
        assert!(!live.is_unknown(&first.message));
        assert_eq!(live.extend(first.clone()), Added::New(first));
    }

    #[test]
    fn text_past_the_bound_goes_on_live_but_is_not_kept() {
        let mut live = Live::default();
        let block = "x".repeat(MAX_KEPT_BYTES);
        assert!(matches!(live.extend(piece(0, &block)), Added::New(_)));
        let at = MAX_KEPT_BYTES as u64;
        assert_eq!(live.extend(piece(at, "y")), Added::New(piece(at, "y")));
        assert!(live.snapshot().is_empty());
        assert_eq!(live.kept, 0);
    }
}
