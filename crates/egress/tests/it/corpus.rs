//! The corpus of addresses that lead inside, against sentinels that are really there: in a network namespace in which every
//! address, private or public, is this machine.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use egress::{
    Attempt, Egress, EgressOptions, Exit, FetchLimits, Hosts, Lookup, Passage, Rules, is_public,
};
use llm_client::{ProviderTransport, WireRequest};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::HeaderMap;
use reqwest::{Method, Url, redirect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::exit::Served;

const PUBLIC: &str = "93.184.215.14";
/// The addresses of a name whose owner changes them between two looks.
const REBOUND: [&str; 2] = [PUBLIC, "127.0.0.1"];

/// Names and their addresses. All others lead to one address.
struct Zone {
    usual: IpAddr,
    known: HashMap<&'static str, Vec<&'static str>>,
    looks: Mutex<HashMap<String, usize>>,
}

/// Names that lead inside, or to both sides. `https://NAME:PORT/` is one vector of each.
const INSIDE_NAMES: [(&str, &[&str]); 16] = [
    ("a.example.org", &["127.0.0.1"]),
    ("b.example.org", &["10.0.0.1"]),
    ("c.example.org", &["169.254.169.254"]),
    ("d.example.org", &["::1"]),
    ("e.example.org", &["fd00:ec2::254"]),
    ("f.example.org", &["::ffff:169.254.169.254"]),
    ("g.example.org", &["64:ff9b::a9fe:a9fe"]),
    ("h.example.org", &["2002:7f00:1::"]),
    ("i.example.org", &[PUBLIC, "127.0.0.1"]),
    ("j.example.org", &["192.168.0.1", PUBLIC]),
    ("k.example.org", &[PUBLIC, "2606:4700:4700::1111", "fc00::1"]),
    ("l.example.org", &["0.0.0.0"]),
    ("m.example.org", &["100.100.100.200"]),
    ("n.example.org", &["::"]),
    ("o.example.org", &["::127.0.0.1"]),
    ("p.example.org", &["168.63.129.16"]),
];

impl Zone {
    fn new(usual: &str) -> Arc<Self> {
        let known = INSIDE_NAMES.iter().map(|(name, all)| (*name, all.to_vec())).collect();
        let usual = usual.parse().expect("an address");
        Arc::new(Self { usual, known, looks: Mutex::default() })
    }

    fn find(&self, name: &str) -> Vec<IpAddr> {
        let name = name.trim_end_matches('.').to_lowercase();
        let mut looks = self.looks.lock().expect("no panic");
        let look = looks.entry(name.clone()).or_default();
        *look += 1;
        let parse = |text: &&str| text.parse().expect("an address");
        if name.starts_with("rebound") {
            return vec![parse(&REBOUND[(*look - 1) % 2])];
        }
        self.known
            .get(name.as_str())
            .map_or_else(|| vec![self.usual], |all| all.iter().map(parse).collect())
    }
}

#[async_trait::async_trait]
impl Lookup for Zone {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        Ok(self.find(name))
    }
}

struct Unguarded(Arc<Zone>);

impl Resolve for Unguarded {
    fn resolve(&self, name: Name) -> Resolving {
        let found = self.0.find(name.as_str());
        Box::pin(async move {
            let addresses: Addrs = Box::new(found.into_iter().map(|ip| SocketAddr::new(ip, 0)));
            Ok(addresses)
        })
    }
}

/// A server at every address. It keeps which of them was reached.
#[derive(Clone)]
struct Sentinel {
    port: u16,
    reached: Arc<Mutex<Vec<IpAddr>>>,
}

impl Sentinel {
    async fn new() -> Self {
        let listener = TcpListener::bind("[::]:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let reached = Arc::new(Mutex::new(Vec::new()));
        let sentinel = Self { port, reached: reached.clone() };
        #[expect(clippy::disallowed_methods, reason = "a test's own server")]
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let here = stream.local_addr().expect("an address").ip().to_canonical();
                reached.lock().expect("no panic").push(here);
                #[expect(clippy::disallowed_methods, reason = "a test's own server")]
                tokio::spawn(async move {
                    let _what_came = stream.read(&mut [0; 4096]).await;
                    let answer =
                        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                    let _gone = stream.write_all(answer).await;
                });
            }
        });
        sentinel
    }

    fn count(&self) -> usize {
        self.reached.lock().expect("no panic").len()
    }

    /// Those that were reached inside. A connection of our own comes last, and what came before it is known then.
    async fn inside(&self) -> Vec<IpAddr> {
        let before = self.count();
        let own = tokio::net::TcpStream::connect((PUBLIC, self.port)).await;
        drop(own.expect("every address is this machine"));
        self.comes_after(before).await.then_some(()).expect("it is seen");
        let reached = self.reached.lock().expect("no panic");
        reached.iter().copied().filter(|ip| !is_public(*ip)).collect()
    }

    /// Whether somebody comes within a while.
    async fn comes_after(&self, count: usize) -> bool {
        let until = Instant::now() + Duration::from_secs(5);
        while self.count() <= count {
            if Instant::now() > until {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        true
    }
}

fn lines(text: &str, port: u16) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.replace("PORT", &port.to_string())).collect()
}

