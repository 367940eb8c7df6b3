use std::collections::BTreeMap;

use domain::{Control, Delivery, DeliveryChanged, MessageId, WakeScope};
use session_rules::PromotionBounds;

use super::{Violation, ensure};
use crate::store::InputStatus;

/// The most that one write promotes: few, so that inboxes are often larger.
pub(crate) const PROMOTION: PromotionBounds = PromotionBounds { prompts: 2, bytes: 6_000 };

#[derive(Debug, Clone)]
struct InputView {
    seq: i64,
    delivery: Delivery,
    wake_seq: i64,
    status: InputStatus,
    control: Option<Control>,
}

impl InputView {
    fn waits(&self) -> bool {
        self.status == InputStatus::Admitted
    }
}

/// Inputs that wait, and the wakes for them.
#[derive(Debug, Clone, Default)]
pub(super) struct Inbox {
    inputs: BTreeMap<MessageId, InputView>,
    pub(super) last_wake: i64,
    /// A wake before this number does not start a drain.
    pub(super) parked: i64,
    /// A wake before this interrupt is for nothing that waits.
    interrupted: i64,
    /// The drain that has not ended has taken something, or has begun a turn.
    pub(super) serves: bool,
    /// The model has something to answer: queued input stays.
    pub(super) continues: bool,
    /// The drain is told to stop.
    stopping: bool,
    /// Somebody has woken the session since: its next drain goes on with the interrupted work.
    resumed: bool,
    /// The drain goes on with work that was interrupted before it, so input that is only stored goes along.
    resumes: bool,
    /// A Revert is staged, or was at the beginning of this write. Inputs that are only stored wait for its end.
    pub(super) holds: bool,
    /// The control that was delivered last.
    pub(super) last_control: Option<MessageId>,
    /// Inputs that wait for the end of a staged Revert, even if it is staged at another message by then. A commit
    /// cancels them.
    held: Vec<MessageId>,
    /// Inputs that this write's commit of a Revert cancels.
    goes: Vec<MessageId>,
    /// The bytes of each prompt that this write promotes.
    promoted: Vec<usize>,
    /// Whether this write begins a turn.
    begins: bool,
}

impl Inbox {
    pub(super) fn admitted(
        &mut self,
        message: &MessageId,
        seq: i64,
        delivery: Delivery,
        wake: bool,
        control: Option<&Control>,
    ) -> Result<(), Violation> {
        let wake_seq = if wake { seq } else { 0 };
        self.last_wake = self.last_wake.max(wake_seq);
        let twice = self
            .inputs
            .values()
            .any(|other| other.waits() && other.control == Some(Control::Compaction));
        let twice = twice && control == Some(&Control::Compaction);
        ensure!(!twice, "I1: {message} is the second Compaction that waits");
        let status = InputStatus::Admitted;
        let control = control.cloned();
        let view = InputView { seq, delivery, wake_seq, status, control };
        let before = self.inputs.insert(message.clone(), view);
        ensure!(before.is_none(), "I1: {message} was admitted twice");
        Ok(())
    }

    /// An input leaves the inbox for the conversation. Whatever its delivery was, its place stays.
    pub(super) fn taken(
        &mut self,
        message: &MessageId,
        seq: i64,
        control: bool,
    ) -> Result<(), Violation> {
        let waits = self.inputs.get(message).filter(|input| input.waits()).cloned();
        let Some(input) = waits.filter(|input| input.control.is_some() == control) else {
            return Err(format!("I2: {message} was taken at {seq} and did not wait"));
        };
        let wanted = |other: &InputView| other.waits() && other.wake_seq > self.interrupted;
        let works = self.serves || self.continues || self.resumes;
        let goes_along = works || self.inputs.values().any(wanted);
        // Its files have been put back already, so it may overtake inputs that came since.
        let put_back = input.control == Some(Control::Unrevert);
        ensure!(goes_along || put_back, "I2: {message} was taken and is only stored");
        self.serves = true;
        let held = |other: &InputView| other.wake_seq == 0 && self.holds;
        let mut waiting = self.inputs.values().filter(|other| other.waits() && !held(other));
        let overtaken =
            waiting.clone().any(|other| other.delivery == input.delivery && other.seq < input.seq);
        ensure!(!overtaken || put_back, "I2: {message} has overtaken an earlier one");
        if input.delivery == Delivery::Queue && !put_back {
            let steer = waiting.any(|other| other.delivery == Delivery::Steer);
            ensure!(!steer, "I2: {message} was taken before a steer");
            ensure!(!self.continues, "I2: queued {message} joined work that continues");
        }
        if control {
            self.last_control = Some(message.clone());
        }
        if let Some(input) = self.inputs.get_mut(message) {
            input.status = InputStatus::Promoted;
        }
        Ok(())
    }

    /// An interrupt came. `stops`: it ends the drain, and not only the wakes of what waits.
    pub(super) fn interrupt(&mut self, seq: i64, stops: bool) {
        (self.parked, self.interrupted) = (seq, seq);
        if stops {
            (self.stopping, self.resumed) = (true, false);
        }
    }

