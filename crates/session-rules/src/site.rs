macro_rules! sites {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// Where a drain writes: each is made by exactly one `Verdict::Write`. A worker may die before or
        /// after any of them, and what it leaves must be something that a takeover can go on from.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Site {
            $($(#[$doc])* $variant),+
        }

        impl Site {
            /// Every commit site, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// A stable name for logs and tables.
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
    /// A boundary found nothing left to do.
    Completed = "completed",
    /// A boundary met an interrupt.
    Interrupted = "interrupted",
    /// A boundary stopped because the worker does.
    HandedOver = "handed-over",
    /// A boundary gave up the drain's slot because others wait.
    Yielded = "yielded",
    /// A boundary waits for a title alone.
    TitleAwaited = "title-awaited",
    /// A boundary has come to a Revert, and the files are captured first.
    RevertReached = "revert-reached",
    /// Files are about to be put back.
    RevertStaging = "revert-staging",
    /// A takeover puts the files back that an earlier owner was putting back.
    RevertResumed = "revert-resumed",
    /// A boundary has come to the undoing of a Revert, and the files are put back first.
    UnrevertReached = "unrevert-reached",
    /// A boundary has come to a Move.
    MoveReached = "move-reached",
    /// The session has moved.
    Moved = "moved",
    /// A boundary began a Compaction.
    CompactionStarted = "compaction-started",
    /// An answer to the request for a summary was none, and is asked for once more.
    CompactionReminded = "compaction-reminded",
    /// The provider refused a request for a summary as too large, and a smaller one follows.
    CompactionShrunk = "compaction-shrunk",
    /// A Compaction failed without which nothing goes on.
    CompactionFailed = "compaction-failed",
    /// A Compaction was interrupted.
    CompactionCancelled = "compaction-cancelled",
    /// A provider refused a turn's request as too large, and a Compaction begins.
    Overflowed = "overflowed",
    /// A boundary found no Baseline System Context; what is pending waits.
    ContextBlocked = "context-blocked",
    /// A boundary could not go on with what it had promoted or settled.
    BoundaryFailed = "boundary-failed",
    /// Intents of a stream that goes on.
    Intents = "intents",
    /// Results of calls whose batch goes on.
    Results = "results",
    /// Text of a stream that goes on.
    TextKept = "text-kept",
    /// An attempt failed, and another one follows.
    Retry = "retry",
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

    /// Why: a crash is simulated before and after each site; two writes under one name would be one crash
    /// point that may stand for the other.
    #[test]
    fn each_site_is_written_at_one_place() {
        let sources = [
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
