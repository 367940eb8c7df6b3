//! Bodies of requests that come too slowly: a client that sends a byte a second holds its place for ever otherwise.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

/// How long a body may be waited for, whatever comes of it.
const GRACE: Duration = Duration::from_secs(30);
/// The least bytes in each second of waiting after that: less than the slowest line that people have.
const LEAST_PER_SECOND: u64 = 1_024;
/// The longest time that such a rate gives. Whoever sends more than fits into it, an upload or an archive, holds one of few places:
/// from there on a body comes at 64 times that rate.
const MOST_SLOWNESS: Duration = Duration::from_mins(15);
const LARGE_BODIES: u32 = 64;

/// A body whose bytes come at a least rate, or it breaks off. Only the time counts in which we wait for the client.
pub(crate) struct PacedBody {
    body: Body,
    grace: Duration,
    least_per_second: u64,
    most_slowness: Duration,
    received: u64,
    waited: Duration,
    /// Since when we wait, and until when at most.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

/// The error of a body that comes too slowly.
#[derive(Debug, thiserror::Error)]
#[error(
    "the body comes too slowly: send at least {LEAST_PER_SECOND} bytes a second, and a large one 64 times as fast"
)]
struct TooSlow;

impl PacedBody {
    pub(crate) fn wrap(body: Body) -> Body {
        Self::wrap_with(body, GRACE, LEAST_PER_SECOND, MOST_SLOWNESS)
    }

    fn wrap_with(
        body: Body,
        grace: Duration,
        least_per_second: u64,
        most_slowness: Duration,
    ) -> Body {
        let (received, waited, waiting) = (0, Duration::ZERO, None);
        Body::new(Self { body, grace, least_per_second, most_slowness, received, waited, waiting })
    }

    /// Returns how much longer it may be waited for.
    fn left(&self) -> Duration {
        let slowly = Duration::from_millis(self.received * 1_000 / self.least_per_second);
        (self.grace + slowly.min(self.most_slowness) + slowly / LARGE_BODIES)
            .saturating_sub(self.waited)
    }
}

impl HttpBody for PacedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            if let Some((since, _)) = self.waiting.take() {
                self.waited += since.elapsed();
            }
            let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
            self.received += data.map_or(0, |data| data.len() as u64);
            return Poll::Ready(frame);
        }
        let left = self.left();
        let begin = || {
            let now = Instant::now();
            (now, Box::pin(tokio::time::sleep_until(now + left)))
        };
        let (_, end) = self.waiting.get_or_insert_with(begin);
        ready!(end.as_mut().poll(context));
        Poll::Ready(Some(Err(axum::Error::new(TooSlow))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use futures::stream;

    use super::*;

    /// Sends `count` pieces of `size` bytes, each after `every`.
    fn body(count: usize, size: usize, every: Duration) -> Body {
        Body::from_stream(stream::unfold(0, move |sent| async move {
            if sent == count {
                return None;
            }
            tokio::time::sleep(every).await;
            Some((Ok::<_, std::io::Error>(vec![0_u8; size]), sent + 1))
        }))
    }

    const SHORT: Duration = Duration::from_millis(300);
    const LONG: Duration = Duration::from_hours(1);
    const OFTEN: Duration = Duration::from_millis(20);

    // Finding security-3, low: a body of a byte a second was open for as long as its client liked.
    #[tokio::test]
    async fn a_body_that_trickles_is_ended() {
        let trickle =
            PacedBody::wrap_with(body(usize::MAX, 1, OFTEN), SHORT, LEAST_PER_SECOND, LONG);
        assert!(to_bytes(trickle, usize::MAX).await.is_err());
        // A slow line is no trickle, though it takes longer than the grace.
        let slow = PacedBody::wrap_with(body(30, 1_000, OFTEN), SHORT, LEAST_PER_SECOND, LONG);
        assert_eq!(to_bytes(slow, usize::MAX).await.expect("whole").len(), 30_000);
    }

    // Probe G2: ten bodies at a little more than the least rate held all uploads of an organisation for days.
    #[tokio::test]
    async fn a_large_body_may_not_be_slow_for_ever() {
        let drip = || body(usize::MAX, 100, OFTEN);
        let slow = PacedBody::wrap_with(drip(), SHORT, LEAST_PER_SECOND, SHORT);
        assert!(to_bytes(slow, usize::MAX).await.is_err());
    }

    #[tokio::test]
    async fn a_server_that_reads_slowly_blames_no_client() {
        let slow = PacedBody::wrap_with(body(3, 1, OFTEN), SHORT, LEAST_PER_SECOND, LONG);
        let mut pieces = slow.into_data_stream();
        while let Some(piece) = futures::StreamExt::next(&mut pieces).await {
            piece.expect("in time");
            tokio::time::sleep(SHORT).await; // we were busy
        }
    }
}
