use std::sync::Mutex;

use session_rules::Mutant as RulesMutant;
use sim::{Mutant, ShellMutant, StoreMutant, unseen};

/// Histories in which a mistake must show.
const SEEDS: u64 = 10_000;
/// Mistakes at once.
const AT_ONCE: usize = 2;

#[test]
fn every_mistake_is_found_by_its_own_checks() {
    std::panic::set_hook(Box::new(|_| {})); // some mistakes are met by assertions first
    let all = Mutant::all();
    assert!(all.len() >= 80, "{} mutants", all.len());
    let waiting = Mutex::new(all.into_iter());
    let next = || waiting.lock().expect("nobody panics with it").next();
    let survivors = || -> Vec<(Mutant, Vec<&str>)> {
        let unseen = |mutant| (mutant, unseen(mutant, violations_of(mutant), SEEDS));
        std::iter::from_fn(next).map(unseen).filter(|(_, unseen)| !unseen.is_empty()).collect()
    };
    let survivors: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(survivors)).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("panics are caught")).collect()
    });
    let _ = std::panic::take_hook();
    assert_eq!(survivors, [], "never seen in {SEEDS} histories");
}

/// The violations that tell of a mistake, each by a part of its text.
fn violations_of(mutant: Mutant) -> &'static [&'static str] {
    match mutant {
        Mutant::Rules(mutant) => of_rules(mutant),
        Mutant::Store(mutant) => of_store(mutant),
        Mutant::Shell(mutant) => of_shell(mutant),
    }
}

fn of_rules(mutant: RulesMutant) -> &'static [&'static str] {
    use RulesMutant as M;
    match mutant {
        M::SnapshotApart => &["I7: the same context was told twice"],
        M::InterruptIgnored => {
            &["I6: a turn after an interrupt", "I6: a promotion after an interrupt"]
        }
        M::QueuedBeforeSteers => &["was taken before a steer"],
        M::QueuedJoinsRunning | M::AllQueuedAtOnce | M::ContinuingForgotten => {
            &["joined work that continues"]
        }
        M::StoredRuns => &["was taken and is only stored"],
        M::PromotionUnbounded => &["inbox: one write promotes"],
        M::RestNotPromoted => &["inbox: a turn begins without a steer"],
        M::PromotionBeforeBaseline => &["was promoted without a baseline"],
        M::UnsafeBodyAgain => &["I8: unsafe "],
        M::BodiesUnbounded => &[" bodies of "],
        M::UnknownNotSettled => &["assertion failed", "is_settled"],
        M::CheckpointIsProgress | M::ExhaustionIgnored => &["takeovers without progress"],
        M::HandOverNotSaid => &["a hand-over that the head does not know of"],
        M::StepsNotCounted => &["allowance: step "],
        M::LastStepRuns => &["runs in the last step"],
        M::ReplyWithoutIntents => &["is replied and has no intent"],
        M::LostTurnNotSettled => &["began while another was open"],
        M::AttemptLeftOpen => &["was settled with an open attempt"],
        M::UsageForgotten => &["the provider counted"],
        M::CutNotContinued => &["I9: a cut turn has no continuation"],
        M::FailureParks => &["I11: an input waits that somebody woke the session for"],
        M::SteersPassControls => &["has overtaken an earlier one"],
        M::ControlNotCounted => &["I1: pending "],
        M::SummaryWithoutEpoch => &["I7: a summary without its epoch"],
        M::EpochAfterFailure => &["I7: epoch "],
        M::CutSummaryTaken | M::AnySummaryTaken => &["is no whole summary"],
        M::RemindedAgain => &["was reminded twice"],
        M::OverflowForEver => &["too many for one overflow"],
        M::ShrunkForEver => &["were refused"],
        M::CompactedAgainAtOnce => &["comes after too many others"],
        M::FailedAgainAtOnce => &["comes right after one that failed"],
        M::FailureBlocksWhatFits => &["has ended work that fits"],
        M::SummaryNotCut | M::TooLargeSent => &["cannot fit"],
        M::LongSummaryTaken => &["leaves no room beside its summary"],
        M::CirclesGoOn => &["is one of a circle"],
        M::PromptNotKept => &["does not show what it answers"],
        M::NotToldToGoOn => &["does not say that work on the prompt goes on"],
        M::CompactionLeftOpen => {
            &["I4: Compaction ", "with an open Compaction", "while a Compaction was open"]
        }
        M::TitleOverwrites => &["title: a model's replaces one that was given"],
        M::TitleOfTheNamed => &["of a session that wants none"],
        M::TitleLeftOpen => &["title: a drain ended while one was made"],
        M::StateForgotten => &["state: "],
        M::HostedToolRun => &["is the provider's own to run"],
        M::NoticedAgain => &["notice: "],
        M::HeldOutlivesRevert => &["is about what is gone, and waits on"],
        M::ForkKeepsReverted | M::ForkTakesOneMore => &["fork: it shows "],
        M::ForkKeepsIds => &["is the other session's"],
        M::UnansweredRuns | M::AskedRunsAtTakeover => &["started without leave"],
        M::ChangedToolRuns => &["meets another tool than it was offered"],
        M::DeclineGoesOn => &["goes on after somebody refused"],
    }
}

