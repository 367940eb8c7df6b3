//! Mistakes put into the functions of a database, each a substitution in the text of one of them: the same
//! sequences of operations that hold Postgres to the simulation's model of it must find every one, or they prove
//! nothing about it. A corner has to find what they hardly ever come to.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use tokio::runtime::Builder;

use crate::corners::Corner;
use crate::model::sequences;
use crate::world::World;

/// Sequences in which a mistake must show.
const SEQUENCES: u64 = 40;
/// Databases at once.
const AT_ONCE: usize = 3;

/// A mistake: every occurrence of some text in a function is another one.
#[derive(Debug, Clone, Copy)]
struct Mutant {
    what: &'static str,
    function: &'static str,
    text: &'static str,
    instead: &'static str,
    /// Where it shows; in the sequences without one.
    corner: Option<Corner>,
}

const fn mutant(
    what: &'static str,
    function: &'static str,
    text: &'static str,
    instead: &'static str,
) -> Mutant {
    Mutant { what, function, text, instead, corner: None }
}

impl Mutant {
    const fn shown_by(self, corner: Corner) -> Self {
        Self { corner: Some(corner), ..self }
    }
}

const MUTANTS: [Mutant; 32] = [
    mutant(
        "a drain's write does not prove its claim",
        "advance_head",
        "AND h.claim = p_claim AND h.next_seq = p_first",
        "AND h.next_seq = p_first",
    ),
    mutant(
        "a drain's write does not prove that the log is as it was",
        "advance_head",
        "AND h.claim = p_claim AND h.next_seq = p_first",
        "AND h.claim = p_claim",
    ),
    mutant(
        "a drain starts whatever token is the fence",
        "advance_head",
        "AND l.fence = p_token",
        "",
    ),
    mutant(
        "a drain that ends keeps its claim",
        "advance_head",
        "(CASE p_end WHEN 'keep' THEN 0 ELSE 1 END)",
        "0",
    ),
    mutant(
        "a drain's end spends wakes that nobody has served",
        "spend_wakes",
        "i.wake_seq > h.parked_seq",
        "false",
    ),
    mutant(
        "a lower token is taken for the fence",
        "take_fence",
        "IF known >= p_token",
        "IF known = p_token",
    ),
    mutant(
        "a new token leaves the claims",
        "take_fence",
        "SET claim = claim + 1",
        "SET claim = claim",
    ),
    mutant(
        "a retry is told by its id alone",
        "admit_prompt",
        "AND first.payload::json->>'digest' = p_digest",
        "",
    ),
    mutant(
        "an input takes the id of a reply",
        "admit_prompt",
        "AND NOT EXISTS (SELECT FROM message m WHERE m.org_id = p_org AND m.id = p_message)",
        "",
    )
    .shown_by(Corner::IdOfAReply),
    mutant(
        "a second compaction is admitted while the first waits",
        "admit_control",
        "ELSIF p_kind = 'compaction' THEN",
        "ELSIF false THEN",
    ),
    mutant(
        "a Revert is admitted while the session has work",
        "admit_control",
        "head.busy OR EXISTS",
        "EXISTS",
    ),
    mutant(
        "a cancelled input leaves the wake that was for it",
        "cancel_input",
        "PERFORM spend_wakes(p_org, p_session);",
        "",
    ),
    mutant(
        "a delivered input can be changed",
        "change_delivery",
        "item.status <> 'admitted' OR",
        "",
    ),
    mutant(
        "an interrupt leaves the wakes before it",
        "interrupt_session",
        ", parked_seq = seq",
        "",
    ),
    mutant(
        "a wake of an idle session opens nothing",
        "wake_session",
        "h.open OR NOT h.ready",
        "h.open",
    ),
    mutant(
        "a Move keeps the claim",
        "advance_head",
        "CASE p_end WHEN 'keep' THEN 0",
        "CASE WHEN p_to IS NOT NULL OR p_end = 'keep' THEN 0",
    ),
    mutant(
        "a session that moves is not handed over",
        "advance_head",
        "('hand-over', 'moved-open', 'wait')",
        "('hand-over', 'wait')",
    )
    .shown_by(Corner::MoveWithWork),
    mutant(
        "a session that is made again begins with the claims of the one before",
        "create_session",
        "number << 32, number << 32",
        "0, 0",
    )
    .shown_by(Corner::MadeAgain),
    mutant(
        "a takeover of open work is not counted",
        "advance_head",
        "WHEN starts AND h.open AND NOT h.handed_over THEN h.recoveries + 1",
        "",
    )
    .shown_by(Corner::Takeover),
    mutant(
        "a drain's end does not look whose wake is left",
        "write_drain",
        "IF p_end = 'close' AND head.left_over > 0 THEN",
        "IF false THEN",
    )
    .shown_by(Corner::StoredOnly),
    mutant(
        "a drain's end with others does not look whose wake is left",
        "write_drains",
        "IF p_ends[i] = 'close' AND head.left_over > 0 THEN",
        "IF false THEN",
    )
    .shown_by(Corner::StoredOnly),
    mutant(
        "a drain's end keeps the wakes that it has served",
        "advance_head",
        "OR (ends AND h.pending = p_promoted)",
        "",
    )
    .shown_by(Corner::ServedWake),
    mutant("a look under the lock is for any token", "look_at_drain", "AND l.fence = p_token", "")
        .shown_by(Corner::LowerToken),
    mutant("a look is for any token", "look_at_drains", "AND s.fence = a.token", "")
        .shown_by(Corner::LowerToken),
    mutant("a staged Revert holds whatever waits", "held_inputs", "AND i.kind = 'synthetic'", "")
        .shown_by(Corner::WaitingPrompt),
    mutant("staged again, a Revert forgets what it holds", "is_held", "OR (", "OR (false AND ")
        .shown_by(Corner::StagedAgain),
    // Finding core-3 C1: four places took the number of an event for the event.
    mutant(
        "a drain's write proves the number of the last event alone",
        "advance_head",
        "(p_after IS NULL OR",
        "(true OR",
    )
    .shown_by(Corner::WentBack),
    mutant(
        "a claim is proved whatever the log is",
        "prove_claim",
        "(p_known_id IS NULL OR",
        "(true OR",
    )
    .shown_by(Corner::WentBack),
    mutant(
        "a look under the lock believes the number that is known",
        "look_at_drain",
        "(p_known_id IS NULL OR",
        "(true OR",
    )
    .shown_by(Corner::WentBack),
    mutant(
        "a look believes the number that is known",
        "look_at_drains",
        "(a.known_id IS NULL OR",
        "(true OR",
    )
    .shown_by(Corner::WentBack),
    mutant(
        "what waits for one Revert is held by the next",
        "is_held",
        "AND NOT EXISTS",
        "OR EXISTS",
    )
    .shown_by(Corner::StagedAnew),
    mutant(
        "a deletion goes on with what it has not locked",
        "delete_session",
        "IF p_session = ANY (ids) IS NOT TRUE THEN",
        "IF false THEN",
    )
    .shown_by(Corner::NotThere),
];

