//! Known mistakes in decisions, which can be switched on at run time. Every check of decisions must find each of
//! them, or it proves nothing. Only with the feature `mutants`; without it, none can be switched on.

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
    /// Interrupts are ignored.
    InterruptIgnored,
    /// Queued input is promoted before steers.
    QueuedBeforeSteers,
    /// Queued input joins work that continues.
    QueuedJoinsRunning,
    /// All queued input is promoted at once.
    AllQueuedAtOnce,
    /// Input that is only stored runs in a drain that nobody wants any more.
    StoredRuns,
    /// A boundary promotes all steers, whatever their number and size.
    PromotionUnbounded,
    /// A turn begins though part of the steers that it must answer still waits.
    RestNotPromoted,
    /// Input is promoted although the baseline is blocked.
    PromotionBeforeBaseline,
    /// An *unsafe* body runs again at a takeover.
    UnsafeBodyAgain,
    /// A body runs again without a limit.
    BodiesUnbounded,
    /// A call of unknown outcome is not settled.
    UnknownNotSettled,
    /// Kept text counts as progress.
    CheckpointIsProgress,
    /// A hand-over is not marked as one.
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
    /// An attempt's usage is forgotten.
    UsageForgotten,
    /// A cut reply is not continued.
    CutNotContinued,
    /// Input behind a failed turn stays parked.
    FailureParks,
    /// A session that keeps losing its workers is tried again and again.
    ExhaustionIgnored,
    /// Prompts are promoted past a control that is before them.
    SteersPassControls,
    /// A delivered control still counts as pending.
    ControlNotCounted,
    /// A Compaction on request forgets that work continues.
    ContinuingForgotten,
    /// A summary is written without the epoch that it begins.
    SummaryWithoutEpoch,
    /// An epoch begins behind a Compaction that failed.
    EpochAfterFailure,
    /// A summary that was cut at the limit of output is taken.
    CutSummaryTaken,
    /// An answer that is no summary is taken for one.
    AnySummaryTaken,
    /// A model is reminded of its summary again and again.
    RemindedAgain,
    /// A provider's overflow leads to Compactions again and again.
    OverflowForEver,
    /// A refused request for a summary is followed by smaller ones without a limit.
    ShrunkForEver,
    /// A conversation that fits after a Compaction gets another one at once.
    CompactedAgainAtOnce,
    /// A Compaction that failed is tried again at once, though the turn would fit.
    FailedAgainAtOnce,
    /// A Compaction that failed ends work that would fit.
    FailureBlocksWhatFits,
    /// A request for a summary shows the whole conversation even where that does not fit.
    SummaryNotCut,
    /// A summary that fills the context is taken as it is.
    LongSummaryTaken,
    /// A prompt in the middle of its work does not stay word for word.
    PromptNotKept,
    /// The model is not told to go on with work that a summary has replaced.
    NotToldToGoOn,
    /// Work whose Compactions come too soon after each other goes on.
    CirclesGoOn,
    /// A request that cannot fit is sent.
    TooLargeSent,
    /// A takeover leaves a Compaction open.
    CompactionLeftOpen,
    /// A model's title replaces one that was given meanwhile.
    TitleOverwrites,
    /// A title is requested although there is one.
    TitleOfTheNamed,
    /// A title in progress outlives its drain.
    TitleLeftOpen,
    /// Provider state is not kept.
    StateForgotten,
    /// A call that the provider ran itself is run here too.
    HostedToolRun,
    /// A notice about a model is repeated with each of its turns.
    NoticedAgain,
    /// Synthetic input that a staged Revert held still waits after the commit.
    HeldOutlivesRevert,
    /// A call runs before its ask is answered.
    UnansweredRuns,
    /// Work goes on after a call that somebody refused without a word.
    DeclineGoesOn,
    /// A takeover runs a call that was asked about.
    AskedRunsAtTakeover,
    /// A call runs though its tool is another one than the model was offered.
    ChangedToolRuns,
    /// A Fork shows a part that was reverted for good.
    ForkKeepsReverted,
    /// A Fork includes the message that it must end before.
    ForkTakesOneMore,
    /// A Fork's turns keep the original ids.
    ForkKeepsIds,
}

/// Switches a mistake on for this thread's decisions, or all off.
pub fn put_in(mutant: Option<Mutant>) {
    ACTIVE.set(mutant);
}

pub(crate) fn is(mutant: Mutant) -> bool {
    ACTIVE.get() == Some(mutant)
}
