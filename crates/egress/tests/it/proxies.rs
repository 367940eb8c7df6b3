use std::sync::Arc;

use bytes::Bytes;
use egress::{Egress, EgressOptions, SetupError};
use llm_client::{ProviderTransport, WireRequest};
use reqwest::header::HeaderMap;
use reqwest::{Method, Url};

use crate::world::{Names, egress, listener};

const REFUSES: &str = "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

fn get(url: &str) -> WireRequest {
    let url = Url::parse(url).unwrap();
    WireRequest { method: Method::GET, url, headers: HeaderMap::new(), body: Bytes::new() }
}

#[tokio::test]
async fn requests_go_through_the_operators_proxy() {
    let (port, mut came) = listener(REFUSES).await;
    let names = Arc::new(Names::default().with("inside.example.com", &[&["10.0.0.1"]]));
    let proxied = egress(&[], &names, Some(&format!("http://127.0.0.1:{port}")));
    let sent = proxied.for_operator().send(get("http://models.example.com/v1")).await;
    assert_eq!(sent.unwrap().status, 403);
    assert!(came.recv().await.unwrap().starts_with(b"GET http://models.example.com/v1 "));
    // A name that only the proxy knows is left to the proxy.
    proxied.for_organisations().send(get("https://api.example.com/")).await.err().unwrap();
    assert!(came.recv().await.unwrap().starts_with(b"CONNECT api.example.com:443 "));
    // A name that resolves inside is refused here, and so are plainly inside addresses.
    for url in ["https://inside.example.com/", "https://10.0.0.1/", "http://localhost/"] {
        proxied.for_organisations().send(get(url)).await.err().unwrap();
    }
    assert!(came.try_recv().is_err(), "the proxy was asked");
}

#[tokio::test]
async fn allowed_hosts_and_this_machine_are_not_behind_the_proxy() {
    let (proxy, mut asked) = listener(REFUSES).await;
    let (port, mut came) = listener(REFUSES).await;
    let names = Arc::new(Names::default());
    let proxy = format!("http://127.0.0.1:{proxy}");
    let proxied = egress(&[&format!("127.0.0.1:{port}")], &names, Some(&proxy));
    let url = format!("http://127.0.0.1:{port}/v1");
    proxied.for_organisations().send(get(&url)).await.unwrap();
    proxied.for_operator().send(get(&url)).await.unwrap();
    assert!(came.recv().await.is_some() && came.recv().await.is_some());
    assert!(asked.try_recv().is_err(), "the proxy was asked");
}

#[test]
fn a_ca_bundle_that_holds_no_certificate_is_refused() {
    let with = |bundle: &str| {
        let ca_bundle = Some(bundle.as_bytes().to_vec());
        Egress::new(&EgressOptions { ca_bundle, ..EgressOptions::default() }).err()
    };
    assert!(matches!(with("no PEM"), Some(SetupError::NoCertificates)));
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(with(broken).is_some());
}