    /// A drain ended. What it was told and has served is over.
    pub(super) fn end_drain(&mut self) {
        (self.serves, self.continues, self.stopping) = (false, false, false);
        self.resumes = std::mem::take(&mut self.resumed);
    }

    /// This write promotes a prompt of so many bytes.
    pub(super) fn promotes(&mut self, bytes: usize) {
        self.promoted.push(bytes);
    }

    /// This write begins a turn.
    pub(super) fn turn_begins(&mut self) {
        self.begins = true;
        self.serves = true;
    }

    /// A write promotes a bounded part of the inbox, and a turn begins once all that it must answer is promoted.
    fn is_bounded(&mut self) -> Result<(), Violation> {
        let (promoted, begins) =
            (std::mem::take(&mut self.promoted), std::mem::take(&mut self.begins));
        let (prompts, bytes) = (promoted.len(), promoted.iter().sum::<usize>());
        let fits = prompts <= PROMOTION.prompts && bytes <= PROMOTION.bytes;
        ensure!(fits || prompts == 1, "inbox: one write promotes {prompts} of {bytes} bytes");
        if prompts == 0 || !begins {
            return Ok(());
        }
        let waiting = self.inputs.values().filter(|input| input.waits());
        let steers = || waiting.clone().filter(|input| input.delivery == Delivery::Steer);
        // A Revert holds no control back.
        let control = steers().filter(|input| input.control.is_some()).map(|input| input.seq).min();
        let until = control.unwrap_or(i64::MAX);
        let held = |input: &InputView| input.wake_seq == 0 && self.holds;
        let left = steers().find(|input| input.seq < until && !held(input));
        ensure!(left.is_none(), "inbox: a turn begins without a steer that is next: {left:?}");
        Ok(())
    }

    pub(super) fn cancelled(&mut self, message: &MessageId) -> Result<(), Violation> {
        let input = self.inputs.get_mut(message).filter(|input| input.waits());
        let Some(input) = input else {
            return Err(format!("I2: {message} was cancelled and did not wait"));
        };
        input.status = InputStatus::Cancelled;
        Ok(())
    }

    pub(super) fn changed(&mut self, changed: &DeliveryChanged, seq: i64) -> Result<(), Violation> {
        let input = self.inputs.get_mut(&changed.message).filter(|input| input.waits());
        let Some(input) = input else {
            return Err(format!("I2: {} was changed and did not wait", changed.message));
        };
        input.delivery = changed.delivery;
        if changed.wake {
            input.wake_seq = seq;
            self.last_wake = seq;
            self.held.retain(|held| *held != changed.message); // somebody wants it now
        }
        Ok(())
    }

    /// A wake came: for everything that waits, or for steering inputs and a control that is next.
    pub(super) fn woken(&mut self, scope: WakeScope, seq: i64) {
        self.last_wake = seq;
        self.resumed |= scope == WakeScope::All && self.stopping;
        let queued = self.inputs.values().filter(|input| {
            input.waits() && input.control.is_none() && input.delivery == Delivery::Queue
        });
        let first = queued.map(|input| input.seq).min().unwrap_or(i64::MAX);
        for input in self.inputs.values_mut().filter(|input| input.waits()) {
            let next = input.control.is_some() && input.seq < first;
            if scope == WakeScope::All || input.delivery == Delivery::Steer || next {
                input.wake_seq = seq;
            }
        }
        let inputs = &self.inputs;
        self.held.retain(|held| inputs.get(held).is_some_and(|input| input.wake_seq == 0));
    }

    /// No Revert is staged any more, and nothing has gone with it.
    pub(super) fn cleared(&mut self) {
        self.holds = false;
        self.held.clear();
    }

    /// This input is about work that a staged Revert may take away.
    pub(super) fn held(&mut self, message: &MessageId) {
        self.held.push(message.clone());
    }

    /// The work is gone.
    pub(super) fn committed(&mut self) {
        self.goes.append(&mut self.held);
    }

    pub(super) fn is_whole(&mut self) -> Result<(), Violation> {
        let waits = |message: &MessageId| self.inputs.get(message).is_some_and(InputView::waits);
        let left = self.goes.iter().find(|message| waits(message));
        ensure!(left.is_none(), "revert: {left:?} is about what is gone, and waits on");
        self.goes.clear();
        self.is_bounded()
    }

    /// Returns whether an input waits for which the session was woken.
    pub(super) fn is_awake(&self) -> bool {
        self.inputs.values().any(|input| input.waits() && input.wake_seq > self.parked)
    }

    pub(super) fn is_unrevert(&self, message: &MessageId) -> bool {
        let input = self.inputs.get(message);
        input.is_some_and(|input| input.control == Some(Control::Unrevert))
    }

    pub(super) fn pending(&self) -> usize {
        self.inputs.values().filter(|input| input.waits()).count()
    }

    pub(super) fn knows(&self, message: &MessageId) -> bool {
        self.inputs.contains_key(message)
    }
}
