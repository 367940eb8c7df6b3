//! Calls that wait for a person: in a run, in the released terminal, through two gateways, and while everything is killed.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use domain::{Clock as _, SystemClock};
use journeys::{Api, World, events_of, eventually, executable, oracle, superuser_url};
use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::stock::released_client;
use crate::terminal::Terminal;

/// Makes a session whose commands are asked about.
async fn asking_session(api: &Api, place: &std::path::Path) -> Result<String> {
    let project = api.project(place).await?;
    let rules = json!([{ "permission": "bash", "pattern": "*", "action": "ask" }]);
    let body = json!({ "permission": rules });
    let session = api.post(&format!("/project/{project}/session"), &body).await?.ok()?;
    Ok(session["id"].as_str().context("an id")?.to_owned())
}

/// Waits until a session asks, and returns the id of what it asks.
async fn asked(api: &Api, session: &str) -> Result<String> {
    let path = format!("/platform/session/{session}/ask");
    let found = eventually("an ask", 60, async || {
        let asks = api.get(&path).await?.ok()?;
        Ok(asks[0]["id"].as_str().map(str::to_owned))
    });
    found.await
}

fn lines(place: &std::path::Path, name: &str) -> usize {
    fs::read_to_string(place.join(name)).map_or(0, |text| text.lines().count())
}

#[tokio::test]
async fn a_run_refuses_asks_waits_or_allows() -> Result<()> {
    let world = World::new().await?;
    let up = world.up().await?;
    let place = world.workspace("secrets")?;
    fs::write(place.join(".env"), "TOKEN=not-for-models\n")?;
    let cli = up.cli()?.within(&place);

    // Nobody can answer: the model goes on, the exit code says that something was refused.
    let ended = cli.run(&["run", "read .env"]).await?;
    ensure!(ended.code == Some(1), "{ended:?}");
    ensure!(
        ended.err.contains("refused, since nobody could answer here: read `.env`"),
        "{ended:?}"
    );
    ensure!(!ended.out.contains("not-for-models"), "{ended:?}");
    let ended = cli.run(&["run", "--ask", "allow", "read .env"]).await?;
    ensure!(ended.code == Some(0) && ended.out.contains("not-for-models"), "{ended:?}");

    // Somebody answers elsewhere.
    let waits = cli.start(&["run", "--ask", "wait", "read .env"])?;
    eventually("the ask is listed", 60, async || {
        let list = cli.run(&["ask", "list"]).await?;
        Ok(list.out.contains("read .env").then_some(()))
    })
    .await?;
    let json = cli.run(&["ask", "list", "--json"]).await?.out;
    let asks: Value = serde_json::from_str(&json)?;
    let ask = asks[0]["id"].as_str().context("an id")?;
    let none = cli.run(&["ask", "reply", ask, "once", "--message", "hm"]).await?;
    ensure!(none.code == Some(1) && none.err.contains("`message` goes with"), "{none:?}");
    let reply = cli.run(&["ask", "reply", ask, "always"]).await?;
    ensure!(reply.code == Some(0), "{reply:?}");
    let ended = waits.end().await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    ensure!(ended.err.contains(&format!("opencode-cloud ask reply {ask} once")), "{ended:?}");
    let other = cli.run(&["ask", "reply", ask, "reject"]).await?;
    ensure!(other.code == Some(1) && other.err.contains("answered this already"), "{other:?}");

    // *Always* was for this project.
    let ended = cli.run(&["run", "read .env"]).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    let saved = up.api().get("/platform/permission").await?.ok()?;
    ensure!(saved.as_array().is_some_and(|saved| saved.len() == 1), "{saved}");
    oracle(up.api(), world.model()).await?;
    up.stop(&world).await
}

