use std::convert::Infallible;
use std::future::pending;
use std::io;

use tokio::sync::oneshot;

use super::*;

const WAITS: TaskKind = TaskKind::new("waits", OnError::Log, OnCancel::Wait);
const ABORTS: TaskKind = TaskKind::new("aborts", OnError::Log, OnCancel::Abort);
const VITAL: TaskKind = TaskKind::new("vital", OnError::StopRole, OnCancel::Wait);
const HANDS_OVER: TaskKind = TaskKind::new("hands over", OnError::Log, OnCancel::HandOver);
const LONG: Duration = Duration::from_secs(10);

fn ended(name: &'static str, outcome: Outcome) -> EndedTask {
    EndedTask { name, outcome }
}

#[tokio::test]
async fn a_shutdown_waits_for_tasks_that_stop_by_themselves() {
    let group = TaskGroup::root("test");
    let token = group.token();
    let task = group.spawn(WAITS, async move {
        token.cancelled().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok::<_, Infallible>(())
    });
    let report = group.shutdown(LONG).await;
    assert_eq!(report.ended, [ended("waits", Outcome::Finished)]);
    assert!(report.is_clean());
    assert_eq!(task.ended().await, Outcome::Finished);
    assert_eq!(group.live(), 0);
}

#[tokio::test]
async fn tasks_that_may_be_cut_are_dropped_at_once_and_the_others_after_the_grace_period() {
    let group = TaskGroup::root("test");
    let child = group.child("below");
    let never = || async { pending::<Result<(), Infallible>>().await };
    group.spawn(ABORTS, never());
    child.spawn(WAITS, never());
    let report = group.shutdown(Duration::from_millis(50)).await;
    let expected = [ended("aborts", Outcome::Cancelled), ended("waits", Outcome::Overran)];
    assert_eq!(report, ShutdownReport { ended: expected.into(), stuck: vec![] });
    assert!(!report.is_clean());
}

// A normal Ctrl-C warned of drains that were handed over as designed.
#[tokio::test]
async fn a_task_that_hands_over_has_the_grace_period_too() {
    let group = TaskGroup::root("test");
    let token = group.token();
    group.spawn(HANDS_OVER, async move {
        token.cancelled().await;
        Ok::<_, Infallible>(())
    });
    group.spawn(HANDS_OVER, pending::<Result<(), Infallible>>());
    let report = group.shutdown(Duration::from_millis(50)).await;
    let expected = [ended("hands over", Outcome::Finished), ended("hands over", Outcome::Overran)];
    assert_eq!(report, ShutdownReport { ended: expected.into(), stuck: vec![] });
}

#[tokio::test]
async fn stopping_a_child_leaves_its_siblings_alone() {
    let group = TaskGroup::root("test");
    let (left, right) = (group.child("left"), group.child("right"));
    left.spawn(ABORTS, async { pending::<Result<(), Infallible>>().await });
    right.spawn(ABORTS, async { pending::<Result<(), Infallible>>().await });
    left.shutdown(LONG).await;
    assert!(!right.token().is_cancelled());
    assert_eq!((group.live(), right.live()), (1, 1));
    assert_eq!(group.shutdown(LONG).await.ended, [ended("aborts", Outcome::Cancelled)]);
}

#[tokio::test]
async fn a_vital_failure_stops_its_role_and_is_told_with_its_cause() {
    #[derive(Debug, ThisErrorForTest)]
    #[error("cannot renew")]
    struct Outer(#[source] io::Error);
    use thiserror::Error as ThisErrorForTest;

    let process = TaskGroup::root("process");
    let role = process.role("worker");
    let other = process.role("gateway");
    let drain = role.child("drain");
    drain.spawn(VITAL, async { Err(Outer(io::Error::other("gone"))) });
    let failure = role.failed().await;
    let expected = TaskFailure { task: "vital", reason: "cannot renew: gone".into() };
    assert_eq!(failure, expected);
    assert_eq!(drain.failed().await, expected);
    assert!(role.token().is_cancelled());
    assert!(!other.token().is_cancelled() && !process.token().is_cancelled());
}

#[tokio::test]
async fn a_panic_is_an_error_of_its_task_and_of_no_other() {
    let group = TaskGroup::root("test");
    let (open, gate) = oneshot::channel::<()>();
    let other = group.spawn(WAITS, gate);
    let panics = group.spawn(WAITS, async {
        if true {
            panic!("index {} is out", 3);
        }
        Ok::<_, Infallible>(())
    });
    assert_eq!(panics.ended().await, Outcome::Panicked("index 3 is out".into()));
    assert!(!group.token().is_cancelled());
    open.send(()).expect("the other task still waits");
    assert_eq!(other.ended().await, Outcome::Finished);
}

#[tokio::test]
async fn a_group_that_was_shut_down_takes_no_more_work() {
    let group = TaskGroup::root("test");
    assert_eq!(group.shutdown(LONG).await, ShutdownReport::default());
    let late = group.spawn(WAITS, async { pending::<Result<(), Infallible>>().await });
    assert_eq!(late.ended().await, Outcome::Overran);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_never_awaits_is_reported_as_stuck() {
    let group = TaskGroup::root("test");
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (started, running) = oneshot::channel();
    group.spawn(WAITS, async move {
        started.send(()).expect("the test waits for the start");
        held.recv()
    });
    running.await.expect("the task starts");
    let report = group.shutdown(Duration::from_millis(10)).await;
    assert_eq!(report.stuck, ["waits"]);
    release.send(()).expect("the task still waits");
}
