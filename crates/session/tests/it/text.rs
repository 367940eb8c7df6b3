//! Text that is hard to keep: NULs, a mebibyte, code points of four bytes.

use anyhow::Result;
use domain::DrainOutcome::Completed;
use domain::SessionEvent;
use simulated_model::{Script, ScriptedCall};

use crate::world::World;

#[tokio::test]
async fn nul_is_replaced_wherever_it_comes_from() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let call = |name: &str, arguments: serde_json::Value| ScriptedCall {
        name: name.into(),
        arguments,
        id: None,
    };
    session.file("nul.txt", "c\0d\n")?;
    world.script(Script {
        matches: "nul".into(),
        round: Some(0),
        text: Some("a\0b".into()),
        reasoning: Some("r\0".into()),
        tool_calls: vec![
            call("shell", serde_json::json!({"command": "printf 'x\\0y'"})),
            call("shell", serde_json::json!({"command": "echo a\0b"})),
            call("shell", "{\"command\":\0}".into()),
            call("fl\0y", serde_json::json!({})),
            call("write", serde_json::json!({"path": "w.txt", "content": "w\0w"})),
            call("grep", serde_json::json!({"pattern": "c", "path": "nul.txt"})),
        ],
        ..Script::default()
    })?;
    world.script(Script {
        matches: "nul".into(),
        round: Some(1),
        text: Some("done".into()),
        ..Script::default()
    })?;
    world.prompt(&session, "nul").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let told = world.told(&session).await?;
    assert!(told[1].1.contains(&"a\u{FFFD}b".to_owned()), "{told:?}");
    let requests = world.requests()?;
    let results: Vec<_> = requests[1].iter().filter(|m| m["role"] == "tool").collect();
    assert_eq!(results.len(), 6);
    assert!(results[0]["content"].as_str().unwrap().starts_with("x\u{FFFD}y"), "{results:?}");
    assert_eq!(session.content("w.txt"), "w\0w");
    world.check().await
}

#[tokio::test]
async fn a_mebibyte_of_code_points_is_checkpointed_and_settled_whole() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let word = "é漢🦀x".repeat(20 * 1024 / 10);
    let text = vec![word; 52].join(" ");
    assert!(text.len() > 1024 * 1024);
    world.script(Script {
        matches: "much".into(),
        text: Some(text.clone()),
        ..Script::default()
    })?;
    world.prompt(&session, "much").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(world.answer(&session).await?, text);
    let mut kept = String::new();
    for event in world.events(&session).await? {
        if let SessionEvent::TextCheckpointed(checkpoint) = event.event {
            assert_eq!(usize::try_from(checkpoint.offset)?, kept.len());
            kept += &checkpoint.text;
        }
    }
    assert!(kept.len() > 512 * 1024 && text.starts_with(&kept), "{} bytes", kept.len());
    // The next request carries it.
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.check().await
}
