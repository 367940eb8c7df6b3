use std::sync::Arc;
use std::time::Duration;

use egress::{Attempt, EgressOptions, Exit, ExitBounds, Hosts, Passage, Rules};
use reqwest::Url;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::world::{Names, is_handshake, listener};

const ANSWER: &str =
    "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nproxy-authenticate: Basic\r\n\r\nhello";

/// A proxy that is served.
pub(crate) struct Served {
    address: std::net::SocketAddr,
    pub(crate) attempts: UnboundedReceiver<Attempt>,
}

impl Served {
    pub(crate) async fn new(exit: Exit) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, attempts) = unbounded_channel();
        let record = Arc::new(move |attempt| {
            let _nobody_listens = tell.send(attempt);
        });
        #[expect(clippy::disallowed_methods, reason = "a test's own server")]
        tokio::spawn(async move { exit.serve(listener, record).await });
        Self { address, attempts }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes, and returns all that comes back.
    pub(crate) async fn ask(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        let _may_be_refused_midway = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _reset_is_an_end = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub(crate) async fn enter(&self, place: &str) -> TcpStream {
        let mut stream = self.connect().await;
        let head = format!("CONNECT {place} HTTP/1.1\r\nhost: {place}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.unwrap());
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(!answer.to_lowercase().contains("connection: close"), "{answer}");
        stream
    }
}

pub(crate) fn listed(hosts: &[String]) -> Hosts {
    Hosts::Listed(hosts.iter().map(|host| host.parse().unwrap()).collect())
}

/// A proxy to `hosts`, whose operator allows `allowed`.
pub(crate) fn exit(hosts: Hosts, allowed: &[&str], names: Names, proxy: Option<Url>) -> Exit {
    let allowed = allowed.iter().map(|host| host.parse().unwrap()).collect();
    // Finding security 4: what is open for the service itself is not open for commands.
    let rules = Rules { allow_private: true, allowed, ..Rules::default() };
    let options = EgressOptions { rules, proxy, ..EgressOptions::default() };
    Exit::with_lookup(&options, hosts, "packages", Arc::new(names)).unwrap()
}

/// TLS's first message of a client that asks for `name`.
pub(crate) fn hello(name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

fn registry() -> Names {
    Names::default().with("registry.example.com", &[&["127.0.0.1"]])
}

#[tokio::test]
async fn a_listed_host_is_reached_by_tunnel_and_by_address() {
    let (port, mut came) = listener(ANSWER).await;
    let hosts = listed(&[format!("registry.example.com:{port}")]);
    let mut served = Served::new(exit(hosts, &["127.0.0.0/8"], registry(), None)).await;
    let place = format!("registry.example.com:{port}");

    let mut tunnel = served.enter(&place).await;
    let first = hello("registry.example.com");
    // In two parts: a message may come in any number of them.
    tunnel.write_all(&first[..9]).await.unwrap();
    tunnel.flush().await.unwrap();
    tunnel.write_all(&first[9..]).await.unwrap();
    let seen = came.recv().await.unwrap();
    assert!(is_handshake(&seen) && seen == first);
    let mut answer = vec![0; ANSWER.len()];
    tunnel.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, ANSWER.as_bytes());
    drop(tunnel);
    let attempt = served.attempts.recv().await.unwrap();
    assert_eq!((attempt.host.as_str(), attempt.port), ("registry.example.com", port));
    assert_eq!(attempt.passage, Passage::Passed);
    assert!(attempt.sent > first.len() as u64 && attempt.received > ANSWER.len() as u64);

    let request = format!(
        "GET http://{place}/a?b HTTP/1.1\r\nhost: other.example.com\r\nproxy-connection: keep-alive\r\n\
         connection: x-own, keep-alive\r\nx-own: 1\r\nx-kept: 2\r\nproxy-authorization: Basic eA==\r\n\r\n"
    );
    let answer = served.ask(request.as_bytes()).await.to_lowercase();
    assert!(answer.starts_with("http/1.1 200 ") && answer.ends_with("hello"), "{answer}");
    assert!(!answer.contains("proxy-authenticate"), "{answer}");
    let seen = String::from_utf8(came.recv().await.unwrap()).unwrap().to_lowercase();
    assert!(seen.starts_with("get /a?b http/1.1\r\n"), "{seen}");
    assert!(seen.contains(&format!("host: {place}\r\n")) && seen.contains("x-kept: 2"), "{seen}");
    for gone in ["other.example.com", "x-own", "proxy-"] {
        assert!(!seen.contains(gone), "{gone}: {seen}");
    }
    let body = format!("POST http://{place}/up HTTP/1.1\r\ncontent-length: 4\r\n\r\nbody");
    assert!(served.ask(body.as_bytes()).await.ends_with("hello"));
    let seen = String::from_utf8(came.recv().await.unwrap()).unwrap();
    assert!(seen.contains("content-length: 4"), "{seen}");
}

#[tokio::test]
async fn a_tunnel_to_a_listed_host_asks_tls_for_that_host() {
    let (port, mut came) = listener(ANSWER).await;
    let hosts = listed(&[format!("registry.example.com:{port}")]);
    let mut served = Served::new(exit(hosts, &["127.0.0.0/8"], registry(), None)).await;
    let place = format!("registry.example.com:{port}");
    for (first, told) in [
        (hello("other.example.com"), "its TLS asks for other.example.com"),
        (b"GET / HTTP/1.1\r\nhost: other.example.com\r\n\r\n".to_vec(), "nothing but TLS"),
    ] {
        let mut tunnel = served.enter(&place).await;
        tunnel.write_all(&first).await.unwrap();
        let mut answer = Vec::new();
        let _reset_is_an_end = tunnel.read_to_end(&mut answer).await;
        assert_eq!(answer, b"");
        let attempt = served.attempts.recv().await.unwrap();
        let Passage::Refused(sentence) = attempt.passage else { panic!("{attempt:?}") };
        assert!(sentence.contains(told), "{sentence}");
        assert_eq!(came.recv().await.unwrap(), b"", "bytes came through");
    }
}

#[tokio::test]
async fn a_refusal_is_a_sentence_in_answer_and_record() {
    let hosts = listed(&["registry.example.com".to_owned()]);
    let mut served = Served::new(exit(hosts, &[], registry(), None)).await;
    for (request, sentence) in [
        (
            "CONNECT example.com:443",
            "network: example.com:443 was refused; this workspace's network is `packages`",
        ),
        (
            "GET http://example.com/",
            "network: example.com:80 was refused; this workspace's network is `packages`",
        ),
        (
            "CONNECT registry.example.com:22",
            "network: registry.example.com:22 was refused; this workspace's network is `packages`",
        ),
        (
            "CONNECT registry.example.com:443",
            "network: registry.example.com:443 was refused; it leads to 127.0.0.1, which is on this machine or in a \
             private network",
        ),
        (
            "CONNECT 127.0.0.1:5432",
            "network: 127.0.0.1:5432 was refused; it is on this machine or in a private network",
        ),
    ] {
        let answer = served.ask(format!("{request} HTTP/1.1\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains(sentence), "{answer}");
        let attempt = served.attempts.recv().await.unwrap();
        assert_eq!(attempt.passage, Passage::Refused(sentence.to_owned()));
    }
    let answer = served.ask(b"GET / HTTP/1.1\r\nhost: registry.example.com\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("this is a proxy"), "{answer}");
    assert!(served.attempts.try_recv().is_err(), "it names no host");
}

#[tokio::test]
async fn an_open_network_is_the_public_one_and_what_is_allowed() {
    let (port, mut came) = listener(ANSWER).await;
    let allowed = format!("127.0.0.1:{port}");
    let mut served = Served::new(exit(Hosts::Public, &[&allowed], registry(), None)).await;
    let answer = served.ask(format!("GET http://{allowed}/ HTTP/1.1\r\n\r\n").as_bytes()).await;
    assert!(answer.ends_with("hello"), "{answer}");
    assert!(came.recv().await.is_some());
    for (place, why) in [
        ("mail.example.com:25", "no mail"),
        ("registry.example.com:443", "it leads to 127.0.0.1"),
        ("127.0.0.1:5432", "on this machine"),
    ] {
        let answer = served.ask(format!("CONNECT {place} HTTP/1.1\r\n\r\n").as_bytes()).await;
        assert!(answer.contains(why), "{answer}");
    }
    let unknown = served.ask(b"CONNECT nowhere.example.com:443 HTTP/1.1\r\n\r\n").await;
    assert!(unknown.starts_with("HTTP/1.1 502 ") && unknown.contains("no such name"), "{unknown}");
    let failed = async {
        loop {
            let attempt = served.attempts.recv().await.unwrap();
            if let Passage::Failed(why) = attempt.passage {
                return why;
            }
        }
    };
    assert!(failed.await.contains("no such name"));
}

#[tokio::test]
async fn tunnels_and_addresses_go_through_the_operators_proxy() {
    let (port, mut came) = listener("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let proxy = Url::parse(&format!("http://user:word@127.0.0.1:{port}")).unwrap();
    let names = Names::default().with("inside.example.com", &[&["10.0.0.1"]]);
    let served = Served::new(exit(Hosts::Public, &[], names, Some(proxy))).await;
    drop(served.enter("registry.example.com:443").await);
    let seen = String::from_utf8(came.recv().await.unwrap()).unwrap();
    assert!(seen.starts_with("CONNECT registry.example.com:443 "), "{seen}");
    assert!(seen.to_lowercase().contains("proxy-authorization: basic"), "{seen}");
    served.ask(b"GET http://registry.example.com/x HTTP/1.1\r\n\r\n").await;
    let seen = String::from_utf8(came.recv().await.unwrap()).unwrap();
    assert!(seen.starts_with("GET http://registry.example.com/x "), "{seen}");
    // Addresses that this machine knows to be inside are refused here.
    for place in ["inside.example.com:443", "10.0.0.1:443"] {
        let answer = served.ask(format!("CONNECT {place} HTTP/1.1\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }
    assert!(came.try_recv().is_err(), "the proxy was asked");
    let proxy = Some(Url::parse("socks5://127.0.0.1:1").unwrap());
    let served = Served::new(exit(Hosts::Public, &[], Names::default(), proxy)).await;
    let answer = served.ask(b"CONNECT registry.example.com:443 HTTP/1.1\r\n\r\n").await;
    assert!(answer.contains("reached by http:// only"), "{answer}");
}

#[tokio::test]
async fn heads_connections_and_silence_have_bounds() {
    let (port, mut came) = listener("").await;
    let allowed = format!("127.0.0.1:{port}");
    let bounds = ExitBounds { connections: 1, idle: Duration::from_millis(300) };
    let exit = exit(Hosts::Public, &[&allowed], Names::default(), None).within(bounds);
    let served = Served::new(exit).await;
    let long = format!("GET http://{allowed}/{} HTTP/1.1\r\n\r\n", "x".repeat(20_000));
    let answer = served.ask(long.as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    let many = "x: y\r\n".repeat(200);
    let many = format!("GET http://{allowed}/ HTTP/1.1\r\n{many}\r\n");
    let answer = served.ask(many.as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    assert!(came.try_recv().is_err(), "somebody connected");
    // The first connection is the only one, until nothing has gone over it for too long.
    let mut first = served.enter(&allowed).await;
    let mut second = served.enter(&allowed).await;
    assert_eq!(first.read(&mut [0]).await.unwrap_or(0), 0, "the first one is over");
    second.write_all(b"alive").await.unwrap();
    assert_eq!(came.recv().await.unwrap(), b"");
    assert_eq!(came.recv().await.unwrap(), b"alive");
}
