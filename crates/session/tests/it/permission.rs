//! A session's rules about tool calls.

use std::time::Duration;

use anyhow::{Result, ensure};
use domain::DrainOutcome::Completed;
use domain::{RuleAction, ToolClass, ToolOutcomeKind, ToolRule};
use serde_json::json;

use crate::agents::{made, offered};
use crate::recovery::life;
use crate::tools::{call, calls, says, shell};
use crate::world::{Session, World};

pub(crate) async fn session(world: &World, rules: &[(&str, &str, RuleAction)]) -> Result<Session> {
    let rule = |(permission, pattern, action): &(&str, &str, RuleAction)| ToolRule {
        permission: (*permission).to_owned(),
        pattern: (*pattern).to_owned(),
        action: *action,
    };
    world.session_with("a test", true, rules.iter().map(rule).collect()).await
}

// Finding clients 40: rules of a session were dropped, so a denied command ran.
#[tokio::test]
async fn a_denied_tool_is_not_offered_and_its_calls_do_not_run() -> Result<()> {
    let world = World::new().await?;
    let rules = [("bash", "*", RuleAction::Deny), ("edit", "*", RuleAction::Deny)];
    let session = session(&world, &rules).await?;
    let write = call("write", json!({"path": "a.txt", "content": "x"}));
    world.script(calls("job", 0, vec![write, shell("touch b")]))?;
    world.script(says("job", 1, "It may not."))?;
    world.prompt(&session, "job").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(offered(&world)?, [["glob", "grep", "read", "skill"]; 2]);
    let made = made(&world, &session).await?;
    for (tool, class, outcome, text) in &made {
        assert_eq!((*class, *outcome), (ToolClass::Pure, ToolOutcomeKind::Failed), "{tool}");
        ensure!(text.contains("a rule of the session refuses this call"), "{tool}: {text}");
    }
    assert_eq!(made.len(), 2);
    assert_eq!(std::fs::read_dir(&session.root)?.count(), 0, "nothing was made");
    world.check().await
}

#[tokio::test]
async fn a_pattern_lets_its_calls_run_and_no_others() -> Result<()> {
    let world = World::new().await?;
    let rules = [
        ("bash", "*", RuleAction::Deny),
        ("bash", "touch *", RuleAction::Allow),
        ("edit", "kept/*", RuleAction::Deny),
    ];
    let session = session(&world, &rules).await?;
    let write = |path: &str| call("write", json!({"path": path, "content": "x"}));
    let all = vec![
        shell("touch a"),
        shell("touch b; touch c"),
        shell("touch f; echo x > g"),
        write("d"),
        write("kept/e"),
    ];
    world.script(calls("job", 0, all))?;
    world.script(says("job", 1, "done"))?;
    world.prompt(&session, "job").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let there = |name: &str| session.root.join(name).exists();
    assert!(!there("f") && !there("g"), "a script is allowed whole");
    assert_eq!(["a", "b", "c", "d", "kept/e"].map(there), [true, true, true, true, false]);
    world.check().await
}

#[tokio::test]
async fn rules_hold_after_a_takeover() -> Result<()> {
    let world = World::new().await?;
    let session = session(&world, &[("edit", "a.*", RuleAction::Deny)]).await?;
    world.script(calls("job", 0, vec![call("write", json!({"path": "a.txt", "content": "x"}))]))?;
    world.script(says("job", 1, "It may not."))?;
    world.prompt(&session, "job").await?;
    // The turn's intent, then its reply with the call.
    ensure!(life(&world, &session, 2, Duration::ZERO).await?.is_none());
    world.take_over(&session).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let made = made(&world, &session).await?;
    assert_eq!((made.len(), made[0].2), (1, ToolOutcomeKind::Failed));
    ensure!(!session.root.join("a.txt").exists());
    world.check().await
}