// Attacks 3 and 4 of asks: nobody holds the Location when the answer comes, and it comes through two gateways.
#[tokio::test]
async fn an_ask_outlives_every_process_and_runs_one_body() -> Result<()> {
    let world = World::new().await?;
    let place = world.workspace("asks")?;
    let cluster = world.cluster(&[]).await?;
    let (one, two) = (cluster.gateway(0), cluster.gateway(1));
    let session = asking_session(one, &place).await?;
    let message = one.admit(&session, "run echo body >> ran.txt").await?;
    let ask = asked(two, &session).await?;

    // Nothing of it is in memory: whoever had it may die, and so may all the others.
    for role in ["worker", "gateway", "placement"] {
        for member in cluster.of(role)? {
            cluster.signal(member.pid, Signal::KILL)?;
        }
    }
    eventually("the gateways are back", 120, async || {
        Ok((one.is_ready().await && two.is_ready().await).then_some(()))
    })
    .await?;
    ensure!(lines(&place, "ran.txt") == 0, "it ran without leave");

    // The same answer through both gateways at once, and another one: one stands, nobody is lied to.
    let path = format!("/platform/ask/{ask}");
    let (once, other) = (json!({ "reply": "once" }), json!({ "reply": "reject" }));
    let (a, b, c) =
        tokio::join!(one.post(&path, &once), two.post(&path, &once), two.post(&path, &other));
    let statuses = [a?.status, b?.status, c?.status];
    let rejected = statuses[2] == 204;
    ensure!(
        if rejected { statuses == [409, 409, 204] } else { statuses == [204, 204, 409] },
        "{statuses:?}"
    );
    let outcome = two.outcome(&session, &message, 120).await?;
    ensure!(outcome == if rejected { "interrupted" } else { "completed" }, "{outcome}");
    ensure!(lines(&place, "ran.txt") == usize::from(!rejected), "one body");
    let log = one.log(&session).await?;
    ensure!(events_of(&log, "tool.answered").len() == 1);
    oracle(one, world.model()).await?;
    cluster.stop(&world).await
}

/// Moves the expiry of all asks by so many milliseconds. No route does so: a person's day is a day.
async fn move_expiry(data: &std::path::Path, by: i64) -> Result<()> {
    let mut postgres = sqlx::PgConnection::connect(&superuser_url(data)?).await?;
    let moved = sqlx::query("UPDATE ask SET expires_ms = expires_ms + $1").bind(by);
    moved.execute(&mut postgres).await?;
    Ok(())
}

// Attack 9 of asks.
#[tokio::test]
async fn of_a_reply_an_interrupt_and_an_expiry_one_stands() -> Result<()> {
    let world = World::new().await?;
    let place = world.workspace("asks")?;
    let cluster = world.cluster(&[]).await?;
    let (one, two) = (cluster.gateway(0), cluster.gateway(1));
    let mut all = Vec::new();
    for number in 0..9 {
        let session = asking_session(one, &place).await?;
        let message = one.admit(&session, &format!("run echo body >> ran-{number}.txt")).await?;
        all.push((number, session, message));
    }
    let mut asks = Vec::new();
    for (_, session, _) in &all {
        asks.push(asked(two, session).await?);
    }
    let listed = one.get("/platform/ask").await?.ok()?;
    let expiries = listed.as_array().context("a list")?.iter();
    let first = expiries.filter_map(|ask| ask["time"]["expires"].as_i64()).min();
    let by = SystemClock::new().now_ms() + 1_500 - first.context("an expiry")?;
    move_expiry(&world.data(), by).await?;
    // Spread over the time in which the expiry comes, so that each of the three is the first for some.
    let (reply, nothing) = (json!({ "reply": "once" }), json!({}));
    for (at, (_, session, _)) in all.iter().enumerate() {
        let (ask, stop) =
            (format!("/platform/ask/{}", asks[at]), format!("/platform/session/{session}/abort"));
        let (replied, stopped) = match at % 3 {
            0 => tokio::join!(one.post(&ask, &reply), two.post(&stop, &nothing)),
            1 => {
                let stopped = two.post(&stop, &nothing).await;
                (one.post(&ask, &reply).await, stopped)
            }
            _ => {
                tokio::time::sleep(Duration::from_millis(1_500)).await;
                (one.post(&ask, &reply).await, two.post(&stop, &nothing).await)
            }
        };
        let (replied, stopped) = (replied?.status, stopped?.status);
        ensure!(
            [204, 409].contains(&replied) && [200, 204].contains(&stopped),
            "{replied} {stopped}"
        );
    }
    for (number, session, message) in &all {
        let outcome = two.outcome(session, message, 120).await?;
        let bodies = lines(&place, &format!("ran-{number}.txt"));
        let log = one.log(session).await?;
        let answers = events_of(&log, "tool.answered").len();
        let settled = events_of(&log, "tool.settled").len();
        ensure!(
            answers <= 1 && settled == 1 && bodies <= 1,
            "{number}: {outcome} {answers} {settled} {bodies}"
        );
        ensure!(bodies == 0 || answers == 1, "{number} ran without leave");
    }
    let open = one.get("/platform/ask").await?.ok()?;
    ensure!(open == json!([]), "{open}");
    move_expiry(&world.data(), -by).await?; // rows are what their events say
    oracle(one, world.model()).await?;
    cluster.stop(&world).await
}

