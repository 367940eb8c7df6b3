//! Errors and ends of drains in words.

use session::DrainExit;

/// Returns an error with its causes, each once: some errors print their cause themselves.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        cause = inner.source();
    }
    text
}

/// Returns the end of a drain in a word, for metrics. `None`: its task broke off.
pub(crate) fn exit_word(exit: Option<&DrainExit>) -> &'static str {
    match exit {
        None => "broken_off",
        Some(DrainExit::Idle) => "idle",
        Some(DrainExit::Ended(outcome)) => outcome.as_str(),
        Some(DrainExit::HandedOver) => "handed_over",
        Some(DrainExit::Yielded) => "yielded",
        Some(DrainExit::Waiting) => "waiting",
        Some(DrainExit::Moved(_)) => "moved",
        Some(DrainExit::NoRoom(_)) => "no_room",
        Some(DrainExit::Fenced) => "fenced",
        Some(DrainExit::WentBack) => "went_back",
        Some(DrainExit::Superseded) => "superseded",
        Some(DrainExit::Failed(_)) => "store_failed",
    }
}
