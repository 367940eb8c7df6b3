//! Chooses the inputs that leave the inbox at a boundary.

use domain::{Delivery, Seq};
use history::{History, PendingControl, PendingInput};

/// The next inputs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// Nothing that this boundary may take.
    Nothing,
    /// A control, alone.
    Control(PendingControl),
    /// Prompts that are promoted together.
    Prompts(Vec<PendingInput>),
}

/// Returns the next inputs. The oldest steering input is next; steering prompts are taken together, up to the first
/// control. If there are none and no work continues, the oldest queued input is next, unless the newest wake was only
/// for steering inputs. Inputs keep the order of their admission even if their delivery changed. While a Revert is
/// staged, a prompt that did not wake the session waits for its end.
pub(crate) fn head(history: &History, continuing: bool) -> Head {
    let queued = if mutated!(AllQueuedAtOnce) { usize::MAX } else { 1 };
    let continuing = continuing && !mutated!(QueuedJoinsRunning);
    if mutated!(QueuedBeforeSteers)
        && !continuing
        && let Head::Prompts(prompts) = of(history, Delivery::Queue)
    {
        return Head::Prompts(prompts.into_iter().take(1).collect());
    }
    match of(history, Delivery::Steer) {
        Head::Nothing if !continuing => match of(history, Delivery::Queue) {
            Head::Prompts(prompts) => Head::Prompts(prompts.into_iter().take(queued).collect()),
            other @ (Head::Nothing | Head::Control(_)) => other,
        },
        steers @ (Head::Nothing | Head::Control(_) | Head::Prompts(_)) => steers,
    }
}

fn of(history: &History, delivery: Delivery) -> Head {
    let control = history.controls().iter().find(|control| control.delivery == delivery);
    let until = control.map_or(Seq(i64::MAX), |control| control.seq);
    let prompts: Vec<_> = history
        .pending()
        .iter()
        .filter(|input| input.delivery == delivery)
        .filter(|input| input.seq < until || mutated!(SteersPassControls))
        .filter(|input| input.prompt.wake || history.revert().is_none())
        .cloned()
        .collect();
    match control {
        _ if !prompts.is_empty() && delivery == Delivery::Queue && history.is_narrow() => {
            Head::Nothing
        }
        _ if !prompts.is_empty() => Head::Prompts(prompts),
        Some(control) => Head::Control(control.clone()),
        None => Head::Nothing,
    }
}

/// Returns whether anything waits.
pub(crate) fn waits(history: &History) -> bool {
    !history.pending().is_empty() || !history.controls().is_empty()
}

#[cfg(test)]
mod tests {
    use domain::{
        Control, ControlAdmitted, DeliveryChanged, IdMint, MessageId, PromptAdmitted, SessionEvent,
        Stamp, WakeRequested, WakeScope,
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
        match head(history, continuing) {
            Head::Nothing => Vec::new(),
            Head::Control(control) => vec![-control.seq.0],
            Head::Prompts(prompts) => prompts.iter().map(|input| input.seq.0).collect(),
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

    #[test]
    fn a_change_of_delivery_keeps_the_place() {
        let (mut history, ids) = inbox("qSs");
        let (message, delivery) = (ids[0].clone(), Delivery::Steer);
        apply(&mut history, &DeliveryChanged { message, delivery, wake: true }.into());
        assert_eq!(next(&history, true), [1]);
    }
}
