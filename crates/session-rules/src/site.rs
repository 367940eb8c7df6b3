macro_rules! sites {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// A place where a drain writes; exactly one `Verdict::Write` makes each of these writes. A worker may die
        /// before or after any of them, and a takeover must be able to continue from the result.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Site {
            $($(#[$doc])* $variant),+
        }

        impl Site {
            /// Every commit site, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns a stable name for logs and tables.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }
    };
}

sites! {
    /// A session was claimed before anybody looked at its files.
    Counted = "counted",
    /// A boundary began a turn.
    TurnStarted = "turn-started",
    /// A boundary promoted part of the inbox, and the next one comes at once.
    InboxTaken = "inbox-taken",
    /// A boundary found nothing left to do.
    Completed = "completed",
    /// A boundary met an interrupt.
    Interrupted = "interrupted",
    /// A boundary stopped because the worker stops.
    HandedOver = "handed-over",
    /// A boundary gave up the drain's slot because others wait.
    Yielded = "yielded",
    /// A boundary waits only for a title.
    TitleAwaited = "title-awaited",
    /// A boundary has reached a Revert, and the files are captured first.
    RevertReached = "revert-reached",
    /// Files are about to be restored.
    RevertStaging = "revert-staging",
    /// A takeover continues a restore of an earlier owner.
    RevertResumed = "revert-resumed",
    /// A boundary has reached the undoing of a Revert, and the files are restored first.
    UnrevertReached = "unrevert-reached",
    /// A boundary has reached a Move.
    MoveReached = "move-reached",
    /// The session has moved.
    Moved = "moved",
    /// A boundary began a Compaction.
    CompactionStarted = "compaction-started",
    /// An answer to the request for a summary was none, and is requested once more.
    CompactionReminded = "compaction-reminded",
    /// The provider refused a request for a summary as too large, and a smaller one follows.
    CompactionShrunk = "compaction-shrunk",
    /// A required Compaction failed.
    CompactionFailed = "compaction-failed",
    /// A Compaction was interrupted.
    CompactionCancelled = "compaction-cancelled",
    /// A provider refused a turn's request as too large, and a Compaction begins.
    Overflowed = "overflowed",
    /// A boundary found no Baseline System Context, so pending input waits.
    ContextBlocked = "context-blocked",
    /// A boundary found a monthly limit of cost reached, so pending input waits.
    LimitReached = "limit-reached",
    /// A boundary could not continue with its promotions or settlements.
    BoundaryFailed = "boundary-failed",
    /// Intents during a stream.
    Intents = "intents",
    /// Results during their batch.
    Results = "results",
    /// Text during a stream.
    TextKept = "text-kept",
    /// An attempt failed, and another one follows.
    Retry = "retry",
    /// A provider refused its own state, and an attempt without it follows.
    RetryWithoutState = "retry-without-state",
    /// Bodies start that somebody has given leave for.
    Answered = "answered",
    /// Bodies start that somebody has given leave for, while others of the turn run.
    Leave = "leave",
    /// A turn waits for answers alone, and the session sleeps.
    Waiting = "waiting",
    /// Somebody refused a call without a word, and the drain ends with its turn.
    Declined = "declined",
    /// A whole reply with calls.
    Replied = "replied",
    /// A stream was cut after visible output.
    Cut = "cut",
    /// A turn failed.
    TurnFailed = "turn-failed",
    /// A turn was interrupted.
    TurnInterrupted = "turn-interrupted",
    /// A takeover judged the calls of an open turn.
    TakenOver = "taken-over",
    /// A takeover met an interrupt of the open turn.
    TakenOverInterrupted = "taken-over-interrupted",
    /// Bodies start again because their effects are missing.
    StartedAgain = "started-again",
    /// A drain could not start its work.
    GivenUp = "given-up",
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Why: a crash is simulated before and after each site. Two writes with one name would be one crash point that
    /// could stand for either.
    #[test]
    fn each_site_is_written_at_one_place() {
        let sources = [
            include_str!("asks.rs"),
            include_str!("begin.rs"),
            include_str!("boundary.rs"),
            include_str!("compact.rs"),
            include_str!("controls.rs"),
            include_str!("ending.rs"),
            include_str!("open.rs"),
            include_str!("recover.rs"),
            include_str!("revert.rs"),
        ];
        for site in Site::ALL {
            let written = format!("Site::{site:?}");
            let uses: usize = sources
                .iter()
                .map(|source| {
                    source
                        .match_indices(&written)
                        .filter(|(at, _)| {
                            let after = source[at + written.len()..].chars().next();
                            after.is_none_or(|c| !c.is_alphanumeric())
                        })
                        .count()
                })
                .sum();
            assert_eq!(uses, 1, "{written} is used at {uses} places");
        }
    }
}