/// The addresses of the corpus, and one for each name that leads inside.
fn vectors(port: u16) -> Vec<String> {
    let mut all = lines(include_str!("../../corpus.txt"), port);
    all.extend(INSIDE_NAMES.iter().map(|(name, _)| format!("https://{name}:{port}/")));
    all
}

/// Vectors that reach nobody whoever sends them, with the reason: they show nothing but that a parser refuses them.
const TO_NOBODY: [(&str, &str); 12] = [
    ("ftp:", "no HTTP client speaks it"),
    ("file:", "no HTTP client speaks it"),
    ("gopher:", "no HTTP client speaks it"),
    ("https://${HOST}", "a placeholder is no name"),
    ("https://%24%7BHOST%7D", "a placeholder is no name"),
    ("%25lo]", "an address has no zone"),
    ("224.0.0.1", "a connection goes to no group"),
    ("[ff02::1]", "a connection goes to no group"),
    ("255.255.255.255", "a connection goes to no group"),
    ("[fe80::", "it needs an interface"),
    ("[feb0::", "it needs an interface"),
    ("[::ffff:0:127.0.0.1]", "the kernel translates nothing"),
];

/// Runs an ignored test of this file in a network of its own.
fn in_its_own_network(test: &str) {
    const EVERY_ADDRESS: &str = "ip link set lo up && ip route add local 0.0.0.0/0 dev lo && \
                                 ip -6 route add local ::/0 dev lo && exec \"$@\"";
    let unshare = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net", "sh", "-c", EVERY_ADDRESS, "sh"]).args(words);
        command.output()
    };
    match unshare(&["true"]) {
        Ok(ended) if ended.status.success() => {}
        refused => {
            // Who has tier A has such namespaces too.
            let promised = std::env::var_os("OC_PROMISED_TIERS").unwrap_or_default();
            let is_promised = promised.to_string_lossy().split_whitespace().any(|tier| tier == "A");
            let why = format!("no network namespace with every address is to be had: {refused:?}");
            assert!(!is_promised, "OC_PROMISED_TIERS promises tier A, and there is {why}");
            eprintln!("SKIPPED: {why}");
            return;
        }
    }
    let this = std::env::current_exe().expect("this test");
    let words = [this.to_str().expect("text"), "--exact", test, "--ignored", "--nocapture"];
    let ended = unshare(&words).expect("it runs");
    let told = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && told.contains("1 passed"), "{told}");
    eprintln!("{told}");
}

#[test]
fn no_vector_reaches_what_is_inside() {
    in_its_own_network("corpus::every_vector");
}

#[test]
fn what_is_public_is_reached() {
    in_its_own_network("corpus::every_public_address");
}

fn guarded(zone: &Arc<Zone>) -> Egress {
    Egress::with_lookup(&EgressOptions::default(), zone.clone()).expect("a client")
}

fn get(url: &str) -> Option<WireRequest> {
    let url = Url::parse(url).ok()?;
    Some(WireRequest { method: Method::GET, url, headers: HeaderMap::new(), body: Bytes::new() })
}

