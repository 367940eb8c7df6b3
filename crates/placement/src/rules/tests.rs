use std::collections::{BTreeMap, BTreeSet};

use domain::{FencingToken, Generation, Incarnation, LocationRef, OrgId};
use placement_api::{Lease, LeaseChanges, Worker};
use proptest::prelude::*;

use super::*;

fn incarnation(nth: u8) -> Incarnation {
    let text = format!("00000000-0000-4000-8000-0000000000{nth:02x}");
    Incarnation(text.parse::<OrgId>().expect("a uuid").0)
}

fn location(nth: u8) -> LocationRef {
    LocationRef { org: OrgId::FIRST, location: format!("loc_{nth}").parse().expect("an id") }
}

fn worker(nth: u8, slots: u32) -> Worker {
    let node = format!("node-{}", nth % 3);
    Worker { incarnation: incarnation(nth), node, url: format!("http://w{nth}"), slots }
}

fn one(state: &mut State, index: u64, command: Command) -> Effect {
    let batch = Batch::new(Generation(1), vec![command]);
    state.apply(index, &batch).expect("applies").pop().expect("one effect")
}

fn assign(nth: u8, to: u8) -> Command {
    Command::Assign { location: location(nth), incarnation: incarnation(to) }
}

fn token(index: u64) -> FencingToken {
    FencingToken::new(Generation(1), index).expect("in range")
}

#[test]
fn a_location_that_someone_alive_holds_is_not_given_again() {
    let mut state = State::default();
    for nth in [1, 2] {
        assert_eq!(
            one(&mut state, u64::from(nth), Command::Register { worker: worker(nth, 4) }),
            Effect::Registered
        );
    }
    let first = Effect::Assigned { incarnation: incarnation(1), token: token(3) };
    assert_eq!(one(&mut state, 3, assign(7, 1)), first);
    let held = Effect::Held { incarnation: incarnation(1), token: token(3) };
    assert_eq!(one(&mut state, 4, assign(7, 2)), held);
    let freed = Effect::Retired { freed: vec![location(7)] };
    assert_eq!(one(&mut state, 5, Command::Retire { incarnation: incarnation(1) }), freed);
    let moved = Effect::Assigned { incarnation: incarnation(2), token: token(6) };
    assert_eq!(one(&mut state, 6, assign(7, 2)), moved);
    assert_eq!(one(&mut state, 7, assign(8, 1)), Effect::NotLive);
    assert_eq!(one(&mut state, 8, Command::Register { worker: worker(1, 4) }), Effect::Superseded);
}

#[test]
fn one_entry_gives_a_location_once_or_a_token_would_have_two_owners() {
    let mut state = State::default();
    let commands = vec![
        Command::Register { worker: worker(1, 1) },
        Command::Register { worker: worker(2, 1) },
        assign(7, 1),
        Command::Retire { incarnation: incarnation(1) },
        assign(7, 2),
    ];
    let effects = state.apply(9, &Batch::new(Generation(1), commands)).expect("applies");
    assert_eq!(effects.last(), Some(&Effect::SameEntry));
    assert_eq!(state.holder(&location(7)), None);
}

#[test]
fn only_the_lease_that_is_named_is_released() {
    let mut state = State::default();
    one(&mut state, 1, Command::Register { worker: worker(1, 1) });
    one(&mut state, 2, assign(7, 1));
    let release =
        |token| Command::Release { location: location(7), incarnation: incarnation(1), token };
    assert_eq!(one(&mut state, 3, release(token(1))), Effect::Released { ended: false });
    assert_eq!(state.worker(incarnation(1)).expect("alive").version, token(2).0.cast_unsigned());
    assert_eq!(one(&mut state, 4, release(token(2))), Effect::Released { ended: true });
    assert_eq!(state.holder(&location(7)), None);
    assert_eq!(state.worker(incarnation(1)).expect("alive").version, token(4).0.cast_unsigned());
}

