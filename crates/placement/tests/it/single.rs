//! A group of one: the embedded default.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::{Generation, Incarnation};
use placement::{DiskError, NodeError, Options, PlacementNode};
use placement_api::{Heartbeat, Placement, PlacementError};
use signals::{Hint, Received, Signals, Subscription, Topic, WorkerHint};
use tempfile::TempDir;

use crate::harness::{
    FakeWorker, PATIENCE, World, beat, location, place, request, session, until, within, worker,
};

async fn hint(subscription: &mut Subscription) -> WorkerHint {
    match within(PATIENCE, subscription.next()).await {
        Some(Received::Hint(Hint::Worker(hint))) => hint,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn leases_survive_a_restart_and_are_announced() {
    let (world, dir) = (World::new(), TempDir::new().expect("a folder"));
    let node = world.single(dir.path()).await;
    let local = node.local();
    let refused = local.place(request(1)).await;
    assert!(matches!(refused, Err(PlacementError::NoWorker)), "{refused:?}");

    let one = worker("one");
    let mut hints = world.signals.subscribe(Topic::Worker(one.incarnation)).await;
    let reply = local.heartbeat(beat(&one, 0)).await.expect("registered");
    assert_eq!(reply.leases, Some(Vec::new()));
    let placed = local.place(request(1)).await.expect("placed");
    assert_eq!(placed.worker, one);
    assert_eq!(placed.lease.token.0 >> 40, 3, "the generation");
    let assigned =
        WorkerHint::Assigned { location: location(1), session: Some(session(1).session) };
    assert_eq!(hint(&mut hints).await, assigned);
    assert_eq!(local.place(request(1)).await.expect("held"), placed);
    assert_eq!(hint(&mut hints).await, WorkerHint::Wake { session: session(1) });

    let news = local.heartbeat(beat(&one, reply.version)).await.expect("alive");
    assert_eq!(news.leases, Some(vec![placed.lease.clone()]));
    let none = local.heartbeat(beat(&one, news.version)).await.expect("alive");
    assert_eq!((none.leases, none.version), (None, news.version));

    node.shutdown().await;
    let gone = within(PATIENCE, local.place(request(1))).await;
    assert!(matches!(gone, Err(PlacementError::Unreachable { .. })), "{gone:?}");

    let node = world.single(dir.path()).await;
    assert_eq!(node.local().place(request(1)).await.expect("kept"), placed);
    let same = node.local().heartbeat(beat(&one, news.version)).await.expect("known");
    assert_eq!((same.leases, same.version), (None, news.version));
    let next = node.local().place(request(2)).await.expect("placed");
    assert!(next.lease.token > placed.lease.token);
    node.shutdown().await;
}

#[tokio::test]
async fn a_silent_worker_is_superseded_and_its_locations_go_to_others() {
    let (world, dir) = (World::mortal(), TempDir::new().expect("a folder"));
    let node = world.single(dir.path()).await;
    let dead = FakeWorker::start(&world, "dead", Arc::new(node.local())).await;
    let mut before = Vec::new();
    for nth in 0..40 {
        before.push(place(&node.local(), nth).await);
    }
    dead.until(|known| known.leases.len() == 40).await;
    let heir = FakeWorker::start(&world, "heir", Arc::new(node.local())).await;
    let mut hints = world.signals.subscribe(Topic::Worker(heir.incarnation())).await;
    dead.kill().await;
    heir.until(|known| known.leases.len() == 40).await;
    let mut announced = BTreeSet::new();
    while announced.len() < 40 {
        if let WorkerHint::Assigned { location, session: None } = hint(&mut hints).await {
            announced.insert(location);
        }
    }
    let local = node.local();
    for old in before {
        let new = local.place(placement_api::PlaceRequest {
            location: old.lease.location.clone(),
            session: None,
        });
        let new = new.await.expect("held");
        assert_eq!(new.worker, heir.worker);
        assert!(new.lease.token > old.lease.token);
        assert!(announced.contains(&new.lease.location));
    }
    let late = node.local().heartbeat(beat(&dead.worker, 0)).await;
    assert!(matches!(late, Err(PlacementError::Superseded)), "{late:?}");
    node.shutdown().await;
}

#[tokio::test]
async fn calls_for_one_location_share_one_lease() {
    let (world, dir) = (World::new(), TempDir::new().expect("a folder"));
    let node = world.single(dir.path()).await;
    let _one = FakeWorker::start(&world, "one", Arc::new(node.local())).await;
    let _two = FakeWorker::start(&world, "two", Arc::new(node.local())).await;
    let before = node.status().applied;
    let calls: Vec<_> = (0..200)
        .map(|nth| {
            let local = node.local();
            async move { local.place(request(nth % 20)).await.expect("placed") }
        })
        .collect();
    let mut leases = BTreeSet::new();
    let mut waiting = tokio::task::JoinSet::new();
    for call in calls {
        waiting.spawn(call);
    }
    while let Some(placed) = waiting.join_next().await {
        let placed = placed.expect("no panic");
        leases.insert((placed.lease.location, placed.lease.token));
    }
    assert_eq!(leases.len(), 20);
    let entries = node.status().applied - before;
    assert!((1..=20).contains(&entries), "{entries} entries for 20 Locations");
    node.shutdown().await;
}

#[tokio::test]
async fn ready_work_that_nobody_asks_for_is_found_by_the_sweep() {
    let (world, dir) = (World::new(), TempDir::new().expect("a folder"));
    let node = world.single(dir.path()).await;
    // More than two pages, the first of which are already held.
    let all: Vec<_> = (0..2_500).map(session).collect();
    *world.ready.0.lock().expect("no panic under it") = all;
    let one = FakeWorker::start(&world, "one", Arc::new(node.local())).await;
    one.until(|known| known.leases.len() == 2_500).await;
    let late = session(7_777);
    world.ready.0.lock().expect("no panic under it").push(late.clone());
    let found = |known: &crate::harness::Known| {
        known.leases.iter().any(|lease| lease.location == late.location_ref())
    };
    one.until(found).await;
    node.shutdown().await;
}

#[tokio::test]
async fn a_drained_node_gives_its_locations_back_and_gets_no_new_ones() {
    let (world, dir) = (World::new(), TempDir::new().expect("a folder"));
    let mut members = world.group(1, dir.path()).await;
    let admin = crate::harness::admin(&members);
    let node = &members[0].node;
    let one = FakeWorker::start(&world, "one", Arc::new(node.local())).await;
    for nth in 0..10 {
        place(&node.local(), nth).await;
    }
    one.until(|known| known.leases.len() == 10).await;
    let two = FakeWorker::start(&world, "two", Arc::new(node.local())).await;
    admin.drain_node("one").await.expect("drains");
    one.until(|known| known.drain).await;
    let given = one.leases();
    one.known.lock().expect("no panic under it").release = given.clone();
    two.until(|known| known.leases.len() == 10).await;
    one.until(|known| known.leases.is_empty()).await;
    for (old, new) in given.iter().zip(two.leases()) {
        assert_eq!(old.location, new.location);
        assert!(new.token > old.token);
    }
    assert_eq!(place(&node.local(), 77).await.worker, two.worker);
    assert_eq!(admin.status().await.expect("answers").draining_nodes, ["one"]);
    admin.undrain_node("one").await.expect("undrains");
    one.until(|known| !known.drain).await;
    assert_eq!(place(&node.local(), 78).await.worker, one.worker);
    members.remove(0).stop().await;
}

#[tokio::test]
async fn a_restart_after_purging_starts_from_the_raft_snapshot() {
    let (mut world, dir) = (World::new(), TempDir::new().expect("a folder"));
    world.timing.snapshot_every = 20;
    world.timing.keep_entries = 5;
    let node = world.single(dir.path()).await;
    let one = worker("one");
    let mut known = 0;
    for nth in 0..60 {
        let placed = node.local().place(request(nth)).await;
        match placed {
            Ok(_) => {}
            Err(PlacementError::NoWorker) if nth == 0 => {}
            Err(error) => panic!("{error}"),
        }
        known = node.local().heartbeat(beat(&one, known)).await.expect("alive").version;
    }
    let before = until(&node, |status| status.purged > 20).await;
    let reply = node.local().heartbeat(beat(&one, 0)).await.expect("alive");
    node.shutdown().await;
    for _ in 0..2 {
        let node = world.single(dir.path()).await;
        let again = node.local().heartbeat(beat(&one, 0)).await.expect("known");
        assert_eq!((again.version, &again.leases), (reply.version, &reply.leases));
        let after = node.status();
        assert!(after.purged >= before.purged && after.applied > before.applied);
        assert_eq!(after.leases, 59);
        node.shutdown().await;
    }
}

#[tokio::test]
async fn tokens_grow_with_the_generation_although_the_log_is_new() {
    let world = World::new();
    let one = worker("one");
    let mut last = None;
    for generation in [3, 4] {
        let dir = TempDir::new().expect("a folder");
        let options = world.options(1, "http://unused", dir.path());
        let generation = Generation(generation);
        let options = Options { single: true, generation, ..options };
        let node = PlacementNode::start(options).await.expect("starts");
        for nth in 0..(if last.is_none() { 5 } else { 1 }) {
            node.local().heartbeat(beat(&one, 0)).await.expect("registered");
            place(&node.local(), nth).await;
        }
        let token = place(&node.local(), 0).await.lease.token;
        assert!(Some(token) > last, "{token} after {last:?}");
        last = Some(token);
        node.shutdown().await;
    }
}

#[tokio::test]
async fn what_a_worker_may_not_say_is_refused() {
    let (world, dir) = (World::new(), TempDir::new().expect("a folder"));
    let node = world.single(dir.path()).await;
    let good = worker("one");
    let bad = [
        placement_api::Worker { slots: 0, ..good.clone() },
        placement_api::Worker { node: "a/b".to_owned(), ..good.clone() },
        placement_api::Worker { url: "x".repeat(600), ..good.clone() },
    ];
    for worker in bad {
        let refused = node.local().heartbeat(beat(&worker, 0)).await;
        assert!(matches!(refused, Err(PlacementError::Invalid { .. })), "{refused:?}");
    }
    let lease = placement_api::Lease { location: location(1), token: domain::FencingToken(1) };
    let released = vec![lease; 10_001];
    let refused = node.local().heartbeat(Heartbeat { released, ..beat(&good, 0) }).await;
    assert!(matches!(refused, Err(PlacementError::Invalid { .. })), "{refused:?}");
    assert!(node.status().workers.is_empty());
    node.shutdown().await;
}

#[tokio::test]
async fn a_data_folder_has_one_member_and_one_process() {
    let (world, dir) = (World::new(), TempDir::new().expect("a folder"));
    let node = world.single(dir.path()).await;
    let options = Options { single: true, ..world.options(1, "http://unused", dir.path()) };
    let busy = PlacementNode::start(options.clone()).await.err();
    assert!(matches!(busy, Some(NodeError::Disk(DiskError::Database { .. }))), "{busy:?}");
    node.shutdown().await;
    let other = PlacementNode::start(Options { id: 2, ..options }).await.err();
    assert!(
        matches!(other, Some(NodeError::Disk(DiskError::OtherMember { found: 1, wanted: 2 }))),
        "{other:?}"
    );
    let unknown = Incarnation::random();
    assert!(node.status().workers.iter().all(|known| known.worker.incarnation != unknown));
}

// Finding cluster 4: a worker that could not reach Postgres kept its Locations while two others were idle.
#[tokio::test]
async fn a_stranded_worker_hands_over_only_to_one_that_is_not() {
    let (world, dir) = (World::new(), TempDir::new().expect("a folder"));
    let node = world.single(dir.path()).await;
    let local = node.local();
    let (one, two) = (worker("one"), worker("two"));
    let says = async |worker: &placement_api::Worker, silent_ms, stranded, released| {
        let said = Heartbeat { store_silent_ms: silent_ms, stranded, released, ..beat(worker, 0) };
        local.heartbeat(said).await.expect("alive")
    };
    says(&one, 100, false, Vec::new()).await;
    let lease = place(&local, 1).await.lease;
    // The store is away for all; worker two just has not noticed yet.
    says(&two, 3_400, false, Vec::new()).await;
    assert!(!says(&one, 4_500, true, Vec::new()).await.hand_over);
    says(&two, 4_600, true, Vec::new()).await;
    assert!(!says(&one, 4_700, true, Vec::new()).await.hand_over);
    // The store is back for worker two.
    says(&two, 300, false, Vec::new()).await;
    assert!(says(&one, 5_000, true, Vec::new()).await.hand_over);
    says(&one, 5_500, true, vec![lease.clone()]).await;
    let moved = place(&local, 1).await;
    assert_eq!(moved.worker, two);
    assert!(moved.lease.token > lease.token);
    assert!(!says(&two, 400, false, Vec::new()).await.hand_over);
    node.shutdown().await;
}

// Finding store 14: every change of a lease sent the worker's whole list again.
#[tokio::test]
async fn a_heartbeat_brings_only_what_changed() {
    let (world, dir) = (World::new(), TempDir::new().expect("a folder"));
    let node = world.single(dir.path()).await;
    let (local, one) = (node.local(), worker("one"));
    let says = async |known, released| {
        let said = Heartbeat { deltas: true, released, ..beat(&one, known) };
        local.heartbeat(said).await.expect("alive")
    };
    let first = says(0, Vec::new()).await;
    assert_eq!((first.leases, first.changes), (Some(Vec::new()), None), "a new worker gets all");
    let [a, b] = [place(&local, 1).await.lease, place(&local, 2).await.lease];
    let both = says(first.version, Vec::new()).await;
    let gained = placement_api::LeaseChanges { gained: vec![a.clone(), b], lost: Vec::new() };
    assert_eq!((both.leases, both.changes), (None, Some(gained)));
    let less = says(both.version, vec![a.clone()]).await;
    let lost = placement_api::LeaseChanges { gained: Vec::new(), lost: vec![a] };
    assert_eq!((less.leases, less.changes), (None, Some(lost)));
    let none = says(less.version, Vec::new()).await;
    assert_eq!((none.leases, none.changes), (None, None));
    node.shutdown().await;
}

// Finding store 20: pages of held sessions were a second apart, so a lost wake among 64,000 came a minute
// late.
#[tokio::test]
async fn a_sweep_walks_past_held_locations_without_a_rest() {
    let (mut world, dir) = (World::new(), TempDir::new().expect("a folder"));
    // The pause between two sweeps is longer than any test waits.
    world.timing.sweep = std::time::Duration::from_hours(1);
    let node = world.single(dir.path()).await;
    let one = worker("one");
    node.local().heartbeat(beat(&one, 0)).await.expect("registered");
    let held: Vec<_> = (10_000..13_500).map(session).collect();
    for some in held.chunks(500) {
        let placing = some.iter().map(|session| {
            let (local, location) = (node.local(), session.location_ref());
            async move {
                let request = placement_api::PlaceRequest { location, session: None };
                local.place(request).await.expect("placed")
            }
        });
        futures::future::join_all(placing).await;
    }
    let late = session(99_999);
    *world.ready.0.lock().expect("no panic under it") =
        held.into_iter().chain([late.clone()]).collect();
    // A worker that registers triggers a sweep.
    node.local().heartbeat(beat(&worker("two"), 0)).await.expect("registered");
    until(&node, |status| status.leases == 3_501).await;
    node.shutdown().await;
}
