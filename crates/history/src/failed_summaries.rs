use domain::{CompactionEnded, CompactionReason, CompactionStarted, ErrorCode, SideOutcome};

/// The summaries that could not be made since the last one that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FailedSummaries {
    /// The number of Compactions that failed in a row, by their summaries or their requests. Smaller requests for the same
    /// summary count as one. A Compaction that a client asked for does not count.
    pub in_a_row: u32,
    /// The number of exchanges that left the view without a summary.
    pub left_out: u32,
    /// The estimated tokens of the next request when the newest of them left.
    pub cut_at: Option<u64>,
}

impl FailedSummaries {
    /// Returns whether another summary is not worth its request: exchanges have left the view, and a request of `tokens` is
    /// less than half as large again as the next one was then.
    #[must_use]
    pub fn rest(&self, tokens: u64) -> bool {
        self.cut_at.is_some_and(|cut_at| tokens < cut_at.saturating_add(cut_at / 2))
    }

    pub(crate) fn ended(&mut self, started: &CompactionStarted, ended: &CompactionEnded) {
        let scope = &started.scope;
        match ended.outcome {
            SideOutcome::Completed if scope.left_out > 0 => {
                self.left_out = self.left_out.saturating_add(scope.left_out);
                self.cut_at = Some(scope.tokens);
            }
            SideOutcome::Completed => *self = Self::default(),
            SideOutcome::Failed => {
                let failed = ErrorCode::SessionCompactionFailed;
                let is_its_fault = ended.error.as_ref().is_some_and(|error| error.code == failed);
                let by_itself = started.reason != CompactionReason::Manual;
                if is_its_fault && by_itself && scope.refusals == 0 {
                    self.in_a_row = self.in_a_row.saturating_add(1);
                }
            }
            SideOutcome::Cancelled | SideOutcome::Lost => {}
        }
    }
}
