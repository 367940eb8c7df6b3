//! Sessions that work while their database comes back without its last commits, again and again, at random moments.
//!
//! ```text
//! prompts ─▶ [kept] ─▶ prompts, titles, work under way ─▶ [put back] ─▶ titles: logs grow back ─▶ a prompt each
//!                                                                        └▶ it completes soon, and explains
//! ```
//!
//! Finding core-3 C1 = ops-3 B1: work went on from what the database had lost, and nothing said so.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::api::{Api, message_id};
use crate::past::Past;
use crate::settle::{events_of, eventually};
use crate::world::World;

/// How long a session may take to answer once the database is back.
const SOON: Duration = Duration::from_secs(5);
/// Repetitions with the same sessions.
const EACH: u32 = 10;

/// A database that can lose its last commits.
pub trait LossyDatabase {
    /// Keeps what is there now. Work goes on.
    ///
    /// # Errors
    /// When Postgres refuses.
    fn keep(&mut self) -> impl Future<Output = Result<()>>;

    /// Goes back to what was kept last, and ends all connections.
    ///
    /// # Errors
    /// When Postgres refuses.
    fn put_back(&mut self) -> impl Future<Output = Result<()>>;

    /// Whether nothing that was acknowledged is lost: after [`keep`](Self::keep) no commit ends until it is put back.
    fn keeps_acknowledged(&self) -> bool;
}

/// The settings of a run.
#[derive(Debug, Clone, Copy)]
pub struct WentBackRun {
    /// The seed of all choices.
    pub seed: u64,
    /// How often the database is put back.
    pub repetitions: u32,
    /// Sessions, each with a directory of its own, but for two that share one.
    pub sessions: usize,
}

/// The report of a run in which all that must hold did.
#[derive(Debug, Clone, Copy, Default)]
pub struct WentBack {
    /// How often the database was put back.
    pub repetitions: u32,
    /// Logs that were put back to fewer events.
    pub shorter: usize,
    /// Logs that were as long again as before, when the next prompt came.
    pub grown: usize,
    /// Turns that were proved.
    pub proved: usize,
    /// The longest time until a session had answered.
    pub slowest: Duration,
}

impl fmt::Display for WentBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { repetitions, shorter, grown, proved, slowest } = self;
        write!(
            f,
            "{repetitions} times the database went back: {shorter} logs were shorter, {grown} had grown back; {proved} \
             turns are proved; the slowest answer took {:.1} s",
            slowest.as_secs_f64()
        )
    }
}

impl WentBackRun {
    /// Runs it against a service of `world` with its own Postgres.
    ///
    /// # Errors
    /// The first turn that does not explain, session that does not answer soon, or violation.
    pub async fn run(&self, world: &World, api: &Api) -> Result<WentBack> {
        self.run_on(world, api, &mut Past::open(&world.data()).await?).await
    }

    /// Runs it against a service of `world` with this database.
    ///
    /// # Errors
    /// Those of [`run`](Self::run), or a prompt that was acknowledged and is lost where none may be.
    pub async fn run_on(
        &self,
        world: &World,
        api: &Api,
        past: &mut impl LossyDatabase,
    ) -> Result<WentBack> {
        let mut random = StdRng::seed_from_u64(self.seed);
        let mut report = WentBack::default();
        let mut sessions = Vec::new();
        for repetition in 0..self.repetitions {
            if repetition % EACH == 0 {
                sessions = self.sessions(world, api, repetition).await?;
            }
            self.repetition(api, past, &sessions, &mut random, &mut report)
                .await
                .with_context(|| format!("seed {}, repetition {repetition}", self.seed))?;
        }
        Ok(report)
    }

    async fn sessions(&self, world: &World, api: &Api, repetition: u32) -> Result<Vec<String>> {
        let mut sessions = Vec::new();
        for number in 0..self.sessions {
            let place = world.workspace(&format!("back-{repetition}-{}", number.max(1)))?;
            sessions.push(api.session(&place).await?);
        }
        Ok(sessions)
    }

    async fn repetition(
        &self,
        api: &Api,
        past: &mut impl LossyDatabase,
        sessions: &[String],
        random: &mut StdRng,
        report: &mut WentBack,
    ) -> Result<()> {
        let number = report.repetitions;
        let each = |what: &'static str| {
            sessions.iter().map(move |session| prompt(api, session, format!("{what} {number}")))
        };
        let mut kept = try_join_all(each("before")).await?;
        sleep(Duration::from_millis(random.random_range(0..200))).await;
        past.keep().await?;
        let lost = if past.keeps_acknowledged() {
            let before = lengths(api, sessions).await?;
            let meanwhile = Duration::from_millis(random.random_range(0..400));
            let went_back = async {
                sleep(meanwhile).await;
                past.put_back().await
            };
            let (sent, ()) = tokio::try_join!(try_join_all(each("beside")), went_back)?;
            kept.extend(sent);
            before
        } else {
            kept.clear();
            for round in 0..random.random_range(1..=2) {
                try_join_all(each(if round == 0 { "lost" } else { "lost too" })).await?;
                if random.random_bool(0.5) {
                    rest(api, sessions).await?;
                } else {
                    sleep(Duration::from_millis(random.random_range(0..250))).await;
                }
            }
            let before = lengths(api, sessions).await?;
            past.put_back().await?;
            before
        };
        let titles: Vec<usize> =
            sessions.iter().map(|_| random.random_range(0..=lost.len() * 4)).collect();
        let shorter = lengths(api, sessions).await?;
        report.shorter += shorter.iter().zip(&lost).filter(|(now, before)| now < before).count();
        for (session, titles) in sessions.iter().zip(titles) {
            for title in 0..titles {
                rename(api, session, &format!("title {number}.{title}")).await?;
            }
        }
        let now = lengths(api, sessions).await?;
        report.grown += now.iter().zip(&lost).filter(|(now, before)| now >= before).count();
        let begun = Instant::now();
        kept.extend(try_join_all(each("after")).await?);
        rest(api, sessions).await?;
        let took = begun.elapsed();
        report.slowest = report.slowest.max(took);
        ensure!(took <= SOON, "sessions were not at rest after {took:?}");
        for session in sessions {
            report.proved += prove(api, session, &format!("after {number}"), &kept).await?;
        }
        let broken = api.get("/platform/check?settled=true").await?.ok()?;
        ensure!(broken == json!([]), "broken invariants: {broken:#}");
        report.repetitions += 1;
        Ok(())
    }
}

