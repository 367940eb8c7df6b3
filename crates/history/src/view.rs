use std::ops::Range;
use std::sync::Arc;

use domain::Seq;
use llm_protocol::{Message, Role};

use crate::fold::hidden::GivenUp;
use crate::weight;

/// Every message that was ever part of a session's conversation, in order. Only grows, but hidden ones may lose their
/// contents.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    pub(crate) messages: Vec<Message>,
    /// The event of each message.
    places: Vec<Seq>,
    /// The memory of the messages, in bytes.
    pub(crate) bytes: usize,
    pub(crate) given_up: GivenUp,
}

/// The part of the conversation that a request shows: after a Compaction its checkpoint, the prompts that it kept
/// word for word, and everything after the summarised part; no system messages of earlier epochs; and nothing that
/// was reverted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    pub(crate) checkpoint: Option<Arc<str>>,
    pub(crate) from: usize,
    /// Messages before `from` that are still shown, ascending.
    pub(crate) kept: Arc<[usize]>,
    pub(crate) system_from: usize,
    /// Reverted ranges, ascending and not adjacent.
    reverted: Arc<[Range<usize>]>,
}

impl Conversation {
    pub(crate) fn push(&mut self, seq: Seq, message: Message) {
        self.bytes += weight::message(&message);
        self.messages.push(message);
        self.places.push(seq);
    }

    pub(crate) fn truncate(&mut self, messages: usize) {
        let gone = self.messages.iter().skip(messages).map(weight::message);
        self.bytes -= gone.sum::<usize>();
        self.messages.truncate(messages);
        self.places.truncate(messages);
    }

    /// Returns about how many bytes of memory the messages take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns all messages.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the event of the message at `index`.
    #[must_use]
    pub fn place(&self, index: usize) -> Option<Seq> {
        self.places.get(index).copied()
    }

    /// Returns the index of the first message of the event `seq` or a later one.
    #[must_use]
    pub fn at(&self, seq: Seq) -> usize {
        self.places.partition_point(|place| *place < seq)
    }
}

impl View {
    /// Returns the summary of the hidden part, exactly as sent.
    #[must_use]
    pub fn checkpoint(&self) -> Option<&str> {
        self.checkpoint.as_deref()
    }

    /// Returns the index of the first message after the summarised part. Of the messages before it, only the kept
    /// ones are shown.
    #[must_use]
    pub fn from(&self) -> usize {
        self.from
    }

    /// Returns the shown messages from the index `at` on, with their indices, in order.
    pub fn since<'c>(
        &'c self,
        conversation: &'c Conversation,
        at: usize,
    ) -> impl Iterator<Item = (usize, &'c Message)> {
        let kept = self.kept.iter().copied().filter(move |index| *index >= at);
        let later = at.max(self.from)..conversation.messages.len();
        let all = kept.chain(later);
        let with = all.filter_map(|index| Some((index, conversation.messages.get(index)?)));
        with.filter(|(index, message)| self.shows(*index, message))
    }

    /// Returns whether the message at `index` is shown.
    #[must_use]
    pub fn shows(&self, index: usize, message: &Message) -> bool {
        (index >= self.from || self.kept.contains(&index))
            && (message.role != Role::System || index >= self.system_from)
            && !self.is_reverted(index)
    }

    /// Returns whether the message at `index` was reverted.
    #[must_use]
    pub fn is_reverted(&self, index: usize) -> bool {
        let next = self.reverted.partition_point(|range| range.end <= index);
        self.reverted.get(next).is_some_and(|range| range.start <= index)
    }

    /// Returns the same view without the messages from `from` up to `to`, which is the conversation's end.
    pub(crate) fn without(&self, from: usize, to: usize) -> Self {
        let mut reverted = self.reverted.to_vec();
        match reverted.last_mut() {
            _ if from == to => {}
            Some(last) if last.end >= from => last.end = to,
            _ => reverted.push(from..to),
        }
        Self { reverted: reverted.into(), ..self.clone() }
    }

    /// Returns whether it shows the whole conversation.
    pub(crate) fn is_whole(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the checkpoint and the shown messages.
    #[must_use]
    pub fn shown(&self, conversation: &Conversation) -> Vec<Message> {
        let checkpoint = self.checkpoint.iter().map(|text| Message::user(text.as_ref()));
        let shown = self.since(conversation, 0);
        checkpoint.chain(shown.map(|(_, message)| message.clone())).collect()
    }
}
