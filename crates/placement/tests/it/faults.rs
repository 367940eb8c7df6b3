//! Leaders and workers die repeatedly under load. All answers must still be consistent (I10).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::{FencingToken, Incarnation, LocationRef};
use placement_api::{Lease, Placement};
use tasks::{OnCancel, OnError, TaskKind};
use tempfile::TempDir;

use crate::harness::{FakeWorker, Running, World, client, place, request, until};

const LOCATIONS: usize = 40;
const ROUNDS: usize = 3;

/// All answers so far: who holds what by which token.
#[derive(Default)]
struct Told {
    owners: BTreeMap<(LocationRef, FencingToken), Incarnation>,
    /// The last token in the asker's answers, by Location.
    last: BTreeMap<LocationRef, FencingToken>,
    wrong: Vec<String>,
    answers: usize,
}

impl Told {
    fn owner(&mut self, lease: &Lease, incarnation: Incarnation) {
        let key = (lease.location.clone(), lease.token);
        let before = self.owners.insert(key, incarnation);
        if before.is_some_and(|before| before != incarnation) {
            self.wrong.push(format!("{lease:?} has two owners: {before:?} and {incarnation}"));
        }
    }

    fn asked(&mut self, lease: &Lease, incarnation: Incarnation) {
        self.owner(lease, incarnation);
        self.answers += 1;
        let before = self.last.insert(lease.location.clone(), lease.token);
        if before.is_some_and(|before| before > lease.token) {
            self.wrong.push(format!("{lease:?} came after {before:?}"));
        }
    }
}

/// Asks for one Location after another, forever, and records the answers.
fn ask_around(world: &World, placement: Arc<dyn Placement>) -> Arc<Mutex<Told>> {
    let told: Arc<Mutex<Told>> = Arc::default();
    let record = told.clone();
    let kind = TaskKind::new("asker", OnError::Log, OnCancel::Abort);
    world.tasks.spawn(kind, async move {
        for nth in 0_usize.. {
            if let Ok(placed) = placement.place(request(nth * 7 % LOCATIONS)).await {
                let mut told = record.lock().expect("no panic under it");
                told.asked(&placed.lease, placed.worker.incarnation);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok::<(), std::convert::Infallible>(())
    });
    told
}

async fn leader(members: &[Running]) -> usize {
    loop {
        let leads = |member: &Running| member.node.status().leader == Some(member.id);
        if let Some(at) = members.iter().position(leads) {
            return at;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_dies_no_token_has_two_owners_and_tokens_only_grow() {
    let (mut world, dir) = (World::mortal(), TempDir::new().expect("a folder"));
    world.timing.snapshot_every = 50;
    world.timing.keep_entries = 5;
    let mut members = world.group(3, dir.path()).await;
    let all: Arc<dyn Placement> = client(&members);
    let mut workers = Vec::new();
    for nth in 0..3 {
        workers.push(FakeWorker::start(&world, &format!("worker-{nth}"), all.clone()).await);
    }
    let told = ask_around(&world, all.clone());
    while told.lock().expect("no panic under it").last.len() < LOCATIONS {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut terms = BTreeSet::new();
    for round in 0..ROUNDS {
        let at = leader(&members).await;
        terms.insert(members[at].node.status().term);
        let dying = workers.remove(0);
        // Kill in turns: the worker first, the leader first, both at once.
        let gone = members.remove(at);
        let id = gone.id;
        if round % 2 == 0 {
            dying.kill().await;
        }
        let port = gone.stop().await;
        dying.kill().await;
        let fresh = format!("worker-{}", round + 3);
        workers.push(FakeWorker::start(&world, &fresh, all.clone()).await);
        members.push(world.member(id, port, dir.path()).await);
        // Every other time, the next leader gets to declare the worker dead.
        if round % 2 == 1 {
            let gone = dying.incarnation();
            let at = leader(&members).await;
            until(&members[at].node, |status| {
                status.workers.iter().all(|known| known.worker.incarnation != gone)
            })
            .await;
        }
    }
    let at = leader(&members).await;
    terms.insert(members[at].node.status().term);

    // Faults have stopped: every Location finds a live worker, and all answers agree.
    let live: BTreeSet<Incarnation> = workers.iter().map(FakeWorker::incarnation).collect();
    let mut settled = BTreeMap::new();
    for nth in 0..LOCATIONS {
        let placed = loop {
            let placed = place(&*all, nth).await;
            if live.contains(&placed.worker.incarnation) {
                break placed;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        settled.insert(placed.lease.location, (placed.lease.token, placed.worker.incarnation));
    }
    for worker in &workers {
        let mine = settled.values().filter(|(_, holder)| *holder == worker.incarnation()).count();
        worker.until(|known| known.leases.len() == mine).await;
        let mut told = told.lock().expect("no panic under it");
        for lease in worker.leases() {
            told.owner(&lease, worker.incarnation());
            let expected = Some(&(lease.token, worker.incarnation()));
            assert_eq!(settled.get(&lease.location), expected);
        }
    }
    // A run without answers proves nothing.
    while told.lock().expect("no panic under it").answers <= 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for member in members {
        member.stop().await;
    }
    let told = told.lock().expect("no panic under it");
    assert_eq!(told.wrong, Vec::<String>::new());
    assert!(terms.len() > ROUNDS, "leaders of {terms:?} only");
    let moved = told.owners.len() - LOCATIONS;
    assert!(moved >= LOCATIONS / 2, "{moved} moves");
}
