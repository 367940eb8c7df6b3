use std::sync::Arc;

use domain::{MessageId, PartId, SessionRef};
use signals::{Delta, DeltaKind, Hint, SessionHint, Signals, Topic};

/// The most bytes of one hint's text. Queues of hints count hints, and NATS takes no large ones.
const MAX_PIECE: usize = 16 * 1024;

/// The text of unsettled parts, and its delivery to followers. Not durable.
pub(crate) struct Live {
    signals: Arc<dyn Signals>,
    topic: Topic,
    message: Option<MessageId>,
    parts: Vec<LivePart>,
}

struct LivePart {
    id: PartId,
    kind: DeltaKind,
    text: String,
    /// The number of bytes sent to followers.
    told: usize,
}

impl LivePart {
    /// Returns the next piece that is not sent, and counts it as sent.
    fn take_piece(&mut self, message: &MessageId) -> Option<Delta> {
        let from = self.told;
        let to = self.text.floor_char_boundary(from.saturating_add(MAX_PIECE));
        let text = self.text.get(from..to).filter(|text| !text.is_empty())?.to_owned();
        self.told = to;
        Some(Delta {
            message: message.clone(),
            part: self.id.clone(),
            kind: self.kind,
            offset: u64::try_from(from).unwrap_or(u64::MAX),
            text,
        })
    }
}

impl Live {
    pub(crate) fn new(signals: Arc<dyn Signals>, session: &SessionRef) -> Self {
        let topic = Topic::Session(session.org, session.session.clone());
        Self { signals, topic, message: None, parts: Vec::new() }
    }

    /// Begins the text of another message.
    pub(crate) fn begin(&mut self, message: MessageId) {
        self.message = Some(message);
        self.parts.clear();
    }

    /// Adds to a part. [`flush`](Self::flush) sends it to followers.
    pub(crate) fn push(&mut self, part: &PartId, kind: DeltaKind, text: &str) {
        match self.parts.iter_mut().find(|known| known.id == *part) {
            Some(known) => known.text.push_str(text),
            None => {
                let (id, text) = (part.clone(), text.to_owned());
                self.parts.push(LivePart { id, kind, text, told: 0 });
            }
        }
    }

    /// Returns whether any pushed text is not sent yet.
    pub(crate) fn has_untold(&self) -> bool {
        self.parts.iter().any(|part| part.told < part.text.len())
    }

    /// Sends new text to followers, one part after the other: text that arrives together goes out together, in pieces
    /// of at most [`MAX_PIECE`].
    pub(crate) fn flush(&mut self) {
        let Some(message) = &self.message else { return };
        for part in &mut self.parts {
            while let Some(delta) = part.take_piece(message) {
                self.signals.publish(&self.topic, Hint::Session(SessionHint::Delta(delta)));
            }
        }
    }

    /// Sends everything from offset 0 again, for a follower with a gap.
    pub(crate) fn resync(&mut self) {
        for part in &mut self.parts {
            part.told = 0;
        }
        self.flush();
    }

    /// Tells followers that the log is longer, and whether that ended the drain.
    pub(crate) fn committed(&mut self, seq: domain::Seq, ends: bool) {
        self.flush();
        self.signals.publish(&self.topic, Hint::Session(SessionHint::Committed { seq, ends }));
    }
}
