//! Real clients over TLS, and certificates that change or are wrong.

use std::fs;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use domain::SystemClock;
use rcgen::{CertificateParams, KeyPair};
use reqwest::{Client, tls};
use tasks::{CancellationToken, OnCancel, OnError, TaskGroup, TaskKind};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::listener::{self, ListenerLimits};

/// The service's name in certificates.
const NAME: &str = "oc.example";
const SHORT: Duration = Duration::from_millis(300);

/// A certificate that signs itself.
struct Made {
    certificate: String,
    key: String,
}

/// Makes a certificate that ends in this year.
fn made(until: i32) -> Made {
    let mut params = CertificateParams::new([NAME.to_owned()]).expect("a name");
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    Made { certificate: certificate.pem(), key: key.serialize_pem() }
}

/// A folder with both files.
struct Folder(TempDir);

impl Folder {
    fn with(made: &Made) -> Self {
        let folder = Self(tempfile::tempdir().expect("a folder"));
        folder.write(&made.certificate, &made.key);
        folder
    }

    fn write(&self, certificate: &str, key: &str) {
        fs::write(self.0.path().join("cert.pem"), certificate).expect("written");
        fs::write(self.0.path().join("key.pem"), key).expect("written");
    }

    fn options(&self) -> TlsOptions {
        let [certificate, key] = ["cert.pem", "key.pem"].map(|name| self.0.path().join(name));
        TlsOptions { certificate, key, look: Duration::from_millis(20) }
    }

    fn open(&self) -> Result<Tls, TlsError> {
        Tls::open(self.options(), Arc::new(SystemClock::new()))
    }
}

/// Starts a server with the folder's certificate that answers until the group is dropped.
async fn server(folder: &Folder, limits: ListenerLimits) -> (SocketAddr, TaskGroup) {
    let tls = folder.open().expect("a certificate");
    let acceptor = Some(tls.acceptor().expect("TLS"));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("bound");
    let app = Router::new().route("/", get(|| async { "hello" }));
    let group = TaskGroup::root("test");
    let kind = TaskKind::new("listener", OnError::Log, OnCancel::Wait);
    let stop: CancellationToken = group.token();
    group.spawn(
        kind,
        listener::serve(
            listener,
            acceptor,
            app,
            limits,
            crate::TrustedProxies::default(),
            group.clone(),
            stop,
        ),
    );
    group.spawn(TaskKind::new("follow", OnError::Log, OnCancel::Abort), tls.follow());
    (address, group)
}

/// Returns a client that trusts this certificate only, and speaks this version only.
fn client(trusted: &Made, address: SocketAddr, version: tls::Version) -> Client {
    let trusted = reqwest::Certificate::from_pem(trusted.certificate.as_bytes()).expect("PEM");
    let client = Client::builder().no_proxy().resolve(NAME, address).tls_certs_only([trusted]);
    client.tls_version_min(version).tls_version_max(version).build().expect("a client")
}

async fn hello(client: &Client, address: SocketAddr) -> Result<String, reqwest::Error> {
    let url = format!("https://{NAME}:{}/", address.port());
    client.get(url).send().await?.text().await
}

#[tokio::test]
async fn clients_of_both_versions_are_served() {
    let made = made(4000);
    let folder = Folder::with(&made);
    let (address, group) = server(&folder, ListenerLimits::default()).await;
    for version in [tls::Version::TLS_1_2, tls::Version::TLS_1_3] {
        let client = client(&made, address, version);
        assert_eq!(hello(&client, address).await.expect("an answer"), "hello");
    }
    group.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_request_without_tls_is_told_to_use_https() {
    let folder = Folder::with(&made(4000));
    let (address, _group) = server(&folder, ListenerLimits::default()).await;
    let plain = Client::builder().no_proxy().build().expect("a client");
    let answer = plain.post(format!("http://{address}/")).body("x".repeat(9_000)).send().await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status(), 400);
    let text = answer.text().await.expect("a body");
    assert!(text.contains("this port speaks TLS only: write https://"), "{text}");
}

