//! One slot, and an organisation that queues more than its share: another one's prompt does not wait for all of it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use journeys::{Api, World, another_organisation, message_id, oracle_of, within};
use serde_json::json;
use simulated_model::Script;

/// Sessions of the crowd, each with a prompt, behind the one that holds the slot.
const CROWD: usize = 8;

async fn queue(api: &Api, session: &str, text: &str) -> Result<String> {
    let id = message_id(0);
    let parts = json!([{ "type": "text", "text": text }]);
    let body = json!({ "messageID": id, "parts": parts, "delivery": "queue" });
    api.post(&format!("/platform/session/{session}/message"), &body).await?.ok()?;
    Ok(id)
}

#[tokio::test]
async fn another_organisations_prompt_does_not_wait_for_all_that_one_has_queued() -> Result<()> {
    let world = World::new().await?;
    let up = world.up_with(&["--slots", "1"]).await?;
    let (crowd, other) = (up.api(), another_organisation(up.api(), &world.data()).await?);
    let script = Script { matches: "hold".into(), gate: Some("slot".into()), ..Script::default() };
    world.model().script(script)?;
    let (here, there) = (world.workspace("crowd")?, world.workspace("other")?);
    // Both Locations are leased, so that later prompts only wait for the slot.
    let (held, alone) = (crowd.session(&here).await?, other.session(&there).await?);
    for (api, session) in [(crowd, &held), (&other, &alone)] {
        ensure!(api.prompt(session, "say 1 words", 60).await? == "completed");
    }
    let mut waiting = vec![(held.clone(), queue(crowd, &held, "hold").await?)];
    let holds = world.model().wait_for(|counts| counts.requests == 3);
    within("the slot is taken", 60, async {
        holds.await;
        Ok(())
    })
    .await?;
    for _ in 0..CROWD {
        let session = crowd.session(&here).await?;
        let message = queue(crowd, &session, "say 2 words").await?;
        waiting.push((session, message));
    }
    let theirs = queue(&other, &alone, "say 3 words").await?;
    // As long as a sweep takes to find what a lost hint would have told.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    ensure!(world.model().counts().requests == 3, "nobody else has a slot");
    world.model().open_gate("slot")?;
    ensure!(other.outcome(&alone, &theirs, 60).await? == "completed");
    for (session, message) in &waiting {
        ensure!(crowd.outcome(session, message, 60).await? == "completed");
    }
    let asked: Vec<_> = world.model().requests().into_iter().map(|asked| asked.prompt).collect();
    let (_, after) = asked.split_at(3);
    ensure!(after.len() == CROWD + 1, "{asked:?}");
    let at = after.iter().position(|prompt| prompt == "say 3 words").context("it was asked")?;
    ensure!(at <= 2, "it waited for {at} of the crowd's {CROWD}: {after:?}");
    oracle_of(&[crowd, &other], world.model()).await?;
    up.stop(&world).await
}
