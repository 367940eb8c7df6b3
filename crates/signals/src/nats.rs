use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event, Message, ServerAddr, Subscriber};
use async_trait::async_trait;
use futures::{FutureExt, Stream, StreamExt, stream};
use tokio::sync::watch;

use crate::{Hint, Received, Signals, Subscription, Topic};

/// The most hints that wait for the connection. Further ones are dropped.
const OUTGOING: usize = 4_096;
/// The most hints that wait for a slow reader. Further ones are lost, and the reader gets
/// [`Received::Lagged`].
const INCOMING: usize = 1_024;
/// The largest hint, in bytes. Larger ones are dropped; deltas are pieces of a few kilobytes.
const MAX_HINT_BYTES: usize = 256 * 1024;
/// The longest time that [`Signals::subscribe`] waits for the connection.
const SUBSCRIBE_WAIT: Duration = Duration::from_millis(250);
/// The longest pause between attempts to reconnect.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// The reason why the configuration for NATS is unusable. An unreachable server is no error: the client
/// retries forever.
#[derive(Debug, thiserror::Error)]
pub enum NatsError {
    /// The cluster's name is not a single token of a subject.
    #[error("cluster name `{0}` is not valid: use 1 to 64 letters, digits, `-` and `_`")]
    ClusterName(String),
    /// The URL is invalid.
    #[error("the NATS URL cannot be read; give one such as nats://USER:PASSWORD@127.0.0.1:4222")]
    Url(#[source] std::io::Error),
    /// The client cannot be set up. The text omits the URL, which may contain a password.
    #[error("NATS cannot be used")]
    Connect(#[source] async_nats::ConnectError),
}

/// Hints through core NATS, at most once. Subjects are `oc.<cluster>.w.<incarnation>` and
/// `oc.<cluster>.o.<org>.s.<session>`; payloads are JSON.
///
/// While NATS is away, hints are dropped and counted. Once it is back, every subscription yields
/// [`Received::Lagged`]. Must be created in a tokio runtime, which runs the client's own tasks until this is
/// dropped.
pub struct Nats {
    prefix: String,
    client: Client,
    dropped: AtomicU64,
    /// Incremented whenever incoming hints may have been lost.
    losses: watch::Sender<u64>,
}

impl Nats {
    /// Starts to connect to `url` in the background and returns at once.
    ///
    /// # Errors
    /// [`NatsError`] if the cluster's name or the URL is invalid.
    pub async fn connect(url: &str, cluster: &str) -> Result<Self, NatsError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if cluster.is_empty() || cluster.len() > 64 || !cluster.bytes().all(plain) {
            return Err(NatsError::ClusterName(cluster.to_owned()));
        }
        let address: ServerAddr = url.parse().map_err(NatsError::Url)?;
        let losses = watch::Sender::new(0_u64);
        let noted = losses.clone();
        // The library does not read credentials from URLs.
        let options = match (address.username(), address.password()) {
            (Some(user), Some(password)) => {
                ConnectOptions::with_user_and_password(user.to_owned(), password.to_owned())
            }
            (Some(token), None) => ConnectOptions::with_token(token.to_owned()),
            (None, _) => ConnectOptions::new(),
        };
        let client = options
            .name(format!("opencode-cloud {cluster}"))
            .retry_on_initial_connect()
            .max_reconnects(None)
            .reconnect_delay_callback(|tries| {
                RECONNECT_PAUSE.min(
                    Duration::from_millis(50)
                        .saturating_mul(u32::try_from(tries).unwrap_or(u32::MAX)),
                )
            })
            .client_capacity(OUTGOING)
            .subscription_capacity(INCOMING)
            .event_callback(move |event| {
                note(&event, &noted);
                std::future::ready(())
            })
            .connect(address)
            .await
            .map_err(NatsError::Connect)?;
        Ok(Self { prefix: format!("oc.{cluster}"), client, dropped: AtomicU64::new(0), losses })
    }

    /// Returns the number of outgoing hints dropped since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns whether the connection is up.
    #[must_use]
    pub fn connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Hands a hint to the connection if it is up and has room. Otherwise the client would keep the hint for
    /// later, and a full client would also block subscriptions.
    fn send(&self, topic: &Topic, hint: &Hint) -> bool {
        let payload = serde_json::to_vec(hint).expect("hints hold only strings and numbers");
        if payload.len() > MAX_HINT_BYTES || !self.connected() {
            return false;
        }
        // Unconstrained, so that "not ready" means a full queue, not a task that should yield.
        let sent =
            tokio::task::unconstrained(self.client.publish(self.subject(topic), payload.into()));
        matches!(sent.now_or_never(), Some(Ok(())))
    }

    fn subject(&self, topic: &Topic) -> String {
        match topic {
            Topic::Worker(incarnation) => format!("{}.w.{incarnation}", self.prefix),
            Topic::Session(org, session) => format!("{}.o.{org}.s.{session}", self.prefix),
        }
    }
}

/// Logs a change of the connection, and increments `losses` if hints may be missing.
fn note(event: &Event, losses: &watch::Sender<u64>) {
    match event {
        Event::Connected => {
            telemetry::metrics().signals.set(1);
            tracing::info!("nats is connected");
        }
        Event::SlowConsumer(_) => tracing::debug!("nats: a subscription lost hints"),
        Event::Disconnected | Event::Closed => {
            telemetry::metrics().signals.set(0);
            tracing::info!("nats is away; hints are dropped and sweeps take over");
            return;
        }
        Event::LameDuckMode | Event::Draining => return,
        Event::ServerError(error) => {
            tracing::warn!(%error, "nats refused something");
            return;
        }
        Event::ClientError(error) => {
            tracing::debug!(%error, "nats client");
            return;
        }
    }
    losses.send_modify(|count| *count += 1);
}

#[async_trait]
impl Signals for Nats {
    fn publish(&self, topic: &Topic, hint: Hint) {
        if !self.send(topic, &hint) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn subscribe(&self, topic: Topic) -> Subscription {
        let subject = self.subject(&topic);
        let losses = self.losses.subscribe();
        match tokio::time::timeout(SUBSCRIBE_WAIT, open(&self.client, subject.clone())).await {
            Ok(Some(messages)) => Subscription::new(merged(messages, losses, false)),
            // Not ready yet: the first read finishes the subscription and begins with "you may have missed
            // some".
            Ok(None) | Err(_) => {
                let client = self.client.clone();
                let later = async move {
                    match open(&client, subject).await {
                        Some(messages) => merged(messages, losses, true).boxed(),
                        None => stream::empty().boxed(),
                    }
                };
                Subscription::new(stream::once(later).flatten())
            }
        }
    }
}

/// Subscribes, and flushes the request if connected. `None`: the client is closed.
async fn open(client: &Client, subject: String) -> Option<Subscriber> {
    let subscriber = client.subscribe(subject).await.ok()?;
    if client.connection_state() == State::Connected {
        // Best effort: a late subscription costs a hint, not a result.
        let _ = client.flush().await;
    }
    Some(subscriber)
}

type Messages = Pin<Box<dyn Stream<Item = Received> + Send>>;

/// Returns the hints of one subscription, with [`Received::Lagged`] wherever some may be missing.
fn merged(
    messages: impl Stream<Item = Message> + Send + 'static,
    mut losses: watch::Receiver<u64>,
    lagged: bool,
) -> impl Stream<Item = Received> + Send {
    losses.mark_unchanged();
    let hints: Messages = messages.filter_map(|message| std::future::ready(read(&message))).boxed();
    stream::unfold((hints, losses, lagged), async |(mut hints, mut losses, lagged)| {
        if lagged {
            return Some((Received::Lagged, (hints, losses, false)));
        }
        let received = tokio::select! {
            biased;
            changed = losses.changed() => changed.ok().map(|()| Received::Lagged)?,
            hint = hints.next() => hint?,
        };
        Some((received, (hints, losses, false)))
    })
}

/// Parses a payload. `None` for one that this build does not know.
fn read(message: &Message) -> Option<Received> {
    match serde_json::from_slice(&message.payload) {
        Ok(hint) => Some(Received::Hint(hint)),
        Err(error) => {
            tracing::debug!(subject = %message.subject, %error, "a hint that cannot be read");
            None
        }
    }
}
