use std::sync::Arc;

use domain::{Delivery, MessageId, PromptAdmitted, Seq};
use store::{Admission, AdmittedPrompt, DrainEnd, StoreError};
use tokio::task::JoinSet;

use crate::script::{TestTurn, promoted};
use crate::world::World;

fn facts(admitted: &AdmittedPrompt) -> (Admission, Seq, i64, PromptAdmitted) {
    let AdmittedPrompt { admission, seq, admitted_ms, prompt, .. } = admitted.clone();
    (admission, seq, admitted_ms, prompt)
}

#[tokio::test]
async fn an_exact_retry_is_given_the_first_row_and_changes_nothing() {
    let world = World::new().await;
    let session = world.session().await;
    let prompt = world.prompt("hello");
    let first = world.try_admit(&session, &prompt).await.expect("admitted");
    assert_eq!(facts(&first).0, Admission::First);
    let before = world.rows(&session).await;
    // A gateway that tries again mints its parts anew; the digest says that it is the same prompt.
    let parts = world.prompt("hello").parts;
    let again = world.try_admit(&session, &PromptAdmitted { parts, ..prompt.clone() }).await;
    let again = again.expect("found");
    assert_eq!(facts(&again), (Admission::Retry, first.seq, first.admitted_ms, prompt));
    assert_eq!(again.location, session.location);
    assert_eq!(world.rows(&session).await, before);
    world.assert_sound(false).await;
}

#[tokio::test]
async fn an_id_with_another_prompt_delivery_or_session_is_a_conflict() {
    let world = World::new().await;
    let (session, other) = (world.session().await, world.session().await);
    let prompt = world.admit(&session, "hello").await;
    let before = (world.rows(&session).await, world.rows(&other).await);
    let differing = [
        (&session, PromptAdmitted { digest: "bye".into(), ..prompt.clone() }),
        (&session, PromptAdmitted { delivery: Delivery::Queue, ..prompt.clone() }),
        (&other, prompt.clone()),
    ];
    for (session, prompt) in differing {
        let answer = world.try_admit(session, &prompt).await;
        assert!(matches!(answer, Err(StoreError::Conflict { .. })), "{answer:?}");
    }
    assert_eq!((world.rows(&session).await, world.rows(&other).await), before);
}

