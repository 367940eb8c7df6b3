//! The organisation that does everything at once that may stop others, as fast as it is answered.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::future::{join, join_all};
use hyper::Method;
use serde_json::json;
use sqlx::PgPool;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::caller::Caller;
use super::copies::Copies;
use crate::run::sessions::Target;
use crate::scenario::fairness::ORG;

/// How long a session is locked: longer than a request waits for it, so that some are answered and some refused.
const LOCKED: Duration = Duration::from_secs(6);
/// The answer of a request that took this long has met a lock.
const MET: Duration = Duration::from_millis(150);
/// Connections that show unknown keys. The service answers each a quarter of a second late, so few would be no flood.
const OF_UNKNOWN_KEYS: usize = 64;
/// The bytes of a prompt that is admitted and never run.
const ADMITTED: usize = 500;
/// Imported sessions that may wait for their deletion.
const KEPT: usize = 16;
/// The pause of somebody who has nothing to do, or whose database is large enough.
const IDLE: Duration = Duration::from_millis(20);
/// The size of the database and its write-ahead log beyond which nothing is imported or admitted, in bytes.
const DATABASE: i64 = 1_400_000_000;
/// How often that is looked at.
const LOOKS: Duration = Duration::from_secs(1);
/// Writes more than a workspace may hold.
const FILL: &str = "run `head -c 300M /dev/zero >full`";
/// The words in the result of a command that was ended for it.
const FULL: &[u8] = b"workspace full";
/// Commands after which a new session is begun, so that histories stay bounded.
const COMMANDS_PER_SESSION: usize = 20;

/// A kind of hostile work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Kind {
    /// Prompts and new titles for a session that is locked. They took effect if they waited or were refused.
    Locks,
    /// Requests with a new unknown key each. They took effect if they were refused.
    UnknownKeys,
    /// Prompts that are admitted and wake nobody. An inbox takes a thousand, then it refuses one.
    Admissions,
    /// Deletions of sessions that were imported, or whose inbox is full; done where those are.
    Deletions,
    /// Imports of a long session under new ids.
    Imports,
    /// Commands that write until they are ended, and those that remove what they wrote. The former took effect if the
    /// workspace was full.
    FullDisks,
}

impl Kind {
    pub(super) const ALL: [Self; 6] = [
        Self::Locks,
        Self::UnknownKeys,
        Self::Admissions,
        Self::Deletions,
        Self::Imports,
        Self::FullDisks,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Locks => "locks",
            Self::UnknownKeys => "unknown keys",
            Self::Admissions => "admissions",
            Self::Deletions => "deletions",
            Self::Imports => "imports",
            Self::FullDisks => "full disks",
        }
    }
}

/// The number of operations of one kind.
#[derive(Debug, Default)]
pub(super) struct Tally {
    done: AtomicU64,
    refused: AtomicU64,
    effective: AtomicU64,
    /// The error of the first that was refused.
    first_error: OnceLock<String>,
}

impl Tally {
    fn note<T>(&self, answer: &anyhow::Result<T>, took_effect: bool) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.effective.fetch_add(took_effect.into(), Ordering::Relaxed);
        if let Err(error) = answer {
            self.refused.fetch_add(1, Ordering::Relaxed);
            self.first_error.get_or_init(|| format!("{error:#}"));
        }
    }

    /// Returns the error of the first operation that was refused or failed.
    pub(super) fn first_error(&self) -> Option<&str> {
        self.first_error.get().map(String::as_str)
    }

    /// Returns the operations that were answered or failed, those that were refused or failed, and those that had the
    /// effect that their kind is there for.
    pub(super) fn counts(&self) -> [u64; 3] {
        [&self.done, &self.refused, &self.effective].map(|count| count.load(Ordering::Relaxed))
    }
}

/// How hostile the organisation is.
#[derive(Debug, Clone)]
pub(super) struct Means {
    /// Connections of each kind.
    pub(super) connections: u8,
    /// Whether a full file reaches the disk before it is removed.
    pub(super) is_flushed: bool,
    /// The kinds of its work.
    pub(super) kinds: Vec<Kind>,
}

/// The organisation. It has the same sessions and counts in all rounds.
pub(super) struct Hostile(Arc<Shared>);

struct Shared {
    target: Target,
    pool: PgPool,
    copies: Copies,
    means: Means,
    tallies: [Tally; 6],
    number: AtomicU32,
    /// Sessions to delete.
    imported: Mutex<Vec<String>>,
    is_database_full: AtomicBool,
    is_over: AtomicBool,
}

