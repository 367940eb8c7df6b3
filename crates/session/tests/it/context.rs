//! The Baseline System Context, its updates, and the prefix that providers cache.

use std::time::Duration;

use anyhow::{Result, ensure};
use domain::DrainOutcome::{Completed, Failed};
use domain::{ErrorCode, FencingToken, SessionError, SessionEvent};
use history::History;
use session::{DrainExit, Workspace, drain, drain_control};
use tokio_util::sync::CancellationToken;

use crate::world::{ORG, World};

const DAY: Duration = Duration::from_hours(24);

#[tokio::test]
async fn each_request_extends_the_one_before_it_to_the_byte() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    session.file("a.txt", "one\n")?;
    for prompt in ["say 3 words", "read a.txt then run cat a.txt", "say 2 words"] {
        world.prompt(&session, prompt).await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
    }
    let bodies: Vec<String> =
        world.model().requests().into_iter().map(|request| request.body.unwrap()).collect();
    assert_eq!(bodies.len(), 5);
    for pair in bodies.windows(2) {
        let end = pair[0].find("],\"tools\":").expect("messages come before tools");
        ensure!(pair[1].starts_with(&pair[0][..end]), "{} is no prefix", &pair[0][..end]);
    }
    world.check().await
}

#[tokio::test]
async fn a_new_date_is_told_once_between_two_drains_of_one_epoch() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let mut history = History::new();
    for days in [0, 0, 1, 0] {
        world.clock.advance(DAY * days);
        world.prompt(&session, "say 2 words").await?;
        let (exit, known) = world.drain_from(&session, history).await?;
        assert!(matches!(exit, DrainExit::Ended(Completed)));
        history = known.expect("it ended well");
    }
    let requests = world.requests()?;
    let roles = |request: usize| {
        let roles = requests[request].iter().map(|message| message["role"].as_str().unwrap());
        roles.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(roles(1), "system user assistant user");
    assert_eq!(roles(2), "system user assistant user assistant user system");
    assert_eq!(roles(3), format!("{} assistant user", roles(2)));
    assert!(requests.iter().all(|request| request[0] == requests[0][0]), "one baseline");
    let kinds = world.kinds(&session).await?;
    let count = |kind| kinds.iter().filter(|other| **other == kind).count();
    assert_eq!((count("epoch.started"), count("context.updated")), (1, 1));
    world.check().await
}

#[tokio::test]
async fn a_branch_that_no_git_would_have_is_not_told() -> Result<()> {
    let world = World::new().await?;
    for head in
        ["ref: refs/heads/ma\0in\n".to_owned(), format!("ref: refs/heads/{}", "x".repeat(99_999))]
    {
        let session = world.session().await?;
        std::fs::create_dir(session.root.join(".git"))?;
        session.file(".git/HEAD", &head)?;
        world.prompt(&session, "say 2 words").await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
        let told = world.requests()?.pop().unwrap()[0]["content"].to_string();
        assert!(told.len() < 20_000 && !told.contains("in\\n\\0"), "{} bytes", told.len());
    }
    world.check().await
}

#[tokio::test]
async fn without_its_files_a_session_says_so_and_goes_on_once_they_are_back() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.prompt(&session, "say 2 words").await?;
    let error =
        SessionError { code: ErrorCode::WorkspaceUnavailable.into(), message: "gone".into() };
    let gone = Workspace::missing("/workspace".into(), error.clone());
    let (_handle, control) = drain_control(CancellationToken::new());
    let exit = drain(&world.worker, &session.at, FencingToken(1), &gone, control, History::new());
    assert!(matches!(Box::pin(exit).await.0, DrainExit::Ended(Failed)));
    let last = world.events(&session).await?.pop().unwrap().event;
    let SessionEvent::DrainEnded(ended) = last else { panic!("{last:?}") };
    assert_eq!(ended.error, Some(error));
    assert!(!world.store().session(ORG, session.at.session.clone()).await?.busy, "it waits");
    world.prompt(&session, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let roles: Vec<_> = world.told(&session).await?.into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, ["user", "user", "assistant"]);
    world.check().await
}