/// Such a prompt could never be promoted, and would stop every later one of its session.
#[tokio::test]
async fn the_id_of_a_reply_or_a_notice_cannot_be_reused_for_a_prompt() {
    let world = World::new().await;
    let (session, other) = (world.session().await, world.session().await);
    world.fence(1).await;
    let prompt = world.admit(&session, "hello").await;
    let turn = TestTurn::new(&mut world.mint(), &prompt.message);
    let mut events = vec![promoted(&prompt)];
    events.extend(turn.start());
    world.drain(&session, 1, &events, DrainEnd::Keep).await;
    for session in [&session, &other] {
        let reused = PromptAdmitted { message: turn.message.clone(), ..world.prompt("again") };
        let before = world.rows(session).await;
        let answer = world.try_admit(session, &reused).await;
        assert!(matches!(answer, Err(StoreError::Conflict { .. })), "{answer:?}");
        assert_eq!(world.rows(session).await, before);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_200_admissions_of_one_id_one_makes_the_row() {
    let world = Arc::new(World::new().await);
    let session = world.session().await;
    let prompt = world.prompt("once");
    let mut calls = JoinSet::new();
    for _ in 0..200 {
        let (world, session, prompt) = (world.clone(), session.clone(), prompt.clone());
        calls.spawn(async move { world.try_admit(&session, &prompt).await.expect("an answer") });
    }
    let answers = calls.join_all().await;
    let (first, retries): (Vec<_>, Vec<_>) =
        answers.iter().map(facts).partition(|(admission, ..)| *admission == Admission::First);
    assert_eq!((first.len(), retries.len()), (1, 199));
    for (_, seq, admitted_ms, prompt) in &retries {
        assert_eq!((seq, admitted_ms, prompt), (&first[0].1, &first[0].2, &first[0].3));
    }
    assert_eq!(world.kinds(&session).await, ["session.created", "prompt.admitted"]);
    assert_eq!(world.head(&session).await.pending, 1);
    world.assert_sound(false).await;
}

/// The same id at two sessions: whoever commits first has it, the other's head is as it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_id_at_two_sessions_at_once_is_admitted_at_one_of_them() {
    let world = Arc::new(World::new().await);
    for _ in 0..20 {
        let sessions = [world.session().await, world.session().await];
        let prompt = world.prompt("mine");
        let mut calls = JoinSet::new();
        for session in sessions.iter().cycle().take(8) {
            let (world, session, prompt) = (world.clone(), session.clone(), prompt.clone());
            calls.spawn(async move { world.try_admit(&session, &prompt).await });
        }
        let answers = calls.join_all().await;
        let count = |wanted: fn(&Result<AdmittedPrompt, StoreError>) -> bool| {
            answers.iter().filter(|answer| wanted(answer)).count()
        };
        let first = count(|a| a.as_ref().is_ok_and(|a| a.admission == Admission::First));
        let retry = count(|a| a.as_ref().is_ok_and(|a| a.admission == Admission::Retry));
        let conflict = count(|a| matches!(a, Err(StoreError::Conflict { .. })));
        assert_eq!((first, retry, conflict), (1, 3, 4), "{answers:?}");
    }
    world.assert_sound(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_admissions_to_one_session_are_numbered_without_a_gap() {
    let world = Arc::new(World::new().await);
    let session = world.session().await;
    let mut calls = JoinSet::new();
    for n in 0..200 {
        let (world, session) = (world.clone(), session.clone());
        calls.spawn(async move {
            let prompt = world.prompt(&format!("prompt {n}"));
            world.try_admit(&session, &prompt).await.expect("admitted").seq.0
        });
    }
    let mut seqs = calls.join_all().await;
    seqs.sort_unstable();
    assert_eq!(seqs, (2..=201).collect::<Vec<_>>());
    let head = world.head(&session).await;
    assert_eq!((head.next_seq, head.pending, head.ready), (202, 200, true));
    // One of them came last, and its wake is the newest.
    assert_eq!(head.wake_seq, 201);
    world.assert_sound(false).await;
}

#[tokio::test]
async fn a_session_that_is_not_there_is_not_found() {
    let world = World::new().await;
    let mut session = world.session().await;
    session.session = "ses_nobody".parse().expect("an id");
    let prompt =
        PromptAdmitted { message: MessageId::mint(&mut world.mint()), ..world.prompt("?") };
    let answer = world.try_admit(&session, &prompt).await;
    assert!(matches!(answer, Err(StoreError::NotFound)), "{answer:?}");
}

// Finding core-3 C2: nothing bounded what waits in an inbox.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inbox_takes_a_thousand_inputs_whoever_sends_them() {
    let world = Arc::new(World::new().await);
    let (session, other) = (world.session().await, world.session().await);
    let mut calls = JoinSet::new();
    for _ in 0..8 {
        let (world, session) = (world.clone(), session.clone());
        calls.spawn(async move {
            let mut admitted = Vec::new();
            for _ in 0..130 {
                let prompt = PromptAdmitted { wake: false, ..world.prompt("one of many") };
                match world.try_admit(&session, &prompt).await {
                    Ok(_) => admitted.push(prompt),
                    Err(StoreError::InboxFull { .. }) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
            admitted
        });
    }
    let admitted: Vec<_> = calls.join_all().await.into_iter().flatten().collect();
    assert_eq!((admitted.len(), world.head(&session).await.pending), (1_000, 1_000));
    let before = world.rows(&session).await;
    let full = |answer| matches!(answer, Err(StoreError::InboxFull { .. }));
    assert!(full(world.try_admit(&session, &world.prompt("one more")).await));
    let control = world.try_control(&session, &world.compaction()).await;
    assert!(matches!(control, Err(StoreError::InboxFull { .. })), "{control:?}");
    let retry = world.try_admit(&session, &admitted[0]).await.expect("it is there");
    assert_eq!(retry.admission, Admission::Retry);
    assert_eq!(world.rows(&session).await, before);
    world.admit(&other, "another session has room").await;
    let (org, id, now) = (world.org, session.session.clone(), world.tick());
    let cancelled = world.store.cancel_input(org, id, admitted[0].message.clone(), now).await;
    cancelled.expect("cancelled");
    world.admit(&session, "there is room again").await;
    assert!(full(world.try_admit(&session, &world.prompt("and none")).await));
    world.assert_sound(false).await;
}

// Finding core-3 C2: 300 prompts of 500,000 bytes waited at once.
#[tokio::test]
async fn an_inbox_takes_sixteen_mebibytes() {
    let world = World::new().await;
    let session = world.session().await;
    let prompt = || PromptAdmitted { digest: "large".into(), ..world.prompt(&"x".repeat(500_000)) };
    let mut admitted = 0;
    let refused = loop {
        match world.try_admit(&session, &prompt()).await {
            Ok(_) => admitted += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::InboxFull { .. }), "{refused:?}");
    assert_eq!(admitted, 33, "33 of 500,000 bytes are less than 16 MiB, and 34 are more");
    world.admit(&session, "a small one has room").await;
    assert_eq!(world.store.violations(world.org, false).await.expect("an answer"), []);
}

// An inbox of a thousand inputs cost each of its admissions a look at all of them: some 3.5 ms of Postgres, on the average.
#[tokio::test]
async fn an_inbox_that_surely_has_room_is_not_counted() {
    let world = World::new().await;
    let session = world.session().await;
    let counted = "CREATE SEQUENCE counted; GRANT USAGE ON SEQUENCE counted TO PUBLIC;
        ALTER FUNCTION inbox_size RENAME TO size_of_inbox;
        CREATE FUNCTION inbox_size(p_org uuid, p_number bigint, OUT inputs bigint, OUT bytes bigint) LANGUAGE sql
        AS $$ SELECT nextval('public.counted'); SELECT * FROM public.size_of_inbox(p_org, p_number) $$";
    sqlx::raw_sql(counted).execute(&world.root).await.expect("a function that is watched");
    let counts = async || -> i64 {
        let counts = "SELECT nextval('counted') - 1";
        let counts = sqlx::query_scalar(counts).fetch_one(&world.root).await.expect("a number");
        sqlx::query("ALTER SEQUENCE counted RESTART").execute(&world.root).await.expect("a reset");
        counts
    };
    let mut first = None;
    for _ in 0..6 {
        first.get_or_insert(world.admit_only(&session, "at first nobody knows").await);
    }
    assert!(counts().await > 0, "the sixth is counted for");
    for _ in 0..6 {
        world.admit_only(&session, "now there is room").await;
    }
    assert_eq!(counts().await, 0);
    let (id, now) = (session.session.clone(), world.tick());
    let first = first.expect("a prompt").message;
    world.store.cancel_input(world.org, id, first, now).await.expect("cancelled");
    world.admit_only(&session, "a cancelled one leaves more").await;
    assert_eq!(counts().await, 0);
    world.try_control(&session, &world.compaction()).await.expect("admitted");
    counts().await;
    world.admit_only(&session, "a control took from the room").await;
    assert!(counts().await > 0);
    world.admit_only(&session, "and what is left is known").await;
    assert_eq!(counts().await, 0);
    world.assert_sound(false).await;
}

/// The texts that an inbox may have anyhow are fewer than its bytes.
#[tokio::test]
async fn an_empty_inbox_takes_the_largest_prompt() {
    let world = World::new().await;
    let session = world.session().await;
    // Each byte is six in JSON.
    let prompt =
        PromptAdmitted { digest: "odd".into(), ..world.prompt(&"\u{1}".repeat(512 * 1024)) };
    world.try_admit(&session, &prompt).await.expect("admitted");
    assert_eq!(world.store.violations(world.org, false).await.expect("an answer"), []);
}