impl Hostile {
    /// Prepares it. `copies` are of a session of its own.
    pub(super) fn new(target: Target, pool: PgPool, copies: Copies, means: Means) -> Self {
        Self(Arc::new(Shared {
            target,
            pool,
            copies,
            means,
            tallies: <[Tally; 6]>::default(),
            number: AtomicU32::new(1),
            imported: Mutex::default(),
            is_database_full: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }))
    }

    /// Begins all kinds of work. Dropping the tasks aborts them; [`end`](Self::end) lets each finish its last request.
    pub(super) fn begin(&self) -> JoinSet<anyhow::Result<()>> {
        let shared = &self.0;
        shared.is_over.store(false, Ordering::Relaxed);
        let mut tasks = JoinSet::new();
        tasks.spawn(shared.clone().watch_database());
        if self.does(Kind::Locks) {
            tasks.spawn(shared.clone().lock_sessions());
        }
        if self.does(Kind::UnknownKeys) {
            for _ in 0..OF_UNKNOWN_KEYS {
                tasks.spawn(shared.clone().show_unknown_keys());
            }
        }
        for place in 0..shared.means.connections {
            if self.does(Kind::Admissions) {
                tasks.spawn(shared.clone().flood_inboxes());
            }
            if self.does(Kind::Imports) {
                tasks.spawn(shared.clone().import_copies());
                tasks.spawn(shared.clone().delete_copies());
            }
            if self.does(Kind::FullDisks) {
                tasks.spawn(shared.clone().fill_disk(place));
            }
        }
        tasks
    }

    /// Returns whether this kind is a part of its work.
    pub(super) fn does(&self, kind: Kind) -> bool {
        self.0.means.kinds.contains(&kind)
    }

    /// Ends the work.
    ///
    /// # Errors
    /// When a task had to give up.
    pub(super) async fn end(&self, mut tasks: JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
        self.0.is_over.store(true, Ordering::Relaxed);
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    }

    /// Returns what was done so far, by kind.
    pub(super) fn tallies(&self) -> impl Iterator<Item = (Kind, &Tally)> {
        Kind::ALL.into_iter().map(|kind| (kind, self.0.tally(kind)))
    }
}

