use sim::{Mutant, ShellMutant, StoreMutant, Story, catches, history};

/// Histories in which a mistake must show.
const SEEDS: u64 = 3_000;

#[test]
fn every_known_mistake_is_found() {
    std::panic::set_hook(Box::new(|_| {})); // some mistakes are met by assertions first
    let all = Mutant::all();
    assert!(all.len() >= 25, "{} mutants", all.len());
    let (even, odd): (Vec<_>, Vec<_>) =
        all.into_iter().enumerate().partition(|(index, _)| index % 2 == 0);
    let survivors = |mutants: Vec<(usize, Mutant)>| -> Vec<Mutant> {
        let survives = |mutant: &Mutant| catches(*mutant, 1, SEEDS).is_none();
        mutants.into_iter().map(|(_, mutant)| mutant).filter(survives).collect()
    };
    let survivors = std::thread::scope(|scope| {
        let odd = scope.spawn(|| survivors(odd));
        let mut even = survivors(even);
        even.extend(odd.join().expect("panics are caught"));
        even
    });
    let _ = std::panic::take_hook();
    assert_eq!(survivors, [], "survived {SEEDS} histories");
}

/// Whether a mistake shows within so many histories as a violation that begins with one text and has another in it.
fn shows(mutant: Mutant, seeds: u64, begins: &str, says: &str) {
    let is_it = |story: &Story| {
        let violation = story.violation.as_deref();
        violation.is_some_and(|text| text.starts_with(begins) && text.contains(says))
    };
    let shown = (1..=seeds).map(|seed| history(seed, Some(mutant))).any(|story| is_it(&story));
    assert!(shown, "{mutant:?} was never `{begins}… {says}` in {seeds} histories");
}

// Finding store 1: a deleted prompt is promoted in the place of one that was acknowledged.
#[test]
fn claims_that_begin_again_promote_what_was_deleted() {
    shows(Mutant::Store(StoreMutant::ClaimBeginsAtZero), SEEDS, "I2: ", "did not wait");
}

// Finding store 2: a worker with an old token writes to a session that was made anew.
#[test]
fn claims_that_begin_again_let_an_old_token_write() {
    shows(Mutant::Store(StoreMutant::ClaimBeginsAtZero), SEEDS, "I4: ", "wrote under token");
}

// Finding store 3: the model is shown a conversation that was deleted.
#[test]
fn a_cache_without_incarnations_shows_what_was_deleted() {
    let mutant = Mutant::Shell(ShellMutant::CacheWithoutIncarnation);
    shows(mutant, SEEDS, "leak: ", "shows what was deleted");
}

// Finding store 11: a wake is lost at a drain's end.
#[test]
fn an_end_that_spends_every_wake_is_found() {
    shows(Mutant::Store(StoreMutant::CloseSpendsAllWakes), SEEDS, "I11: ", "waits");
}

// Finding store 11: a stale token takes a Location.
#[test]
fn a_fence_that_falls_is_found() {
    shows(Mutant::Store(StoreMutant::FenceFalls), SEEDS, "I10: ", "fell");
}
