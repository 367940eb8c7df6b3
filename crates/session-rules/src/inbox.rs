//! Chooses the inputs that leave the inbox at a boundary.
//!
//! Invariant: one boundary takes a bounded part of the inbox, so that its write and its memory are bounded too.

use domain::{Delivery, PromptPart, Seq};
use history::{History, PendingControl, PendingInput};

/// The most that one boundary promotes. Its first prompt is promoted whatever its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromotionBounds {
    /// The most prompts.
    pub prompts: usize,
    /// The most bytes of their texts.
    pub bytes: usize,
}

impl Default for PromotionBounds {
    fn default() -> Self {
        Self { prompts: 64, bytes: 1 << 20 }
    }
}

/// The next inputs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// Nothing that this boundary may take.
    Nothing,
    /// A control, alone.
    Control(PendingControl),
    /// Prompts that are promoted together.
    Prompts(Batch),
}

/// Prompts that one boundary promotes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) prompts: Vec<PendingInput>,
    /// Whether more prompts would join this batch if there were no bounds: they are promoted before a turn begins.
    pub(crate) is_cut: bool,
}

/// Returns the next inputs. The oldest steering input is next; steering prompts are taken together, up to the first
/// control. If there are none and no work continues, the oldest queued input is next, unless the newest wake was only
/// for steering inputs. Inputs keep the order of their admission even if their delivery changed. While a Revert is
/// staged, a prompt that did not wake the session waits for its end. Input that is only stored goes along with work, and
/// is none by itself: a drain that has served nothing leaves it if nothing else waits.
pub(crate) fn head(history: &History, continuing: bool, bounds: PromotionBounds) -> Head {
    let queued = if mutated!(AllQueuedAtOnce) { usize::MAX } else { 1 };
    let queued = PromotionBounds { prompts: queued, bytes: usize::MAX };
    if !continuing && !history.takes_stored() && !mutated!(StoredRuns) {
        return Head::Nothing;
    }
    let continuing = continuing && !mutated!(QueuedJoinsRunning);
    if mutated!(QueuedBeforeSteers)
        && !continuing
        && let Head::Prompts(batch) = head_of(history, Delivery::Queue, queued)
    {
        return Head::Prompts(Batch { is_cut: false, ..batch });
    }
    match head_of(history, Delivery::Steer, bounds) {
        Head::Nothing if !continuing => match head_of(history, Delivery::Queue, queued) {
            // Queued prompts are taken one at a time: the rest waits for the end of this one's work.
            Head::Prompts(batch) => Head::Prompts(Batch { is_cut: false, ..batch }),
            other @ (Head::Nothing | Head::Control(_)) => other,
        },
        steers @ (Head::Nothing | Head::Control(_) | Head::Prompts(_)) => steers,
    }
}

/// Returns the next inputs of one delivery.
fn head_of(history: &History, delivery: Delivery, bounds: PromotionBounds) -> Head {
    let control = history.controls().iter().find(|control| control.delivery == delivery);
    let until = control.map_or(Seq(i64::MAX), |control| control.seq);
    let waiting = history
        .pending()
        .iter()
        .filter(|input| input.delivery == delivery)
        .filter(|input| input.seq < until || mutated!(SteersPassControls))
        .filter(|input| input.prompt.wake || history.revert().is_none());
    let batch = take_batch(waiting, bounds);
    match control {
        _ if !batch.prompts.is_empty() && delivery == Delivery::Queue && history.is_narrow() => {
            Head::Nothing
        }
        _ if !batch.prompts.is_empty() => Head::Prompts(batch),
        Some(control) => Head::Control(control.clone()),
        None => Head::Nothing,
    }
}

/// Takes the oldest inputs within `bounds`.
fn take_batch<'h>(
    waiting: impl Iterator<Item = &'h PendingInput>,
    bounds: PromotionBounds,
) -> Batch {
    let mut batch = Batch::default();
    let mut bytes = 0;
    for input in waiting {
        bytes += text_bytes(input);
        let fits = batch.prompts.len() < bounds.prompts && bytes <= bounds.bytes;
        if !fits && !batch.prompts.is_empty() && !mutated!(PromotionUnbounded) {
            batch.is_cut = true;
            break;
        }
        batch.prompts.push(input.clone());
    }
    batch
}

/// Returns the bytes of a prompt's texts.
fn text_bytes(input: &PendingInput) -> usize {
    let parts = input.prompt.parts.iter();
    parts.map(|PromptPart::Text { text, .. }| text.len()).sum()
}

/// Returns whether anything waits that a drain may take.
pub(crate) fn waits(history: &History) -> bool {
    let is_empty = history.pending().is_empty() && history.controls().is_empty();
    !is_empty && history.takes_stored()
}

