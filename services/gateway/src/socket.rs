//! The socket of a connection: it gives up on a client that reads nothing, and reads on after an early answer.
//!
//! A client that is still sending learns an early answer only if all that it sends is read: a close with unread bytes
//! is a reset, which discards the answer on its way. Many clients (Python's `urllib`) look for an answer only after
//! they have sent everything.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// The bytes that are read at once after an early answer.
const PIECE: usize = 16 * 1024;

/// The limits of a socket.
#[derive(Debug, Clone, Copy)]
pub struct SocketLimits {
    /// How long a client may take no byte of what is sent to it.
    pub write: Duration,
    /// How long the rest of a request is read and discarded after an early answer.
    pub linger: Duration,
    /// How long no byte of it may come.
    pub linger_idle: Duration,
    /// The most bytes of it.
    pub linger_bytes: usize,
}

impl Default for SocketLimits {
    fn default() -> Self {
        Self {
            write: Duration::from_secs(30),
            linger: Duration::from_secs(30),
            linger_idle: Duration::from_secs(5),
            linger_bytes: 512 * 1024 * 1024,
        }
    }
}

/// Whether the client may still be sending a request that has its answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnreadRest(Arc<AtomicBool>);

impl UnreadRest {
    fn is_there(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, is_there: bool) {
        self.0.store(is_there, Ordering::Relaxed);
    }

    /// Watches how far the body of the connection's newest request is read.
    pub(crate) fn watch(&self, body: Incoming) -> WatchedBody {
        self.set(!body.is_end_stream());
        WatchedBody { body, rest: self.clone() }
    }
}

/// A request's body that notes its end.
pub(crate) struct WatchedBody {
    body: Incoming,
    rest: UnreadRest,
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() || self.body.is_end_stream() {
            self.rest.set(false);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection's stream of bytes, below TLS.
pub(crate) struct Socket<S> {
    stream: S,
    limits: SocketLimits,
    rest: UnreadRest,
    /// Ends while the client takes no byte.
    stalled: Option<Pin<Box<Sleep>>>,
    lingering: Option<Lingering>,
}

/// The reading after an early answer.
struct Lingering {
    ends: Instant,
    left: usize,
    idle: Pin<Box<Sleep>>,
}

impl<S> Socket<S> {
    pub(crate) fn new(stream: S, limits: SocketLimits) -> Self {
        Self { stream, limits, rest: UnreadRest::default(), stalled: None, lingering: None }
    }

    pub(crate) fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Returns where requests of this connection note what is unread of them.
    pub(crate) fn rest(&self) -> UnreadRest {
        self.rest.clone()
    }

    /// Bounds how long a write may wait for the client.
    fn bound<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let write = self.limits.write;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(write)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes no bytes")))
    }
}

impl<S: AsyncRead + Unpin> Socket<S> {
    /// Reads and discards until the client ends, or a limit is met.
    fn linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let limits = self.limits;
        let lingering = self.lingering.get_or_insert_with(|| Lingering {
            ends: Instant::now() + limits.linger,
            left: limits.linger_bytes,
            idle: Box::pin(sleep(limits.linger_idle.min(limits.linger))),
        });
        let mut piece = [0; PIECE];
        let mut has_read = false;
        while lingering.left > 0 {
            let mut buffer = ReadBuf::new(&mut piece);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    lingering.left = lingering.left.saturating_sub(buffer.filled().len());
                    has_read = true;
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => {
                    if has_read {
                        let idle = Instant::now() + limits.linger_idle;
                        lingering.idle.as_mut().reset(idle.min(lingering.ends));
                    }
                    return lingering.idle.as_mut().poll(context);
                }
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bound(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.bound(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        }
        if self.rest.is_there() {
            ready!(self.linger(context));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    fn limits() -> SocketLimits {
        SocketLimits { linger_bytes: 1_000, ..SocketLimits::default() }
    }

    // Finding core-3 H2: a client that read nothing held a connection and its buffers for ever.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_no_byte_is_given_up() {
        let (mut client, stream) = duplex(8);
        let mut socket = Socket::new(stream, limits());
        socket.write_all(b"12345678").await.expect("there is room");
        let began = Instant::now();
        let slow = async {
            tokio::time::sleep(Duration::from_secs(29)).await;
            client.read_exact(&mut [0; 4]).await.expect("some bytes");
        };
        let (written, ()) = tokio::join!(socket.write_all(b"abcdefgh"), slow);
        assert_eq!(written.expect_err("nobody reads").kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), 29 + 30, "the time is counted from the last byte");
    }

    // Finding core-3, low: a refused body reset the connection before the answer was read.
    #[tokio::test(start_paused = true)]
    async fn the_rest_of_a_request_is_read_up_to_its_limits() {
        let ended = async |bytes: usize, pause: Duration| {
            let (mut client, stream) = duplex(8);
            let mut socket = Socket::new(stream, limits());
            socket.rest().set(true);
            let began = Instant::now();
            let sends = async {
                for _ in 0..bytes {
                    if client.write_all(b"x").await.is_err() {
                        break;
                    }
                    tokio::time::sleep(pause).await;
                }
            };
            let lingers = async {
                socket.shutdown().await.expect("it ends in order");
                drop(socket);
                began.elapsed().as_secs()
            };
            let ((), seconds) = tokio::join!(sends, lingers);
            seconds
        };
        assert_eq!(ended(10, Duration::ZERO).await, 5, "no more bytes come");
        assert_eq!(ended(2_000, Duration::ZERO).await, 0, "too many bytes");
        assert_eq!(ended(2_000, Duration::from_secs(1)).await, 30, "too long");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_was_read_is_not_waited_for() {
        let (_client, stream) = duplex(8);
        let began = Instant::now();
        Socket::new(stream, limits()).shutdown().await.expect("closed");
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
