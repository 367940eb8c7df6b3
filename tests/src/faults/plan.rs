//! The faults of a run, their order and their distance. Pure.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// SIGKILL for a worker that runs a tool.
    KillWorker,
    /// SIGSTOP for a worker that runs a tool, and SIGCONT long after its lease has moved on.
    StopWorker,
    /// SIGKILL for the leader of placement.
    KillLeader,
    /// SIGSTOP for the leader of placement, and SIGCONT long after another one leads.
    StopLeader,
    /// SIGKILL for a gateway.
    KillGateway,
    /// SIGSTOP for a gateway, and SIGCONT after its clients have given up on it.
    StopGateway,
    /// SIGKILL for NATS.
    KillNats,
    /// `pg_terminate_backend` for connections of the service, busy ones first.
    KillBackends,
    /// SIGSTOP for all processes of Postgres, and SIGCONT after ten seconds.
    StallPostgres,
    /// SIGKILL for a database process, after which Postgres ends all connections and recovers from its log.
    CrashPostgres,
}

/// A fault and the pause before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The pause after the previous fault.
    pub after: Duration,
    /// The fault.
    pub fault: Fault,
}

/// The faults of one round, in any order. There are enough of each kind for [`Coverage`](super::Coverage), even if
/// some meet nobody at work.
const ROUND: &[Fault] = &[
    Fault::KillWorker,
    Fault::KillWorker,
    Fault::KillWorker,
    Fault::StopWorker,
    Fault::StopWorker,
    Fault::KillLeader,
    Fault::StopLeader,
    Fault::KillGateway,
    Fault::KillGateway,
    Fault::StopGateway,
    Fault::KillNats,
    Fault::KillBackends,
    Fault::KillBackends,
    Fault::KillBackends,
    Fault::StallPostgres,
];

/// Returns the faults of a run: `rounds` rounds, each in its own order. Postgres crashes once in each round except
/// the first: its recovery flushes every file, which on a busy disk takes longer than the rest of a short run.
#[must_use]
pub fn plan(seed: u64, rounds: u32) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut steps = Vec::new();
    for round in 0..rounds {
        let mut faults = ROUND.to_vec();
        faults.extend((round > 0).then_some(Fault::CrashPostgres));
        faults.shuffle(&mut random);
        for fault in faults {
            let after = Duration::from_millis(random.random_range(600..2_400));
            steps.push(Step { after, fault });
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_plan_and_every_round_has_every_fault() {
        assert_eq!(plan(7, 3), plan(7, 3));
        assert_ne!(plan(7, 3), plan(8, 3));
        let mut rest = plan(7, 3);
        for crashes in [0, 1, 1] {
            let length = ROUND.len() + crashes;
            let mut faults: Vec<Fault> = rest.drain(..length).map(|step| step.fault).collect();
            faults.sort_unstable();
            assert_eq!(faults[..ROUND.len()], *ROUND);
            assert_eq!(faults[ROUND.len()..], [Fault::CrashPostgres][..crashes]);
        }
        assert_eq!(rest, []);
    }
}