#[cfg(test)]
mod tests {
    use domain::{
        Control, ControlAdmitted, ControlDelivered, DeliveryChanged, DrainEnded, DrainOutcome,
        IdMint, InputCancelled, InterruptRequested, InterruptTarget, MessageId, PartId,
        PromptAdmitted, SessionEvent, SessionForked, Stamp, WakeRequested, WakeScope,
    };

    use super::*;

    /// Builds an inbox: `s` is a steer, `q` a queued prompt, `S` and `Q` a compaction; admitted as 1, 2, …
    fn inbox(items: &str) -> (History, Vec<MessageId>) {
        let mut history = History::new();
        let mut mint = IdMint::after(Stamp::default(), 1);
        let mut ids = Vec::new();
        for item in items.chars() {
            let message = MessageId::mint(&mut mint);
            ids.push(message.clone());
            let steer = item.eq_ignore_ascii_case(&'s');
            let delivery = if steer { Delivery::Steer } else { Delivery::Queue };
            let digest = String::new();
            let event: SessionEvent = if item.is_ascii_lowercase() {
                PromptAdmitted {
                    by: None,
                    message,
                    delivery,
                    parts: Vec::new(),
                    agent: None,
                    model: None,
                    wake: true,
                    digest,
                    synthetic: None,
                }
                .into()
            } else {
                let control = Control::Compaction;
                ControlAdmitted { message, delivery, control, wake: true, digest }.into()
            };
            apply(&mut history, &event);
        }
        (history, ids)
    }

    fn apply(history: &mut History, event: &SessionEvent) {
        history.apply(Seq(history.seq().0 + 1), 1, event);
    }

    /// Returns the numbers of the next inputs; a control's is negative.
    fn next(history: &History, continuing: bool) -> Vec<i64> {
        match head(history, continuing, PromotionBounds::default()) {
            Head::Nothing => Vec::new(),
            Head::Control(control) => vec![-control.seq.0],
            Head::Prompts(batch) => batch.prompts.iter().map(|input| input.seq.0).collect(),
        }
    }

    /// Returns the numbers of the next prompts within bounds, and whether more would join them.
    fn within(history: &History, prompts: usize, bytes: usize) -> (Vec<i64>, bool) {
        match head(history, true, PromotionBounds { prompts, bytes }) {
            Head::Prompts(batch) => {
                (batch.prompts.iter().map(|input| input.seq.0).collect(), batch.is_cut)
            }
            Head::Nothing | Head::Control(_) => (Vec::new(), false),
        }
    }

    fn at(items: &str) -> (Vec<i64>, Vec<i64>) {
        let (history, _) = inbox(items);
        (next(&history, true), next(&history, false))
    }

    #[test]
    fn steers_join_work_that_continues_and_queued_input_waits() {
        assert_eq!(at("qsqs"), (vec![2, 4], vec![2, 4]));
        assert_eq!(at("qq"), (vec![], vec![1]));
        assert_eq!(at(""), (vec![], vec![]));
    }

    #[test]
    fn a_control_is_taken_alone_at_its_place() {
        assert_eq!(at("ssSs"), (vec![1, 2], vec![1, 2]), "what steers before it is first");
        assert_eq!(at("Sss"), (vec![-1], vec![-1]));
        assert_eq!(at("sqQ"), (vec![1], vec![1]));
        assert_eq!(at("Qq"), (vec![], vec![-1]), "one that is queued waits as a prompt does");
        assert_eq!(at("qQ"), (vec![], vec![1]));
        assert_eq!(at("Qs"), (vec![2], vec![2]), "a steer is before all that is queued");
    }

    #[test]
    fn a_wake_for_what_steers_leaves_queued_prompts_and_what_is_behind_them() {
        let narrow = |items: &str| {
            let (mut history, _) = inbox(items);
            apply(&mut history, &WakeRequested { scope: WakeScope::Steer }.into());
            history
        };
        assert_eq!(next(&narrow("qs"), false), [2]);
        assert!(next(&narrow("q"), false).is_empty());
        assert!(next(&narrow("qQ"), false).is_empty());
        assert_eq!(next(&narrow("Qq"), false), [-1]);
        let mut history = narrow("q");
        apply(&mut history, &WakeRequested::default().into());
        assert_eq!(next(&history, false), [1], "the next wake is for all");
        let (mut history, ids) = inbox("s");
        apply(&mut history, &WakeRequested { scope: WakeScope::Steer }.into());
        let (message, delivery) = (ids[0].clone(), Delivery::Queue);
        apply(&mut history, &DeliveryChanged { message, delivery, wake: false }.into());
        assert_eq!(next(&history, false), [1], "it was woken for before it was queued");
    }

