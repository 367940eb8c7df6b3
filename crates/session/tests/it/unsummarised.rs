//! Conversations whose summaries fail, or come too often: the work goes on, or ends with words.

use anyhow::{Context, Result, ensure};
use domain::DrainOutcome::{Completed, Failed};
use domain::{ErrorCode, SessionError, SessionEvent, SideOutcome};
use serde_json::{Value, json};
use session::ModelFacts;
use simulated_model::Script;

use crate::compaction::{SUMMARY, ended, outcomes, overflows, started};
use crate::limits::{answers, known, large, unknown};
use crate::tools::{says, shell};
use crate::world::{Session, World};

const SHORT: &str = "## Objective to do what was asked";

/// The answers of providers instead of a summary.
fn failures() -> [Script; 4] {
    let refusal = json!({ "error": { "code": "odd", "message": "no summaries here" } });
    let cut = says(SUMMARY, 0, "## Objective\nx");
    [
        Script { matches: SUMMARY.into(), status: Some(400), body: Some(refusal), ..cut.clone() },
        Script { round: None, ..says(SUMMARY, 0, "I would rather not.") },
        Script { finish_reason: Some("length".into()), ..cut },
        Script { times: None, ..overflows(SUMMARY, 1) },
    ]
}

/// The text of a request's first message after the instructions.
fn first_text(request: &[Value]) -> String {
    let said = request.iter().find(|message| message["role"] == "user");
    said.and_then(|said| said["content"].as_str()).unwrap_or_default().to_owned()
}

async fn last_error(world: &World, session: &Session) -> Result<SessionError> {
    let last = world.events(session).await?.pop().context("an event")?.event;
    let SessionEvent::DrainEnded(ended) = last else { panic!("{last:?}") };
    ended.error.context("an error")
}