/// Each is one request to a proxy, or what tries to be more; PORT is the sentinel's.
const RAW: [&str; 34] = [
    "CONNECT 127.0.0.1:PORT HTTP/1.1\r\nhost: api.example.com:443\r\n\r\n",
    "CONNECT api@127.0.0.1:PORT HTTP/1.1\r\n\r\n",
    "CONNECT api.example.com:443@127.0.0.1:PORT HTTP/1.1\r\n\r\n",
    "CONNECT http://127.0.0.1:PORT/ HTTP/1.1\r\n\r\n",
    "CONNECT 127.0.0.1 HTTP/1.1\r\n\r\n",
    "CONNECT /127.0.0.1:PORT HTTP/1.1\r\n\r\n",
    "CONNECT [::ffff:127.0.0.1]:PORT HTTP/1.1\r\n\r\n",
    "CONNECT [::1%25lo]:PORT HTTP/1.1\r\n\r\n",
    "CONNECT [::1%lo]:PORT HTTP/1.1\r\n\r\n",
    "CONNECT 0x7f000001:PORT HTTP/1.1\r\n\r\n",
    "CONNECT 127.0.0.1:PORT HTTP/1.0\r\n\r\n",
    "CONNECT 127.0.0.1:0PORT HTTP/1.1\r\n\r\n",
    "CONNECT 127.0.0.1:+PORT HTTP/1.1\r\n\r\n",
    "CONNECT\t127.0.0.1:PORT\tHTTP/1.1\r\n\r\n",
    "CONNECT 127.0.0.1:PORT\r\n\r\n",
    "connect 127.0.0.1:PORT HTTP/1.1\r\n\r\n",
    "GET http://127.0.0.1:PORT/ HTTP/1.1\r\nhost: api.example.com\r\n\r\n",
    "GET http://public.example.com@127.0.0.1:PORT/ HTTP/1.1\r\n\r\n",
    "GET http://127.0.0.1:PORT#@api.example.com/ HTTP/1.1\r\n\r\n",
    "GET http://127.0.0.1:PORT\\@api.example.com/ HTTP/1.1\r\n\r\n",
    "GET https://127.0.0.1:PORT/ HTTP/1.1\r\n\r\n",
    "GET ftp://127.0.0.1:PORT/ HTTP/1.1\r\n\r\n",
    "GET //127.0.0.1:PORT/ HTTP/1.1\r\n\r\n",
    "GET / HTTP/1.1\r\nhost: 127.0.0.1:PORT\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nhost: 127.0.0.1:PORT\r\n\r\n",
    "GET http:/127.0.0.1:PORT/ HTTP/1.1\r\n\r\n",
    "GET http:127.0.0.1:PORT HTTP/1.1\r\n\r\n",
    "GET http://localhost:PORT/ HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
    // A second request after a first one, which is refused or public, in the ways that smugglers hide it.
    "GET http://db.lan/ HTTP/1.1\r\ncontent-length: 0\r\n\r\nGET http://127.0.0.1:PORT/ HTTP/1.1\r\n\r\n",
    "POST http://public.example.net:PORT/ HTTP/1.1\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET http://127.0.0.1:PORT/ HTTP/1.1\r\n\r\n",
    "POST http://public.example.net:PORT/ HTTP/1.1\r\ncontent-length: 0\r\ncontent-length: 44\r\n\r\nGET http://127.0.0.1:PORT/ HTTP/1.1\r\n\r\n",
    "POST http://public.example.net:PORT/ HTTP/1.1\r\ntransfer-encoding: xchunked\r\n\r\nGET http://127.0.0.1:PORT/ HTTP/1.1\r\n\r\n",
    "GET http://public.example.net:PORT/ HTTP/1.1\r\n x: y\r\n\r\nGET http://127.0.0.1:PORT/ HTTP/1.1\r\n\r\n",
    "GET http://public.example.net:PORT/ HTTP/1.1\nhost: x\n\nGET http://127.0.0.1:PORT/ HTTP/1.1\n\n",
];

