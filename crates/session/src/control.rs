use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use domain::{Claim, Seq};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// Whether anyone waits for a slot of a worker. Its drains share one: while it is set, each gives up its
/// slot once it has run a turn and reaches a boundary at which its work does not continue.
#[derive(Debug, Clone, Default)]
pub struct Crowd(Arc<AtomicBool>);

impl Crowd {
    /// Someone waits, or nobody does.
    pub fn set(&self, waiting: bool) {
        self.0.store(waiting, Ordering::Relaxed);
    }
}

/// What a drain listens to while it runs. All of it only makes sooner what its writes would tell it.
#[derive(Debug, Clone)]
pub struct DrainControl {
    pub(crate) fenced: CancellationToken,
    pub(crate) stopping: CancellationToken,
    pub(crate) interrupt: watch::Receiver<Seq>,
    pub(crate) resync: Arc<Notify>,
    claim: watch::Sender<Option<Claim>>,
    crowd: Crowd,
    turns: Arc<AtomicU32>,
}

/// The other end: held by whoever started the drain.
#[derive(Debug)]
pub struct DrainHandle {
    fenced: CancellationToken,
    interrupt: watch::Sender<Seq>,
    resync: Arc<Notify>,
    claim: watch::Receiver<Option<Claim>>,
    turns: Arc<AtomicU32>,
}

/// A drain's control, without a crowd. `stopping` asks it to hand over at its next Safe Provider-Turn
/// Boundary.
#[must_use]
pub fn drain_control(stopping: CancellationToken) -> (DrainHandle, DrainControl) {
    let (interrupt_in, interrupt) = watch::channel(Seq(0));
    let (claim, claim_out) = watch::channel(None);
    let fenced = CancellationToken::new();
    let resync = Arc::new(Notify::new());
    let turns = Arc::new(AtomicU32::new(0));
    let handle = DrainHandle {
        fenced: fenced.clone(),
        interrupt: interrupt_in,
        resync: resync.clone(),
        claim: claim_out,
        turns: turns.clone(),
    };
    let crowd = Crowd::default();
    (handle, DrainControl { fenced, stopping, interrupt, resync, claim, crowd, turns })
}

impl DrainHandle {
    /// The claim has passed on: the drain stops at once and writes nothing more.
    pub fn fence(&self) {
        self.fenced.cancel();
    }

    /// The head says that its newest interrupt is `seq`. The drain decides whether it is its own.
    pub fn interrupted(&self, seq: Seq) {
        self.interrupt.send_if_modified(|known| {
            let newer = seq > *known;
            *known = seq.max(*known);
            newer
        });
    }

    /// Someone lacks the text so far.
    pub fn resync(&self) {
        self.resync.notify_one();
    }

    /// The claim that the drain holds; `None` before it has one.
    #[must_use]
    pub fn claim(&self) -> Option<Claim> {
        *self.claim.borrow()
    }

    /// Provider Turns that the drain has begun.
    #[must_use]
    pub fn turns(&self) -> u32 {
        self.turns.load(Ordering::Relaxed)
    }
}

impl DrainControl {
    /// The same, of a worker where others may wait for its slot.
    #[must_use]
    pub fn within(mut self, crowd: &Crowd) -> Self {
        self.crowd = crowd.clone();
        self
    }

    /// A turn's intent is committed.
    pub(crate) fn begun(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the drain is to give up its slot at the next boundary at which its work does not continue:
    /// others wait, and it has had a turn.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowd.0.load(Ordering::Relaxed) && self.turns.load(Ordering::Relaxed) > 0
    }

    /// The drain's last write is under way, which raises the claim of the session above its own: the drain has none from
    /// now on. Returns the one that it had, for [`not_closed`](Self::not_closed).
    pub(crate) fn closing(&self) -> Option<Claim> {
        self.claim.send_replace(None)
    }

    /// The last write was refused: the drain has its claim again.
    pub(crate) fn not_closed(&self, held: Option<Claim>) {
        self.claim.send_replace(held);
    }

    pub(crate) fn claimed(&self, claim: Claim) {
        self.claim.send_replace(Some(claim));
    }
}

/// Waits until an interrupt newer than `known` is told of.
pub(crate) async fn interrupted_after(interrupts: &mut watch::Receiver<Seq>, known: Seq) {
    if interrupts.wait_for(|seq| *seq > known).await.is_err() {
        // The holder of the other end is gone; the drain's writes still tell it.
        std::future::pending::<()>().await;
    }
}
