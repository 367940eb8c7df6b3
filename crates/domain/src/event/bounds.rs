//! The bounds of numbers and times in events. Every event that a service writes keeps them.

use std::ops::RangeInclusive;

use crate::{SessionEvent, TimestampMs, TurnUsage};

/// Steps, numbers of attempts and bodies: far more than any drain makes.
const COUNTS: RangeInclusive<i32> = 1..=1_000_000;
/// Numbers of Context Epochs; 0 stands for none.
const EPOCHS: RangeInclusive<i32> = 0..=1_000_000;
/// Tokens of one turn, summary or title with all its attempts: far more than any model takes or gives.
const TOKENS: RangeInclusive<i64> = 0..=1_000_000_000;
/// The cost of those, in nano-USD: at most a million dollars.
const NANOS: RangeInclusive<i64> = 0..=1_000_000_000_000_000;
/// How long after its question an answer may still come, at most.
const LONGEST_ASK_MS: TimestampMs = 366 * 24 * 60 * 60 * 1_000;

impl SessionEvent {
    /// Returns what no service writes in an event of these `times`: a number or a time that is out of bounds.
    #[must_use]
    pub fn out_of_bounds(&self, times: &RangeInclusive<TimestampMs>) -> Option<String> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the others have no such numbers")]
        let found = match self {
            Self::TurnStarted(turn) => {
                outside("step", turn.step, &COUNTS).or(outside("epoch", turn.epoch, &EPOCHS))
            }
            Self::AttemptStarted(attempt) => outside("ordinal", attempt.ordinal, &COUNTS)
                .or(outside("epoch", attempt.epoch, &EPOCHS)),
            Self::RetryScheduled(retry) => {
                outside("ordinal", retry.ordinal, &COUNTS).or(outside("at", retry.at, times))
            }
            Self::TextCheckpointed(text) => outside("offset", text.offset, &(0..=i64::MAX)),
            Self::ToolStarted(tool) => outside("body", tool.body, &COUNTS),
            Self::ToolAsked(ask) => {
                let last = times.end().saturating_add(LONGEST_ASK_MS);
                outside("expires", ask.expires, &(*times.start()..=last))
            }
            Self::ToolSettled(settled) => {
                // Exports of the released client have any clock here, and lists are not ordered by it.
                let times = 0..=*times.end();
                outside("started", settled.started, &times).or(outside(
                    "ended",
                    settled.ended,
                    &times,
                ))
            }
            Self::EpochStarted(epoch) => outside("epoch", epoch.epoch, &(1..=*EPOCHS.end())),
            Self::CompactionStarted(started) => outside("epoch", started.epoch, &EPOCHS),
            Self::PromptPromoted(promoted) => outside("admitted", promoted.admitted, times),
            Self::SessionArchived(archived) => {
                archived.archived.and_then(|archived| outside("archived", archived, times))
            }
            Self::WorkspaceSnapshotted(taken) => {
                let counts = taken.files.iter().flat_map(|file| [file.additions, file.deletions]);
                let counts = counts.chain([taken.ordinal, taken.bytes, taken.more]);
                counts.map(|count| outside("counts", count, &(0..=i64::MAX))).find_map(|out| out)
            }
            Self::AttemptEnded(ended) => ended.usage.as_ref().and_then(find_odd_count),
            Self::TurnSettled(settled) => find_odd_count(&settled.usage),
            Self::CompactionEnded(ended) => find_odd_count(&ended.usage),
            Self::TitleEnded(ended) => find_odd_count(&ended.usage),
            _ => None,
        };
        found
    }
}

/// Returns which count of a usage no service writes.
fn find_odd_count(usage: &TurnUsage) -> Option<String> {
    let TurnUsage { input, output, reasoning, cache_read, cache_write, cost } = *usage;
    let counts = [
        ("input", input),
        ("output", output),
        ("reasoning", reasoning),
        ("cache_read", cache_read),
        ("cache_write", cache_write),
    ];
    let odd = counts.into_iter().find_map(|(name, count)| outside(name, count, &TOKENS));
    odd.or(outside("cost", cost, &NANOS))
}

fn outside<T: PartialOrd + Copy + std::fmt::Display>(
    name: &str,
    value: T,
    bounds: &RangeInclusive<T>,
) -> Option<String> {
    let (least, most) = (bounds.start(), bounds.end());
    (!bounds.contains(&value)).then(|| {
        format!("`{name}` is {value}, and no service writes less than {least} or more than {most}")
    })
}
