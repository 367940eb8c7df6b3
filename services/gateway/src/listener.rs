//! Accepts connections within limits and serves them. A client that sends slowly or opens many connections takes
//! nobody else's place.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tasks::{CancellationToken, OnCancel, OnError, TaskGroup, TaskKind};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::ServiceExt;

use crate::proxies::TrustedProxies;
use crate::socket::{Socket, SocketLimits, UnreadRest};

const CONNECTION: TaskKind = TaskKind::new("connection", OnError::Log, OnCancel::Wait);
/// The pause after an accept failed because this process has no file descriptors left.
const PAUSE: Duration = Duration::from_secs(1);
/// The first byte of a TLS handshake (RFC 8446, 5.1). No HTTP request begins with it.
const HANDSHAKE: u8 = 22;
/// The answer to a request without TLS where there is TLS only.
const TLS_ONLY: &str = r#"{"code":"TLS_REQUIRED","message":"this port speaks TLS only: write https:// in the service's URL"}"#;
/// The most bytes that are read of a request that gets [`TLS_ONLY`].
const PLAIN_BYTES: u64 = 64 * 1024;

/// The limits of a listener.
#[derive(Debug, Clone, Copy)]
pub struct ListenerLimits {
    /// How long a request's head may take, and how long a connection is kept between two requests.
    pub head: Duration,
    /// How long a request's body may make no progress.
    pub body: Duration,
    /// The most connections at once; more wait until one ends.
    pub connections: usize,
    /// The most connections of one address, or of one IPv6 network of 64 bits; more are closed. This machine's own
    /// address and trusted proxies have no such limit: they are many clients.
    pub of_address: usize,
    /// How long a client may read nothing, and how much of a refused request is read.
    pub socket: SocketLimits,
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(30),
            body: Duration::from_secs(30),
            connections: 8_192,
            of_address: 2_048,
            socket: SocketLimits::default(),
        }
    }
}

/// Serves `app` on `listener` until `stop`, then lets running requests finish. With `tls`, a connection counts within
/// the limits from its first byte on, and its handshake may take as long as a request's head.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    app: Router,
    limits: ListenerLimits,
    proxies: TrustedProxies,
    group: TaskGroup,
    stop: CancellationToken,
) -> Result<(), Infallible> {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(limits.connections));
    let proxies = Arc::new(proxies);
    let open = Mutex::default();
    let addresses = Arc::new(Addresses { most: limits.of_address, proxies: proxies.clone(), open });
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let (stream, peer, place) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if !is_of_connection(&error) {
                    tracing::error!(%error, "no connection can be accepted for a second");
                    tokio::time::sleep(PAUSE).await;
                }
                continue;
            }
        };
        let Some(address) = addresses.enter(peer.ip()) else {
            tracing::debug!(%peer, "closed: the address has too many connections");
            continue;
        };
        // Live text comes in many small writes, and none may wait for the acknowledgement of the one before.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps its delay");
        }
        let stream = Socket::new(stream, limits.socket);
        let rest = stream.rest();
        let (app, proxies) = (app.clone(), proxies.clone());
        let connection = Connection { app, peer, proxies, head: limits.head, rest };
        let (watcher, tls, stop) = (graceful.watcher(), tls.clone(), stop.clone());
        group.spawn(CONNECTION, async move {
            match tls {
                None => connection.serve(stream, watcher).await,
                Some(tls) => {
                    let secured = tokio::time::timeout(limits.head, secured(stream, &tls));
                    let secured = tokio::select! {
                        () = stop.cancelled() => Ok(Ok(None)),
                        secured = secured => secured,
                    };
                    match secured {
                        Ok(Ok(Some(stream))) => connection.serve(stream, watcher).await,
                        Ok(Ok(None)) => {}
                        Ok(Err(error)) => tracing::debug!(%error, %peer, "a handshake failed"),
                        Err(_) => tracing::debug!(%peer, "a handshake took too long"),
                    }
                }
            }
            drop((place, address));
            Ok::<(), Infallible>(())
        });
    }
    drop(listener);
    graceful.shutdown().await;
    Ok(())
}

/// A connection before its requests.
struct Connection {
    app: Router,
    peer: SocketAddr,
    proxies: Arc<TrustedProxies>,
    head: Duration,
    rest: UnreadRest,
}

