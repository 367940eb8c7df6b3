use session_rules::Mutant as RulesMutant;

/// A known mistake that is put in on purpose. If the checks do not find it, they prove nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A mistake in a decision.
    Rules(RulesMutant),
    /// A mistake in a statement.
    Store(StoreMutant),
    /// A mistake in the code that drives them.
    Shell(ShellMutant),
}

macro_rules! mutants {
    ($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$each])* $variant),+
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
        }
    };
}

mutants! {
    /// Mistakes of the store.
    StoreMutant {
        /// A drain's write does not prove its claim.
        ClaimNotChecked,
        /// A drain's write does not prove that the log is as it was.
        NextSeqNotChecked,
        /// A drain starts whatever token is the Location's fence.
        TokenNotChecked,
        /// A new token is compared with those of all Locations.
        FenceAcrossLocations,
        /// A new token does not raise the claims at its Location.
        FenceKeepsClaims,
        /// An admission does not count what is pending.
        PendingNotCounted,
        /// A drain's end spends wakes that nobody has served.
        CloseSpendsAllWakes,
        /// A drain's end leaves the wakes that it has served.
        WakesNotSpent,
        /// A retry is told by its id alone.
        RetryComparesIdOnly,
        /// A delivered input can be cancelled.
        CancelDelivered,
        /// A cancelled input leaves the wake that was for it.
        CancelLeavesWakes,
        /// A second control of a kind is admitted while the first waits.
        SecondControlAdmitted,
        /// A wake of an idle session opens nothing.
        ResumeOpensNothing,
        /// A Move keeps the claim.
        MoveKeepsClaim,
        /// A staged Revert does not hold synthetic input back.
        StagedHoldsNothing,
        /// A Fork counts the inputs that wait at its parent.
        ForkKeepsPending,
        /// Claims of a session that is made anew begin where those of the deleted one began.
        ClaimBeginsAtZero,
        /// A token takes a Location whatever fence is there.
        FenceFalls,
        /// An answer leaves the session asleep.
        AnswerDoesNotStir,
        /// An ask is answered a second time.
        SecondAnswerTaken,
        /// A session that sleeps counts as idle for an interrupt.
        InterruptOfSleeperIsIdle,
        /// A drain falls asleep although the log has grown.
        WaitProvesNoNumber,
        /// A look at the head compares the number up to which the log is known, and not the event.
        LookBelievesNumbers,
        /// The proof of a claim compares nothing of the log.
        ProofBelievesNumbers,
        /// A drain's write compares the number of the log's last event, and not the event.
        WriteBelievesNumbers,
        /// A Revert forgets the inputs that it holds when it is staged at another message.
        RestagedForgetsHeld,
    }
}

mutants! {
    /// Mistakes of the shell and the gateway.
    ShellMutant {
        /// A prompt is acknowledged before it is committed.
        AckBeforeCommit,
        /// A drain that was fenced goes on.
        GoesOnWhenFenced,
        /// A request is sent before its attempt is committed.
        RequestBeforeCommit,
        /// A body runs before its intent is committed.
        BodyBeforeIntent,
        /// A draft that was not written stays folded.
        StaleDraftKept,
        /// A stream that broke after visible output is replayed.
        ReplayAfterOutput,
        /// A drain that does not know whether a write was made makes it again.
        LostAnswerWrittenAgain,
        /// A drain repeats a write, takes the refusal for the act of another drain, and decides anew.
        RefusalIsAnothers,
        /// Each failure is the first of its budget.
        RetriesUnbounded,
        /// Calls that may change files do not wait for the capture of the files before them.
        BatchDoesNotWait,
        /// The row of a snapshot is written before its pack is stored.
        RowBeforePack,
        /// A capture that failed is told as one that found nothing new.
        FailureIsAsBefore,
        /// A Fork's own Location begins with the newest files, not with those of the cut.
        ForkHasNewestFiles,
        /// A worker takes its cached log of a session for that of another session with its id, unless that one is
        /// shorter.
        CacheWithoutIncarnation,
        /// A follower compares the number up to which it has read, and not the event.
        FollowerBelievesNumbers,
        /// A worker forgets under which token it has made files anew.
        MadeAnewForgotten,
        /// A drain goes back to texts that its fold has given up.
        RevertWithoutTexts,
    }
}

impl Mutant {
    /// Every mutant of every kind.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let rules = RulesMutant::ALL.iter().copied().map(Self::Rules);
        let store = StoreMutant::ALL.iter().copied().map(Self::Store);
        let shell = ShellMutant::ALL.iter().copied().map(Self::Shell);
        rules.chain(store).chain(shell).collect()
    }
}
