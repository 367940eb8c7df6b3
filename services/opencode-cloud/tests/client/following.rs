//! Runs that follow their prompt through broken connections, gaps, retries and interrupts.

use std::time::Duration;

use cli::CliError;
use cli::run::Run;
use cli::run_state::RunOutcome;
use client::{Client, ClientError, LogFollower, Pace, PromptRequest};
use futures::StreamExt;
use futures::channel::mpsc;
use futures::stream::pending;
use serde_json::json;

use crate::service::{SESSION, Service, Step};
use crate::{admitted, created, ended, promoted, replied, screen, turn, whole};

const MESSAGE: &str = "msg_mine";

/// A patient pace, so that a busy machine breaks no stream.
fn patient() -> Pace {
    Pace {
        first_delay: Duration::from_millis(2),
        max_delay: Duration::from_millis(20),
        patience: Duration::from_secs(60),
        silence: Duration::from_secs(60),
        answer: Duration::from_secs(60),
    }
}

struct Ended {
    outcome: Result<RunOutcome, CliError>,
    turns: Vec<String>,
    out: String,
    err: String,
}

async fn run_with(
    service: &Service,
    pace: Pace,
    interrupts: futures::stream::BoxStream<'static, ()>,
) -> Ended {
    let client = Client::with_pace(&service.options(), pace).expect("a client");
    let (mut screen, out, err) = screen();
    let session: domain::SessionId = SESSION.parse().expect("an id");
    let prompt = PromptRequest::text(MESSAGE.parse().expect("an id"), "hello".into(), None);
    let log = LogFollower::open(&client, session.clone(), domain::Seq(0)).await.expect("the log");
    let mut run = Run::new(client, session, prompt.message.clone(), false, &mut screen);
    let outcome = run.follow(log, &prompt, interrupts).await;
    let turns = run.report(RunOutcome::Failed).turns;
    let turns = turns.iter().map(ToString::to_string).collect();
    Ended { outcome, turns, out: out.text(), err: err.text() }
}

async fn run(service: &Service) -> Ended {
    run_with(service, patient(), pending().boxed()).await
}

#[tokio::test]
async fn an_answer_is_shown_once_though_its_stream_is_cut_resynced_and_ended() {
    let service = Service::start(vec![
        vec![
            created(),
            Step::Prompt,
            admitted(2),
            promoted(3),
            turn(4, "trn_1"),
            Step::Delta(0, "hel"),
            Step::Cut,
        ],
        vec![
            Step::Delta(0, "hello"),
            Step::Raw("event: resync\ndata: {\"reason\":\"too slow\"}\n\n"),
        ],
        vec![Step::Delta(7, "late"), Step::End],
        vec![Step::Raw("event: reconnect\ndata: {}\n\n")],
        vec![turn(4, "trn_1"), replied(5, "hello you"), ended(6, "completed")],
    ])
    .await;
    let ended = run(&service).await;
    assert!(matches!(ended.outcome, Ok(RunOutcome::Completed)), "{:?}", ended.outcome);
    assert_eq!(ended.out, "hello you\n");
    assert_eq!(ended.turns, ["trn_1"]);
    assert_eq!(service.seen().resumed_after, ["0", "4", "4", "4", "4"]);
}

#[tokio::test]
async fn an_event_that_did_not_arrive_is_asked_for_again() {
    let service = Service::start(vec![
        vec![created(), Step::Prompt, admitted(2), turn(4, "trn_1")],
        vec![promoted(3), turn(4, "trn_1"), ended(5, "completed")],
    ])
    .await;
    let ended = run(&service).await;
    assert!(matches!(ended.outcome, Ok(RunOutcome::Completed)), "{:?}", ended.outcome);
    assert_eq!(ended.turns, ["trn_1"]);
    assert_eq!(service.seen().resumed_after, ["0", "2"]);
}

#[tokio::test]
async fn a_silent_stream_is_given_up_and_resumed() {
    // Whenever it drops a silent connection, the next one has the whole log.
    let all = || vec![created(), admitted(2), promoted(3), turn(4, "trn_1"), ended(5, "failed")];
    let mut connections = vec![vec![created(), Step::Prompt, admitted(2)]];
    connections.extend((0..100).map(|_| all()));
    let service = Service::start(connections).await;
    let pace = Pace { silence: Duration::from_millis(200), ..patient() };
    let ended = run_with(&service, pace, pending().boxed()).await;
    assert!(matches!(ended.outcome, Ok(RunOutcome::Failed)), "{:?}", ended.outcome);
    assert!(ended.err.contains("error: the session failed"), "{}", ended.err);
}

#[tokio::test]
async fn a_log_that_stays_away_is_an_error_that_says_so() {
    let mut connections = vec![vec![Step::Cut]; 500];
    connections[0].insert(0, created());
    let service = Service::start(connections).await;
    let pace = Pace { patience: Duration::from_millis(500), ..patient() };
    let ended = run_with(&service, pace, pending().boxed()).await;
    let error = ended.outcome.expect_err("the log is lost");
    assert!(matches!(error, CliError::Client(ClientError::LogLost { .. })), "{error}");
    assert!(service.seen().resumed_after.len() < 250, "it waits between its tries");
}

