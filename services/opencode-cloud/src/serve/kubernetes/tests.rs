//! The request against a small API with a certificate of its own.

use std::fs;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

/// Answers one request with `answer`, and returns the request's text.
async fn api(answer: &'static str) -> (ApiArgs, TempDir, impl Future<Output = String>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
    let folder = tempfile::tempdir().expect("a folder");
    for (file, text) in
        [("token", "t0ken\n"), ("namespace", "team-a"), ("ca.crt", &made.cert.pem())]
    {
        fs::write(folder.path().join(file), text).expect("written");
    }
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a certificate");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let args = ApiArgs {
        api_host: Some("localhost".to_owned()),
        api_port: listener.local_addr().expect("bound").port(),
        api_account: folder.path().to_owned(),
    };
    let asked = async move {
        let (stream, _) = listener.accept().await.expect("accepted");
        let mut stream =
            TlsAcceptor::from(Arc::new(config)).accept(stream).await.expect("a handshake");
        let mut text = String::new();
        let mut some = [0; 4096];
        while !text.ends_with(r#""type":"Opaque"}"#) {
            let read = stream.read(&mut some).await.expect("a request");
            assert!(read > 0, "it ended after {text}");
            text.push_str(std::str::from_utf8(&some[..read]).expect("a text"));
        }
        stream.write_all(answer.as_bytes()).await.expect("answered");
        stream.shutdown().await.expect("closed");
        text
    };
    (args, folder, asked)
}

async fn create(answer: &'static str) -> (Result<Made, String>, String) {
    let (args, _folder, asked) = api(answer).await;
    let values = BTreeMap::from([("cluster-secret".to_owned(), "s".to_owned())]);
    let (made, asked) = tokio::join!(args.create_secret("oc", &values), asked);
    (made.map_err(|error| error.to_string()), asked)
}

#[tokio::test]
async fn a_secret_is_created_once_and_never_replaced() {
    let (made, asked) =
        create("HTTP/1.1 201 Created\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}").await;
    assert_eq!(made, Ok(Made::Created));
    assert!(asked.starts_with("POST /api/v1/namespaces/team-a/secrets HTTP/1.1"), "{asked}");
    assert!(asked.contains("authorization: Bearer t0ken\r\n"), "{asked}");
    assert!(asked.contains(r#""stringData":{"cluster-secret":"s"}"#), "{asked}");
    let (kept, _) =
        create("HTTP/1.1 409 Conflict\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}").await;
    assert_eq!(kept, Ok(Made::Kept));
}

#[tokio::test]
async fn a_refusal_and_a_place_that_is_no_pod_are_told() {
    let forbidden = "HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-length: 34\r\n\r\n{\"message\":\"user may not do that\"}\n";
    let (refused, _) = create(forbidden).await;
    let told = refused.expect_err("forbidden");
    assert!(told.contains("refused to create the Secret oc") && told.contains("may not"), "{told}");
    let nowhere = ApiArgs { api_host: None, api_port: 443, api_account: "/nowhere".into() };
    let told = nowhere.create_secret("oc", &BTreeMap::new()).await.expect_err("no pod").to_string();
    assert!(told.contains("works in a pod only"), "{told}");
    let without = ApiArgs { api_host: Some("localhost".into()), ..nowhere };
    let told = without.create_secret("oc", &BTreeMap::new()).await.expect_err("no account");
    assert!(told.to_string().contains("automountServiceAccountToken"), "{told}");
}
