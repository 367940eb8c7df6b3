//! Variants of models, what is to be known of a model, and what a request was expected to cost.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use domain::{
    Clock as _, Delivery, DrainOutcome, ErrorCode, IdMint, MessageId, ModelRef, PartId,
    PromptAdmitted, PromptPart, Rates, SessionEvent, Stamp,
};
use history::hash_hex;
use serde_json::{Value, json};
use session::ModelFacts;
use store::NewPrompt;

use super::world::{ORG, Session, World};

const OLD: &str = "Simulated is deprecated; choose another model in time";

fn chosen(variant: Option<&str>) -> ModelRef {
    ModelRef { variant: variant.map(str::to_owned), ..ModelRef::new("simulated", "simulated") }
}

fn facts() -> ModelFacts {
    let effort = |word: &str| {
        let asked = json!({ "openai-chat": { "reasoning_effort": word } });
        (word.to_owned(), asked.as_object().cloned().unwrap())
    };
    ModelFacts {
        variants: BTreeMap::from([effort("high"), effort("low")]),
        notice: Some(OLD.into()),
        ..ModelFacts::default()
    }
}

async fn says(world: &World, session: &Session, model: Option<ModelRef>) -> Result<DrainOutcome> {
    let now = world.clock.now_ms();
    let mut mint = IdMint::after(Stamp::default(), now);
    let text = "say 2 words".to_owned();
    let prompt = PromptAdmitted {
        by: None,
        message: MessageId::mint(&mut mint),
        delivery: Delivery::Steer,
        digest: hash_hex(text.as_bytes()),
        parts: vec![PromptPart::Text { id: PartId::mint(&mut mint), text }],
        agent: None,
        model,
        wake: true,
        synthetic: None,
    };
    let new = NewPrompt { session: session.at.session.clone(), prompt, now };
    world.store().admit_prompt(ORG, new).await?;
    let outcomes = world.settle(session).await?;
    outcomes.first().copied().context("a drain")
}

/// The effort that each request asked for.
fn efforts(world: &World) -> Result<Vec<Value>> {
    let bodies = world.model().requests().into_iter().filter_map(|request| request.body);
    let effort = |body: String| -> Result<Value> {
        Ok(serde_json::from_str::<Value>(&body)?["reasoning_effort"].take())
    };
    bodies.map(effort).collect()
}

#[tokio::test]
async fn a_variant_is_asked_for_until_another_choice_and_is_in_the_rows() -> Result<()> {
    let mut world = World::new().await?;
    world.model_is(facts());
    let session = world.session().await?;
    for model in [Some(chosen(Some("high"))), None, Some(chosen(None)), Some(chosen(Some("low")))] {
        assert_eq!(says(&world, &session, model).await?, DrainOutcome::Completed);
    }
    assert_eq!(efforts(&world)?, [json!("high"), json!("high"), Value::Null, json!("low")]);
    let shown: Vec<_> = world.messages(&session).await?.into_iter().map(|row| row.model).collect();
    let expected: Vec<_> = [Some("high"), Some("high"), None, Some("low")]
        .into_iter()
        .flat_map(|variant| [Some(chosen(variant)), Some(chosen(variant))])
        .collect();
    assert_eq!(shown, expected, "of each prompt and its answer");
    let row = world.store().session(ORG, session.at.session.clone()).await?;
    assert_eq!(row.model, Some(chosen(Some("low"))));
    world.check().await
}

#[tokio::test]
async fn a_variant_that_there_is_not_is_an_error_that_names_those_there_are() -> Result<()> {
    let mut world = World::new().await?;
    world.model_is(facts());
    let session = world.session().await?;
    let failed = says(&world, &session, Some(chosen(Some("wild")))).await?;
    assert_eq!(failed, DrainOutcome::Failed);
    let ended = world.events(&session).await?.into_iter().find_map(|event| match event.event {
        SessionEvent::DrainEnded(ended) => ended.error,
        _ => None,
    });
    let error = ended.context("an error")?;
    assert_eq!(error.code, ErrorCode::ModelVariantUnknown);
    let told = "`simulated/simulated` has no variant `wild`; it has: `high`, `low`";
    assert_eq!(error.message, told);
    assert!(efforts(&world)?.is_empty(), "nothing was sent");
    assert_eq!(says(&world, &session, Some(chosen(None))).await?, DrainOutcome::Completed);
    world.check().await
}

#[tokio::test]
async fn what_is_to_be_known_of_a_model_is_told_once_and_to_no_model() -> Result<()> {
    let mut world = World::new().await?;
    world.model_is(facts());
    let session = world.session().await?;
    for variant in [None, Some("high"), None] {
        let outcome = says(&world, &session, Some(chosen(variant))).await?;
        assert_eq!(outcome, DrainOutcome::Completed, "it keeps working");
    }
    let events = world.events(&session).await?.into_iter();
    let notices: Vec<_> = events
        .filter_map(|event| match event.event {
            SessionEvent::TurnStarted(started) => Some(started.notice),
            _ => None,
        })
        .collect();
    assert_eq!(notices, [Some(OLD.to_owned()), None, None]);
    let row = world.store().session(ORG, session.at.session.clone()).await?;
    let told: Vec<_> = row.notices.iter().map(|told| (&*told.model, &*told.text)).collect();
    assert_eq!(told, [("simulated", OLD)]);
    let bodies = world.model().requests().into_iter().filter_map(|request| request.body);
    assert!(bodies.into_iter().all(|body| !body.contains("deprecated")));
    world.check().await
}

#[tokio::test]
async fn an_attempt_has_what_it_was_expected_to_cost_beside_what_it_cost() -> Result<()> {
    let mut world = World::new().await?;
    let prices = Rates { input: 1_000_000, output: 2_000_000, ..Rates::default() };
    let output_limit = Some(1_000);
    world.model_is(ModelFacts { prices: Some(prices.into()), output_limit, ..facts() });
    let session = world.session().await?;
    assert_eq!(says(&world, &session, None).await?, DrainOutcome::Completed);
    let events = world.events(&session).await?;
    let attempt = events.iter().find_map(|event| match &event.event {
        SessionEvent::AttemptStarted(started) => Some(started.clone()),
        _ => None,
    });
    let started = attempt.context("an attempt")?;
    let pricing = started.pricing.context("prices")?;
    let row = world.store().attempt(ORG, started.attempt.to_string()).await?;
    assert_eq!(row.estimate, Some(("configured".into(), pricing.estimate.cost)));
    let cost = row.cost.context("a cost")?;
    assert!(cost > 0 && cost < pricing.estimate.cost, "{cost} of {pricing:?}");
    let used = world.store().tree_usage(ORG, session.at.session.clone()).await?;
    assert_eq!(used.session_expected.nanos, pricing.estimate.cost);
    assert_eq!(used.session_expected.price_versions.iter().collect::<Vec<_>>(), ["configured"]);
    assert_eq!(used.tree_expected, used.session_expected);
    world.check().await
}