impl Mutant {
    /// A database with it.
    async fn world(self) -> World {
        let world = World::new().await;
        let definition: String =
            sqlx::query_scalar("SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = $1")
                .bind(self.function)
                .fetch_one(&world.root)
                .await
                .expect("the function");
        // A line's comment would take in the lines after it.
        let code = |line: &str| line.split("--").next().unwrap_or_default().to_owned();
        let spaces = |text: &str| {
            let code = text.lines().map(code).collect::<Vec<_>>().join(" ");
            code.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let definition = spaces(&definition);
        let mutated = definition.replace(&spaces(self.text), self.instead);
        assert_ne!(mutated, definition, "{}: its text is not in {}", self.what, self.function);
        sqlx::raw_sql(sqlx::AssertSqlSafe(mutated))
            .execute(&world.root)
            .await
            .expect("another function");
        world
    }
}

/// Whether it is found.
fn shows(mutant: Mutant) -> bool {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let world = runtime.block_on(mutant.world());
    let run = || match mutant.corner {
        Some(corner) => runtime.block_on(corner.holds(&world)),
        None => drop(runtime.block_on(sequences(&world, SEQUENCES, None))),
    };
    catch_unwind(AssertUnwindSafe(run)).is_err()
}

#[test]
fn every_mistake_in_a_function_is_found() {
    let waiting = Mutex::new(MUTANTS.iter().copied());
    let next = || waiting.lock().expect("nobody panics with it").next();
    let survivors = || {
        std::iter::from_fn(&next)
            .filter(|mutant| !shows(*mutant))
            .map(|mutant| mutant.what)
            .collect()
    };
    let survivors: Vec<&str> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(survivors)).collect();
        let all = running.into_iter().map(|thread| thread.join().expect("mutants that apply"));
        all.flat_map(|survivors: Vec<&str>| survivors).collect()
    });
    assert_eq!(survivors, [""; 0], "survived {SEQUENCES} sequences, or its corner");
}
