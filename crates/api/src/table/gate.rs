//! The one place that decides about a request: a layer around each handler, made from its line of the table. It also ends
//! answers that last longer than the belief in their credential.

use std::time::Duration;

use access::{Decision, Need, decide};
use auth::{BeliefState, Believed};
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, stream};
use http::header::CONTENT_TYPE;
use tokio::time::{Instant, sleep};

use crate::error::ApiError;
use crate::surface::Granted;

/// How long an answer pauses when the database does not say whether its credential is good. After that it ends: a short
/// failure of the database must not make every client open its streams anew at once.
const PAUSE: Duration = Duration::from_secs(60);
/// How often a paused answer looks whether it may go on.
const LOOK: Duration = Duration::from_millis(250);
/// How often a paused stream says that it lives.
const COMMENT_EVERY: Duration = Duration::from_secs(10);
const PAUSED: &[u8] = b": paused, since nobody can say whether the credential is good still\n\n";

/// Lets a request of somebody who may do this pass to the handler, if a login is as recent as the route wants. Everybody
/// else is told which need is not met.
pub(super) async fn gate(need: Need, recent: bool, mut request: Request, next: Next) -> Response {
    // Without a proof the route would be outside of `authenticate`.
    let Some(believed) = request.extensions().get::<Believed>() else {
        return ApiError::Unauthenticated("a key or login is needed".to_owned()).into_response();
    };
    match decide(believed.principal().standing(), need) {
        Decision::Yes => {}
        Decision::Forbidden(need, missing) => {
            return ApiError::Forbidden(need, missing).into_response();
        }
    }
    if recent && !believed.is_recent() {
        return ApiError::sign_in_again().into_response();
    }
    let granted = Granted { need, principal: believed.principal().clone() };
    request.extensions_mut().insert(granted);
    next.run(request).await
}

/// Gives `response` to whoever `believed` believes in, for as long as it does.
pub(super) fn guarded(response: Response, believed: Believed) -> Response {
    // The handler may have waited for long.
    match believed.state() {
        BeliefState::Good => {}
        BeliefState::Ended => {
            let message = "the key or login was revoked, or its rights were changed, meanwhile";
            return ApiError::Unauthenticated(message.to_owned()).into_response();
        }
        BeliefState::Lapsed => return unproved().into_response(),
    }
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    let is_stream =
        response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
    let (parts, body) = response.into_parts();
    let body = while_good(body.into_data_stream().fuse(), believed, is_stream);
    Response::from_parts(parts, Body::from_stream(body))
}

/// Returns the error for a request that cannot be proved just now.
fn unproved() -> ApiError {
    ApiError::Unavailable {
        message: "the database does not say whether the key or login is good still; ask again",
        cause: None,
    }
}

/// Passes on what comes while the credential is good.
fn while_good<S>(body: S, believed: Believed, is_stream: bool) -> impl Stream<Item = S::Item>
where
    S: Stream<Item = Result<Bytes, axum::Error>> + Unpin,
{
    let guard = Guard { body, believed, is_stream, gives_up: None };
    // Whoever compresses it asks once more after its end.
    stream::unfold(guard, |mut guard| async move { Some((guard.next().await?, guard)) }).fuse()
}

struct Guard<S> {
    body: S,
    believed: Believed,
    is_stream: bool,
    /// When a pause ends the answer.
    gives_up: Option<Instant>,
}

impl<S: Stream<Item = Result<Bytes, axum::Error>> + Unpin> Guard<S> {
    async fn next(&mut self) -> Option<S::Item> {
        loop {
            match self.believed.state() {
                BeliefState::Ended => return None,
                BeliefState::Good => {
                    self.gives_up = None;
                    // A piece that is there already needs no timer.
                    if let Some(next) = self.body.next().now_or_never() {
                        return next;
                    }
                    tokio::select! {
                        biased;
                        () = self.believed.not_good() => {}
                        next = self.body.next() => return next,
                    }
                }
                BeliefState::Lapsed => {
                    let until = *self.gives_up.get_or_insert_with(|| Instant::now() + PAUSE);
                    let comment = Instant::now() + COMMENT_EVERY;
                    while self.believed.state() == BeliefState::Lapsed {
                        if Instant::now() >= until {
                            return None;
                        }
                        if self.is_stream && Instant::now() >= comment {
                            return Some(Ok(Bytes::from_static(PAUSED)));
                        }
                        sleep(LOOK).await;
                    }
                }
            }
        }
    }
}