#[test]
fn what_a_newer_build_wrote_is_kept_and_then_refused() {
    let newer = r#"{"version":2,"generation":1,"commands":[{"type":"teleport","to":"moon"}]}"#;
    let batch: Batch = serde_json::from_str(newer).expect("it is kept");
    let text = serde_json::to_string(&batch).expect("and passed on");
    assert_eq!(serde_json::from_str::<Batch>(&text).expect("unchanged"), batch);
    let mut state = State::default();
    assert_eq!(state.apply(5, &batch), Err(ApplyError::UnknownVersion { index: 5, version: 2 }));
    let unmarked = Batch { version: VERSION, ..batch };
    assert_eq!(state.apply(5, &unmarked), Err(ApplyError::Unreadable { index: 5 }));
    assert_eq!(state, State::default());
    let image = br#"{"version":2,"planets":[]}"#;
    assert!(matches!(State::from_image(image), Err(ImageError::UnknownVersion(2))));
}

#[test]
fn leases_go_where_the_fewest_are_for_the_slots() {
    let mut state = State::default();
    one(&mut state, 1, Command::Register { worker: worker(1, 1) });
    one(&mut state, 2, Command::Register { worker: worker(2, 3) });
    for nth in 0..40 {
        let to = choose(&state, &Load::default(), &location(nth), None).expect("someone");
        one(
            &mut state,
            3 + u64::from(nth),
            Command::Assign { location: location(nth), incarnation: to },
        );
    }
    let count = |nth| state.worker(incarnation(nth)).expect("alive").count();
    assert_eq!((count(1), count(2)), (10, 30));
}

// Finding ops S4: leases stay for ten minutes after their work, and an empty worker got all new sessions.
#[test]
fn a_location_goes_where_the_least_work_is() {
    // Leases (idle ones too) and work of two workers, their slots, and who takes the next Location.
    type Workers = [(u8, usize, u32); 2];
    let cases: [(Workers, u8); 6] = [
        ([(25, 0, 24), (24, 22, 24)], 1),
        ([(0, 8, 24), (60, 2, 24)], 2),
        ([(0, 0, 24), (60, 0, 24)], 1),
        ([(3, 4, 16), (9, 2, 4)], 1),
        ([(9, 2, 16), (3, 1, 4)], 1),
        ([(5, 16, 16), (9, 16, 16)], 1),
    ];
    for (workers, takes) in cases {
        let (mut state, mut load, mut index) = (State::default(), Load::default(), 0);
        for (nth, (leases, busy, slots)) in (1..).zip(workers) {
            index += 1;
            one(&mut state, index, Command::Register { worker: worker(nth, slots) });
            for lease in 0..leases {
                index += 1;
                let location = location(lease + (nth - 1) * 60);
                let incarnation = incarnation(nth);
                one(&mut state, index, Command::Assign { location, incarnation });
            }
            load.work.insert(incarnation(nth), busy);
        }
        for nth in 240..250 {
            assert_eq!(choose(&state, &load, &location(nth), None), Some(incarnation(takes)));
        }
    }
}

// A burst within one entry spreads too, before any heartbeat counts it.
#[test]
fn a_burst_is_counted_as_it_is_given() {
    let mut state = State::default();
    for nth in 1..=3 {
        one(&mut state, u64::from(nth), Command::Register { worker: worker(nth, 8) });
    }
    let mut load =
        Load { work: [(incarnation(1), 6), (incarnation(2), 3)].into(), ..Load::default() };
    for nth in 0..9 {
        let chosen = choose(&state, &load, &location(nth), None).expect("someone");
        *load.planned.entry(chosen).or_default() += 1;
    }
    let planned = [1, 2, 3].map(|nth| load.planned.get(&incarnation(nth)).copied().unwrap_or(0));
    assert_eq!(planned, [0, 3, 6]);
}

