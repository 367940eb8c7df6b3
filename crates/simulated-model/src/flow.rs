//! Sends a stream as a script wants it: paced, held, cut or left hanging. Records its end.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use thiserror::Error;

use crate::answer::{Answer, Frame, Frames};
use crate::desk::Desk;
use crate::log::{Outcome, Ticket};
use crate::protocol::Protocol;
use crate::script::Script;

/// An error that makes the server drop the connection.
#[derive(Clone, Copy, Debug, Error)]
#[error("the simulated model drops this connection, as its script says")]
pub(crate) struct SimulatedCut;

/// The point where a stream stops without a finish.
enum Stop {
    Cut { after: usize },
    Hang { after: usize },
    Never,
}

struct Flow {
    frames: Frames,
    sent: usize,
    stop: Stop,
    gate: Option<(usize, String)>,
    chunk_delay: Duration,
    desk: Arc<Desk>,
    ticket: Ticket,
    over: bool,
}

/// Returns the body of a streamed answer.
pub(crate) fn streamed(
    answer: Answer,
    protocol: Protocol,
    include_usage: bool,
    script: Option<&Script>,
    desk: Arc<Desk>,
    ticket: Ticket,
) -> Body {
    let frames = answer.frames(protocol, include_usage);
    let bounded =
        |after: u32| usize::try_from(after).unwrap_or(usize::MAX).min(frames.until_finish);
    let stop = match script {
        Some(Script { cut_after_chunks: Some(after), .. }) => Stop::Cut { after: bounded(*after) },
        Some(Script { hang_after_chunks: Some(after), .. }) => {
            Stop::Hang { after: bounded(*after) }
        }
        Some(_) | None => Stop::Never,
    };
    let gate =
        script.and_then(|script| Some((bounded(script.gate_after_chunks?), script.gate.clone()?)));
    let chunk_delay = Duration::from_millis(script.map_or(0, |script| script.chunk_delay_ms));
    let flow = Flow { frames, sent: 0, stop, gate, chunk_delay, desk, ticket, over: false };
    Body::from_stream(stream::unfold(flow, Flow::next))
}

impl Flow {
    async fn next(mut self) -> Option<(Result<Bytes, SimulatedCut>, Self)> {
        if self.over {
            return None;
        }
        if let Some((_, gate)) = self.gate.take_if(|(after, _)| *after == self.sent) {
            self.desk.pass(&gate).await;
        }
        match self.stop {
            Stop::Cut { after } if after == self.sent => {
                flush().await;
                self.over = true;
                self.ticket.settle(Outcome::Cut);
                return Some((Err(SimulatedCut), self));
            }
            Stop::Hang { after } if after == self.sent => std::future::pending().await,
            Stop::Cut { .. } | Stop::Hang { .. } | Stop::Never => {}
        }
        if self.sent > 0 && !self.chunk_delay.is_zero() {
            tokio::time::sleep(self.chunk_delay).await;
        }
        let frame = self.frames.next()?;
        let event = self.frames.encode(&frame);
        self.sent += 1;
        match frame {
            Frame::Usage(usage) => {
                if let Some(usage) = usage.counted() {
                    self.ticket.usage(usage);
                }
            }
            Frame::Done => {
                self.over = true;
                if let Some(usage) = self.frames.usage_at_end {
                    self.ticket.usage(usage);
                }
                self.ticket.settle(Outcome::Answered);
            }
            Frame::Role
            | Frame::Reasoning(_)
            | Frame::Text(_)
            | Frame::CallStart { .. }
            | Frame::CallArguments { .. }
            | Frame::Finish(_) => {}
        }
        Some((Ok(event), self))
    }
}

/// Returns the body of an unstreamed answer that breaks off in the middle.
pub(crate) fn cut_in_half(whole: &Bytes, mut ticket: Ticket) -> Body {
    let half = whole.slice(..whole.len() / 2);
    let cut = async move {
        flush().await;
        ticket.settle(Outcome::Cut);
        Err(SimulatedCut)
    };
    Body::from_stream(futures::StreamExt::chain(
        stream::once(std::future::ready(Ok(half))),
        stream::once(cut),
    ))
}

/// Lets the connection write out its buffer, which it does whenever its body has to wait. One turn of the scheduler
/// is enough; without it the events before a cut would be lost too.
async fn flush() {
    tokio::task::yield_now().await;
}