impl Shared {
    fn tally(&self, kind: Kind) -> &Tally {
        &self.tallies[kind as usize]
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn is_database_full(&self) -> bool {
        self.is_database_full.load(Ordering::Relaxed)
    }

    fn caller(&self) -> Caller {
        Caller::new(self.target.clone())
    }

    fn take_number(&self) -> u32 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits so long, or until all is over.
    async fn wait(&self, span: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < span && !self.is_over() {
            sleep(IDLE).await;
        }
    }

    /// Looks how large the database is.
    async fn watch_database(self: Arc<Self>) -> anyhow::Result<()> {
        let sql = "SELECT pg_database_size(current_database())
                       + (SELECT coalesce(sum(size), 0) FROM pg_ls_waldir())::bigint";
        while !self.is_over() {
            let size: i64 = sqlx::query_scalar(sql).fetch_one(&self.pool).await?;
            self.is_database_full.store(size > DATABASE, Ordering::Relaxed);
            self.wait(LOOKS).await;
        }
        Ok(())
    }

    /// Locks a session that works, has others ask for it, and unlocks it, again and again.
    async fn lock_sessions(self: Arc<Self>) -> anyhow::Result<()> {
        let mut caller = self.caller();
        while !self.is_over() {
            let begun = async {
                let session = caller.create_session(&self.target.directory).await?;
                // So that a drain meets the lock, too.
                caller.admit(&session, "say 2000 words", true).await?;
                anyhow::Ok(session)
            };
            let begun = begun.await;
            let Ok(session) = begun else {
                self.tally(Kind::Locks).note(&begun, false);
                continue;
            };
            let mut lock = self.pool.begin().await?;
            let sql = "SELECT FROM session_head WHERE org_id = $1::uuid AND id = $2 FOR UPDATE";
            let locked = sqlx::query(sql)
                .bind(ORG)
                .bind(&session)
                .execute(&mut *lock)
                .await?
                .rows_affected();
            ensure!(locked == 1, "{session} is no session of the hostile organisation");
            let (is_locked, session) = (AtomicBool::new(true), session.as_str());
            let hold = async {
                self.wait(LOCKED).await;
                is_locked.store(false, Ordering::Relaxed);
                lock.rollback().await
            };
            let ask = (0..self.means.connections).map(|_| self.ask_for_locked(session, &is_locked));
            let (unlocked, _) = join(hold, join_all(ask)).await;
            unlocked?;
        }
        Ok(())
    }

    async fn ask_for_locked(&self, session: &str, is_locked: &AtomicBool) {
        let mut caller = self.caller();
        for number in 0_u32.. {
            if !is_locked.load(Ordering::Relaxed) {
                return;
            }
            let begun = Instant::now();
            let asked = if number.is_multiple_of(2) {
                caller.admit(session, "say 2 words", false).await
            } else {
                let (path, body) =
                    (format!("/platform/session/{session}"), json!({ "title": "locked" }));
                caller.call(Method::PATCH, &path, body.to_string()).await
            };
            let waited = begun.elapsed() >= MET;
            self.tally(Kind::Locks).note(&asked, asked.is_err() || waited);
        }
    }

    async fn show_unknown_keys(self: Arc<Self>) -> anyhow::Result<()> {
        let mut caller = self.caller();
        while !self.is_over() {
            caller.show_key(format!("load-tests-unknown-key-{:012}", self.take_number()));
            let asked = caller.call(Method::GET, "/platform/session?limit=1", String::new()).await;
            ensure!(asked.is_err(), "a key that nobody has was believed");
            self.tally(Kind::UnknownKeys).note(&asked, true);
        }
        Ok(())
    }

    /// Fills the inbox of a session that nobody wakes, and deletes it.
    async fn flood_inboxes(self: Arc<Self>) -> anyhow::Result<()> {
        let (mut caller, text) = (self.caller(), "w".repeat(ADMITTED));
        while !self.is_over() {
            let created = caller.create_session(&self.target.directory).await;
            let Ok(session) = created else {
                self.tally(Kind::Admissions).note(&created, false);
                continue;
            };
            while !self.is_over() {
                if self.is_database_full() {
                    sleep(IDLE).await;
                    continue;
                }
                let admitted = caller.admit(&session, &text, false).await;
                self.tally(Kind::Admissions).note(&admitted, admitted.is_ok());
                if admitted.is_err() {
                    break;
                }
            }
            self.delete(&mut caller, &session).await;
        }
        Ok(())
    }

    async fn delete(&self, caller: &mut Caller, session: &str) {
        let deleted = caller.delete(session).await;
        self.tally(Kind::Deletions).note(&deleted, deleted.is_ok());
    }

    async fn import_copies(self: Arc<Self>) -> anyhow::Result<()> {
        let mut caller = self.caller();
        let path =
            format!("/platform/session/import?directory={}", self.target.directory.display());
        while !self.is_over() {
            if self.is_database_full() || self.imported().len() >= KEPT {
                sleep(IDLE).await;
                continue;
            }
            let number = self.take_number();
            let imported = caller.call(Method::POST, &path, self.copies.write_copy(number)).await;
            self.tally(Kind::Imports).note(&imported, imported.is_ok());
            if imported.is_ok() {
                self.imported().push(self.copies.session_of(number));
            }
        }
        Ok(())
    }

    fn imported(&self) -> MutexGuard<'_, Vec<String>> {
        self.imported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn delete_copies(self: Arc<Self>) -> anyhow::Result<()> {
        let mut caller = self.caller();
        while !self.is_over() {
            let next = self.imported().pop();
            match next {
                Some(session) => self.delete(&mut caller, &session).await,
                None => sleep(IDLE).await,
            }
        }
        Ok(())
    }

    /// Fills a workspace of its own and empties it, again and again. It ends with an empty one.
    async fn fill_disk(self: Arc<Self>, place: u8) -> anyhow::Result<()> {
        let directory = self.make_directory(place)?;
        let mut caller = self.caller();
        let clear =
            if self.means.is_flushed { "run `sync full; rm -f full`" } else { "run `rm -f full`" };
        while !self.is_over() {
            let created = caller.create_session(&directory).await;
            let Ok(session) = created else {
                self.tally(Kind::FullDisks).note(&created, false);
                continue;
            };
            for number in 0..COMMANDS_PER_SESSION {
                let fills = number.is_multiple_of(2);
                if fills && self.is_over() {
                    break;
                }
                let command = if fills { FILL } else { clear };
                let answer = caller.prompt_held(&directory, &session, command).await;
                let is_full = answer.as_ref().is_ok_and(|answer| contains(answer, FULL));
                self.tally(Kind::FullDisks).note(&answer, fills && is_full);
            }
        }
        Ok(())
    }

    fn make_directory(&self, place: u8) -> anyhow::Result<PathBuf> {
        let directory = self.target.directory.join(format!("disk-{place}"));
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(directory)
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
