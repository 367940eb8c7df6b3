use sim::{history, run};

/// Enough for every crash point, and few enough for a few seconds.
const SEEDS: u64 = 5_000;

#[test]
fn every_invariant_holds_and_every_crash_point_is_met() {
    let report = run(1, 2, |seeds, _| seeds < SEEDS);
    assert_eq!(report.violations, []);
    assert_eq!(report.faults.missing(), [], "crash points that were never met");
    assert!(report.histories * 10 > SEEDS * 9, "{} of {SEEDS} histories count", report.histories);
    let kinds = report.faults.kinds.len();
    assert_eq!(kinds, sim::Fault::ALL.len(), "{:?}", report.faults.kinds);
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 5_000..5_060 {
        let (first, second) = (history(seed, None), history(seed, None));
        assert_eq!((first.hash, first.steps), (second.hash, second.steps), "seed {seed}");
        assert_ne!(first.hash, history(seed + 1, None).hash);
    }
}
