use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use domain::{Claim, Seq};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::folds::FoldBudget;

/// Whether anybody waits for a slot of a worker, shared by its drains. While it is set, each drain gives up its slot
/// once it has run a turn and reaches a boundary where its work does not continue.
#[derive(Debug, Clone, Default)]
pub struct Crowd(Arc<AtomicBool>);

impl Crowd {
    /// Sets whether anybody waits.
    pub fn set(&self, waiting: bool) {
        self.0.store(waiting, Ordering::Relaxed);
    }
}

/// The signals to a running drain. They only tell it sooner what its writes would tell it.
#[derive(Debug, Clone)]
pub struct DrainControl {
    pub(crate) fenced: CancellationToken,
    pub(crate) stopping: CancellationToken,
    pub(crate) interrupt: watch::Receiver<Seq>,
    /// The newest number of the log that anybody has seen.
    pub(crate) moved: watch::Receiver<Seq>,
    pub(crate) resync: Arc<Notify>,
    claim: watch::Sender<Option<Claim>>,
    crowd: Crowd,
    /// The budget of the worker's folds.
    pub(crate) folds: FoldBudget,
    turns: Arc<AtomicU32>,
}

/// The other end, held by the owner of the drain.
#[derive(Debug)]
pub struct DrainHandle {
    fenced: CancellationToken,
    interrupt: watch::Sender<Seq>,
    moved: watch::Sender<Seq>,
    resync: Arc<Notify>,
    claim: watch::Receiver<Option<Claim>>,
    turns: Arc<AtomicU32>,
}

/// Returns a drain's handle and control, without a crowd and a budget. `stopping` asks it to hand over at its next Safe
/// Provider-Turn Boundary.
#[must_use]
pub fn drain_control(stopping: CancellationToken) -> (DrainHandle, DrainControl) {
    let (interrupt_in, interrupt) = watch::channel(Seq(0));
    let (moved_in, moved) = watch::channel(Seq(0));
    let (claim, claim_out) = watch::channel(None);
    let fenced = CancellationToken::new();
    let resync = Arc::new(Notify::new());
    let turns = Arc::new(AtomicU32::new(0));
    let handle = DrainHandle {
        fenced: fenced.clone(),
        interrupt: interrupt_in,
        moved: moved_in,
        resync: resync.clone(),
        claim: claim_out,
        turns: turns.clone(),
    };
    let (crowd, folds) = (Crowd::default(), FoldBudget::default());
    (
        handle,
        DrainControl { fenced, stopping, interrupt, moved, resync, claim, crowd, folds, turns },
    )
}

impl DrainHandle {
    /// Stops the drain at once, because its claim has passed on. It writes nothing more.
    pub fn fence(&self) {
        self.fenced.cancel();
    }

    /// Tells the drain that the head's newest interrupt is `seq`. The drain decides whether that is its own.
    pub fn interrupted(&self, seq: Seq) {
        self.interrupt.send_if_modified(|known| {
            let newer = seq > *known;
            *known = seq.max(*known);
            newer
        });
    }

    /// Tells the drain that the log has grown up to `seq`. Somebody may have answered an ask.
    pub fn moved(&self, seq: Seq) {
        self.moved.send_if_modified(|known| {
            let newer = seq > *known;
            *known = seq.max(*known);
            newer
        });
    }

    /// Asks for the text so far, which somebody lacks.
    pub fn resync(&self) {
        self.resync.notify_one();
    }

    /// Returns the drain's claim; `None` before it has one.
    #[must_use]
    pub fn claim(&self) -> Option<Claim> {
        *self.claim.borrow()
    }

    /// Returns the number of Provider Turns that the drain has begun.
    #[must_use]
    pub fn turns(&self) -> u32 {
        self.turns.load(Ordering::Relaxed)
    }
}

impl DrainControl {
    /// Connects the control with a worker's crowd.
    #[must_use]
    pub fn within(mut self, crowd: &Crowd) -> Self {
        self.crowd = crowd.clone();
        self
    }

    /// Bounds the drain's fold by a worker's budget.
    #[must_use]
    pub fn with_folds(mut self, folds: &FoldBudget) -> Self {
        self.folds = folds.clone();
        self
    }

    /// Counts a turn whose intent is committed.
    pub(crate) fn begun(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether the drain must give up its slot at the next boundary where its work does not continue: others
    /// wait, and it has had a turn.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowd.0.load(Ordering::Relaxed) && self.turns.load(Ordering::Relaxed) > 0
    }

    /// Clears the drain's claim before its last write, which raises the session's claim above it. Returns the old
    /// claim, for [`not_closed`](Self::not_closed).
    pub(crate) fn closing(&self) -> Option<Claim> {
        self.claim.send_replace(None)
    }

    /// Restores the claim after the last write was refused.
    pub(crate) fn not_closed(&self, held: Option<Claim>) {
        self.claim.send_replace(held);
    }

    pub(crate) fn claimed(&self, claim: Claim) {
        self.claim.send_replace(Some(claim));
    }
}

/// Waits for an interrupt newer than `known`.
pub(crate) async fn interrupted_after(interrupts: &mut watch::Receiver<Seq>, known: Seq) {
    if interrupts.wait_for(|seq| *seq > known).await.is_err() {
        // The handle is gone, but the drain's writes still notice an interrupt.
        std::future::pending::<()>().await;
    }
}

/// Waits until the log has events after `known`.
pub(crate) async fn moved_beyond(moves: &mut watch::Receiver<Seq>, known: Seq) {
    if moves.wait_for(|seq| *seq > known).await.is_err() {
        std::future::pending::<()>().await;
    }
}
