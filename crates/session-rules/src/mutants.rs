//! Known mistakes in decisions, to be put in on purpose at run time: whoever checks decisions must find each
//! of them, or its checks prove nothing. Only with the feature `mutants`; without it, none can be put in.

use std::cell::Cell;

thread_local! {
    static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
}

macro_rules! mutants {
    ($($(#[$doc:meta])* $variant:ident),+ $(,)?) => {
        /// A mistake.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Mutant {
            $($(#[$doc])* $variant),+
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
        }
    };
}

mutants! {
    /// A message of changed context does not advance the snapshot.
    SnapshotApart,
    /// An interrupt is not looked for.
    InterruptIgnored,
    /// Queued input is promoted before steers.
    QueuedBeforeSteers,
    /// Queued input joins work that continues.
    QueuedJoinsRunning,
    /// All queued input is promoted at once.
    AllQueuedAtOnce,
    /// Input is promoted although the baseline is blocked.
    PromotionBeforeBaseline,
    /// An *unsafe* body runs again at a takeover.
    UnsafeBodyAgain,
    /// A body runs again however often it has.
    BodiesUnbounded,
    /// A call of unknown outcome is not settled.
    UnknownNotSettled,
    /// Text that was kept counts as progress.
    CheckpointIsProgress,
    /// A hand-over does not say that it is one.
    HandOverNotSaid,
    /// Each turn is the first of its batch.
    StepsNotCounted,
    /// The calls of the last allowed turn run.
    LastStepRuns,
    /// A reply's calls have no intents.
    ReplyWithoutIntents,
    /// A turn of which nothing is durable stays open.
    LostTurnNotSettled,
    /// A takeover leaves the attempt open.
    AttemptLeftOpen,
    /// What an attempt used is forgotten.
    UsageForgotten,
    /// A cut reply is not continued.
    CutNotContinued,
    /// What waits behind a failed turn stays there.
    FailureParks,
    /// A session that keeps losing its workers is tried again and again.
    ExhaustionIgnored,
}

/// Puts a mistake into the decisions of this thread, or takes it out.
pub fn put_in(mutant: Option<Mutant>) {
    ACTIVE.set(mutant);
}

pub(crate) fn is(mutant: Mutant) -> bool {
    ACTIVE.get() == Some(mutant)
}
