//! Turns of plain prompts.

use anyhow::Result;
use domain::DrainOutcome::{Completed, Failed};
use session::DrainExit;

use crate::world::World;

#[tokio::test]
async fn a_prompt_is_promoted_answered_and_settled() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let prompt = world.prompt(&session, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(
        world.kinds(&session).await?,
        [
            "session.created",
            "prompt.admitted",
            "epoch.started",
            "prompt.promoted",
            "turn.started",
            "attempt.started",
            "attempt.ended",
            "turn.replied",
            "turn.settled",
            "drain.ended",
        ]
    );
    let messages = world.messages(&session).await?;
    let [user, assistant] = messages.as_slice() else { panic!("{messages:?}") };
    assert_eq!((user.id.clone(), user.role.as_str()), (prompt.clone(), "user"));
    assert_eq!((assistant.role.as_str(), assistant.parent.clone()), ("assistant", Some(prompt)));
    assert_eq!(assistant.finish.as_deref(), Some("stop"));
    assert!(assistant.completed_ms.is_some() && assistant.usage.output > 0);
    assert_eq!(world.answer(&session).await?, "w0 w1 w2");
    let row = world.store().session(crate::world::ORG, session.at.session.clone()).await?;
    assert_eq!((row.outcome.as_deref(), row.busy), (Some("completed"), false));
    assert_eq!(row.usage, assistant.usage);
    world.check().await
}

#[tokio::test]
async fn a_session_without_work_is_left_as_it_is() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    assert!(matches!(world.drain(&session).await?, DrainExit::Idle));
    assert_eq!(world.kinds(&session).await?, ["session.created"]);
    world.check().await
}

#[tokio::test]
async fn an_empty_answer_leaves_the_session_usable() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let empty = simulated_model::Script {
        matches: "nothing".into(),
        text: Some(String::new()),
        ..Default::default()
    };
    world.script(empty)?;
    // It is asked for once more (decision 0103).
    world.prompt(&session, "nothing").await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    world.prompt(&session, "say 1 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(world.model().counts().requests, 3);
    world.check().await
}