// A disk that may have the files is worth a queue, but not a long one.
#[test]
fn a_known_disk_is_left_when_it_has_much_more_work() {
    let mut state = State::default();
    for nth in [1, 2] {
        one(&mut state, u64::from(nth), Command::Register { worker: worker(nth, 32) });
    }
    let node = worker(1, 32).node;
    for (busy, other, takes) in [(8, 0, 1), (9, 0, 2), (16, 4, 1), (17, 4, 2)] {
        let work = [(incarnation(1), busy), (incarnation(2), other)].into();
        let load = Load { work, ..Load::default() };
        let chosen = choose(&state, &load, &location(1), Some(&node));
        assert_eq!(chosen, Some(incarnation(takes)), "{busy} {other}");
    }
}

#[test]
fn who_drains_gets_nothing_and_who_is_quiet_only_what_is_left() {
    let mut state = State::default();
    one(&mut state, 1, Command::Register { worker: worker(1, 4) });
    one(&mut state, 2, Command::Register { worker: worker(2, 4) });
    let quiet = Load { quiet: [incarnation(1)].into(), ..Load::default() };
    for nth in 0..20 {
        assert_eq!(choose(&state, &quiet, &location(nth), None), Some(incarnation(2)));
    }
    let both = Load { draining: [incarnation(2)].into(), ..quiet };
    assert_eq!(choose(&state, &both, &location(1), None), Some(incarnation(1)));
    one(&mut state, 3, Command::DrainNode { node: worker(1, 1).node });
    assert_eq!(choose(&state, &both, &location(1), None), None);
    one(&mut state, 4, Command::UndrainNode { node: worker(1, 1).node });
    assert_eq!(choose(&state, &both, &location(1), None), Some(incarnation(1)));
}

#[test]
fn ties_spread_and_do_not_depend_on_the_order() {
    let mut state = State::default();
    for nth in 1..=4 {
        one(&mut state, u64::from(nth), Command::Register { worker: worker(nth, 4) });
    }
    let chosen: BTreeSet<_> =
        (0..40).filter_map(|nth| choose(&state, &Load::default(), &location(nth), None)).collect();
    assert_eq!(chosen.len(), 4);
}

#[test]
fn the_node_that_had_a_location_is_preferred_until_it_is_full() {
    let mut state = State::default();
    for nth in 1..=3 {
        one(&mut state, u64::from(nth), Command::Register { worker: worker(nth, 4) });
    }
    let (node, load) = (worker(2, 4).node, Load::default());
    for nth in 0..8 {
        let to = choose(&state, &load, &location(nth), Some(&node));
        assert_eq!(to, Some(incarnation(2)), "{nth}");
        let (location, incarnation) = (location(nth), incarnation(2));
        one(&mut state, 4 + u64::from(nth), Command::Assign { location, incarnation });
    }
    let one_more = Load { planned: [(incarnation(2), 1)].into(), ..Load::default() };
    assert_ne!(choose(&state, &one_more, &location(9), Some(&node)), Some(incarnation(2)));
    for away in [
        Load { quiet: [incarnation(2)].into(), ..Load::default() },
        Load { draining: [incarnation(2)].into(), ..Load::default() },
    ] {
        assert_ne!(choose(&state, &away, &location(9), Some(&node)), Some(incarnation(2)));
    }
    assert!(choose(&state, &load, &location(9), Some("gone")).is_some());
}

/// A step of a random history. Workers and Locations are small numbers, so that they collide.
#[derive(Debug, Clone)]
enum Step {
    Register(u8),
    Retire(u8),
    Assign(u8, u8),
    ReleaseHeld(u8),
    ReleaseStale(u8, u8, u16),
    Drain(u8, bool),
}

