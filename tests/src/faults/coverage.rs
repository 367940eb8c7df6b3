//! The faults that took effect in a run, and the paths of the service that they led to.

use std::collections::BTreeMap;
use std::fmt;

use super::plan::{Fault, Step};

/// An observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sight {
    /// A worker was killed while one of its tools ran.
    WorkerKilledMidTurn,
    /// A worker that had been stopped for twice its lease continued, and one of its drains was fenced.
    ZombieFenced,
    /// Placement's leader was killed, and another process became the leader.
    LeaderReplaced,
    /// Placement's leader was stopped, and another one led before it continued.
    StoppedLeaderReplaced,
    /// A gateway was stopped while clients and followers used it.
    GatewayStopped,
    /// Postgres did not answer for ten seconds, with all its connections open.
    PostgresStalled,
    /// A session was deleted and created again under the same id.
    SessionReborn,
    /// Postgres lost a process, ended all connections and recovered.
    PostgresCrashed,
    /// A gateway was killed.
    GatewayKilled,
    /// NATS was killed and refused connections.
    NatsDown,
    /// A database connection of the service was terminated.
    BackendTerminated,
    /// A terminated connection was in the middle of a statement or a transaction.
    BusyBackendTerminated,
    /// A client went away after sending its whole request, without reading the answer.
    HandlerDropped,
    /// The prompt of such a client was admitted after all.
    DroppedAndAdmitted,
    /// A prompt was acknowledged after earlier tries had failed.
    AdmittedOnRetry,
    /// A followed stream broke.
    StreamBroken,
    /// A followed stream resumed at the other gateway.
    StreamMoved,
    /// A turn was ended by an interrupt.
    TurnInterrupted,
    /// The provider cut a reply after visible output.
    ReplyCut,
    /// A wire request was tried again.
    AttemptRetried,
    /// A takeover settled a started unsafe call as not known.
    OutcomeUnknown,
    /// A turn was lost with its worker.
    TurnLost,
    /// A command made a tree that is deeper than a path can be long.
    DeepTreeDug,
    /// A command was ended since it filled its workspace.
    WorkspaceFilled,
    /// An inbox took no more.
    InboxFilled,
    /// A turn was completed whose provider counted what cannot be.
    OddlyCounted,
}

/// The least number of each observation in one round of faults.
const REQUIRED: &[(Sight, u64)] = &[
    (Sight::WorkerKilledMidTurn, 2),
    (Sight::ZombieFenced, 1),
    (Sight::LeaderReplaced, 1),
    (Sight::StoppedLeaderReplaced, 1),
    (Sight::GatewayKilled, 1),
    (Sight::GatewayStopped, 1),
    (Sight::NatsDown, 1),
    (Sight::BackendTerminated, 5),
    (Sight::BusyBackendTerminated, 1),
    (Sight::HandlerDropped, 10),
    (Sight::DroppedAndAdmitted, 1),
    (Sight::AdmittedOnRetry, 1),
    (Sight::StreamBroken, 1),
    (Sight::StreamMoved, 1),
    (Sight::TurnInterrupted, 1),
    (Sight::ReplyCut, 1),
    (Sight::AttemptRetried, 1),
    (Sight::OutcomeUnknown, 1),
    (Sight::PostgresStalled, 1),
    (Sight::SessionReborn, 3),
    (Sight::DeepTreeDug, 1),
    (Sight::WorkspaceFilled, 1),
    (Sight::InboxFilled, 1),
    (Sight::OddlyCounted, 2),
];

/// The number of each observation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<Sight, u64>);

impl Coverage {
    /// Counts an observation.
    pub fn note(&mut self, sight: Sight) {
        *self.0.entry(sight).or_default() += 1;
    }

    /// Returns the number of an observation.
    #[must_use]
    pub fn of(&self, sight: Sight) -> u64 {
        self.0.get(&sight).copied().unwrap_or(0)
    }

    /// Returns the observations that are too rare for a verdict on a plan, each with its number and the required one.
    #[must_use]
    pub fn missing(&self, plan: &[Step]) -> Vec<String> {
        let crashes = plan.iter().any(|step| step.fault == Fault::CrashPostgres);
        let crashed = crashes.then_some((Sight::PostgresCrashed, 1));
        let required = REQUIRED.iter().copied().chain(crashed);
        let short = required.filter(|(sight, least)| self.of(*sight) < *least);
        short.map(|(sight, least)| format!("{sight:?} {} of {least}", self.of(sight))).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen: Vec<String> =
            self.0.iter().map(|(sight, count)| format!("{sight:?} {count}")).collect();
        f.write_str(&seen.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_was_seen_too_seldom_is_named() {
        let mut coverage = Coverage::default();
        for (sight, least) in REQUIRED {
            for _ in 0..*least {
                coverage.note(*sight);
            }
        }
        assert_eq!(coverage.missing(&[]), Vec::<String>::new());
        let crash = Step { after: Duration::ZERO, fault: Fault::CrashPostgres };
        assert_eq!(coverage.missing(&[crash]), ["PostgresCrashed 0 of 1"]);
        coverage.0.insert(Sight::BackendTerminated, 4);
        assert_eq!(coverage.missing(&[]), ["BackendTerminated 4 of 5"]);
    }
}
