use std::sync::Arc;

use bytes::Bytes;
use llm_client::{ProviderTransport, TransportError, WireRequest};
use llm_protocol::Delivery;
use reqwest::header::HeaderMap;
use reqwest::{Method, Url};

use crate::world::{Names, egress, is_handshake, listener};

async fn send(transport: &egress::Transport, url: &str) -> Result<(), TransportError> {
    let url = Url::parse(url).unwrap();
    let (headers, body) = (HeaderMap::new(), Bytes::new());
    let request = WireRequest { method: Method::GET, url, headers, body };
    transport.send(request).await.map(|_| ())
}

// Finding security 4: a name that resolves to an inside address passed, because nothing checked the
// connection's address.
#[tokio::test]
async fn a_name_that_leads_inside_is_refused_without_a_connection() {
    let (port, mut came) = listener("").await;
    for addresses in [
        &["127.0.0.1"][..],
        &["10.0.0.1"],
        &["169.254.169.254"],
        &["::1"],
        &["64:ff9b::7f00:1"],
        &["2002:7f00:1::"],
        &["1.1.1.1", "127.0.0.1"],
    ] {
        let names = Arc::new(Names::default().with("api.example.com", &[addresses]));
        let transport = egress(&[], &names, None).for_organisations();
        let error = send(&transport, &format!("https://api.example.com:{port}/")).await;
        let error = error.unwrap_err();
        assert!(error.message.contains("`api.example.com` leads to"), "{}", error.message);
        assert!(error.message.contains("--egress-allow"), "{}", error.message);
        assert_eq!(error.delivery, Delivery::NotSent);
    }
    assert!(came.try_recv().is_err(), "somebody connected");
}

#[tokio::test]
async fn a_connection_goes_to_the_address_that_was_checked() {
    let (port, mut came) = listener("").await;
    // A second lookup would give an unchecked address.
    let names = Names::default().with("api.example.com", &[&["127.0.0.1"], &["10.0.0.1"]]);
    let names = Arc::new(names);
    let transport = egress(&["127.0.0.0/8"], &names, None).for_organisations();
    let url = format!("https://api.example.com:{port}/");
    send(&transport, &url).await.unwrap_err(); // the listener does not speak TLS
    assert!(is_handshake(&came.recv().await.unwrap()));
    assert_eq!(names.asked(), 1);
    let error = send(&transport, &url).await.unwrap_err();
    assert!(error.message.contains("leads to 10.0.0.1"), "{}", error.message);
}

#[tokio::test]
async fn what_the_operator_configured_or_allowed_is_reached_as_such() {
    let (port, mut came) = listener("HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
    let names = Arc::new(Names::default());
    let url = format!("http://127.0.0.1:{port}/v1");
    let strict = egress(&[], &names, None);
    send(&strict.for_operator(), &url).await.unwrap();
    let refused = send(&strict.for_organisations(), &url).await.unwrap_err();
    assert!(refused.message.contains("private network"), "{}", refused.message);
    let allowed = egress(&[&format!("127.0.0.1:{port}")], &names, None).for_organisations();
    send(&allowed, &url).await.unwrap();
    assert!(came.recv().await.unwrap().starts_with(b"GET /v1 "));
    assert!(came.recv().await.unwrap().starts_with(b"GET /v1 "));
    assert!(came.try_recv().is_err());
}
