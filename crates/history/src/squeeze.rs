use domain::{CompactionReason, CompactionStarted, SideOutcome};

/// The reductions of a conversation for its next turn. A new prompt resets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Squeeze {
    /// The number of Compactions that completed since the last turn began.
    pub completed: u32,
    /// Whether the newest of them stands for one piece, so that more must be summarised.
    pub is_piece: bool,
    /// The number of Compactions that were tried for turns' requests that the provider refused as too large, since a
    /// turn completed.
    pub overflows: u32,
    /// The estimated tokens of the smallest refused request, a turn's or a summary's.
    pub refused: Option<u64>,
    /// Whether an automatic Compaction has failed, and none has completed since.
    pub has_failed: bool,
    /// The number of turns that began since the newest Compaction, or since the prompt.
    pub turns: u32,
    /// For each of [`CIRCLES`], the number of Compactions in a row that came by themselves after fewer turns than it has.
    circles: [u32; CIRCLES.len()],
}

/// Work that gets nowhere: so many Compactions in a row, each after fewer than so many turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Circle {
    /// The number of Compactions.
    pub compactions: u32,
    /// Each came after fewer turns than this.
    pub turns: u32,
}

/// The circles in which work ends. The wider one takes longer to be told from work that reads a lot.
pub const CIRCLES: [Circle; 2] =
    [Circle { compactions: 3, turns: 3 }, Circle { compactions: 10, turns: 6 }];

impl Squeeze {
    /// Returns the circle in which the work goes, if it does.
    #[must_use]
    pub fn circle(&self) -> Option<Circle> {
        let mut met = CIRCLES.into_iter().zip(self.circles);
        met.find_map(|(circle, count)| (count >= circle.compactions).then_some(circle))
    }

    pub(crate) fn turn_began(&mut self) {
        self.completed = 0;
        self.turns = self.turns.saturating_add(1);
    }

    pub(crate) fn started(&mut self, started: &CompactionStarted) {
        if let Some(refused) = started.scope.refused {
            self.refused = Some(self.refused.map_or(refused, |known| known.min(refused)));
        }
    }

    pub(crate) fn ended(&mut self, started: &CompactionStarted, outcome: SideOutcome) {
        // A Compaction whose worker died was not tried, and a smaller request for the same summary is not a new try.
        let tried = outcome != SideOutcome::Lost && started.scope.refusals == 0;
        if started.reason == CompactionReason::Overflow && tried {
            self.overflows += 1;
        }
        match outcome {
            SideOutcome::Completed => {
                self.completed += 1;
                self.is_piece = started.scope.is_piece;
                self.has_failed = false;
                // The pieces of one conversation are one Compaction.
                if self.turns > 0 && started.reason != CompactionReason::Manual {
                    for (circle, count) in CIRCLES.iter().zip(&mut self.circles) {
                        *count = if self.turns < circle.turns { *count + 1 } else { 0 };
                    }
                }
                self.turns = 0;
            }
            SideOutcome::Failed => self.has_failed |= started.reason == CompactionReason::Auto,
            SideOutcome::Cancelled | SideOutcome::Lost => {}
        }
    }
}
