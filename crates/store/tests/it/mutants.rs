//! Mistakes put into the functions of a database, each a substitution in the text of one of them: the same
//! sequences of operations that hold Postgres to the simulation's model of it must find every one, or they prove
//! nothing about it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use tokio::runtime::Builder;

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
}

const fn mutant(
    what: &'static str,
    function: &'static str,
    text: &'static str,
    instead: &'static str,
) -> Mutant {
    Mutant { what, function, text, instead }
}

const MUTANTS: [Mutant; 17] = [
    mutant(
        "a drain's write does not prove its claim",
        "write_drain",
        "AND claim = p_claim AND next_seq = p_first",
        "AND next_seq = p_first",
    ),
    mutant(
        "a drain's write does not prove that the log is as it was",
        "write_drain",
        "AND claim = p_claim AND next_seq = p_first",
        "AND claim = p_claim",
    ),
    mutant(
        "a drain starts whatever token is the fence",
        "write_drain",
        "fence_now IS DISTINCT FROM p_token",
        "false",
    ),
    mutant(
        "a drain that ends keeps its claim",
        "write_drain",
        "(CASE p_end WHEN 'keep' THEN 0 ELSE 1 END)",
        "0",
    ),
    mutant(
        "a drain's end spends wakes that nobody has served",
        "spend_wakes",
        "i.wake_seq > h.parked_seq",
        "false",
    ),
    mutant("a lower token is taken for the fence", "raise_fence", "AND fence < p_token", ""),
    mutant(
        "a new token leaves the claims",
        "raise_fence",
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
    ),
    mutant(
        "a second compaction is admitted while the first waits",
        "admit_control",
        "ELSIF p_kind = 'compaction' THEN",
        "ELSIF false THEN",
    ),
    mutant(
        "a Revert is admitted while the session has work",
        "admit_control",
        "head.ready OR EXISTS",
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
        "parked_seq = next_seq,",
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
        "move_session",
        "(CASE WHEN starts THEN 2 ELSE 1 END)",
        "(CASE WHEN starts THEN 1 ELSE 0 END)",
    ),
    mutant(
        "a session that moves is not handed over",
        "move_session",
        "handed_over = (p_end = 'moved-open')",
        "handed_over = false",
    ),
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

/// Whether the sequences find it.
fn shows(mutant: Mutant) -> bool {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let world = runtime.block_on(mutant.world());
    let run = || runtime.block_on(sequences(&world, SEQUENCES, None));
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
    assert_eq!(survivors, [""; 0], "survived {SEQUENCES} sequences");
}
