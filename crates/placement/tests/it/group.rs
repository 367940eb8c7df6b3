//! Three members over loopback HTTP: the leader and workers die, members join and leave.

use std::sync::Arc;
use std::time::{Duration, Instant};

use placement_api::{Placement, PlacementAdmin, PlacementError};
use tempfile::TempDir;

use crate::harness::{
    FakeWorker, PATIENCE, Running, SECRET, SUSPICION, World, admin, beat, client, hear, place,
    request, until, within, worker,
};

/// Takes the leader out of `members`.
fn take_leader(members: &mut Vec<Running>) -> Running {
    let leader = members.iter().find_map(|member| member.node.status().leader).expect("one leads");
    let at = members.iter().position(|member| member.id == leader).expect("it is one of them");
    members.remove(at)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leader_keeps_leases_and_waits_before_it_declares_anyone_dead() {
    let (world, dir) = (World::mortal(), TempDir::new().expect("a folder"));
    let mut members = world.group(3, dir.path()).await;
    let all = client(&members);
    let lives = FakeWorker::start(&world, "lives", all.clone()).await;
    let dies = FakeWorker::start(&world, "dies", all.clone()).await;
    let mut before = Vec::new();
    for nth in 0..30 {
        before.push(place(&*all, nth).await);
    }
    let of_dead = before.iter().filter(|placed| placed.worker == dies.worker).count();
    assert!((5..=25).contains(&of_dead), "{of_dead} of 30");
    // The same holds in the process of a follower.
    for member in &members {
        let placed = member.node.local().place(request(3)).await.expect("held");
        assert_eq!(placed, before[3]);
    }
    for member in &members {
        until(&member.node, |status| status.leases == 30).await;
    }

    let leader = take_leader(&mut members);
    dies.kill().await;
    let port = leader.stop().await;
    let leaderless = Instant::now();
    let led = loop {
        if let Some(member) =
            members.iter().find(|member| member.node.status().leader == Some(member.id))
        {
            break member;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let status = led.node.status();
    assert_eq!((status.leases, status.workers.len()), (30, 2), "nobody is dead yet");
    until(&led.node, |status| status.workers.len() == 1).await;
    let waited = leaderless.elapsed();
    assert!(waited >= SUSPICION, "declared dead {waited:?} after the last leader's end");
    lives.until(|known| known.leases.len() == 30).await;
    for old in &before {
        let new = all.place(placement_api::PlaceRequest {
            location: old.lease.location.clone(),
            session: None,
        });
        let new = new.await.expect("held");
        assert_eq!(new.worker, lives.worker);
        if old.worker == lives.worker {
            assert_eq!(new, *old, "a live worker keeps its leases");
        } else {
            assert!(new.lease.token > old.lease.token);
        }
    }
    let late = all.heartbeat(beat(&dies.worker, 0)).await;
    assert!(matches!(late, Err(PlacementError::Superseded)), "{late:?}");

    // The old leader comes back and catches up.
    let old =
        (1..=3).find(|id| members.iter().all(|member| member.id != *id)).expect("one is away");
    let back = world.member(old, port, dir.path()).await;
    until(&back.node, |status| status.leases == 30 && status.workers.len() == 1).await;
    back.stop().await;
    for member in members {
        member.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_was_away_gets_the_raft_snapshot_when_the_log_is_purged() {
    let (mut world, dir) = (World::new(), TempDir::new().expect("a folder"));
    world.timing.snapshot_every = 20;
    world.timing.keep_entries = 2;
    let mut members = world.group(3, dir.path()).await;
    let leader = take_leader(&mut members);
    let (id, port) = {
        let away = members.remove(0);
        (away.id, away.stop().await)
    };
    let one = worker("one");
    hear(&leader.node.local(), beat(&one, 0)).await;
    for nth in 0..80 {
        place(&leader.node.local(), nth).await;
    }
    let ahead = until(&leader.node, |status| status.purged > 40).await;
    let back = world.member(id, port, dir.path()).await;
    let caught_up = until(&back.node, |status| status.leases == 80).await;
    assert!(caught_up.applied >= ahead.purged);
    // It also has them on its own disk, and can lead.
    back.stop().await;
    let back = world.member(id, port, dir.path()).await;
    until(&back.node, |status| status.leases == 80).await;
    let lease = place(&leader.node.local(), 3).await.lease;
    leader.stop().await;
    let rest: Vec<Running> = members.into_iter().chain([back]).collect();
    let held = client(&rest);
    assert_eq!(place(&*held, 3).await.lease, lease);
    for member in rest {
        member.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_come_and_go_and_one_that_is_not_there_does_no_harm() {
    let (mut world, dir) = (World::new(), TempDir::new().expect("a folder"));
    world.timing.catch_up = Duration::from_secs(1);
    let mut members = world.group(1, dir.path()).await;
    for id in [2, 3] {
        let member = world.member(id, 0, dir.path()).await;
        admin(&members).add_member(id, &member.url).await.expect("joins");
        members.push(member);
    }
    let all = client(&members);
    let _one = FakeWorker::start(&world, "one", all.clone()).await;
    let lease = place(&*all, 1).await.lease;
    let status = admin(&members).status().await.expect("answers");
    let voters = status.members.iter().filter(|member| member.voter).count();
    assert_eq!((status.members.len(), voters, status.leases), (3, 3, 1));

    let taken = admin(&members).add_member(2, "http://127.0.0.1:9").await;
    assert!(matches!(taken, Err(PlacementError::Invalid { .. })), "{taken:?}");
    let twice = admin(&members[1..2]).init(&[members[1].member()]).await;
    assert!(matches!(twice, Err(PlacementError::Invalid { .. })), "{twice:?}");

    // A typing error in a URL does not cost the group its majority.
    let absent = admin(&members).add_member(4, "http://127.0.0.1:9").await;
    assert!(matches!(absent, Err(PlacementError::Invalid { .. })), "{absent:?}");
    let status = until(&members[0].node, |status| status.members.len() == 3).await;
    assert!(status.members.iter().all(|member| member.id != 4));

    // The founder, which leads, is removed. The others continue with its state.
    admin(&members).remove_member(1).await.expect("removed");
    let first = members.remove(0);
    first.stop().await;
    let rest = client(&members);
    assert_eq!(place(&*rest, 1).await.lease, lease);
    let status = until(&members[0].node, |status| status.members.len() == 2).await;
    assert!(status.members.iter().all(|member| member.id != 1));
    let unknown = admin(&members).remove_member(1).await;
    assert!(matches!(unknown, Err(PlacementError::Invalid { .. })), "{unknown:?}");
    for member in members {
        member.stop().await;
    }
}

#[tokio::test]
async fn without_the_cluster_secret_nothing_is_told() {
    let (world, dir) = (World::new(), TempDir::new().expect("a folder"));
    let mut members = world.group(1, dir.path()).await;
    let url = members[0].url.clone();
    for secret in [None, Some(String::new()), Some("a cluster secreT".to_owned())] {
        let stranger = PlacementAdmin::new(vec![url.clone()], secret);
        let refused = stranger.status().await.expect_err("refused").to_string();
        assert!(refused.contains("--cluster-secret"), "{refused}");
    }
    let known = PlacementAdmin::new(vec![url], Some(SECRET.to_owned()));
    assert_eq!(within(PATIENCE, known.status()).await.expect("answers").id, 1);
    members.remove(0).stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_a_majority_does_not_answer() {
    let (world, dir) = (World::mortal(), TempDir::new().expect("a folder"));
    let mut members = world.group(3, dir.path()).await;
    let leader = take_leader(&mut members);
    let one = FakeWorker::start(&world, "one", Arc::new(leader.node.local())).await;
    let placed = place(&leader.node.local(), 1).await;
    for member in members {
        member.stop().await;
    }
    let end = Instant::now() + PATIENCE;
    loop {
        match leader.node.local().place(request(1)).await {
            Ok(held) => assert_eq!(held, placed),
            Err(error) => {
                assert!(matches!(error, PlacementError::Unreachable { .. }), "{error}");
                break;
            }
        }
        assert!(Instant::now() < end, "it goes on alone");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // A leader that cannot know declares no worker dead.
    one.kill().await;
    tokio::time::sleep(SUSPICION * 2).await;
    assert_eq!(leader.node.status().workers.len(), 1);
    let url: Arc<dyn Placement> = client(std::slice::from_ref(&leader));
    let refused = url.heartbeat(beat(&one.worker, 0)).await;
    assert!(matches!(refused, Err(PlacementError::Unreachable { .. })), "{refused:?}");
    leader.stop().await;
}

/// Waits until a member's readiness is as wanted, and returns what it says.
async fn until_readiness(
    member: &Running,
    wanted: impl Fn(Option<&str>) -> bool,
) -> Option<String> {
    let end = Instant::now() + PATIENCE;
    loop {
        let why = member.node.readiness().why_unready();
        if wanted(why.as_deref()) {
            return why;
        }
        assert!(Instant::now() < end, "member {}: {why:?}", member.id);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

// Finding ops B6: a member without a quorum was ready, and so was one without a group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_is_ready_while_a_majority_is_there() {
    let (world, dir) = (World::new(), TempDir::new().expect("a folder"));
    let alone = world.member(4, 0, dir.path()).await;
    let why = alone.node.readiness().why_unready().expect("it has no group");
    assert!(why.contains("placement init") && why.contains("placement add"), "{why}");
    let mut members = world.group(3, dir.path()).await;
    for member in &members {
        until_readiness(member, |why| why.is_none()).await;
    }
    // The group elects another leader, and nobody stops being ready for that.
    let leader = take_leader(&mut members);
    leader.stop().await;
    let end = Instant::now() + PATIENCE;
    while members.iter().all(|member| member.node.status().leader != Some(member.id)) {
        for member in &members {
            assert_eq!(member.node.readiness().why_unready(), None);
        }
        assert!(Instant::now() < end, "nobody leads");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The one that is left is of no use, whether it led or not.
    let stopped = members.remove(0);
    let (id, other) = (stopped.id, stopped.stop().await);
    let why = until_readiness(&members[0], |why| why.is_some()).await.expect("a reason");
    assert!(why.contains("no majority") && why.contains("--cluster-secret"), "{why}");
    let back = world.member(id, other, dir.path()).await;
    until_readiness(&members[0], |why| why.is_none()).await;
    until_readiness(&back, |why| why.is_none()).await;
    for member in members.into_iter().chain([back, alone]) {
        member.stop().await;
    }
}

/// Waits until the leader stops answering because it has no majority.
async fn until_alone(leader: &Running) {
    let end = Instant::now() + PATIENCE;
    while leader.node.local().place(request(1)).await.is_ok() {
        assert!(Instant::now() < end, "it goes on alone");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

// Finding cluster 2: a member whose folder was lost silently rejoined under its number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_with_an_emptied_folder_does_not_count() {
    let (world, dir) = (World::new(), TempDir::new().expect("a folder"));
    let mut members = world.group(3, dir.path()).await;
    let leader = take_leader(&mut members);
    hear(&leader.node.local(), beat(&worker("one"), 0)).await;
    let placed = place(&leader.node.local(), 1).await;
    let (lost, other) = (members.remove(0), members.remove(0));
    let (id, other_id) = (lost.id, other.id);
    let port = lost.stop().await;
    std::fs::remove_dir_all(dir.path().join(id.to_string())).expect("emptied");
    let empty = world.member(id, port, dir.path()).await;
    let failure = within(PATIENCE, empty.role.failed()).await;
    assert!(failure.reason.contains(&format!("placement remove {id}")), "{failure}");

    // By their numbers, two of three members are present.
    let other_port = other.stop().await;
    until_alone(&leader).await;
    assert_eq!(empty.node.status().applied, 0, "nothing was sent to it");

    // The remedy in the message: remove the number, add a new member.
    let other = world.member(other_id, other_port, dir.path()).await;
    assert_eq!(place(&leader.node.local(), 1).await, placed);
    empty.stop().await;
    let rest = [leader, other];
    let led = admin(&rest);
    led.remove_member(id).await.expect("removed");
    let fresh = world.member(4, 0, dir.path()).await;
    led.add_member(4, &fresh.url).await.expect("joins");
    until(&fresh.node, |status| status.leases == 1).await;
    for member in rest.into_iter().chain([fresh]) {
        member.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_is_founded_only_of_members_that_answer() {
    let (world, dir) = (World::new(), TempDir::new().expect("a folder"));
    let one = world.member(1, 0, dir.path()).await;
    let two = world.member(2, 0, dir.path()).await;
    let away = placement_api::Member { url: "http://127.0.0.1:9".to_owned(), ..two.member() };
    let misnamed = placement_api::Member { id: 3, ..two.member() };
    for (wrong, why) in [(away, "does not answer"), (misnamed, "is member 2, not 3")] {
        let refused = one.node.init(&[one.member(), wrong]).await;
        assert!(
            matches!(&refused, Err(PlacementError::Invalid { reason }) if reason.contains(why)),
            "{refused:?}"
        );
    }
    one.node.init(&[one.member(), two.member()]).await.expect("founded");
    within(PATIENCE, two.node.ready()).await;
    for member in [one, two] {
        member.stop().await;
    }
}

// Finding cluster 6: workers that reach only followers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_passes_calls_on_to_the_leader() {
    let (world, dir) = (World::new(), TempDir::new().expect("a folder"));
    let mut members = world.group(3, dir.path()).await;
    let leader = take_leader(&mut members);
    let worker = worker("one");
    hear(&leader.node.local(), beat(&worker, 0)).await;
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let call = |pass_on: bool| {
        let request = http
            .post(format!("{}/placement/place", members[0].url))
            .bearer_auth(SECRET)
            .json(&request(1));
        if pass_on { request.header(placement_api::PASS_ON, "1") } else { request }
    };
    let named = call(false).send().await.expect("an answer");
    assert_eq!(named.status().as_u16(), 421);
    let passed = call(true).send().await.expect("an answer");
    assert!(passed.status().is_success(), "{}", passed.status());
    let placed: placement_api::Placed = passed.json().await.expect("who holds it");
    assert_eq!(placed.worker, worker);
    for member in members.into_iter().chain([leader]) {
        member.stop().await;
    }
}

// Finding security 8: `raft/vote` accepted any content type, so a web page could call it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_internal_listener_refuses_browsers_and_forms() {
    let (world, dir) = (World::mortal(), TempDir::new().expect("a folder"));
    let members = world.group(1, dir.path()).await;
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let vote = format!("{}/placement/raft/vote", members[0].url);
    let ask = |headers: &[(&'static str, &'static str)]| {
        let mut request = http.post(&vote).bearer_auth(SECRET).body("{}");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        async move { request.send().await.expect("an answer").status().as_u16() }
    };
    assert_eq!(ask(&[]).await, 415);
    assert_eq!(ask(&[("content-type", "text/plain")]).await, 415);
    let json = ("content-type", "application/json");
    for browser in [("origin", "http://127.0.0.1"), ("sec-fetch-site", "none"), ("cookie", "a=b")] {
        assert_eq!(ask(&[json, browser]).await, 403, "{browser:?}");
    }
    assert_eq!(ask(&[json]).await, 400, "it is read, and is no vote");
    let without = http.post(&vote).header(json.0, json.1).body("{}").send().await;
    assert_eq!(without.expect("an answer").status().as_u16(), 401);
}
