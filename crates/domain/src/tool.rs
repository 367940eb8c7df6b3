use crate::words;

words! {
    /// The actions that a takeover may take with a call that had started when its worker died.
    pub enum ToolClass {
        /// Changes nothing: run again, at most 3 bodies.
        Pure = "pure",
        /// Deduplicated by a key: run again with the same key.
        Keyed = "keyed",
        /// Looks first whether its effect is there.
        Probe = "probe",
        /// Never run again: settles as *interrupted, outcome unknown*.
        Unsafe = "unsafe",
    }
}

words! {
    /// The progress of a tool call.
    pub enum ToolState {
        /// Committed, but something must pass before its body may run.
        Intended = "intended",
        /// It waits for answers to its asks.
        Asked = "asked",
        /// Its body may have run.
        Started = "started",
        /// It has its one durable result.
        Settled = "settled",
    }
}

words! {
    /// The outcome of a tool call.
    pub enum ToolOutcomeKind {
        /// It succeeded.
        Completed = "completed",
        /// It failed, and the model gets the reason.
        Failed = "failed",
        /// It was stopped by an interrupt.
        Interrupted = "interrupted",
        /// Its worker died: whether the effect happened is not known.
        Unknown = "unknown",
    }
}
