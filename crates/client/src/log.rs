//! Follows a session's log across broken connections: every durable event once and in order, whatever happens to the
//! connection or the gateway.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use domain::{Seq, SessionId};
use futures::{Stream, StreamExt};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::error::reason;
use super::item::{LogFrame, LogItem};
use super::sse::Decoder;
use super::{Client, ClientError, Pace};

type Body = Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>;

type Connecting = Pin<Box<dyn Future<Output = Result<reqwest::Response, ClientError>> + Send>>;

struct Connection {
    body: Body,
    decoder: Decoder,
    opened: Instant,
    /// The time of the last bytes, pings included.
    heard: Instant,
}

/// A session's log from some number on.
pub struct LogFollower {
    client: Client,
    session: SessionId,
    last: Seq,
    connection: Option<Connection>,
    /// A connection in progress.
    connecting: Option<Connecting>,
    ready: VecDeque<LogItem>,
    failures: u32,
    failing_since: Option<Instant>,
    retry_at: Option<Instant>,
    /// The reason why the last connection broke.
    why: String,
}

impl LogFollower {
    /// Opens the log after `after`. It continues with new events and never ends by itself.
    ///
    /// # Errors
    /// When the service is not there, or refuses the log.
    pub async fn open(
        client: &Client,
        session: SessionId,
        after: Seq,
    ) -> Result<Self, ClientError> {
        let mut follower = Self {
            client: client.clone(),
            session,
            last: after,
            connection: None,
            connecting: None,
            ready: VecDeque::new(),
            failures: 0,
            failing_since: None,
            retry_at: None,
            why: String::new(),
        };
        let answer = client.open_first_log(&follower.session, after).await?;
        follower.follow(answer);
        Ok(follower)
    }

    /// Returns the number of the last event that was received.
    #[must_use]
    pub fn last(&self) -> Seq {
        self.last
    }

    /// Returns the next event or delta. Resumes a broken connection, with growing pauses. Cancel safe, and a dropped
    /// call loses no time: the next call continues its wait or its connection.
    ///
    /// # Errors
    /// [`ClientError::LogLost`] after [`Pace::patience`] without progress; at once when the service refuses, for
    /// example because the session is deleted.
    pub async fn next(&mut self) -> Result<LogItem, ClientError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(item);
            }
            let silence = self.pace().silence;
            let Some(connection) = &mut self.connection else {
                self.reconnect().await?;
                continue;
            };
            // Counted from the last bytes, so that a caller that is busy elsewhere does not prolong it.
            match timeout_at(connection.heard + silence, connection.body.next()).await {
                Ok(Some(Ok(bytes))) => self.take(&bytes)?,
                Ok(Some(Err(error))) => self.cut(reason(&error), None)?,
                Ok(None) => self.cut("the stream ended".into(), None)?,
                Err(_) => self.cut("the stream fell silent".into(), None)?,
            }
        }
    }

    /// Returns the reason why there is no connection, if there is none.
    #[must_use]
    pub fn lost(&self) -> Option<&str> {
        self.connection.is_none().then_some(self.why.as_str())
    }

    fn pace(&self) -> Pace {
        self.client.pace()
    }

    fn follow(&mut self, answer: reqwest::Response) {
        let body = answer.bytes_stream().boxed();
        let (decoder, now) = (Decoder::default(), Instant::now());
        self.connection = Some(Connection { body, decoder, opened: now, heard: now });
    }

    async fn reconnect(&mut self) -> Result<(), ClientError> {
        if let Some(at) = self.retry_at {
            sleep_until(at).await;
            self.retry_at = None;
        }
        // Kept, so that a caller that is busy elsewhere does not start it again.
        let connecting = self.connecting.get_or_insert_with(|| {
            let (client, session, last) = (self.client.clone(), self.session.clone(), self.last);
            Box::pin(async move { client.open_log(&session, last).await })
        });
        let answer = connecting.await;
        self.connecting = None;
        match answer {
            Ok(answer) => {
                self.follow(answer);
                Ok(())
            }
            Err(error) if error.is_transient() => self.cut(error.to_string(), error.retry_after()),
            Err(error) => Err(error),
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        connection.heard = Instant::now();
        let frames = connection.decoder.push(bytes).map_err(|error| ClientError::Unreadable {
            what: "the log".into(),
            why: error.to_string(),
        })?;
        for frame in frames {
            match LogFrame::read(&frame)? {
                LogFrame::Item(LogItem::Event(event)) if event.seq <= self.last => {}
                LogFrame::Item(LogItem::Event(event)) if event.seq.0 > self.last.0 + 1 => {
                    // The log has no gaps, so the events in between were lost on the way.
                    return self.cut(format!("event {} did not arrive", self.last.0 + 1), None);
                }
                LogFrame::Item(item) => {
                    // Only events are progress. Live text may come again with each connection.
                    if let LogItem::Event(event) = &item {
                        self.last = event.seq;
                        self.failures = 0;
                        self.failing_since = None;
                    }
                    self.ready.push_back(item);
                }
                LogFrame::Reopen(why, after) => {
                    self.last = after.map_or(self.last, |after| after.min(self.last));
                    return self.cut(why, None);
                }
                LogFrame::Gone => {
                    return Err(ClientError::NotFound {
                        what: format!("session {}", self.session),
                    });
                }
                LogFrame::Other => {}
            }
        }
        Ok(())
    }

    /// Drops the connection and plans the next try, or gives up.
    fn cut(&mut self, why: String, retry_after: Option<Duration>) -> Result<(), ClientError> {
        let pace = self.pace();
        let now = Instant::now();
        // A stream that lived for a while, even with pings only, was no failure.
        let was_steady = |was: &Connection| was.heard - was.opened > pace.max_delay * 2;
        if self.connection.take().as_ref().is_some_and(was_steady) {
            self.failures = 0;
            self.failing_since = None;
        }
        let since = *self.failing_since.get_or_insert(now);
        if now - since > pace.patience {
            return Err(ClientError::LogLost { last: self.last, patience: pace.patience, why });
        }
        self.why = why;
        self.failures = self.failures.saturating_add(1);
        let asked = retry_after.unwrap_or_default().min(pace.patience);
        self.retry_at = Some(now + pace.delay(self.failures).max(asked));
        Ok(())
    }
}
