//! Tests of how the client finds the leader, against small servers that play the members.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{
    Json, Router,
    routing::{get, post},
};
use domain::{FencingToken, Incarnation, LocationRef, OrgId};
use placement_api::{
    HttpPlacement, Lease, NotLeader, PlaceRequest, Placed, Placement, PlacementError, Worker,
};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

enum Role {
    Leads,
    /// A follower: names its leader, or passes a call on if asked to.
    Follows(Option<String>),
    Names(Option<String>),
    Hangs,
    Says(PlacementError),
}

struct Peer {
    url: String,
    asked: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn location() -> LocationRef {
    LocationRef { org: OrgId::FIRST, location: "loc_a".parse().expect("an id") }
}

fn placed(incarnation: Incarnation) -> Placed {
    let url = "http://127.0.0.1:1".to_owned();
    Placed {
        worker: Worker { incarnation, node: "a".to_owned(), url, slots: 1 },
        lease: Lease { location: location(), token: FencingToken(5) },
    }
}

async fn bound() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    (listener, url)
}

async fn answer(headers: HeaderMap, role: Arc<Role>, incarnation: Incarnation) -> Response {
    if headers.get("authorization").is_none_or(|value| value != "Bearer a secret") {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    match &*role {
        Role::Leads => Json(placed(incarnation)).into_response(),
        Role::Names(leader) => {
            (StatusCode::MISDIRECTED_REQUEST, Json(NotLeader::new(leader.clone()))).into_response()
        }
        Role::Follows(_) if headers.contains_key(placement_api::PASS_ON) => {
            Json(placed(incarnation)).into_response()
        }
        Role::Follows(leader) => {
            (StatusCode::MISDIRECTED_REQUEST, Json(NotLeader::new(leader.clone()))).into_response()
        }
        Role::Hangs => std::future::pending().await,
        Role::Says(error) => (StatusCode::SERVICE_UNAVAILABLE, Json(error)).into_response(),
    }
}

async fn prove_secret(headers: HeaderMap) -> StatusCode {
    let shown = headers.get("authorization");
    let is_right = shown.is_some_and(|value| value == "Bearer a secret");
    if is_right { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
}

async fn answer_beat(role: Arc<Role>) -> Response {
    match &*role {
        Role::Leads => Json(placement_api::HeartbeatReply::unchanged(1)).into_response(),
        Role::Names(leader) | Role::Follows(leader) => {
            (StatusCode::MISDIRECTED_REQUEST, Json(NotLeader::new(leader.clone()))).into_response()
        }
        Role::Hangs => std::future::pending().await,
        Role::Says(error) => (StatusCode::SERVICE_UNAVAILABLE, Json(error)).into_response(),
    }
}

fn serve((listener, url): (TcpListener, String), role: Role, incarnation: Incarnation) -> Peer {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let role = Arc::new(role);
    let (beaten, beat_role) = (count.clone(), role.clone());
    let answer = move |headers: HeaderMap| {
        count.fetch_add(1, Ordering::Relaxed);
        answer(headers, role.clone(), incarnation)
    };
    let beat_answer = move || {
        beaten.fetch_add(1, Ordering::Relaxed);
        answer_beat(beat_role.clone())
    };
    let router = Router::new()
        .route("/placement/place", post(answer.clone()))
        .route("/placement/secret", get(prove_secret))
        .route("/placement/heartbeat", post(beat_answer));
    #[expect(clippy::disallowed_methods, reason = "ended by `Peer`")]
    let task = tokio::spawn(async move {
        axum::serve(listener, router).await.expect("serves until it is aborted");
    });
    Peer { url, asked, task }
}

fn client(peers: &[&Peer]) -> HttpPlacement {
    let peers = peers.iter().map(|peer| peer.url.clone()).collect();
    HttpPlacement::new(peers, Some("a secret".to_owned()))
}

fn request() -> PlaceRequest {
    PlaceRequest { location: location(), session: None }
}

#[tokio::test]
async fn it_follows_who_leads_and_remembers_it() {
    let incarnation = Incarnation::random();
    let leader = serve(bound().await, Role::Leads, incarnation);
    let follower = serve(bound().await, Role::Names(Some(leader.url.clone())), incarnation);
    let client = client(&[&follower]);
    for _ in 0..3 {
        assert_eq!(client.place(request()).await.expect("placed"), placed(incarnation));
    }
    assert_eq!(follower.asked.load(Ordering::Relaxed), 1);
    assert_eq!(leader.asked.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_frozen_leader_and_a_stale_answer_do_not_keep_it_from_the_new_one() {
    let incarnation = Incarnation::random();
    let frozen = serve(bound().await, Role::Hangs, incarnation);
    let stale = serve(bound().await, Role::Names(Some(frozen.url.clone())), incarnation);
    let leader = serve(bound().await, Role::Leads, incarnation);
    let client = client(&[&frozen, &stale, &leader]);
    assert_eq!(client.place(request()).await.expect("placed"), placed(incarnation));
    assert_eq!(frozen.asked.load(Ordering::Relaxed), 1);
}

/// Sends a heartbeat. On a busy machine the answer may be late, but a client that waits for two dead members
/// gets none.
async fn beats(client: &HttpPlacement, incarnation: Incarnation) -> Result<(), PlacementError> {
    let beat = placement_api::Heartbeat::new(placed(incarnation).worker, 0);
    client.heartbeat(beat).await.map(drop)
}

// Finding cluster 5: with two dead members first, the client never found the leader.
#[tokio::test]
async fn a_heartbeat_finds_the_leader_behind_dark_members() {
    let incarnation = Incarnation::random();
    let dark = serve(bound().await, Role::Hangs, incarnation);
    let dark_too = serve(bound().await, Role::Hangs, incarnation);
    let leader = serve(bound().await, Role::Leads, incarnation);
    let follower = serve(bound().await, Role::Names(Some(leader.url.clone())), incarnation);
    let client = client(&[&dark, &dark_too, &follower, &leader]);
    let mut answered = 0;
    for _ in 0..10 {
        answered += usize::from(beats(&client, incarnation).await.is_ok());
    }
    assert!(answered >= 5, "{answered} of 10 heartbeats");
    assert_eq!(dark.asked.load(Ordering::Relaxed), 1, "later calls begin where one ended");
}

// Finding cluster 6: a leader that members reach and workers do not.
#[tokio::test]
async fn a_leader_out_of_reach_is_asked_through_a_follower() {
    let incarnation = Incarnation::random();
    let dark = serve(bound().await, Role::Hangs, incarnation);
    let follower = serve(bound().await, Role::Follows(Some(dark.url.clone())), incarnation);
    let client = client(&[&dark, &follower]);
    for _ in 0..3 {
        assert_eq!(client.place(request()).await.expect("placed"), placed(incarnation));
    }
    assert_eq!(dark.asked.load(Ordering::Relaxed), 3, "the leader itself is asked as well");
}

#[tokio::test]
async fn without_a_leader_it_gives_up_in_time_and_says_what_it_tried() {
    let incarnation = Incarnation::random();
    let one = serve(bound().await, Role::Names(None), incarnation);
    let (closed, gone) = bound().await;
    drop(closed);
    let client = HttpPlacement::new(vec![one.url.clone(), gone], Some("a secret".to_owned()));
    let begun = Instant::now();
    let error = client.place(request()).await.expect_err("nobody leads");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let said = error.to_string();
    assert!(said.contains("not the leader") && said.contains("does not accept"), "{said}");
    assert!(one.asked.load(Ordering::Relaxed) > 1);
}

#[tokio::test]
async fn a_refusal_of_the_leader_is_the_answer() {
    let incarnation = Incarnation::random();
    let leader = serve(bound().await, Role::Says(PlacementError::NoWorker), incarnation);
    let refused = client(&[&leader]).place(request()).await;
    assert!(matches!(refused, Err(PlacementError::NoWorker)), "{refused:?}");
    assert_eq!(leader.asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_wrong_secret_is_named() {
    let incarnation = Incarnation::random();
    let leader = serve(bound().await, Role::Leads, incarnation);
    let client = HttpPlacement::new(vec![leader.url.clone()], None);
    let error = client.place(request()).await.expect_err("refused");
    assert!(error.to_string().contains("--cluster-secret"), "{error}");
}

// Finding ops B6: a gateway with a wrong secret was ready.
#[tokio::test]
async fn a_secret_is_refused_by_members_that_answer_and_no_other() {
    let incarnation = Incarnation::random();
    let member = serve(bound().await, Role::Names(None), incarnation);
    let (closed, gone) = bound().await;
    drop(closed);
    let with = |peers: &[&str], secret: &str| {
        let peers = peers.iter().map(|peer| (*peer).to_owned()).collect();
        HttpPlacement::new(peers, Some(secret.to_owned()))
    };
    for (peers, secret, is_accepted) in [
        (&[&*member.url, &*gone][..], "a secret", true),
        (&[&*member.url, &*gone], "another", false),
        (&[&*gone], "another", true), // nobody has refused it yet
    ] {
        assert_eq!(
            with(peers, secret).prove_secret().await.is_ok(),
            is_accepted,
            "{peers:?} {secret}"
        );
    }
    // A refusal stays known while nobody answers.
    let wrong = with(&[&member.url], "another");
    assert!(wrong.prove_secret().await.is_err());
    drop(member);
    assert!(wrong.prove_secret().await.is_err(), "nothing has changed");
}

// Finding ops, polish: an error listed each member three times.
#[tokio::test]
async fn an_error_names_each_member_once() {
    let incarnation = Incarnation::random();
    let [one, two] = [bound().await, bound().await];
    let (one, two) = (serve(one, Role::Leads, incarnation), serve(two, Role::Leads, incarnation));
    let peers = vec![one.url.clone(), two.url.clone()];
    let client = HttpPlacement::new(peers.clone(), Some("another".to_owned()));
    let said = client.place(request()).await.expect_err("refused").to_string();
    for peer in &peers {
        assert_eq!(said.matches(peer.as_str()).count(), 1, "{said}");
    }
    assert_eq!(said.matches("refused the cluster secret").count(), 1, "{said}");
}
