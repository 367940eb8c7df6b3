//! How many transactions a drain costs, counted by the server: 2T+1, and S+A+W for a call that somebody is asked about.

use anyhow::{Context, Result};
use boot::{DataDir, Durability, Postgres, PostgresOptions};
use domain::Answer;
use domain::DrainOutcome::Completed;
use sqlx::{Connection, PgConnection};
use store::RolePasswords;

use crate::tools::{calls, says, shell};
use crate::world::World;

/// The next transaction id that the server will assign; asking assigns none.
async fn next_xid(server: &mut PgConnection) -> Result<i64> {
    let next = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
    Ok(sqlx::query_scalar(next).fetch_one(server).await?)
}

#[tokio::test]
async fn t_turns_are_two_t_and_one_transactions() -> Result<()> {
    // Ids are assigned for a whole server: other tests must not share it.
    let folder = testkit::temp_folder()?;
    let data = DataDir::open(&folder.path().join("data"))?;
    let options = PostgresOptions { durability: Durability::Off, ..PostgresOptions::default() };
    let server = Postgres::launch(&data, &options).await?;
    let url = server.connection.superuser_url("postgres");
    let password = "only-for-this-test".to_owned();
    let passwords = RolePasswords { migrate: password.clone(), serve: password };
    store::provision(&url, &passwords).await?;
    store::migrate(&store::role_url(&url, "oc_migrate", Some(&passwords.migrate))?).await?;
    let app = store::role_url(&url, "oc_app", Some(&passwords.serve))?;
    let world = World::on(app, None, |_| ()).await?;
    let session = world.session().await?;
    let mut server = PgConnection::connect(&url).await?;
    // It takes ids too, when it comes to it.
    for quiet in ["ALTER SYSTEM SET autovacuum = off", "SELECT pg_reload_conf()"] {
        sqlx::raw_sql(quiet).execute(&mut server).await?;
    }
    let prompts = [
        (1, "say 3 words"),
        (1, "say 4 words"), // with an epoch and stored components
        (2, "create a.txt containing one"),
        (4, "read a.txt then edit a.txt replacing one with two then read a.txt"),
        (2, "read a.txt and also list the files"),
    ];
    for (turns, prompt) in prompts {
        let before = next_xid(&mut server).await?;
        world.prompt(&session, prompt).await?;
        assert!(matches!(world.drain(&session).await?, session::DrainExit::Ended(Completed)));
        let used = next_xid(&mut server).await? - before;
        let written = world.kinds(&session).await?;
        let started = written.iter().rev().take_while(|kind| **kind != "prompt.admitted");
        let started = started.filter(|kind| **kind == "turn.started").count();
        assert_eq!(started, turns, "{prompt}: {written:?}");
        let expected = i64::try_from(2 * turns + 1).context("a small number")?;
        assert_eq!(used, expected, "{prompt}: {written:?}");
    }
    // A sleep (W) and an answer (A) cost one commit each, and going on (S) two: the claim, and the start of the body.
    let asking = crate::permission::session(&world, &crate::asks::ASK_SHELL).await?;
    world.script(calls("job", 0, vec![shell("echo x >> a")]))?;
    world.script(says("job", 1, "done"))?;
    let mut steps = vec![next_xid(&mut server).await?];
    world.prompt(&asking, "job").await?;
    let asks = crate::asks::sleeps(&world, &asking).await?;
    steps.push(next_xid(&mut server).await?);
    crate::asks::answered(&world, &asks[0], Answer::Once).await?;
    steps.push(next_xid(&mut server).await?);
    assert!(matches!(world.drain(&asking).await?, session::DrainExit::Ended(Completed)));
    steps.push(next_xid(&mut server).await?);
    let used: Vec<_> = steps.windows(2).map(|step| step[1] - step[0]).collect();
    let (turns, starts, answers, sleeps) = (2, 2, 1, 1);
    assert_eq!(used.iter().sum::<i64>(), 2 * turns + 1 + starts + answers + sleeps, "{used:?}");
    // The prompt, the turn, the reply and the sleep; the answer; the claim, the start, the next turn and the end.
    assert_eq!(used, [4, 1, 4], "{:?}", world.kinds(&asking).await?);
    world.check().await
}
