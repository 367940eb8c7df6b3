//! The output of a command, which people see while it runs.

use anyhow::{Context, Result, ensure};
use domain::DrainOutcome::Completed;
use domain::SessionEvent;
use signals::{CallOutput, Hint, Received, SessionHint, Topic};

use crate::tools::{calls, says, shell};
use crate::world::{ORG, World};

// Check heldout-3: a running command showed nothing until it ended.
#[tokio::test]
async fn a_running_command_shows_its_output_in_steps() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let command = "echo one; until [ -e two ]; do sleep 0.05; done; printf '10%%\\r20%%\\n'; until [ -e end ]; do sleep 0.05; done";
    world.script(calls("job", 0, vec![shell(command)]))?;
    world.script(says("job", 1, "done"))?;
    let topic = Topic::Session(ORG, session.at.session.clone());
    let mut hints = world.worker.signals.subscribe(topic).await;
    world.prompt(&session, "job").await?;
    let watched = async {
        let mut seen: Vec<CallOutput> = Vec::new();
        for file in ["two", "end"] {
            loop {
                let hint = hints.next().await.context("a hint")?;
                if let Received::Hint(Hint::Session(SessionHint::Output(output))) = hint {
                    seen.push(output);
                    break;
                }
            }
            session.file(file, "")?;
        }
        anyhow::Ok(seen)
    };
    let (outcomes, seen) = tokio::join!(world.settle(&session), watched);
    assert_eq!(outcomes?, [Completed]);
    let seen = seen?;
    let texts: Vec<_> = seen.iter().map(|output| output.text.trim_end()).collect();
    assert_eq!(texts, ["one", "one\n20%"], "as a terminal shows it");
    let events = world.events(&session).await?;
    let called = events.iter().find_map(|event| match &event.event {
        SessionEvent::ToolCalled(called) => Some(called.clone()),
        _ => None,
    });
    let called = called.context("a call")?;
    ensure!(seen.iter().all(|output| {
        output.call == called.intent.call
            && output.part == called.intent.part
            && output.message == called.message
            && output.omitted == 0
    }));
    world.check().await
}