impl Connection {
    /// Serves requests on `stream` until its end.
    async fn serve<S>(self, stream: S, watcher: Watcher)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { app, peer, proxies, head, rest } = self;
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(|body| Body::new(rest.watch(body)));
            let client = proxies.client_of(peer, request.headers());
            request.extensions_mut().insert(ConnectInfo(client));
            app.clone().oneshot(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, %peer, "a connection ended early");
        }
    }
}

/// Makes the handshake. A client that speaks HTTP without TLS gets a sentence instead, and `None` is returned.
async fn secured(
    mut stream: Socket<TcpStream>,
    tls: &TlsAcceptor,
) -> io::Result<Option<TlsStream<Socket<TcpStream>>>> {
    let mut first = [0];
    if stream.get_ref().peek(&mut first).await? == 0 {
        return Ok(None);
    }
    if first[0] == HANDSHAKE {
        return tls.accept(stream).await.map(Some);
    }
    if first[0].is_ascii_uppercase() {
        let length = TLS_ONLY.len();
        let head = format!(
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(format!("{head}{TLS_ONLY}").as_bytes()).await?;
        stream.shutdown().await?;
        // A close with unread bytes would be a reset, which can overtake the answer.
        tokio::io::copy(&mut stream.take(PLAIN_BYTES), &mut tokio::io::sink()).await?;
    }
    Ok(None)
}

/// Accepts the next connection, once there is a place for it.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer, place))
}

/// Returns whether the error is the connection's, not the process's.
fn is_of_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

/// The number of connections of each address.
struct Addresses {
    most: usize,
    proxies: Arc<TrustedProxies>,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// One connection of an address, counted until it is dropped.
struct OfAddress {
    all: Arc<Addresses>,
    name: Option<IpAddr>,
}

impl Addresses {
    fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<OfAddress> {
        let peer = peer.to_canonical();
        if peer.is_loopback() || self.proxies.contains(peer) {
            return Some(OfAddress { all: self.clone(), name: None });
        }
        let name = network(peer);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(name).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(OfAddress { all: self.clone(), name: Some(name) })
    }
}

impl Drop for OfAddress {
    fn drop(&mut self) {
        let Some(name) = self.name else { return };
        let mut open = self.all.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&name) {
            *count -= 1;
            if *count == 0 {
                open.remove(&name);
            }
        }
    }
}

