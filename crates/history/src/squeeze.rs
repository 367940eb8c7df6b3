use domain::{CompactionReason, CompactionStarted, SideOutcome};

/// How far a conversation was made smaller for its next turn. A new prompt starts it over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Squeeze {
    /// Compactions that completed since the last turn began.
    pub completed: u32,
    /// The newest of them stands for one piece, and more is to be summarised.
    pub is_piece: bool,
    /// Requests of turns that the provider refused as too large, and a Compaction was tried for, since a turn
    /// completed.
    pub overflows: u32,
    /// About how many tokens the smallest request had that was refused, a turn's or a summary's, by our own estimate.
    pub refused: Option<u64>,
    /// A Compaction that came by itself has failed, and none has completed since.
    pub has_failed: bool,
}

impl Squeeze {
    pub(crate) fn started(&mut self, started: &CompactionStarted) {
        if let Some(refused) = started.scope.refused {
            self.refused = Some(self.refused.map_or(refused, |known| known.min(refused)));
        }
    }

    pub(crate) fn ended(&mut self, started: &CompactionStarted, outcome: SideOutcome) {
        // One whose worker died has not been tried; a smaller request for the same summary is no new try.
        let tried = outcome != SideOutcome::Lost && started.scope.refusals == 0;
        if started.reason == CompactionReason::Overflow && tried {
            self.overflows += 1;
        }
        match outcome {
            SideOutcome::Completed => {
                self.completed += 1;
                self.is_piece = started.scope.is_piece;
                self.has_failed = false;
            }
            SideOutcome::Failed => self.has_failed |= started.reason == CompactionReason::Auto,
            SideOutcome::Cancelled | SideOutcome::Lost => {}
        }
    }
}