fn steps() -> impl Strategy<Value = Vec<(u8, Vec<Step>)>> {
    let step = prop_oneof![
        3 => (0..6_u8).prop_map(Step::Register),
        1 => (0..6_u8).prop_map(Step::Retire),
        8 => (0..8_u8, 0..6_u8).prop_map(|(at, to)| Step::Assign(at, to)),
        4 => (0..8_u8).prop_map(Step::ReleaseHeld),
        1 => (0..8_u8, 0..6_u8, 0..90_u16).prop_map(|(at, by, index)| Step::ReleaseStale(at, by, index)),
        1 => (0..3_u8, any::<bool>()).prop_map(|(node, on)| Step::Drain(node, on)),
    ];
    prop::collection::vec((0..3_u8, prop::collection::vec(step, 1..12)), 1..60)
}

fn command(state: &State, step: &Step) -> Option<Command> {
    Some(match step {
        Step::Register(nth) => Command::Register { worker: worker(*nth, 2) },
        Step::Retire(nth) => Command::Retire { incarnation: incarnation(*nth) },
        Step::Assign(at, to) => assign(*at, *to),
        Step::ReleaseHeld(at) => {
            let (holder, token) = state.holder(&location(*at))?;
            let incarnation = holder.incarnation;
            Command::Release { location: location(*at), incarnation, token }
        }
        Step::ReleaseStale(at, by, index) => Command::Release {
            location: location(*at),
            incarnation: incarnation(*by),
            token: token(u64::from(*index)),
        },
        Step::Drain(node, true) => Command::DrainNode { node: format!("node-{node}") },
        Step::Drain(node, false) => Command::UndrainNode { node: format!("node-{node}") },
    })
}

/// Asserts that holders by Location and leases by holder agree.
fn assert_whole(state: &State) {
    let mut from_workers = BTreeMap::new();
    for standing in state.workers() {
        let incarnation = standing.worker.incarnation;
        assert!(!state.is_retired(incarnation), "{incarnation} is retired and stands");
        for lease in standing.leases() {
            let before = from_workers.insert(lease.location.clone(), incarnation);
            assert_eq!(before, None, "{:?} has two holders", lease.location);
        }
    }
    assert_eq!(from_workers, state.holders);
}

proptest! {
    #[test]
    fn every_history_keeps_one_owner_per_location_and_token(history in steps()) {
        let mut state = State::default();
        let mut generation = 0;
        let mut index = 0;
        let mut owners: BTreeMap<(LocationRef, FencingToken), Incarnation> = BTreeMap::new();
        let mut last: BTreeMap<LocationRef, FencingToken> = BTreeMap::new();
        let mut versions: BTreeMap<Incarnation, u64> = BTreeMap::new();
        let mut mirrors: BTreeMap<Incarnation, (u64, BTreeMap<LocationRef, FencingToken>)> = BTreeMap::new();
        let mut retired = BTreeSet::new();
        for (raise, entry) in history {
            // A raised generation comes with a new log, whose indices begin again.
            if raise == 2 && index > 20 {
                generation += 1;
                index = 0;
            }
            index += 1;
            let commands: Vec<_> = entry.iter().filter_map(|step| command(&state, step)).collect();
            let before = state.clone();
            // A member with an old setting may propose; the highest generation counts.
            let proposed = Generation(if raise == 1 { 0 } else { generation });
            let batch = Batch::new(proposed, commands.clone());
            let mut twin = State::from_image(&state.image()).expect("readable");
            let effects = state.apply(index, &batch).expect("applies");
            prop_assert_eq!(&twin.apply(index, &batch).expect("applies"), &effects);
            prop_assert_eq!(&twin, &state);

            for (command, effect) in commands.iter().zip(&effects) {
                match (command, effect) {
                    (Command::Assign { location, .. }, Effect::Assigned { incarnation, token }) => {
                        let earlier = last.insert(location.clone(), *token);
                        prop_assert!(earlier < Some(*token), "{:?} then {:?}", earlier, token);
                        let owner = owners.insert((location.clone(), *token), *incarnation);
                        prop_assert_eq!(owner, None);
                        prop_assert!(!retired.contains(incarnation));
                    }
                    (Command::Retire { incarnation }, _) => {
                        retired.insert(*incarnation);
                    }
                    _ => {}
                }
            }
            assert_whole(&state);
            for standing in state.workers() {
                let incarnation = standing.worker.incarnation;
                prop_assert!(!retired.contains(&incarnation));
                let known = versions.insert(incarnation, standing.version).unwrap_or(0);
                let same = before.worker(incarnation).map(Standing::leases) == Some(standing.leases());
                let in_order = if same { known <= standing.version } else { known < standing.version };
                prop_assert!(in_order, "version {} after {}", standing.version, known);
                // A worker sees only some versions. The changes that it gets then cover everything since its
                // last one.
                if index % 3 == u64::from(incarnation.0.as_bytes()[15]) % 3 {
                    let (known, leases) = mirrors.entry(incarnation).or_default();
                    let all: BTreeMap<_, _> =
                        standing.leases().into_iter().map(|of| (of.location, of.token)).collect();
                    match standing.changes_since(*known) {
                        Some(changes) => {
                            for lost in changes.lost {
                                if leases.get(&lost.location) == Some(&lost.token) {
                                    leases.remove(&lost.location);
                                }
                            }
                            leases.extend(changes.gained.into_iter().map(|of| (of.location, of.token)));
                        }
                        None => {
                            prop_assert_eq!(*known, 0, "what it knew is forgotten");
                            *leases = all.clone();
                        }
                    }
                    prop_assert_eq!(&*leases, &all);
                    *known = standing.version;
                }
            }
            prop_assert_eq!(&State::from_image(&state.image()).expect("readable"), &state);
        }
    }
}