// Finding core-3 M5: 3 to 40 summaries for 12 prompts, of which 9 were answered, and three codes for one fault.
#[tokio::test]
async fn without_any_summary_every_prompt_is_answered() -> Result<()> {
    for failure in failures() {
        for (world, session) in [known(40_000).await?, unknown(40_000).await?] {
            world.script(failure.clone())?;
            for _ in 0..12 {
                answers(&world, &session, &large(4_000)).await?;
            }
            let requests = world.requests()?;
            ensure!(requests.len() <= 20, "{} requests: {failure:?}", requests.len());
            let ends = ended(&world, &session).await?;
            for error in ends.iter().filter_map(|ended| ended.error.as_ref()) {
                ensure!(error.code == ErrorCode::SessionCompactionFailed, "{error:?}");
            }
            if failure.status == Some(400) {
                let sentence = ["no summaries here", "too long for the model"];
                let error = ends.iter().find_map(|ended| ended.error.clone()).context("one")?;
                ensure!(sentence.iter().any(|part| error.message.contains(part)), "{error:?}");
            }
            // The model and the person are told what is gone.
            let first = first_text(requests.last().context("a request")?);
            ensure!(first.contains("could not be summarised"), "{first}");
            let shown = world.told(&session).await?;
            ensure!(shown.iter().any(|(role, parts)| role == "checkpoint" && parts[0] == first));
            world.check().await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_summary_that_succeeds_stays_behind_what_is_left_out() -> Result<()> {
    let (world, session) = known(40_000).await?;
    world.script(Script { times: Some(1), ..says(SUMMARY, 0, "## Objective\nthe first") })?;
    world.script(failures()[0].clone())?;
    for _ in 0..16 {
        answers(&world, &session, &large(4_000)).await?;
    }
    let all = ended(&world, &session).await?;
    assert_eq!(all[0].outcome, SideOutcome::Completed);
    let first = first_text(&world.requests()?.pop().context("a request")?);
    ensure!(first.contains("the first") && first.contains("<left-out>"), "{first}");
    assert_eq!(first.matches("<left-out>").count(), 1);
    let left: u32 = started(&world, &session).await?.iter().map(|one| one.scope.left_out).sum();
    ensure!(left > 1 && first.contains(&format!("\n{left} exchanges")), "{left}: {first}");
    world.check().await
}

// Finding core-3 M5: a provider that cannot be reached is no reason to forget a conversation.
#[tokio::test]
async fn nothing_is_left_out_because_a_provider_is_away() -> Result<()> {
    let (world, session) = known(40_000).await?;
    let away = Script { status: Some(503), round: None, ..says(SUMMARY, 0, "") };
    world.script(Script { text: None, ..away })?;
    for _ in 0..7 {
        answers(&world, &session, &large(4_000)).await?;
    }
    ensure!(outcomes(&world, &session).await?.iter().all(|end| *end == SideOutcome::Failed));
    for failed in ended(&world, &session).await? {
        let error = failed.error.context("an error")?;
        ensure!(error.code == ErrorCode::ProviderInternal, "{error:?}");
    }
    world.check().await
}

// Probe G4: 24 requests for three prompts, and an error that names no summary.
#[tokio::test]
async fn a_summary_that_breaks_off_each_time_is_left_out() -> Result<()> {
    let broken = Script { cut_after_chunks: Some(3), times: None, ..says(SUMMARY, 0, SHORT) };
    for (world, session) in [known(40_000).await?, unknown(40_000).await?] {
        world.script(broken.clone())?;
        for _ in 0..12 {
            answers(&world, &session, &large(4_000)).await?;
        }
        let requests = world.requests()?.len();
        ensure!(requests <= 30, "{requests} requests");
        for error in ended(&world, &session).await?.into_iter().filter_map(|ended| ended.error) {
            ensure!(error.code == ErrorCode::SessionCompactionFailed, "{error:?}");
            ensure!(error.message.contains("could not be summarised"), "{error:?}");
        }
        let first = first_text(world.requests()?.last().context("a request")?);
        ensure!(first.contains("could not be summarised"), "{first}");
        world.check().await?;
    }
    Ok(())
}

// Finding core-3 M4: 99 summaries and 200 turns, and then "completed".
#[tokio::test]
async fn work_in_circles_ends_and_says_why() -> Result<()> {
    let (mut world, session) = known(40_000).await?;
    let (context_limit, output_limit) = (Some(40_000), Some(4_000));
    world.model_is(ModelFacts { context_limit, output_limit, ..ModelFacts::default() });
    let print = |sign: char| shell(&format!("head -c 45000 /dev/zero | tr '\\0' {sign}"));
    let again = Script {
        matches: "work".into(),
        tool_calls: vec![print('x'), print('y')],
        ..Script::default()
    };
    world.script(says(SUMMARY, 0, "## Objective\nlook again"))?;
    world.script(again)?;
    world.prompt(&session, "work").await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    let error = last_error(&world, &session).await?;
    ensure!(error.code == ErrorCode::ContextTooLarge, "{error:?}");
    ensure!(error.message.contains("summarised 3 times in a row"), "{error:?}");
    let summaries = outcomes(&world, &session).await?.len();
    ensure!(summaries <= 10, "{summaries}");
    // Each result is scaled to the model, and says where all of it is.
    let events = world.events(&session).await?;
    let settled = events.iter().filter_map(|event| match &event.event {
        SessionEvent::ToolSettled(settled) => Some(settled),
        _ => None,
    });
    for result in settled {
        let path = result.managed_path.as_deref().context("a file")?;
        ensure!(result.output.len() <= 20_000 && result.output.contains(path));
    }
    answers(&world, &session, "say 3 words").await?;
    world.check().await
}

// Probe G3: with three or four turns between two summaries the work went on up to the limit of steps, after 68 summaries.
#[tokio::test]
async fn work_in_wider_circles_ends_too() -> Result<()> {
    let (mut world, session) = known(40_000).await?;
    let (context_limit, output_limit) = (Some(40_000), Some(4_000));
    world.model_is(ModelFacts { context_limit, output_limit, ..ModelFacts::default() });
    world.script(says(SUMMARY, 0, "## Objective\nlook again"))?;
    // A call that is the same as the last two would be asked about.
    for n in 0..100 {
        let print = shell(&format!("head -c 45000 /dev/zero | tr '\\0' x; echo {n}"));
        let again = Script { matches: "work".into(), tool_calls: vec![print], ..Script::default() };
        world.script(Script { times: Some(1), ..again })?;
    }
    world.prompt(&session, "work").await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    let error = last_error(&world, &session).await?;
    ensure!(error.message.contains("summarised 10 times in a row"), "{error:?}");
    assert_eq!(outcomes(&world, &session).await?.len(), 10);
    world.check().await
}

// Finding core-3 M1: a model without a known limit got the whole conversation, however long.
#[tokio::test]
async fn an_unknown_limit_bounds_requests_all_the_same() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(says(SUMMARY, 0, "## Objective\nx"))?;
    for _ in 0..4 {
        answers(&world, &session, &large(50_000)).await?;
    }
    let largest = world.model().requests().into_iter().filter_map(|sent| sent.body);
    let largest = largest.map(|body| body.len()).max().context("a request")?;
    ensure!(largest < 128_000 * 4, "{largest}");
    ensure!(!started(&world, &session).await?.is_empty());
    // A single prompt above it is sent: the provider decides. Then more is believed.
    world.prompt(&session, &large(140_000)).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let before = started(&world, &session).await?.len();
    answers(&world, &session, &large(20_000)).await?;
    assert_eq!(started(&world, &session).await?.len(), before, "it took as much before");
    world.check().await
}
