//! A follower of one session's log: it changes gateways, and always resumes where it was.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tasks::CancellationToken;
use tokio::time::{sleep, timeout};

use super::coverage::Sight;
use super::shared::{Shared, locked};
use crate::sse::Frame;

/// How long a stream may send no frame before it is opened again, at the other gateway.
const QUIET: Duration = Duration::from_secs(10);

/// Follows until it is stopped.
pub(crate) async fn follow(
    shared: Arc<Shared>,
    session: usize,
    mut random: StdRng,
    stop: CancellationToken,
) {
    let mut gateway = random.random_range(0..shared.gateways.len());
    loop {
        let read = read(&shared, session, gateway, &mut random);
        tokio::select! {
            () = stop.cancelled() => return,
            ended = read => match ended {
                Ended::Left => shared.saw(Sight::StreamMoved),
                Ended::Broken => shared.saw(Sight::StreamBroken),
                Ended::NotOpened => sleep(Duration::from_millis(100)).await,
            },
        }
        gateway = (gateway + 1) % shared.gateways.len();
    }
}

enum Ended {
    /// The follower went away on purpose.
    Left,
    /// The stream broke, or ended by itself.
    Broken,
    NotOpened,
}

async fn read(shared: &Shared, session: usize, gateway: usize, random: &mut StdRng) -> Ended {
    let id = &shared.sessions[session];
    let after = locked(&shared.followed[session]).events.len();
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let Ok(mut stream) = shared.gateways[gateway].follow(id, after).await else {
        return Ended::NotOpened;
    };
    for _ in 0..random.random_range(10..120) {
        match timeout(QUIET, stream.next()).await {
            Ok(Ok(Some(frame))) => take(shared, session, gateway, frame),
            Ok(Ok(None) | Err(_)) => return Ended::Broken,
            Err(_quiet) => return Ended::Left,
        }
    }
    Ended::Left
}

fn take(shared: &Shared, session: usize, gateway: usize, frame: Frame) {
    let Some(seq) = frame.id else { return }; // live text has no number
    let mut followed = locked(&shared.followed[session]);
    let expected = i64::try_from(followed.events.len() + 1).unwrap_or(i64::MAX);
    if seq != expected {
        let id = &shared.sessions[session];
        shared.violated(format!(
            "I5: the stream of {id} at gateway {gateway} went on at {seq}, not {expected}"
        ));
        return;
    }
    if frame.event == "prompt.promoted"
        && let Some(message) = frame.data["data"]["message"].as_str()
    {
        followed.promoted.insert(message.to_owned());
    }
    followed.events.push(frame.data);
}
