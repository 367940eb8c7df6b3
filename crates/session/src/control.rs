use std::sync::Arc;

use domain::{Claim, Seq};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// What a drain listens to while it runs. All of it only makes sooner what its writes would tell it.
#[derive(Debug, Clone)]
pub struct DrainControl {
    pub(crate) fenced: CancellationToken,
    pub(crate) stopping: CancellationToken,
    pub(crate) interrupt: watch::Receiver<Seq>,
    pub(crate) resync: Arc<Notify>,
    claim: watch::Sender<Option<Claim>>,
}

/// The other end: held by whoever started the drain.
#[derive(Debug)]
pub struct DrainHandle {
    fenced: CancellationToken,
    interrupt: watch::Sender<Seq>,
    resync: Arc<Notify>,
    claim: watch::Receiver<Option<Claim>>,
}

/// A drain's control. `stopping` asks it to hand over at its next Safe Provider-Turn Boundary.
#[must_use]
pub fn drain_control(stopping: CancellationToken) -> (DrainHandle, DrainControl) {
    let (interrupt_in, interrupt) = watch::channel(Seq(0));
    let (claim, claim_out) = watch::channel(None);
    let fenced = CancellationToken::new();
    let resync = Arc::new(Notify::new());
    let handle = DrainHandle {
        fenced: fenced.clone(),
        interrupt: interrupt_in,
        resync: resync.clone(),
        claim: claim_out,
    };
    (handle, DrainControl { fenced, stopping, interrupt, resync, claim })
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
}

impl DrainControl {
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
