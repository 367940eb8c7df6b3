use std::sync::Arc;

use domain::{MessageId, PartId, SessionRef};
use signals::{Delta, DeltaKind, Hint, SessionHint, Signals, Topic};

/// The text of parts that are not settled, and its way to followers. Not durable.
pub(crate) struct Live {
    signals: Arc<dyn Signals>,
    topic: Topic,
    message: Option<MessageId>,
    parts: Vec<(PartId, DeltaKind, String)>,
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

    /// Adds to a part and tells followers of it.
    pub(crate) fn push(&mut self, part: &PartId, kind: DeltaKind, text: &str) {
        let offset = match self.parts.iter_mut().find(|(id, ..)| id == part) {
            Some((.., so_far)) => {
                let offset = so_far.len();
                so_far.push_str(text);
                offset
            }
            None => {
                self.parts.push((part.clone(), kind, text.to_owned()));
                0
            }
        };
        self.publish(part.clone(), kind, offset, text.to_owned());
    }

    /// Tells everything from offset 0 again, for a follower that has a gap.
    pub(crate) fn resync(&self) {
        for (part, kind, text) in &self.parts {
            self.publish(part.clone(), *kind, 0, text.clone());
        }
    }

    /// Tells followers that the log is longer.
    pub(crate) fn committed(&self, seq: domain::Seq) {
        self.signals.publish(&self.topic, Hint::Session(SessionHint::Committed { seq }));
    }

    fn publish(&self, part: PartId, kind: DeltaKind, offset: usize, text: String) {
        let Some(message) = self.message.clone() else { return };
        let offset = u64::try_from(offset).unwrap_or(u64::MAX);
        let delta = Delta { message, part, kind, offset, text };
        self.signals.publish(&self.topic, Hint::Session(SessionHint::Delta(delta)));
    }
}