/// Returns the network that counts as one client: an IPv6 client has 2^64 addresses.
fn network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::post;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const WHOLE: &str =
        "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi";

    /// Starts a server with these limits that echoes bodies until the group is dropped.
    async fn echo(limits: ListenerLimits) -> (SocketAddr, TaskGroup) {
        let app = Router::new().route("/", post(|body: String| async move { body }));
        served(app, limits, TrustedProxies::default()).await
    }

    async fn served(
        app: Router,
        limits: ListenerLimits,
        proxies: TrustedProxies,
    ) -> (SocketAddr, TaskGroup) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound");
        let body = tower_http::timeout::RequestBodyTimeoutLayer::new(limits.body);
        let group = TaskGroup::root("test");
        let kind = TaskKind::new("listener", OnError::Log, OnCancel::Wait);
        let stop = group.token();
        let app = app.layer(body);
        group.spawn(kind, serve(listener, None, app, limits, proxies, group.clone(), stop));
        (address, group)
    }

    /// Sends `text`, and returns the answer up to the end of the connection.
    async fn ask(address: SocketAddr, text: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        stream.write_all(text.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("closed in order");
        answer
    }

    // Finding security 12: a client that sent slowly held a connection for ever.
    #[tokio::test]
    async fn a_request_that_comes_too_slowly_is_ended() {
        let short = Duration::from_millis(200);
        let limits = ListenerLimits { head: short, body: short, ..ListenerLimits::default() };
        let (address, _group) = echo(limits).await;
        assert!(ask(address, WHOLE).await.ends_with("hi"));
        // Half a head, and no bytes at all: both would wait for ever.
        assert!(!ask(address, "POST / HTTP/1.1\r\nhost: h").await.contains("200 OK"));
        assert_eq!(ask(address, "").await, "");
        let half = WHOLE.strip_suffix('i').expect("its body");
        assert!(!ask(address, half).await.contains("200 OK"));
    }

    // Finding core-3, low: Python's clients saw a broken pipe instead of the sentence.
    #[tokio::test]
    async fn a_client_that_sends_it_all_first_reads_its_refusal() {
        let (address, _group) = echo(ListenerLimits::default()).await;
        let piece = vec![b'x'; 1024 * 1024];
        let mut stream = TcpStream::connect(address).await.expect("connected");
        let head = "POST /nowhere HTTP/1.1\r\nhost: h\r\ncontent-length: 33554432\r\n\r\n";
        stream.write_all(head.as_bytes()).await.expect("sent");
        for _ in 0..32 {
            stream.write_all(&piece).await.expect("all of it is taken");
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("closed in order");
        assert!(answer.contains("404 Not Found"), "{answer}");
    }

    // Finding core-3, low: nobody sends a body that is refused by its head.
    #[tokio::test]
    async fn a_client_that_asks_first_sends_no_refused_body() {
        let (address, _group) = echo(ListenerLimits::default()).await;
        let asked = |path: &str| {
            format!(
                "POST {path} HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\nconnection: close\r\ncontent-length: 2\r\n\r\n"
            )
        };
        let refused = async {
            let mut stream = TcpStream::connect(address).await.expect("connected");
            stream.write_all(asked("/nowhere").as_bytes()).await.expect("sent");
            let mut first = [0; 12];
            stream.read_exact(&mut first).await.expect("an answer");
            first
        };
        assert_eq!(&refused.await, b"HTTP/1.1 404");
        let mut stream = TcpStream::connect(address).await.expect("connected");
        stream.write_all(asked("/").as_bytes()).await.expect("sent");
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.expect("an answer");
        assert_eq!(&first, b"HTTP/1.1 100");
    }

    #[tokio::test]
    async fn a_connection_over_the_bound_waits_for_another_to_end() {
        let (address, group) =
            echo(ListenerLimits { connections: 1, ..ListenerLimits::default() }).await;
        let mut first = TcpStream::connect(address).await.expect("connected");
        first
            .write_all(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\nhi")
            .await
            .expect("sent");
        let mut some = [0; 16];
        first.read_exact(&mut some).await.expect("an answer: it has the place");
        let second = ask(address, WHOLE);
        tokio::pin!(second);
        let early = tokio::time::timeout(Duration::from_millis(100), &mut second).await;
        assert!(early.is_err(), "two were served");
        drop(first);
        assert!(second.await.ends_with("hi"));
        group.shutdown(Duration::from_secs(5)).await;
    }

    // Finding security-3 H2: everybody behind a proxy had its address.
    #[tokio::test]
    async fn a_trusted_proxy_says_who_its_client_is() {
        let who =
            |ConnectInfo(client): ConnectInfo<SocketAddr>| async move { client.ip().to_string() };
        let app = Router::new().route("/", axum::routing::get(who));
        let asked = "GET / HTTP/1.1\r\nhost: h\r\nx-forwarded-for: 198.51.100.1, 192.0.2.7\r\nconnection: close\r\n\r\n";
        let proxies = TrustedProxies::new(
            vec!["127.0.0.1".parse().expect("an address")],
            crate::ProxyHeader::default(),
        );
        for (proxies, expected) in
            [(proxies, "192.0.2.7"), (TrustedProxies::default(), "127.0.0.1")]
        {
            let (address, _group) = served(app.clone(), ListenerLimits::default(), proxies).await;
            let answer = ask(address, asked).await;
            assert!(answer.ends_with(expected), "{answer}");
        }
    }

    #[test]
    fn an_address_has_so_many_connections_and_no_more() {
        let proxies =
            TrustedProxies::new(vec!["10.0.0.0/8".parse().expect("a network")], Default::default());
        let all =
            Arc::new(Addresses { most: 2, proxies: Arc::new(proxies), open: Mutex::default() });
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let one = all.enter(ip("2001:db8::1")).expect("the first");
        let two = all.enter(ip("2001:db8::2")).expect("the second, of the same network");
        assert!(all.enter(ip("2001:db8::3")).is_none());
        let other = all.enter(ip("2001:db8:0:1::1")).expect("of another network");
        drop(one);
        assert!(all.enter(ip("2001:db8::3")).is_some());
        drop((two, other));
        assert!(all.open.lock().expect("whole").is_empty());
        let own: Vec<_> = (0..9).map(|_| all.enter(ip("127.0.0.1")).is_some()).collect();
        assert!(own.iter().all(|entered| *entered));
        // Finding security-3 M3: a proxy's connections are many clients'.
        let proxied: Vec<_> = (0..9).map(|_| all.enter(ip("10.0.0.1")).is_some()).collect();
        assert!(proxied.iter().all(|entered| *entered));
    }
}