#[tokio::test]
async fn two_released_terminals_show_and_close_one_dialog() -> Result<()> {
    executable()?; // report a missing executable first
    let client = released_client().await?;
    let world = World::new().await?;
    let place = world.workspace("terminal")?;
    fs::write(place.join(".env"), "TOKEN=not-for-models\n")?;
    let up = world.up_with(&["--directory", place.to_str().context("UTF-8")?]).await?;
    let (url, key) = (up.api().url(), up.api().key());
    let terminal = Terminal::attach(&world, "home", &client, url, key, &place)?;
    terminal.until("Ask anything").await?;
    terminal.prompt("read .env", "Permission required").await?;

    // A second one that begins to listen later is told of it too.
    let second = Terminal::attach(&world, "second", &client, url, key, &place)?;
    second.until("Ask anything").await?;
    second.type_text("/sessions")?;
    // The command itself may be in a tip of the first page: its line of the menu is there once it can be chosen.
    second.until("Switch session").await?;
    second.press("Enter")?;
    second.until("read .env").await?;
    second.press("Enter")?;
    second.until("Permission required").await?;

    terminal.press("Enter")?;
    for screen in [&terminal, &second] {
        eventually("the dialog is closed", 30, async || {
            Ok((!screen.screen()?.contains("Permission required")).then_some(()))
        })
        .await?;
        screen.until("simulated model").await?;
    }

    // Both answer at once, and so does a script: one answer stands, and all three are told so.
    fs::write(place.join("third.env"), "TOKEN=third\n")?;
    terminal.prompt("read third.env", "Permission required").await?;
    second.until("Permission required").await?;
    let asks = up.api().get("/platform/ask").await?.ok()?;
    let (ask, session) = (&asks[0]["id"], &asks[0]["sessionID"]);
    let path = format!("/platform/ask/{}", ask.as_str().context("an id")?);
    let once = json!({ "reply": "once" });
    let (curl, pressed) = tokio::join!(up.api().post(&path, &once), async {
        terminal.press("Enter").and(second.press("Enter"))
    });
    pressed?;
    ensure!(curl?.status == 204);
    for screen in [&terminal, &second] {
        eventually("the dialog is closed", 30, async || {
            Ok((!screen.screen()?.contains("Permission required")).then_some(()))
        })
        .await?;
        screen.until("TOKEN=third").await?;
    }
    let log = up.api().log(session.as_str().context("a session")?).await?;
    let answers = events_of(&log, "tool.answered");
    let of_it = answers.iter().filter(|answered| answered["ask"] == *ask);
    ensure!(of_it.count() == 1, "{answers:?}");

    // Refused: the work ends, and the terminal takes the next prompt.
    fs::write(place.join("other.env"), "x\n")?;
    terminal.prompt("read other.env", "Permission required").await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    terminal.press("Escape")?;
    eventually("the dialog is closed", 30, async || {
        Ok((!terminal.screen()?.contains("Permission required")).then_some(()))
    })
    .await?;
    let asks = up.api().get("/platform/ask").await?.ok()?;
    ensure!(asks == json!([]), "{asks}");
    drop((terminal, second));
    oracle(up.api(), world.model()).await?;
    up.stop(&world).await
}
