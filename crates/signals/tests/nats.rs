//! Signals through a real `nats-server` on a free port.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use domain::{Incarnation, LocationRef, MessageId, OrgId, PartId, Seq, SessionId, SessionRef};
use signals::{
    Delta, DeltaKind, Dropping, Hint, Nats, NatsError, Received, SessionHint, Signals,
    Subscription, Topic, WorkerHint,
};

/// The longest wait in any test, generous even for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that stops with the test.
struct Server(Child);

impl Server {
    fn start(port: u16) -> Self {
        Self::start_with(port, &[])
    }

    fn start_with(port: u16, more: &[&str]) -> Self {
        let program = ["/usr/sbin/nats-server", "/usr/local/bin/nats-server"]
            .into_iter()
            .find(|path| std::path::Path::new(path).exists())
            .unwrap_or("nats-server");
        let child = Command::new(program)
            .args(["-a", "127.0.0.1", "-p", &port.to_string()])
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nats-server is needed: `./dev test` installs it");
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().expect("our child");
        self.0.wait().expect("our child");
    }
}

async fn connect(port: u16) -> Nats {
    Nats::connect(&format!("nats://127.0.0.1:{port}"), "test").await.expect("a valid URL")
}

async fn connected(nats: &Nats) {
    tokio::time::timeout(PATIENCE, async {
        while !nats.connected() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("nats connects");
}

/// Returns the next hint, skipping "lagged" from new connections.
async fn next(subscription: &mut Subscription) -> Hint {
    loop {
        let received = tokio::time::timeout(PATIENCE, subscription.next());
        match received.await.expect("a hint comes").expect("nats lives") {
            Received::Hint(hint) => return hint,
            Received::Lagged => {}
        }
    }
}

/// Returns every hint, each on its own topic.
fn every_hint() -> Vec<(Topic, Hint)> {
    let location = LocationRef { org: OrgId::random(), location: "loc_a".parse().expect("an id") };
    let session: SessionId = "ses_a".parse().expect("an id");
    let whole = SessionRef {
        org: location.org,
        location: location.location.clone(),
        session: session.clone(),
    };
    let message: MessageId = "msg_a".parse().expect("an id");
    let part: PartId = "prt_a".parse().expect("an id");
    let to_worker = || Topic::Worker(Incarnation::random());
    let to_session = |id: &str| Topic::Session(location.org, id.parse().expect("an id"));
    let (committed, told) = (to_session("ses_a"), to_session("ses_b"));
    vec![
        (to_worker(), Hint::Worker(WorkerHint::Wake { session: whole.clone() })),
        (to_worker(), Hint::Worker(WorkerHint::Interrupt { session: whole.clone() })),
        (to_worker(), Hint::Worker(WorkerHint::Resync { session: whole })),
        (to_worker(), Hint::Worker(WorkerHint::Assigned { location, session: Some(session) })),
        (committed, Hint::Session(SessionHint::Committed { seq: Seq(3), ends: true })),
        (
            told,
            Hint::Session(SessionHint::Delta(Delta {
                message,
                part,
                kind: DeltaKind::Reasoning,
                offset: 5,
                text: "naïve \u{1f980}".to_owned(),
            })),
        ),
    ]
}

#[tokio::test]
async fn every_kind_of_hint_arrives_on_its_topic_only() {
    let port = boot::free_port().expect("a free port");
    let _server = Server::start(port);
    let (from, to) = (connect(port).await, connect(port).await);
    connected(&from).await;
    connected(&to).await;
    for (topic, hint) in every_hint() {
        let mut here = to.subscribe(topic.clone()).await;
        let mut elsewhere = to.subscribe(Topic::Worker(Incarnation::random())).await;
        // The subscription may not have reached the server yet, so repeat until it answers.
        let got = loop {
            from.publish(&topic, hint.clone());
            let soon = tokio::time::timeout(Duration::from_millis(100), next(&mut here)).await;
            if let Ok(got) = soon {
                break got;
            }
        };
        assert_eq!(got, hint);
        let stray = tokio::time::timeout(Duration::from_millis(20), next(&mut elsewhere)).await;
        assert!(stray.is_err(), "{stray:?}");
    }
}

#[tokio::test]
async fn it_starts_without_a_server_and_says_so_when_hints_were_missed() {
    let port = boot::free_port().expect("a free port");
    let nats = connect(port).await;
    let topic = Topic::Worker(Incarnation::random());
    let hint = Hint::Session(SessionHint::Committed { seq: Seq(1), ends: true });
    let mut early = nats.subscribe(topic.clone()).await;
    nats.publish(&topic, hint.clone());
    while nats.dropped() == 0 {
        tokio::task::yield_now().await;
    }
    let server = Server::start(port);
    connected(&nats).await;
    let first = tokio::time::timeout(PATIENCE, early.next()).await;
    assert_eq!(first.expect("in time"), Some(Received::Lagged));
    nats.publish(&topic, hint.clone());
    assert_eq!(next(&mut early).await, hint);

    drop(server);
    while nats.connected() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let _server = Server::start(port);
    connected(&nats).await;
    let again = tokio::time::timeout(PATIENCE, early.next()).await;
    assert_eq!(again.expect("in time"), Some(Received::Lagged));
    nats.publish(&topic, hint.clone());
    assert_eq!(next(&mut early).await, hint);
}

#[tokio::test]
async fn a_reader_that_is_too_slow_is_told_that_it_lost_hints() {
    let port = boot::free_port().expect("a free port");
    let _server = Server::start(port);
    let nats = connect(port).await;
    connected(&nats).await;
    let topic = Topic::Worker(Incarnation::random());
    let mut slow = nats.subscribe(topic.clone()).await;
    let marker = Topic::Worker(Incarnation::random());
    let mut after = nats.subscribe(marker.clone()).await;
    let hint = |seq| Hint::Session(SessionHint::Committed { seq: Seq(seq), ends: true });
    // First skip the messages about the connection itself.
    send(&nats, &topic, hint(-1)).await;
    assert_eq!(next(&mut slow).await, hint(-1));
    while tokio::time::timeout(Duration::from_millis(50), slow.next()).await.is_ok() {}
    for seq in 0..3_000 {
        send(&nats, &topic, hint(seq)).await;
    }
    // Once a later message on the same connection has arrived, they all have.
    send(&nats, &marker, hint(0)).await;
    assert_eq!(next(&mut after).await, hint(0));
    let lagged = async { while slow.next().await.expect("nats lives") != Received::Lagged {} };
    tokio::time::timeout(PATIENCE, lagged).await.expect("it is told");
}

/// Publishes a hint, repeatedly until it is not dropped.
async fn send(nats: &Nats, topic: &Topic, hint: Hint) {
    loop {
        let before = nats.dropped();
        nats.publish(topic, hint.clone());
        if nats.dropped() == before {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn dropping_all_hints_leaves_none() {
    let signals = Dropping::wrap(Arc::new(signals::InProcess::new()), 1.0);
    let topic = Topic::Worker(Incarnation::random());
    let mut subscription = signals.subscribe(topic.clone()).await;
    signals.publish(&topic, Hint::Session(SessionHint::Committed { seq: Seq(1), ends: true }));
    assert_eq!(signals.dropped(), 1);
    assert!(tokio::time::timeout(Duration::from_millis(20), subscription.next()).await.is_err());
}

#[tokio::test]
async fn a_cluster_name_that_would_break_a_subject_is_refused() {
    for name in ["", "a.b", "a*", "a b"] {
        let refused = Nats::connect("nats://127.0.0.1:1", name).await;
        assert!(matches!(refused, Err(NatsError::ClusterName(_))), "{name}");
    }
}

#[tokio::test]
async fn user_and_password_are_taken_from_the_url() {
    let port = boot::free_port().expect("a free port");
    let _server = Server::start_with(port, &["--user", "oc", "--pass", "s3cret"]);
    let url = format!("nats://oc:s3cret@127.0.0.1:{port}");
    let nats = Nats::connect(&url, "test").await.expect("a valid URL");
    connected(&nats).await;
}