#[tokio::test]
async fn a_client_that_makes_no_handshake_is_ended() {
    let folder = Folder::with(&made(4000));
    let limits = ListenerLimits { head: SHORT, connections: 1, ..ListenerLimits::default() };
    let (address, _group) = server(&folder, limits).await;
    // One says nothing, one stops in the middle: each had the only place, and gives it back.
    for begin in [&b""[..], &[22, 3, 1][..]] {
        let mut silent = TcpStream::connect(address).await.expect("connected");
        silent.write_all(begin).await.expect("sent");
        let mut end = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(20), silent.read_to_end(&mut end));
        assert!(ended.await.is_ok(), "the connection is ended");
    }
}

#[tokio::test]
async fn a_stopping_server_waits_for_no_handshake() {
    let folder = Folder::with(&made(4000));
    let (address, group) = server(&folder, ListenerLimits::default()).await;
    let _silent = TcpStream::connect(address).await.expect("connected");
    tokio::time::sleep(Duration::from_millis(50)).await;
    let report = group.shutdown(Duration::from_secs(10)).await;
    assert!(report.is_clean(), "the handshake has 30 s, and the stop has 10 s");
}

#[tokio::test]
async fn a_changed_certificate_is_shown_once_its_key_fits() {
    let (old, new) = (made(4000), made(4001));
    let folder = Folder::with(&old);
    let (address, _group) = server(&folder, ListenerLimits::default()).await;
    let ask = async |trusted: &Made| {
        hello(&client(trusted, address, tls::Version::TLS_1_3), address).await.is_ok()
    };
    // The certificate is new and the key old, as in the middle of a renewal.
    folder.write(&new.certificate, &old.key);
    tokio::time::sleep(SHORT).await;
    assert!(ask(&old).await && !ask(&new).await, "nothing changed");
    folder.write(&new.certificate, &new.key);
    let changed = async {
        while !ask(&new).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), changed).await.expect("the new one is shown");
    assert!(!ask(&old).await);
}

#[test]
fn files_that_are_no_pair_are_refused_with_a_sentence() {
    let (one, other) = (made(4000), made(4000));
    let folder = Folder::with(&one);
    let refused = |certificate: &str, key: &str| {
        folder.write(certificate, key);
        folder.open().expect_err("refused").to_string()
    };
    for (said, part) in [
        (refused(&one.certificate, &other.key), "does not match the certificate"),
        (refused("", &one.key), "cert.pem holds no certificate; it must hold the chain"),
        (refused(&one.key, &one.key), "cert.pem holds no certificate"),
        (refused(&one.certificate, "x"), "key.pem holds no private key; it must hold one"),
        (refused(&one.certificate, &one.certificate), "key.pem holds no private key"),
    ] {
        assert!(said.contains(part), "{said}");
    }
    fs::remove_file(folder.options().key).expect("removed");
    let said = folder.open().expect_err("no key").to_string();
    assert!(
        said.ends_with(
            "key.pem: there is no such file; name a file in PEM that the service's user can read"
        ),
        "{said}"
    );
}

#[test]
fn the_end_of_a_certificate_is_read_and_does_not_stop_a_start() {
    let folder = Folder::with(&made(2001));
    let tls = folder.open().expect("an expired certificate is a warning");
    let end = not_after(&tls.shown.current().cert[0]).expect("its end");
    assert_eq!(end, Duration::from_secs(978_307_200), "2001-01-01");
    let day = Duration::from_hours(24);
    assert_eq!(Remaining::of(end, end + day), Remaining::Nothing);
    assert_eq!(Remaining::of(end, end - day * 3), Remaining::Days(3));
    assert_eq!(Remaining::of(end, end - day * 15), Remaining::Enough);
}