// Finding trial 7: nothing showed that the connection was lost.
#[tokio::test]
async fn a_lost_connection_is_told_and_so_is_its_return() {
    let rest = vec![admitted(2), promoted(3), turn(4, "trn_1"), ended(5, "completed")];
    let service = Service::start(vec![vec![created(), Step::Prompt, Step::Cut], rest]).await;
    let pace = Pace {
        first_delay: Duration::from_secs(3), // longer than two looks, jitter included
        max_delay: Duration::from_secs(3),
        ..patient()
    };
    let ended = run_with(&service, pace, pending().boxed()).await;
    assert!(matches!(ended.outcome, Ok(RunOutcome::Completed)), "{:?}", ended.outcome);
    assert!(ended.err.contains("connection lost ("), "{}", ended.err);
    assert!(ended.err.contains("); reconnecting\n"), "{}", ended.err);
}

#[tokio::test]
async fn a_service_that_answers_and_stays_silent_is_given_up() {
    let service = Service::start(vec![vec![created()]]).await;
    let (patience, silence) = (Duration::from_secs(2), Duration::from_secs(1));
    let pace = Pace { patience, silence, ..patient() };
    let ended = run_with(&service, pace, pending().boxed()).await;
    let error = ended.outcome.expect_err("the log is lost");
    assert!(error.to_string().contains("lost the session's log after event 1"), "{error}");
}

#[tokio::test]
async fn a_deleted_session_ends_the_run_with_an_error() {
    let gone = Step::Raw("event: gone\ndata: {\"reason\":\"session deleted\"}\n\n");
    let service = Service::start(vec![vec![created(), Step::Prompt, gone]]).await;
    let error = run(&service).await.outcome.expect_err("it is gone");
    assert!(error.to_string().contains("session ses_1 was not found"), "{error}");
}

#[tokio::test]
async fn a_prompt_is_retried_with_the_same_id_until_it_is_admitted() {
    let service = Service::refusing(&[503, 500], vec![whole()]).await;
    let ended = run(&service).await;
    assert!(matches!(ended.outcome, Ok(RunOutcome::Completed)), "{:?}", ended.outcome);
    let seen = service.seen();
    let parts = json!([{"type": "text", "text": "hello"}]);
    assert_eq!(seen.prompts, vec![json!({"messageID": MESSAGE, "parts": parts}); 3]);
}

#[tokio::test]
async fn a_refused_prompt_is_not_retried() {
    let service = Service::refusing(&[409], vec![vec![created()]]).await;
    let error = run(&service).await.outcome.expect_err("refused");
    assert_eq!(error.to_string(), "the service answered 409 Conflict: not now (request r1)");
    assert_eq!(service.seen().prompts.len(), 1);
}

#[tokio::test]
async fn the_first_interrupt_stops_the_session_and_waits_for_it_to_settle() {
    let asked = json!({"target": {"type": "turn", "turn": "trn_1"}});
    let service = Service::start(vec![vec![
        created(),
        Step::Prompt,
        admitted(2),
        promoted(3),
        turn(4, "trn_1"),
        Step::Delta(0, "half"),
        Step::Abort,
        Step::Event(5, "interrupt.requested", asked),
        replied(6, "half an"),
        ended(7, "interrupted"),
    ]])
    .await;
    let (interrupt, interrupts) = mpsc::unbounded();
    let prompted = async {
        service.prompted().await;
        interrupt.unbounded_send(()).expect("the run listens");
    };
    let (ended, ()) = futures::join!(run_with(&service, patient(), interrupts.boxed()), prompted);
    assert!(matches!(ended.outcome, Ok(RunOutcome::Interrupted)), "{:?}", ended.outcome);
    assert!(ended.out.contains("half") && ended.out.ends_with('\n'), "{:?}", ended.out);
    assert!(ended.err.contains("Ctrl-C again"), "{}", ended.err);
    assert_eq!(service.seen().calls.last().expect("calls"), "POST /platform/session/ses_1/abort");
}

#[tokio::test]
async fn the_second_interrupt_leaves_at_once() {
    let service = Service::start(vec![vec![created(), Step::Prompt, admitted(2)]]).await;
    let twice = futures::stream::iter([(), ()]).boxed();
    let ended = run_with(&service, patient(), twice).await;
    assert!(matches!(ended.outcome, Ok(RunOutcome::Interrupted)), "{:?}", ended.outcome);
}

#[tokio::test]
async fn a_prompt_that_is_interrupted_before_it_starts_ends_its_run() {
    let parked = json!({"target": {"type": "parked"}});
    let service = Service::start(vec![vec![
        created(),
        Step::Prompt,
        admitted(2),
        Step::Event(3, "interrupt.requested", parked),
    ]])
    .await;
    let ended = run(&service).await;
    assert!(matches!(ended.outcome, Ok(RunOutcome::Interrupted)), "{:?}", ended.outcome);
    assert!(!ended.err.contains("error:"), "{}", ended.err);
}
