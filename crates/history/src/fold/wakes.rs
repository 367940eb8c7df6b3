//! Keeps which inputs somebody has woken the session for.

use std::sync::Arc;

use domain::{Delivery, MessageId, Seq, WakeScope};

use super::{History, PendingControl, PendingInput, State};

impl History {
    /// Returns whether a boundary may take input that is only stored: the drain has served something already, or an input
    /// waits that somebody has woken the session for since the newest interrupt. Otherwise nobody wants work: the input
    /// that the drain was started for was cancelled.
    #[must_use]
    pub fn takes_stored(&self) -> bool {
        let state = &self.state;
        let prompts = state.pending.iter().map(|input| input.woken);
        let controls = state.controls.iter().map(|control| control.woken);
        state.serves || prompts.chain(controls).any(|woken| woken > state.parked)
    }

    /// Returns whether the drain that has not ended has taken an input or begun a turn, or goes on with the work of one that
    /// was interrupted and resumed. One that another worker has only begun does neither: it takes up nothing that an earlier
    /// drain has left without an answer.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.state.serves || self.state.resumes
    }
}

impl State {
    /// Notes that the drain serves something. The copied events of a Fork are of no drain, and no end of one follows them.
    pub(super) fn note_service(&mut self) {
        self.serves = self.seq > self.copied;
    }

    pub(super) fn forget(&mut self, message: &MessageId) {
        self.pending.retain(|input| input.prompt.message != *message);
        self.controls.retain(|control| control.message != *message);
    }

    /// Wakes one input. It may be a control.
    pub(super) fn wake_one(&mut self, seq: Seq, message: &MessageId) {
        self.wake(
            seq,
            |input| input.prompt.message == *message,
            |control| control.message == *message,
        );
    }

    /// Wakes what waits: all of it, or what steers and a control before which no prompt is queued.
    pub(super) fn wake_all(&mut self, seq: Seq, scope: WakeScope) {
        let all = scope != WakeScope::Steer;
        let queued = self.pending.iter().find(|input| input.delivery == Delivery::Queue);
        let first = queued.map_or(Seq(i64::MAX), |input| input.seq);
        self.wake(
            seq,
            |input| all || input.delivery == Delivery::Steer,
            |control| all || control.delivery == Delivery::Steer || control.seq < first,
        );
    }

    fn wake(
        &mut self,
        seq: Seq,
        prompts: impl Fn(&PendingInput) -> bool,
        controls: impl Fn(&PendingControl) -> bool,
    ) {
        for input in self.pending.iter_mut().filter(|input| prompts(input)) {
            input.woken = seq;
            if !input.prompt.wake {
                Arc::make_mut(&mut input.prompt).wake = true;
            }
        }
        for control in self.controls.iter_mut().filter(|control| controls(control)) {
            control.woken = seq;
        }
    }

    pub(super) fn deliver(&mut self, message: &MessageId, delivery: Delivery) {
        for input in self.pending.iter_mut().filter(|input| input.prompt.message == *message) {
            input.delivery = delivery;
        }
        for control in self.controls.iter_mut().filter(|control| control.message == *message) {
            control.delivery = delivery;
        }
    }
}
