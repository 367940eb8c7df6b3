use std::sync::Arc;

use domain::{MessageId, PartId, SessionRef};
use signals::{Delta, DeltaKind, Hint, SessionHint, Signals, Topic};

/// The text of parts that are not settled, and its way to followers. Not durable.
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
    /// Bytes that followers were told of.
    told: usize,
}

impl LivePart {
    fn from(&self, message: &MessageId, offset: usize) -> Delta {
        Delta {
            message: message.clone(),
            part: self.id.clone(),
            kind: self.kind,
            offset: u64::try_from(offset).unwrap_or(u64::MAX),
            text: self.text[offset..].to_owned(),
        }
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

    /// Adds to a part. Followers are told of it with [`flush`](Self::flush).
    pub(crate) fn push(&mut self, part: &PartId, kind: DeltaKind, text: &str) {
        match self.parts.iter_mut().find(|known| known.id == *part) {
            Some(known) => known.text.push_str(text),
            None => {
                let (id, text) = (part.clone(), text.to_owned());
                self.parts.push(LivePart { id, kind, text, told: 0 });
            }
        }
    }

    /// Whether followers have not been told of all that was pushed.
    pub(crate) fn has_untold(&self) -> bool {
        self.parts.iter().any(|part| part.told < part.text.len())
    }

    /// Tells followers what is new, in one piece a part: what a provider sends at once is told at once.
    pub(crate) fn flush(&mut self) {
        let Some(message) = &self.message else { return };
        for part in self.parts.iter_mut().filter(|part| part.told < part.text.len()) {
            let delta = part.from(message, part.told);
            part.told = part.text.len();
            self.signals.publish(&self.topic, Hint::Session(SessionHint::Delta(delta)));
        }
    }

    /// Tells everything from offset 0 again, for a follower that has a gap.
    pub(crate) fn resync(&mut self) {
        for part in &mut self.parts {
            part.told = 0;
        }
        self.flush();
    }

    /// Tells followers that the log is longer, and whether the drain has ended with it.
    pub(crate) fn committed(&mut self, seq: domain::Seq, ends: bool) {
        self.flush();
        self.signals.publish(&self.topic, Hint::Session(SessionHint::Committed { seq, ends }));
    }
}
