//! A gateway on a real socket, and its shutdown.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use api::{ApiParts, ApiSettings, ModelList, Origins, SpoolSettings};
use async_trait::async_trait;
use credentials::{Credentials, CredentialsParts};
use domain::{Clock, IdMint, ModelRef, OrgId, SessionCreated, SessionId, Stamp, SystemClock};
use egress::{Egress, EgressOptions};
use gateway::{GatewayOptions, serve};
use placement_api::{Heartbeat, HeartbeatReply, PlaceRequest, Placed, Placement, PlacementError};
use signals::InProcess;
use store::{LocationKind, NewSession, Store, StoreOptions};
use tasks::TaskGroup;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

struct NoPlacement;

#[async_trait]
impl Placement for NoPlacement {
    async fn heartbeat(&self, _: Heartbeat) -> Result<HeartbeatReply, PlacementError> {
        Err(PlacementError::NoWorker)
    }

    async fn place(&self, _: PlaceRequest) -> Result<Placed, PlacementError> {
        Err(PlacementError::NoWorker)
    }
}

/// Sends a request and leaves the connection open.
async fn get(address: &str, path: &str, key: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {key}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

/// Reads until `needle` has come, and returns everything read.
async fn read_until(stream: &mut TcpStream, needle: &str) -> Result<String> {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !text.contains(needle) {
        let read = timeout(Duration::from_secs(60), stream.read(&mut buffer)).await?;
        let read = read.with_context(|| format!("reading after {text}"))?;
        anyhow::ensure!(read > 0, "the connection ended after {text}");
        text.push_str(std::str::from_utf8(&buffer[..read])?);
    }
    Ok(text)
}

async fn a_session(store: &Store, org: OrgId, now: i64) -> Result<SessionId> {
    let project = store.ensure_project(org, "/workspace".into(), now).await?;
    let kind = LocationKind::Managed;
    let location =
        store.ensure_location(org, project.id.clone(), kind, "/workspace".into(), now).await?;
    let id = SessionId::mint(&mut IdMint::after(Stamp::default(), now));
    let created = SessionCreated {
        by: None,
        project: project.id,
        location: location.id,
        directory: location.directory,
        title: "test".into(),
        agent: "build".into(),
        model: None,
        parent: None,
        named: false,
        rules: Vec::new(),
        metadata: None,
    };
    store.create_session(org, NewSession { id: id.clone(), created, now }).await?;
    Ok(id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_gateway_is_not_ready_and_sends_its_streams_elsewhere() -> Result<()> {
    let database = testkit::database().await?;
    let store = Store::connect(&StoreOptions::new(database.store_url()))?;
    let now = SystemClock::new().now_ms();
    let org = OrgId::FIRST;
    store.ensure_organisation(org, "test".into(), now).await?;
    let (key, row) = auth::generate_key("test");
    store.create_key(org, row, now).await?;
    let session = a_session(&store, org, now).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let tasks = TaskGroup::root("test");
    let credentials = Credentials::new(CredentialsParts {
        store: store.clone(),
        keys: None,
        egress: Egress::new(&EgressOptions::default())?,
        catalog: None,
        clock: Arc::new(SystemClock::new()),
    });
    let parts = ApiParts {
        store,
        signals: Arc::new(InProcess::new()),
        placement: Arc::new(NoPlacement),
        blobs: None,
        checkouts: None,
        credentials,
        models: ModelList::default(),
        clock: Arc::new(SystemClock::new()),
        tasks: tasks.clone(),
        settings: ApiSettings {
            site: api::Site::new("http://127.0.0.1:4096".parse()?, Vec::new(), "test"),
            origins: Origins::default(),
            allow_local_paths: false,
            default_directory: None,
            default_model: ModelRef::new("p", "m").into(),
            default_agent: "build".into(),
            version: "test".into(),
            simulated: true,
            hold: std::time::Duration::from_secs(1),
            upload_quota: 0,
        },
        spools: SpoolSettings {
            folder: std::env::temp_dir(),
            most_bytes: 0,
            room: Arc::new(|_| None),
        },
    };
    let options = GatewayOptions {
        notice: Duration::from_secs(3),
        grace: Duration::from_secs(30),
        ..GatewayOptions::default()
    };
    let gateway = serve(listener, None, options, parts)?;
    assert_eq!(gateway.url(), format!("http://{address}"));
    let ready = read_until(&mut get(&address, "/readyz", &key).await?, "ready\":").await?;
    assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
    let log = format!("/platform/session/{session}/log?follow=true");
    let mut stream = get(&address, &log, &key).await?;
    read_until(&mut stream, "event: session.created").await?;
    let (stopped, seen) =
        tokio::join!(timeout(Duration::from_secs(60), gateway.shutdown()), async {
            tokio::task::yield_now().await;
            // During the notice requests are still served, but `/readyz` tells load balancers.
            let unready =
                read_until(&mut get(&address, "/readyz", &key).await?, "shutting down").await?;
            anyhow::ensure!(unready.starts_with("HTTP/1.1 503"), "{unready}");
            read_until(&mut stream, "event: reconnect").await
        });
    stopped.context("the gateway did not stop in time")?;
    seen?;
    assert!(TcpStream::connect(&address).await.is_err(), "nobody listens any more");
    assert!(tasks.shutdown(Duration::from_secs(30)).await.is_clean());
    Ok(())
}