#[tokio::test]
#[ignore = "it runs in the network of `no_vector_reaches_what_is_inside`"]
async fn every_vector() {
    let zone = Zone::new("10.9.9.9");
    let sentinel = Sentinel::new().await;
    let all = vectors(sentinel.port);
    assert!(all.len() >= 80, "{}", all.len());
    // Unguarded, each reaches the sentinel: it is an attack.
    let unguarded = reqwest::Client::builder().no_proxy().redirect(redirect::Policy::none());
    let unguarded = unguarded.dns_resolver(Arc::new(Unguarded(zone.clone()))).build().expect("one");
    let mut reaching = 0;
    for url in &all {
        let before = sentinel.count();
        let sent = unguarded.get(url).timeout(Duration::from_secs(5)).send().await;
        let nobody = TO_NOBODY.iter().find(|(part, _)| url.contains(part));
        match nobody {
            Some((_, why)) => assert!(sent.is_err(), "{url}: {why}"),
            None => assert!(sentinel.comes_after(before).await, "{url} attacks nobody: {sent:?}"),
        }
        reaching += usize::from(nobody.is_none());
    }
    assert!(reaching >= 80, "{reaching}");
    sentinel.reached.lock().expect("no panic").clear();

    // The client of organisations, which is that of provider settings.
    let client = guarded(&zone).for_organisations();
    for url in &all {
        let Some(request) = get(url) else { continue };
        assert!(client.send(request).await.is_err(), "{url}");
    }
    // A redirect, from an address that the operator chose.
    let away = TcpListener::bind("[::]:0").await.expect("a port");
    let from = format!("http://{PUBLIC}:{}/", away.local_addr().expect("an address").port());
    let operator = guarded(&zone).for_operator();
    let limits = FetchLimits { time: Duration::from_secs(20), bytes: 1_000, redirects: 3 };
    for url in &all {
        let answering = async {
            let (mut stream, _) = away.accept().await.expect("a request");
            let _what_came = stream.read(&mut [0; 4096]).await;
            let head = format!(
                "HTTP/1.1 302 Found\r\nlocation: {url}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            let _gone = stream.write_all(head.as_bytes()).await;
        };
        let fetching = operator.fetch(Url::parse(&from).expect("a URL"), HeaderMap::new(), limits);
        let ((), fetched) = tokio::join!(answering, fetching);
        assert!(fetched.is_err(), "{url}");
    }
    // The proxy of commands, which is as open as it can be.
    let exit = Exit::with_lookup(&EgressOptions::default(), Hosts::Public, "open", zone.clone());
    let mut served = Served::new(exit.expect("a proxy")).await;
    for url in &all {
        let rest = url.split_once("://").map_or("", |(_, rest)| rest);
        let authority = rest.split('/').next().unwrap_or_default();
        for head in [format!("CONNECT {authority}"), format!("GET http://{rest}")] {
            let answer = served.ask(format!("{head} HTTP/1.1\r\n\r\n").as_bytes()).await;
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{head}: {answer}");
        }
    }
    for raw in RAW {
        let raw = raw.replace("PORT", &sentinel.port.to_string());
        let answer = served.ask(raw.as_bytes()).await;
        let is_public = raw.contains("public.example.net");
        assert!(is_public || !answer.contains(" 200 "), "{raw}: {answer}");
    }
    assert_eq!(sentinel.inside().await, Vec::<IpAddr>::new());
    while let Ok(Attempt { host, passage, .. }) = served.attempts.try_recv() {
        let is_fine = host == "public.example.net" || matches!(passage, Passage::Refused(_));
        assert!(is_fine, "{host}: {passage:?}");
    }
    // A name whose addresses change between two looks: one look decides, and the connection goes where it led.
    for round in 0..6 {
        let url = format!("https://rebound{round}.example.org:{}/", sentinel.port);
        for refused in [false, true] {
            let error = client.send(get(&url).expect("a URL")).await.err().expect("no TLS there");
            assert_eq!(error.message.contains("leads to"), refused, "{}", error.message);
        }
        let place = format!("rebound-{round}.example.org:{}", sentinel.port);
        for refused in [false, true] {
            let request = format!("GET http://{place}/ HTTP/1.1\r\n\r\n");
            let answer = served.ask(request.as_bytes()).await;
            assert_eq!(answer.starts_with("HTTP/1.1 403 "), refused, "{answer}");
        }
    }
    assert_eq!(sentinel.inside().await, Vec::<IpAddr>::new());
    eprintln!(
        "{} addresses of which {reaching} reach the sentinel unguarded, {} raw requests, 12 rebound names",
        all.len(),
        RAW.len()
    );
}

#[tokio::test]
#[ignore = "it runs in the network of `what_is_public_is_reached`"]
async fn every_public_address() {
    let zone = Zone::new(PUBLIC);
    let sentinel = Sentinel::new().await;
    let all = lines(include_str!("../../public.txt"), sentinel.port);
    assert!(all.len() >= 20, "{}", all.len());
    let client = guarded(&zone).for_organisations();
    let exit = Exit::with_lookup(&EgressOptions::default(), Hosts::Public, "open", zone.clone());
    let served = Served::new(exit.expect("a proxy")).await;
    for url in &all {
        let before = sentinel.count();
        let error = client.send(get(url).expect("a URL")).await.err().expect("no TLS there");
        assert!(sentinel.comes_after(before).await, "{url}: {}", error.message);
        // As programs write it: a name in ASCII.
        let parsed = Url::parse(url).expect("a URL");
        let place = format!("{}:{}", parsed.host_str().expect("a host"), sentinel.port);
        let before = sentinel.count();
        let answer = served.ask(format!("GET http://{place}/ HTTP/1.1\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{url}: {answer}");
        assert!(sentinel.comes_after(before).await, "{url}");
        drop(served.enter(&place).await);
    }
    let reached = sentinel.reached.lock().expect("no panic").clone();
    assert!(reached.iter().all(|ip| is_public(*ip)), "{reached:?}");
    // And what the operator has allowed.
    let allowed = vec!["10.2.0.0/16".parse().expect("a network")];
    let rules = Rules { allowed, ..Rules::default() };
    let inside = Egress::with_lookup(&rules.into(), zone).expect("a client").for_organisations();
    let url = format!("http://10.2.3.4:{}/", sentinel.port);
    assert!(inside.send(get(&url).expect("a URL")).await.is_ok());
}
