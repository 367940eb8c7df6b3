//! Tests that need internals: entries of a newer build, and damage on disk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{Generation, LocationRef, SessionRef, SystemClock};
use openraft::RaftLogReader;
use placement_api::FolderId;
use redb::{Durability, ReadableTable};
use signals::InProcess;
use tasks::TaskGroup;
use tempfile::TempDir;

use super::disk::{Disk, LOG, META};
use super::log_store::LogStore;
use super::types::MemberNode;
use super::{NodeError, Options, PlacementNode, ReadyWork, ReadyWorkError, Timing};
use crate::rules::{Batch, Commands};

struct NothingReady;

#[async_trait]
impl ReadyWork for NothingReady {
    async fn unplaced(
        &self,
        _after: Option<&LocationRef>,
        _limit: u32,
    ) -> Result<Vec<SessionRef>, ReadyWorkError> {
        Ok(Vec::new())
    }
}

fn options(dir: &TempDir, tasks: TaskGroup) -> Options {
    Options {
        id: 1,
        data_dir: dir.path().to_owned(),
        advertise_url: "http://unused".to_owned(),
        generation: Generation(1),
        secret: None,
        single: true,
        timing: Timing::default(),
        clock: Arc::new(SystemClock::new()),
        signals: Arc::new(InProcess::new()),
        ready_work: Arc::new(NothingReady),
        tasks,
    }
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(5), future).await.expect("in time")
}

#[tokio::test]
async fn a_command_of_a_newer_build_stops_the_member_now_and_at_every_start() {
    let dir = TempDir::new().expect("a folder");
    let role = TaskGroup::root("test").role("placement");
    let node = PlacementNode::start(options(&dir, role.clone())).await.expect("starts");
    in_time(node.ready()).await;
    let commands = Commands::Unknown(serde_json::json!([{ "type": "teleport" }]));
    let newer = Batch { version: 2, generation: Generation(1), commands };
    let written = in_time(node.host.raft.client_write(newer)).await;
    assert!(written.is_err(), "{written:?}");
    let failure = in_time(role.failed()).await;
    assert!(failure.reason.contains("version 2"), "{failure}");
    node.shutdown().await;

    let role = TaskGroup::root("test").role("placement");
    match PlacementNode::start(options(&dir, role.clone())).await {
        Err(NodeError::Stopped { reason, .. }) => assert!(reason.contains("version 2"), "{reason}"),
        Err(error) => panic!("{error}"),
        // The commit mark is written lazily and may be lost; then Raft recovers it.
        Ok(node) => {
            let failure = in_time(role.failed()).await;
            assert!(failure.reason.contains("version 2"), "{failure}");
            node.shutdown().await;
        }
    }
}

/// Changes the bytes of the last stored entry.
async fn damage(disk: &Arc<Disk>, change: fn(&mut Vec<u8>)) {
    let damaged = disk.write(Durability::Immediate, move |transaction| {
        let mut log = transaction.open_table(LOG)?;
        let (index, mut record) = {
            let (index, record) = log.last()?.expect("a record");
            (index.value(), record.value().to_vec())
        };
        change(&mut record);
        log.insert(index, record.as_slice())?;
        Ok(())
    });
    damaged.await.expect("written");
}

#[tokio::test]
async fn a_damaged_entry_is_refused_and_not_voted_on() {
    let changes: [fn(&mut Vec<u8>); 3] = [
        |record| *record.last_mut().expect("bytes") ^= 1,
        |record| record[0] ^= 1,
        |record| record.truncate(5),
    ];
    for change in changes {
        let dir = TempDir::new().expect("a folder");
        let role = TaskGroup::root("test").role("placement");
        let node = PlacementNode::start(options(&dir, role.clone())).await.expect("starts");
        in_time(node.ready()).await;
        node.shutdown().await;
        let disk = Disk::open(dir.path(), 1).await.expect("opens");
        damage(&disk, change).await;
        let read = LogStore::new(disk.clone()).try_get_log_entries(0..100).await;
        assert!(read.expect_err("damaged").to_string().contains("damaged"));
        disk.close().await;
        let refused = PlacementNode::start(options(&dir, role)).await.err();
        assert!(
            matches!(&refused, Some(NodeError::Stopped { reason, .. }) if reason.contains("damaged")),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn a_member_that_cannot_read_its_vote_does_not_start() {
    let dir = TempDir::new().expect("a folder");
    let role = TaskGroup::root("test").role("placement");
    let node = PlacementNode::start(options(&dir, role.clone())).await.expect("starts");
    in_time(node.ready()).await;
    node.shutdown().await;
    let disk = Disk::open(dir.path(), 1).await.expect("opens");
    let torn = disk.write(Durability::Immediate, |transaction| {
        transaction.open_table(META)?.insert("vote", [1, 2, 3].as_slice())?;
        Ok(())
    });
    torn.await.expect("written");
    disk.close().await;
    let refused = PlacementNode::start(options(&dir, role)).await.err();
    assert!(matches!(refused, Some(NodeError::Stopped { .. })), "{refused:?}");
}

// Finding cluster 1: a leader whose Raft core panicked logged 180,000 lines a second and never ended.
#[tokio::test]
async fn a_leader_whose_raft_core_panics_stops_its_role() {
    let dir = TempDir::new().expect("a folder");
    let role = TaskGroup::root("test").role("placement");
    let node = PlacementNode::start(options(&dir, role.clone())).await.expect("starts");
    in_time(async {
        while node.host.leading().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    node.host.raft.external_request(|_| panic!("a test ends the core"));
    let failure = in_time(role.failed()).await;
    assert!(failure.reason.contains("panicked"), "{failure}");
    assert!(node.host.leading().is_none(), "it answers nobody any more");
    node.shutdown().await;
}

/// Returns the folder of member 1 in a new group of two.
async fn folder_of_two() -> TempDir {
    let dir = TempDir::new().expect("a folder");
    let role = TaskGroup::root("test").role("placement");
    let options = Options { single: false, ..options(&dir, role) };
    let node = PlacementNode::start(options).await.expect("starts");
    let member = |addr: &str| MemberNode { addr: addr.to_owned(), folder: FolderId::random() };
    let members = BTreeMap::from([(1, member("http://one")), (2, member("http://two"))]);
    node.host.raft.initialize(members).await.expect("founded");
    node.shutdown().await;
    dir
}

// Finding cluster 13: neither was noticed, because Raft publishes its membership only later.
#[tokio::test]
async fn a_folder_of_a_group_is_recognised_at_the_start() {
    let dir = folder_of_two().await;
    let role = TaskGroup::root("test").role("placement");
    let alone = PlacementNode::start(options(&dir, role.clone())).await.err();
    assert!(matches!(alone, Some(NodeError::NotSingle { members: 2 })), "{alone:?}");
    let moved = Options { single: false, ..options(&dir, role) };
    let node = PlacementNode::start(moved).await.expect("starts");
    assert_eq!(node.known_elsewhere("http://unused").await.as_deref(), Some("http://one"));
    assert_eq!(node.known_elsewhere("http://one").await, None);
    node.shutdown().await;
}
