use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::stream;
use tokio::sync::broadcast::{self, error::RecvError};

use crate::{Hint, Received, Signals, Subscription, Topic};

/// The hints that a worker may be behind before it loses the oldest.
const WORKER_QUEUE: usize = 1_024;
/// The hints that a session's follower may be behind. Each followed session's queue takes memory, and there
/// are many.
const SESSION_QUEUE: usize = 256;

type Topics = Mutex<HashMap<Topic, broadcast::Sender<Arc<Hint>>>>;

/// Hints within one process: the embedded default, also for tests.
#[derive(Default)]
pub struct InProcess {
    topics: Arc<Topics>,
}

impl InProcess {
    /// Makes signals without subscribers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of topics with a subscriber.
    #[must_use]
    pub fn topics(&self) -> usize {
        locked(&self.topics).len()
    }
}

fn queue(topic: &Topic) -> usize {
    match topic {
        Topic::Worker(_) => WORKER_QUEUE,
        Topic::Session(..) => SESSION_QUEUE,
    }
}

fn locked(
    topics: &Topics,
) -> std::sync::MutexGuard<'_, HashMap<Topic, broadcast::Sender<Arc<Hint>>>> {
    topics.lock().unwrap_or_else(PoisonError::into_inner) // none of our code panics under it
}

/// Removes the topic when its last reader is dropped.
struct Forget {
    topics: Arc<Topics>,
    topic: Topic,
}

impl Drop for Forget {
    fn drop(&mut self) {
        let mut topics = locked(&self.topics);
        if topics.get(&self.topic).is_some_and(|sender| sender.receiver_count() == 0) {
            topics.remove(&self.topic);
        }
    }
}

/// A subscriber. Fields drop in order, so the receiver is gone before [`Forget`] counts the rest.
struct Reader {
    receiver: broadcast::Receiver<Arc<Hint>>,
    _forget: Forget,
}

#[async_trait]
impl Signals for InProcess {
    fn publish(&self, topic: &Topic, hint: Hint) {
        if let Some(sender) = locked(&self.topics).get(topic) {
            // An error means that the last reader is just leaving and needs no hint.
            let _ = sender.send(Arc::new(hint));
        }
    }

    async fn subscribe(&self, topic: Topic) -> Subscription {
        let receiver = locked(&self.topics)
            .entry(topic.clone())
            .or_insert_with(|| broadcast::Sender::new(queue(&topic)))
            .subscribe();
        let forget = Forget { topics: self.topics.clone(), topic };
        let reader = Reader { receiver, _forget: forget };
        Subscription::new(stream::unfold(reader, async |mut reader| {
            match reader.receiver.recv().await {
                Ok(hint) => Some((Received::Hint((*hint).clone()), reader)),
                Err(RecvError::Lagged(_)) => Some((Received::Lagged, reader)),
                Err(RecvError::Closed) => None,
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use domain::{Incarnation, Seq};

    use super::*;
    use crate::SessionHint;

    fn hint(seq: i64) -> Hint {
        Hint::Session(SessionHint::Committed { seq: Seq(seq), ends: false })
    }

    #[tokio::test]
    async fn every_subscriber_of_a_topic_gets_its_hints_in_order() {
        let signals = InProcess::new();
        let (here, elsewhere) =
            (Topic::Worker(Incarnation::random()), Topic::Worker(Incarnation::random()));
        let mut one = signals.subscribe(here.clone()).await;
        let mut two = signals.subscribe(here.clone()).await;
        signals.publish(&elsewhere, hint(9));
        signals.publish(&here, hint(1));
        signals.publish(&here, hint(2));
        for subscription in [&mut one, &mut two] {
            assert_eq!(subscription.next().await, Some(Received::Hint(hint(1))));
            assert_eq!(subscription.next().await, Some(Received::Hint(hint(2))));
        }
    }

    #[tokio::test]
    async fn a_slow_reader_is_told_that_it_lost_the_oldest() {
        let signals = InProcess::new();
        let topic = Topic::Worker(Incarnation::random());
        let mut slow = signals.subscribe(topic.clone()).await;
        let sent = i64::try_from(WORKER_QUEUE).expect("small") + 10;
        for seq in 0..sent {
            signals.publish(&topic, hint(seq));
        }
        assert_eq!(slow.next().await, Some(Received::Lagged));
        assert_eq!(slow.next().await, Some(Received::Hint(hint(10))));
    }

    #[tokio::test]
    async fn a_topic_is_forgotten_with_its_last_subscriber() {
        let signals = InProcess::new();
        let topic = Topic::Worker(Incarnation::random());
        let one = signals.subscribe(topic.clone()).await;
        let two = signals.subscribe(topic.clone()).await;
        drop(one);
        assert_eq!(signals.topics(), 1);
        drop(two);
        assert_eq!(signals.topics(), 0);
        signals.publish(&topic, hint(1));
        assert_eq!(signals.topics(), 0);
    }
}
