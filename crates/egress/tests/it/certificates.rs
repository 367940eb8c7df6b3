//! Servers whose certificates are not trusted.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderMap, Method};
use egress::{Egress, EgressOptions, Rules};
use llm_client::{Client, Endpoint, LlmError, Options, ProviderTransport, Route, WireRequest};
use llm_protocol::Protocol;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// Starts a server that has this certificate for itself, and returns its port and the certificate in PEM.
async fn server(params: CertificateParams) -> (u16, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(
        tokio_rustls::rustls::crypto::aws_lc_rs::default_provider(),
    ));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    #[expect(clippy::disallowed_methods, reason = "a test's own server")]
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _refused = acceptor.accept(stream).await;
        }
    });
    (port, certificate.pem())
}

fn params(name: &str) -> CertificateParams {
    CertificateParams::new([name.to_owned()]).unwrap()
}

/// Calls a model on the server, and returns the failure.
async fn call(port: u16, ca: Option<&str>) -> LlmError {
    let rules = Rules { allowed: vec!["127.0.0.0/8".parse().unwrap()], ..Rules::default() };
    let ca_bundle = ca.map(|pem| pem.as_bytes().to_vec());
    let egress = Egress::new(&EgressOptions { ca_bundle, ..rules.into() }).unwrap();
    let client = Client::with_transport(Arc::new(egress.for_organisations()), Options::default());
    let endpoint = Endpoint::new(format!("https://127.0.0.1:{port}"));
    let llm = client.on(Route::new(Protocol::OpenAiChat, "m", endpoint));
    llm.send(Bytes::from_static(b"{}")).await.unwrap_err()
}

// Finding reports 28: an unknown authority was told as a server that cannot be reached.
#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_named() {
    let (port, pem) = server(params("127.0.0.1")).await;
    let error = call(port, None).await.to_string();
    assert!(error.contains("its issuer is unknown here"), "{error}");
    assert!(error.contains("--egress-ca") && error.contains("SSL_CERT_FILE"), "{error}");
    assert!(!error.contains("check the base URL, the network"), "{error}");
    // Once it is trusted, another thing is wrong: the server hangs up.
    let error = call(port, Some(&pem)).await.to_string();
    assert!(!error.contains("certificate"), "{error}");
}

#[tokio::test]
async fn other_faults_of_a_certificate_are_named_too() {
    let (port, pem) = server(params("elsewhere.example")).await;
    let error = call(port, Some(&pem)).await.to_string();
    assert!(error.contains("it is for another name"), "{error}");
    let mut old = params("127.0.0.1");
    old.not_before = rcgen::date_time_ymd(2001, 1, 1);
    old.not_after = rcgen::date_time_ymd(2002, 1, 1);
    let (port, pem) = server(old).await;
    let error = call(port, Some(&pem)).await.to_string();
    assert!(error.contains("it has expired"), "{error}");
    let mut authority = params("127.0.0.1");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let (port, _) = server(authority).await;
    let error = call(port, None).await.to_string();
    assert!(error.contains("the server's certificate is not trusted"), "{error}");
}

#[tokio::test]
async fn each_way_out_names_the_certificate() {
    let (port, _) = server(params("127.0.0.1")).await;
    let url: reqwest::Url = format!("https://127.0.0.1:{port}/").parse().unwrap();
    let request = || WireRequest {
        method: Method::GET,
        url: url.clone(),
        headers: HeaderMap::new(),
        body: Bytes::new(),
    };
    let egress = Egress::new(&EgressOptions::default()).unwrap();
    let plain = llm_client::ReqwestTransport::new(&Options::default()).unwrap();
    let transports: [&dyn ProviderTransport; 2] = [&egress.for_operator(), &plain];
    for transport in transports {
        let error = transport.send(request()).await.err().unwrap();
        assert!(error.message.starts_with("the server's certificate is not trusted"), "{error}");
    }
}
