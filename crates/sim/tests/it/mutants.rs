use sim::{Mutant, catches};

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