    // Finding core-3 C2: all steers were promoted by one write, whatever their number and size.
    #[test]
    fn a_boundary_takes_a_bounded_part_of_the_steers() {
        let (history, _) = inbox("sssqs");
        assert_eq!(within(&history, 2, 100), (vec![1, 2], true));
        assert_eq!(within(&history, 4, 100), (vec![1, 2, 3, 5], false));
        let (history, _) = inbox("ssSs");
        assert_eq!(
            within(&history, 2, 100),
            (vec![1, 2], false),
            "what is behind a control is no rest"
        );
        let mut history = History::new();
        let mut mint = IdMint::after(Stamp::default(), 1);
        for bytes in [700, 300, 300, 10] {
            apply(&mut history, &long_prompt(&mut mint, bytes).into());
        }
        assert_eq!(
            within(&history, 64, 600),
            (vec![1], true),
            "the first is taken whatever its size"
        );
        assert_eq!(within(&history, 64, 1_000), (vec![1, 2], true));
        assert_eq!(within(&history, 64, 1_310), (vec![1, 2, 3, 4], false));
    }

    fn long_prompt(mint: &mut IdMint, bytes: usize) -> PromptAdmitted {
        PromptAdmitted {
            by: None,
            message: MessageId::mint(mint),
            delivery: Delivery::Steer,
            parts: vec![PromptPart::Text { id: PartId::mint(mint), text: "x".repeat(bytes) }],
            agent: None,
            model: None,
            wake: true,
            digest: String::new(),
            synthetic: None,
        }
    }

    /// Admits an input that wakes nobody, as [`inbox`] names it.
    fn store(history: &mut History, mint: &mut IdMint, item: char) {
        let (other, _) = inbox(&item.to_string());
        let message = MessageId::mint(mint);
        let event: SessionEvent = match (other.pending().first(), other.controls().first()) {
            (Some(input), _) => {
                PromptAdmitted { message, wake: false, ..(*input.prompt).clone() }.into()
            }
            (None, Some(control)) => ControlAdmitted {
                message,
                delivery: control.delivery,
                control: control.control.clone(),
                wake: false,
                digest: String::new(),
            }
            .into(),
            (None, None) => unreachable!("{item} is an input"),
        };
        apply(history, &event);
    }

    // Check heldout-3, scenario 1: a stored prompt ran though the steer that woke the session was cancelled while a drain
    // was opening.
    #[test]
    fn stored_input_does_not_run_for_a_cancelled_one() {
        for stored in ['q', 's', 'Q', 'S'] {
            for woke in ['s', 'q', 'S', 'Q'] {
                let mut mint = IdMint::after(Stamp::default(), 2);
                let (mut history, ids) = inbox(&woke.to_string());
                store(&mut history, &mut mint, stored);
                assert!(!next(&history, false).is_empty(), "{stored} goes along with {woke}");
                let message = ids[0].clone();
                apply(&mut history, &InputCancelled { message }.into());
                assert!(next(&history, false).is_empty(), "{stored} after {woke} was cancelled");
                assert!(!waits(&history), "{stored} after {woke} was cancelled");
                apply(&mut history, &WakeRequested::default().into());
                assert_eq!(next(&history, false).len(), 1, "{stored} was woken for");
            }
        }
    }

    #[test]
    fn stored_input_follows_work_and_ends_with_an_interrupt() {
        let mut mint = IdMint::after(Stamp::default(), 2);
        let (mut history, ids) = inbox("S");
        store(&mut history, &mut mint, 'q');
        apply(&mut history, &ControlDelivered { message: ids[0].clone(), error: None }.into());
        assert_eq!(next(&history, false), [2], "the drain has served something");
        let ended = DrainEnded { outcome: DrainOutcome::Completed, error: None };
        apply(&mut history, &ended.into());
        assert!(next(&history, false).is_empty(), "its drain is over");
        let (mut history, _) = inbox("q");
        let target = InterruptTarget::Parked;
        apply(&mut history, &InterruptRequested { target, by: None }.into());
        assert!(next(&history, false).is_empty(), "the wake before the interrupt is parked");
        assert_eq!(next(&history, true), next(&inbox("q").0, true));
    }

    // The copied turns of a Fork have no end of a drain behind them.
    #[test]
    fn stored_input_of_a_fork_waits_for_a_wake_of_its_own() {
        let mut mint = IdMint::after(Stamp::default(), 2);
        let (message, parent) = (MessageId::mint(&mut mint), domain::SessionId::mint(&mut mint));
        let mut history = History::new();
        let forked =
            SessionForked { parent, through: Seq(9), before: None, copied: 1, files: None };
        apply(&mut history, &forked.into());
        apply(&mut history, &ControlDelivered { message, error: None }.into());
        store(&mut history, &mut mint, 'q');
        assert!(next(&history, false).is_empty(), "its own drain has served nothing");
        apply(&mut history, &WakeRequested::default().into());
        assert_eq!(next(&history, false), [3]);
    }

    #[test]
    fn a_change_of_delivery_keeps_the_place() {
        let (mut history, ids) = inbox("qSs");
        let (message, delivery) = (ids[0].clone(), Delivery::Steer);
        apply(&mut history, &DeliveryChanged { message, delivery, wake: true }.into());
        assert_eq!(next(&history, true), [1]);
    }
}