fn of_store(mutant: StoreMutant) -> &'static [&'static str] {
    use StoreMutant as M;
    match mutant {
        M::ClaimNotChecked | M::FenceKeepsClaims => &[" wrote under token "],
        M::NextSeqNotChecked => &["was taken before a steer", "after an interrupt"],
        M::TokenNotChecked => &[" started under token "],
        M::FenceAcrossLocations => &["I11: it does not settle"],
        M::PendingNotCounted | M::ForkKeepsPending => &["I1: pending "],
        // Finding store 11: a wake is lost at a drain's end.
        M::CloseSpendsAllWakes => &["I11: an input waits that somebody woke the session for"],
        M::WakesNotSpent | M::CancelLeavesWakes | M::ResumeOpensNothing => {
            &["I11: a drain started without a wake"]
        }
        M::RetryComparesIdOnly => &["I1: something else under the id"],
        M::CancelDelivered => &["was cancelled and did not wait"],
        M::SecondControlAdmitted => &["is the second Compaction that waits"],
        M::MoveKeepsClaim => &["outlives its drain"],
        M::StagedHoldsNothing => &["wakes what waits with a Revert"],
        // Findings store 1 and 2: a prompt of the deleted session was promoted in place of an acknowledged one, and a
        // worker with an old token wrote to the new session. The event that a write follows keeps both from that now.
        M::ClaimBeginsAtZero => &["and a deleted session had claim"],
        // Finding store 11: a stale token takes a Location.
        M::FenceFalls => &["I10: a fence fell"],
        // Finding core-3 C1: work goes on from what the database lost.
        M::LookBelievesNumbers => &["begins with the fold of another log"],
        M::ProofBelievesNumbers | M::WriteBelievesNumbers => &["an event that it never read"],
        M::RestagedForgetsHeld => &["is about what is gone, and waits on"],
        M::AnswerDoesNotStir => &["I16: asleep and nothing is asked"],
        M::WaitProvesNoNumber => &["I16: asleep and nothing is asked", "I11: it does not settle"],
        M::InterruptOfSleeperIsIdle => &["I6: an interrupt of a session that sleeps"],
        M::SecondAnswerTaken => &["has two answers", "answered too late"],
    }
}

fn of_shell(mutant: ShellMutant) -> &'static [&'static str] {
    use ShellMutant as M;
    match mutant {
        M::AckBeforeCommit => &["was acknowledged and is lost"],
        M::GoesOnWhenFenced | M::RequestBeforeCommit => &["which no row names"],
        M::BodyBeforeIntent => &["ran before its intent was written"],
        M::StaleDraftKept => &["I9: attempt ", "I9: usage of "],
        M::ReplayAfterOutput => &["repeats what somebody has seen"],
        M::LostAnswerWrittenAgain | M::RefusalIsAnothers => &["ended twice", "a result too many"],
        M::RetriesUnbounded => &["retries: "],
        M::BatchDoesNotWait => &["is captured"],
        M::RowBeforePack => &["I14: the pack of "],
        M::FailureIsAsBefore => &["is gone, and not told"],
        M::ForkHasNewestFiles => &["fork: its files have what "],
        // Finding store 3: a worker's cache has the log of a deleted session. The look at the head does not take it for its
        // own, but for one that the database has forgotten.
        M::CacheWithoutIncarnation => &["takes its log for forgotten"],
        // Finding core-3 C1: a follower takes a number of the log for its version.
        M::FollowerBelievesNumbers => &["has another log"],
        M::MadeAnewForgotten => &["and nobody has said that "],
        M::RevertWithoutTexts => &["I7: "],
    }
}
