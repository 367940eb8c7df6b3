use std::collections::BTreeMap;

use session_rules::Site;

/// The commit sites that are not simulated: simulated workers have no real files and no limit, and a simulated provider
/// refuses no state of its own.
pub const NOT_SIMULATED: [Site; 3] = [Site::Counted, Site::LimitReached, Site::RetryWithoutState];

/// The commit sites that are simulated.
pub(crate) fn sites() -> impl Iterator<Item = Site> {
    Site::ALL.iter().copied().filter(|site| !NOT_SIMULATED.contains(site))
}

/// Sites that few histories come to: each history waits for one of them from its beginning.
/// Their number is prime, so that every one of them meets every other property that a history has by its seed.
pub(crate) const RARE: [Site; 19] = [
    Site::Interrupted,
    Site::CompactionCancelled,
    Site::CompactionFailed,
    Site::CompactionCancelled,
    Site::CompactionReminded,
    Site::CompactionShrunk,
    Site::TitleAwaited,
    Site::HandedOver,
    Site::Overflowed,
    Site::TakenOverInterrupted,
    Site::Yielded,
    Site::RevertReached,
    Site::RevertStaging,
    Site::RevertResumed,
    Site::UnrevertReached,
    Site::MoveReached,
    Site::Moved,
    Site::Leave,
    Site::UnrevertReached,
];

/// When a commit site meets its fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// The worker dies before the write.
    Before,
    /// The worker dies after it.
    After,
    /// The write is applied, and its answer never comes.
    AnswerLost,
}

impl When {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Before, Self::After, Self::AnswerLost];
}

macro_rules! faults {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// A kind of fault, apart from crash points.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault {
            $($(#[$doc])* $variant),+
        }

        impl Fault {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Its name in figures.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }
    };
}

faults! {
    /// A worker dies at any time.
    Death = "death",
    /// A worker stands still for longer than its lease.
    Pause = "pause",
    /// A worker that stood still writes after others have gone on.
    ZombieWrite = "zombie-write",
    /// A worker and placement do not hear of each other.
    Partition = "partition",
    /// A Location passes on while its holder works.
    TokenRace = "token-race",
    /// A worker stops in good order.
    Stop = "stop",
    /// A worker's clock jumps.
    ClockJump = "clock-jump",
    /// A worker comes back with other tools.
    Release = "release",
    /// A hint is lost.
    HintDropped = "hint-dropped",
    /// A hint comes twice.
    HintDuplicated = "hint-duplicated",
    /// A hint comes late.
    HintDelayed = "hint-delayed",
    /// Postgres does not answer a write: it is lost, made, or made later.
    WriteUnanswered = "write-unanswered",
    /// A write arrives when its drain has gone on, or is gone.
    WriteLate = "write-late",
    /// Postgres answers a statement late, and others go on.
    AnswerLate = "answer-late",
    /// Postgres does not answer a worker that raises a fence: that is lost, made, or made later.
    FenceUnanswered = "fence-unanswered",
    /// A token comes to a Location after a higher one.
    FenceLate = "fence-late",
    /// A drain's write meets a head that has moved.
    StaleLook = "stale-look",
    /// A client's answer is lost, and it asks again.
    AdmissionRetried = "admission-retried",
    /// The provider asks to wait.
    RateLimit = "rate-limit",
    /// The provider fails before it says anything.
    ProviderFailure = "provider-failure",
    /// The stream breaks after visible output.
    StreamCut = "stream-cut",
    /// The provider does not say what came of a call that it ran itself.
    HostedUnanswered = "hosted-unanswered",
    /// The provider says nothing for long.
    SlowProvider = "slow-provider",
    /// The conversation is too long for the provider.
    Overflow = "overflow",
    /// The provider refuses requests as too large for a while, whatever their size.
    OverflowStays = "overflow-stays",
    /// The provider counts no tokens where there are some.
    UsageWrong = "usage-wrong",
    /// A tool's result is almost as large as the model's context.
    LargeResult = "large-result",
    /// A prompt is larger than the model's context.
    LargePrompt = "large-prompt",
    /// The answer ends for a reason that makes it none.
    BadFinish = "bad-finish",
    /// The request for a summary is answered with something else.
    SummaryWithoutHeadings = "summary-without-headings",
    /// A summary is not whole.
    SummaryCut = "summary-cut",
    /// A summary alone does not fit into the model's context.
    SummaryTooLong = "summary-too-long",
    /// A title comes when nobody waits for it any more.
    TitleLate = "title-late",
    /// A title does not come, or says nothing.
    TitleFailed = "title-failed",
    /// A Context Source cannot be looked at.
    SourceUnavailable = "source-unavailable",
    /// A Location's files are not there.
    WorkspaceMissing = "workspace-missing",
    /// A Workspace Snapshot is not stored.
    SnapshotFailed = "snapshot-failed",
    /// A Workspace Snapshot takes so long that nobody waits any more.
    SnapshotOverdue = "snapshot-overdue",
    /// Files cannot all be put back.
    PutBackFailed = "put-back-failed",
    /// A session is deleted and made anew under its id.
    MadeAnew = "made-anew",
    /// The database comes back without its last commits.
    WentBack = "went-back",
    /// A takeover finds the files without the newest effects.
    DiskLost = "disk-lost",
}

/// Counts of faults, and of the sites where workers died.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// By kind.
    pub kinds: BTreeMap<Fault, u64>,
    /// By crash point.
    pub sites: BTreeMap<(Site, When), u64>,
}

impl Faults {
    /// Counts one.
    pub fn note(&mut self, fault: Fault) {
        *self.kinds.entry(fault).or_default() += 1;
    }

    /// Counts a crash point.
    pub fn crashed(&mut self, site: Site, when: When) {
        *self.sites.entry((site, when)).or_default() += 1;
    }

    /// All of them.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.kinds.values().sum::<u64>() + self.sites.values().sum::<u64>()
    }

    /// Adds another history's.
    pub fn add(&mut self, other: &Self) {
        for (fault, count) in &other.kinds {
            *self.kinds.entry(*fault).or_default() += count;
        }
        for (site, count) in &other.sites {
            *self.sites.entry(*site).or_default() += count;
        }
    }

    /// Crash points that were never met. A run that has some proves nothing about them.
    #[must_use]
    pub fn missing(&self) -> Vec<(Site, When)> {
        let all = sites().flat_map(|site| When::ALL.map(|when| (site, when)));
        all.filter(|point| !self.sites.contains_key(point)).collect()
    }
}