#[test]
fn only_so_many_retired_incarnations_are_remembered() {
    let mut state = State::default();
    let first = Incarnation::random();
    one(&mut state, 1, Command::Retire { incarnation: first });
    let others = (0..MAX_RETIRED).map(|_| Command::Retire { incarnation: Incarnation::random() });
    state.apply(2, &Batch::new(Generation(1), others.collect())).expect("applies");
    assert!(!state.is_retired(first));
    assert_eq!(state.retired.len(), MAX_RETIRED);
    assert_eq!(state.gone.len(), MAX_RETIRED);
}

// Finding store 14: every change of a lease sent the worker's whole list again.
#[test]
fn a_worker_is_told_only_what_changed_of_its_leases() {
    let mut state = State::default();
    one(&mut state, 1, Command::Register { worker: worker(1, 4) });
    for nth in 0..100 {
        one(&mut state, 2 + u64::from(nth), assign(nth, 1));
    }
    let standing = |state: &State| state.worker(incarnation(1)).expect("alive").clone();
    let known = standing(&state).version;
    assert_eq!(standing(&state).changes_since(known), Some(LeaseChanges::default()));
    let lease = |nth, index| Lease { location: location(nth), token: token(index) };
    let release =
        Command::Release { location: location(7), incarnation: incarnation(1), token: token(9) };
    one(&mut state, 200, release);
    one(&mut state, 201, assign(7, 1));
    let changes = LeaseChanges { gained: vec![lease(7, 201)], lost: vec![lease(7, 9)] };
    assert_eq!(standing(&state).changes_since(known), Some(changes));
    assert_eq!(standing(&state).changes_since(0), None, "a worker that knows nothing gets all");
    assert_eq!(standing(&state).changes_since(known + 1_000), None, "nor is the future known");

    // End more leases than are remembered.
    let mut index = 300;
    for _ in 0..=MAX_ENDED {
        let (_, held) = state.holder(&location(7)).expect("held");
        let release =
            Command::Release { location: location(7), incarnation: incarnation(1), token: held };
        one(&mut state, index, release);
        one(&mut state, index + 1, assign(7, 1));
        index += 2;
    }
    assert_eq!(standing(&state).changes_since(known), None);
    assert_eq!(standing(&state).ended.len(), MAX_ENDED);
    let read = State::from_image(&state.image()).expect("readable");
    assert_eq!(read, state);
}