/// A prompt that was acknowledged.
struct Acknowledged {
    session: String,
    message: String,
}

/// Admits a prompt, again and again under one id if there is no answer: nobody knows then whether it was.
async fn prompt(api: &Api, session: &str, text: String) -> Result<Acknowledged> {
    let message = message_id(0);
    let body = json!({ "messageID": message, "parts": [{ "type": "text", "text": text }] });
    let path = format!("/platform/session/{session}/message");
    eventually("a prompt is admitted", 60, async || {
        let answer = api.post(&path, &body).await;
        Ok(answer.ok().filter(|answer| answer.status < 300).map(drop))
    })
    .await?;
    Ok(Acknowledged { session: session.to_owned(), message })
}

async fn rename(api: &Api, session: &str, title: &str) -> Result<()> {
    let path = format!("/platform/session/{session}");
    eventually("a title is set", 40, async || {
        let request = api.request(Method::PATCH, &path).json(&json!({ "title": title }));
        let answer = api.send(request).await;
        Ok(answer.ok().filter(|answer| answer.status < 300).map(drop))
    })
    .await
}

async fn of_all(api: &Api) -> Result<Vec<Value>> {
    eventually("sessions are listed", 40, async || Ok(api.sessions().await.ok())).await
}

/// Waits until nothing runs.
async fn rest(api: &Api, sessions: &[String]) -> Result<()> {
    eventually("sessions come to rest", 60, async || {
        let all = of_all(api).await?;
        let busy = |row: &&Value| {
            row["busy"] != json!(false)
                && sessions.iter().any(|session| row["id"] == json!(session))
        };
        Ok(all.iter().find(busy).is_none().then_some(()))
    })
    .await
}

/// The number of events of each session.
async fn lengths(api: &Api, sessions: &[String]) -> Result<Vec<i64>> {
    let all = of_all(api).await?;
    let length = |session: &String| {
        let row = all.iter().find(|row| row["id"] == json!(session));
        row.and_then(|row| row["seq"].as_i64()).with_context(|| format!("{session} is listed"))
    };
    sessions.iter().map(length).collect()
}

/// How long a service may ask its callers to ask again after its database has come back.
const BACK: Duration = Duration::from_secs(5);

/// Asks until the answer is another one than 503, as clients do.
async fn ask_again<T>(ask: impl AsyncFn() -> Result<T>) -> Result<T> {
    let until = Instant::now() + BACK;
    loop {
        match ask().await {
            Err(error) if error.to_string().starts_with("status 503") && Instant::now() < until => {
                sleep(Duration::from_millis(100)).await;
            }
            answer => return answer,
        }
    }
}

/// Proves that the last prompt was answered, none of `kept` was lost or doubled, and every turn of the log was asked with
/// this log.
async fn prove(api: &Api, session: &str, last: &str, kept: &[Acknowledged]) -> Result<usize> {
    let log = ask_again(async || api.log(session).await).await?;
    let promoted = events_of(&log, "prompt.promoted");
    let text = promoted.last().map(|prompt| prompt["parts"].to_string()).unwrap_or_default();
    ensure!(text.contains(last), "the last prompt of {session} was not promoted: {text}");
    for Acknowledged { message, .. } in kept.iter().filter(|kept| kept.session == session) {
        let times = promoted.iter().filter(|prompt| prompt["message"] == json!(message)).count();
        ensure!(times == 1, "{message} of {session} was acknowledged, and promoted {times} times");
    }
    let settled = events_of(&log, "turn.settled");
    let outcome = settled.last().map(|turn| turn["outcome"].clone());
    ensure!(outcome == Some(json!("completed")), "the last turn of {session}: {outcome:?}");
    let mut proved = 0;
    for attempt in events_of(&log, "attempt.started") {
        let id = attempt["attempt"].as_str().context("an attempt has an id")?;
        let path = format!("/platform/explain/{id}");
        let told = ask_again(async || api.get(&path).await?.ok()).await?;
        ensure!(told["match"] == json!(true), "{id} of {session} is not proved: {told:#}");
        proved += 1;
    }
    Ok(proved)
}
