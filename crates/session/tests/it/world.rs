//! One worker's view of the world: a database, a model, sessions with a directory each.
//!
//! Long because all that a scenario does to a session is done here, against one database and one clock.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use domain::{
    AttemptOutcome, Clock, Control, ControlAdmitted, Delivery, DrainOutcome, FencingToken, IdMint,
    MessageId, ModelRef, OrgId, PartId, PromptAdmitted, PromptPart, RecordedEvent, Seq,
    SessionCreated, SessionEvent, SessionId, SessionRef, Stamp, SystemClock, TimestampMs, ToolRule,
};
use history::{History, hash_hex, rebuild_body};
use llm_client::retry::Schedule;
use llm_client::{Client, Endpoint};
use sandbox::lock::{self, LockError};
use sandbox::{Environment, HiddenPaths, LocationLock, ProcessSandbox};
use serde_json::Value;
use session::{
    ConfiguredModels, DrainControl, DrainExit, DrainHandle, DrainSettings, Files, FilesOptions,
    ModelFacts, ProviderHub, RuleSettings, Runtime, StoredComponents, Workspace, drain,
    drain_control,
};
use signals::InProcess;
use simulated_model::{Handle, Options, Running, Script, SimulatedModel};
use store::{
    AdmittedControl, Interrupted, LocationKind, MessageRow, Messages, NewControl, NewPrompt,
    NewSession, SessionFilter, Store, StoreOptions,
};
use tempfile::TempDir;
use testkit::TestDatabase;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Nothing here takes as long on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than a test may take. A row that is written when it is due is never due, and a title is waited for as long as it takes,
/// so that the writes of a drain are the same on any machine.
pub(crate) const NEVER: Duration = Duration::from_hours(1);
/// How soon that is over where a test is about it.
pub(crate) const SOON: Duration = Duration::from_millis(30);
/// How often heads and logs are looked at.
const LOOK: Duration = Duration::from_millis(10);

/// The system's clock, moved ahead.
#[derive(Default)]
pub(crate) struct TestClock {
    system: SystemClock,
    ahead_ms: AtomicI64,
}

impl TestClock {
    pub(crate) fn advance(&self, by: Duration) {
        self.ahead_ms.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::Relaxed);
    }
}

impl Clock for TestClock {
    fn now_ms(&self) -> TimestampMs {
        self.system.now_ms() + self.ahead_ms.load(Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        self.system.monotonic()
    }
}

/// Waits until `holds`, which then goes on to hold.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) -> Result<()> {
    let held = async {
        while !holds() {
            sleep(LOOK).await;
        }
    };
    timeout(PATIENCE, held).await.context("it never came")
}

pub(crate) struct World {
    url: String,
    _database: Option<TestDatabase>,
    model: Running,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) settings: DrainSettings,
    folder: TempDir,
    pub(crate) worker: Runtime,
}

pub(crate) struct Session {
    pub(crate) at: SessionRef,
    pub(crate) root: PathBuf,
    lock: PathBuf,
    token: AtomicI64,
    /// The workspace that a worker holds. By default it is at `root` and never captured.
    place: Mutex<Option<Workspace>>,
}

pub(crate) const ORG: OrgId = OrgId::FIRST;

impl World {
    pub(crate) async fn new() -> Result<Self> {
        Self::with(|_| ()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut DrainSettings)) -> Result<Self> {
        let database = testkit::database().await?;
        Self::on(database.store_url(), Some(database), change).await
    }

    /// On a migrated database of the caller's.
    pub(crate) async fn on(
        url: String,
        database: Option<TestDatabase>,
        change: impl FnOnce(&mut DrainSettings),
    ) -> Result<Self> {
        let mut settings = DrainSettings {
            rules: RuleSettings {
                retry: Schedule {
                    base: Duration::from_millis(5),
                    max_retries: 2,
                    ..Schedule::default()
                },
                ..RuleSettings::default()
            },
            intent_delay: NEVER,
            result_delay: NEVER,
            checkpoint_every: NEVER,
            stop_tools: PATIENCE,
            title_wait: NEVER,
            ..DrainSettings::default()
        };
        change(&mut settings);
        let model = SimulatedModel::start(Options::default()).await?;
        let clock = Arc::new(TestClock::default());
        let folder = testkit::temp_folder()?;
        let llm = Client::new(llm_client::Options::default())?;
        let worker = runtime(&url, &model.url(), llm, &clock, &settings, &folder)?;
        worker.store.ensure_organisation(ORG, "tests".into(), clock.now_ms()).await?;
        Ok(Self { url, _database: database, model, clock, settings, folder, worker })
    }

    /// Another worker: it shares nothing with the first but the database, the blobs and the disk.
    pub(crate) fn another_worker(&self) -> Result<Runtime> {
        // The client of providers is shared: to make one reads all the system's certificates.
        let llm = self.worker.llm.clone();
        runtime(&self.url, &self.model.url(), llm, &self.clock, &self.settings, &self.folder)
    }

    pub(crate) fn store(&self) -> &Store {
        &self.worker.store
    }

    pub(crate) fn model(&self) -> &Handle {
        &self.model.handle
    }

    /// Where the model answers in every protocol.
    pub(crate) fn model_root(&self) -> String {
        self.model.root_url()
    }

    pub(crate) fn script(&self, script: Script) -> Result<()> {
        Ok(self.model().script(script)?)
    }

    /// Says what is known of the model from now on.
    pub(crate) fn model_is(&mut self, facts: ModelFacts) {
        let models = self.worker.models.configured().clone();
        let model = models.default_model().clone();
        self.worker.models = ProviderHub::of(models.with_facts(model, facts));
    }

    /// A session in a directory of its own, held by the first token.
    pub(crate) async fn session(&self) -> Result<Session> {
        self.session_titled("a test", true).await
    }

    /// The same; `named`: its title is somebody's word.
    pub(crate) async fn session_titled(&self, title: &str, named: bool) -> Result<Session> {
        self.session_with(title, named, Vec::new()).await
    }

    /// The same; `rules`: what its client said of tool calls.
    pub(crate) async fn session_with(
        &self,
        title: &str,
        named: bool,
        rules: Vec<ToolRule>,
    ) -> Result<Session> {
        let now = self.clock.now_ms();
        let id = SessionId::mint(&mut IdMint::after(Stamp::default(), now));
        let root = self.folder.path().join(id.as_str());
        std::fs::create_dir(&root)?;
        let directory = root.to_str().context("a path in UTF-8")?.to_owned();
        let project = self.store().ensure_project(ORG, directory.clone(), now).await?.id;
        let kind = LocationKind::Local;
        let location = self.store();
        let location =
            location.ensure_location(ORG, project.clone(), kind, directory.clone(), now).await?;
        let created = SessionCreated {
            by: None,
            project,
            location: location.id.clone(),
            directory,
            title: title.into(),
            agent: "build".into(),
            model: None,
            parent: None,
            named,
            rules,
            metadata: None,
        };
        self.store().create_session(ORG, NewSession { id: id.clone(), created, now }).await?;
        let session = Session {
            lock: self.folder.path().join(format!("{id}.lock")),
            at: SessionRef { org: ORG, location: location.id, session: id },
            root,
            token: AtomicI64::new(0),
            place: Mutex::new(None),
        };
        self.take_over(&session).await?;
        Ok(session)
    }

    /// Another Location of the session's project, in a directory of its own, as the session would be there; and the Move
    /// that takes it there.
    pub(crate) async fn elsewhere(
        &self,
        session: &Session,
        carry: bool,
    ) -> Result<(Session, Control)> {
        let now = self.clock.now_ms();
        let row = self.store().session(ORG, session.at.session.clone()).await?;
        let name = SessionId::mint(&mut IdMint::after(Stamp::default(), now)).to_string();
        let root = self.folder(&name)?;
        let directory = root.to_str().context("a path in UTF-8")?.to_owned();
        let kind = if carry { LocationKind::Managed } else { LocationKind::Local };
        let project = row.project;
        let location = self.store();
        let location =
            location.ensure_location(ORG, project.clone(), kind, directory.clone(), now).await?;
        let there = Session {
            lock: self.folder.path().join(format!("{name}.lock")),
            at: SessionRef { location: location.id.clone(), ..session.at.clone() },
            root,
            token: AtomicI64::new(0),
            place: Mutex::new(None),
        };
        self.take_over(&there).await?;
        Ok((there, Control::Move { project, location: location.id, directory, carry }))
    }

    /// Another session at the same Location, under the same token.
    pub(crate) async fn beside(&self, other: &Session) -> Result<Session> {
        let now = self.clock.now_ms();
        let id = SessionId::mint(&mut IdMint::after(Stamp::default(), now));
        let row = self.store().session(ORG, other.at.session.clone()).await?;
        let created = SessionCreated {
            by: None,
            project: row.project,
            location: other.at.location.clone(),
            directory: row.directory,
            title: row.title,
            agent: row.agent,
            model: None,
            parent: None,
            named: true,
            rules: Vec::new(),
            metadata: None,
        };
        self.store().create_session(ORG, NewSession { id: id.clone(), created, now }).await?;
        Ok(other.another(SessionRef { session: id, ..other.at.clone() }))
    }

    /// The Location of a session as a worker holds it that captures its files, in a directory of the worker's.
    pub(crate) fn hold(&self, session: &Session, root: &Path) -> (Workspace, Files) {
        self.hold_as(session, root, true)
    }

    /// The same; unless it is the Location's own, people work in the directory too.
    pub(crate) fn hold_as(&self, session: &Session, root: &Path, own: bool) -> (Workspace, Files) {
        let token = session.token();
        let files = Files::new(FilesOptions {
            at: session.at.location_ref(),
            token,
            root: root.to_owned(),
            lock: Some(LocationLock { path: session.lock.clone(), token: token.0 }),
            git: own,
            hidden: HiddenPaths::default(),
            cache: self.folder.path().join("snapshots"),
            store: self.worker.store.clone(),
            blobs: self.worker.blobs.clone(),
            clock: self.clock.clone(),
            settings: self.settings.snapshots.clone(),
        });
        let lock = LocationLock { path: session.lock.clone(), token: token.0 };
        let workspace = Workspace::at(root.to_owned(), "/workspace".into(), Some(lock));
        (workspace.with_files(files.clone()), files)
    }

    /// A folder for a worker's own files.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.path().join(name);
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Deletes a session, and creates another with its id.
    pub(crate) async fn recreate(&self, session: &Session) -> Result<()> {
        let id = session.at.session.clone();
        let row = self.store().session(ORG, id.clone()).await?;
        self.store().delete_session(ORG, id.clone()).await?;
        let created = SessionCreated {
            by: None,
            project: row.project,
            location: session.at.location.clone(),
            directory: row.directory,
            title: row.title,
            agent: row.agent,
            model: None,
            parent: None,
            named: true,
            rules: Vec::new(),
            metadata: None,
        };
        let new = NewSession { id, created, now: self.clock.now_ms() };
        self.store().create_session(ORG, new).await?;
        Ok(())
    }

    /// Takes the session's Location over with a new token, as a worker does. Returns the token.
    pub(crate) async fn take_over(&self, session: &Session) -> Result<FencingToken> {
        let token = FencingToken(session.token.fetch_add(1, Ordering::Relaxed) + 1);
        self.store().raise_fence(session.at.location_ref(), token).await?;
        let lock = LocationLock { path: session.lock.clone(), token: token.0 };
        let wait = Duration::from_millis(50);
        let taken = tokio::task::spawn_blocking(move || {
            // Killed processes that are not gone yet are waited for, as a worker would.
            let tries = std::iter::repeat_with(|| lock::acquire_or_kill(&lock, wait));
            let is_over = |tried: &Result<_, _>| !matches!(tried, Err(LockError::StillHeld { .. }));
            tries.take(20).find(is_over).context("the lock is still held")
        });
        taken.await???;
        Ok(token)
    }

    pub(crate) async fn prompt(&self, session: &Session, text: &str) -> Result<MessageId> {
        self.admit(session, Delivery::Steer, text).await
    }

    pub(crate) async fn admit(
        &self,
        session: &Session,
        delivery: Delivery,
        text: &str,
    ) -> Result<MessageId> {
        let now = self.clock.now_ms();
        let mut mint = IdMint::after(Stamp::default(), now);
        let message = MessageId::mint(&mut mint);
        let prompt = PromptAdmitted {
            by: None,
            message: message.clone(),
            delivery,
            parts: vec![PromptPart::Text { id: PartId::mint(&mut mint), text: text.to_owned() }],
            agent: None,
            model: None,
            wake: true,
            digest: hash_hex(text.as_bytes()),
            synthetic: None,
        };
        let new = NewPrompt { session: session.at.session.clone(), prompt, now };
        self.store().admit_prompt(ORG, new).await?;
        Ok(message)
    }

    /// Asks for a compaction.
    pub(crate) async fn compact(
        &self,
        session: &Session,
        delivery: Delivery,
    ) -> Result<AdmittedControl> {
        self.control(session, delivery, Control::Compaction).await
    }

    /// Asks for something that is no prompt.
    pub(crate) async fn control(
        &self,
        session: &Session,
        delivery: Delivery,
        control: Control,
    ) -> Result<AdmittedControl> {
        let now = self.clock.now_ms();
        let message = MessageId::mint(&mut IdMint::after(Stamp::default(), now));
        let digest = hash_hex(format!("{control:?}").as_bytes());
        let control = ControlAdmitted { message, delivery, control, wake: true, digest };
        let new = NewControl { session: session.at.session.clone(), control, now };
        Ok(self.store().admit_control(ORG, new).await?)
    }

    pub(crate) async fn interrupt(&self, session: &Session) -> Result<Interrupted> {
        let id = session.at.session.clone();
        Ok(self.store().interrupt(ORG, id, None, self.clock.now_ms()).await?)
    }

    /// One drain under the newest token, told of interrupts and fences as a worker's sweep would.
    pub(crate) async fn drain(&self, session: &Session) -> Result<DrainExit> {
        Ok(self.drain_from(session, History::new()).await?.0)
    }

    /// The same, with what an earlier drain returned.
    pub(crate) async fn drain_from(
        &self,
        session: &Session,
        history: History,
    ) -> Result<(DrainExit, Option<History>)> {
        let (handle, control) = drain_control(CancellationToken::new());
        self.drive(&self.worker, session, &handle, control, history).await
    }

    /// A drain of `worker`, with the sweep beside it.
    pub(crate) async fn drive(
        &self,
        worker: &Runtime,
        session: &Session,
        handle: &DrainHandle,
        control: DrainControl,
        history: History,
    ) -> Result<(DrainExit, Option<History>)> {
        let ended = tokio::select! {
            ended = timeout(PATIENCE, session.run(worker, control, history)) => ended,
            failed = self.sweep(session, handle) => return failed.map(|never| match never {}),
        };
        let Ok((exit, history)) = ended else {
            bail!("the drain did not end: {:?}", self.kinds(session).await?)
        };
        if let Some(history) = &history {
            // The drain's history equals a fresh fold of the rows, without what both may give up.
            let mut history = history.clone();
            history.give_up_hidden();
            let mut events = self.events(session).await?;
            events.retain(|event| event.seq <= history.seq());
            let mut fresh = History::new();
            fresh.extend(&events);
            fresh.belong_to(history.incarnation());
            fresh.give_up_hidden();
            assert_eq!(format!("{history:?}"), format!("{fresh:?}"));
        }
        Ok((exit, history))
    }

    async fn sweep(
        &self,
        session: &Session,
        handle: &DrainHandle,
    ) -> Result<std::convert::Infallible> {
        loop {
            sleep(LOOK).await;
            let heads = match self.store().heads(&[(ORG, session.at.session.clone())]).await {
                // As a worker's: it looks again.
                Err(error) if error.may_pass() => continue,
                heads => heads?,
            };
            for head in heads {
                if handle.claim().is_some_and(|claim| head.claim > claim) {
                    handle.fence();
                }
                handle.interrupted(head.interrupt_seq);
                handle.moved(head.seq);
            }
        }
    }

    /// Drains until nothing is left to do; how each drain ended.
    pub(crate) async fn settle(&self, session: &Session) -> Result<Vec<DrainOutcome>> {
        let mut outcomes = Vec::new();
        loop {
            match self.drain(session).await? {
                DrainExit::Idle => return Ok(outcomes),
                DrainExit::Ended(outcome) => outcomes.push(outcome),
                other => bail!("the drain ended otherwise: {other:?}"),
            }
            ensure!(outcomes.len() < 20, "the session never settles: {outcomes:?}");
        }
    }

    pub(crate) async fn events(&self, session: &Session) -> Result<Vec<RecordedEvent>> {
        let id = session.at.session.clone();
        Ok(self.store().events(ORG, id, Seq(0), i64::MAX).await?.items)
    }

    pub(crate) async fn kinds(&self, session: &Session) -> Result<Vec<&'static str>> {
        Ok(self.events(session).await?.iter().map(|event| event.event.kind()).collect())
    }

    /// Waits until the log says what is asked for.
    pub(crate) async fn until<T>(
        &self,
        session: &Session,
        mut found: impl FnMut(&[RecordedEvent]) -> Option<T>,
    ) -> Result<T> {
        let waited = timeout(PATIENCE, async {
            loop {
                if let Some(found) = found(&self.events(session).await?) {
                    return Ok(found);
                }
                sleep(LOOK).await;
            }
        });
        match waited.await {
            Ok(found) => found,
            Err(_) => bail!("it never came: {:?}", self.kinds(session).await?),
        }
    }

    pub(crate) async fn until_kind(&self, session: &Session, kind: &str) -> Result<()> {
        let found = |events: &[RecordedEvent]| {
            events.iter().any(|event| event.event.kind() == kind).then_some(())
        };
        self.until(session, found).await
    }

    /// Waits for the model's totals.
    pub(crate) async fn until_requests(&self, count: u64) -> Result<()> {
        let arrived = self.model().wait_for(|counts| counts.requests >= count);
        timeout(PATIENCE, arrived).await.context("the request never came")?;
        Ok(())
    }

    pub(crate) async fn messages(&self, session: &Session) -> Result<Vec<MessageRow>> {
        let id = session.at.session.clone();
        Ok(self.store().transcript(ORG, id, Messages::Newest, 10_000).await?.messages)
    }

    /// The texts of all messages: role, then text or tool outcome of each part.
    pub(crate) async fn told(&self, session: &Session) -> Result<Vec<(String, Vec<String>)>> {
        let part = |part: store::PartRow| match part.call {
            Some(call) => {
                let came =
                    call.outcome.map_or(call.state.to_string(), |outcome| outcome.to_string());
                format!("{}: {came}", call.tool)
            }
            None => part.text.unwrap_or_default(),
        };
        let told = |message: MessageRow| {
            (message.role.to_string(), message.parts.into_iter().map(part).collect::<Vec<_>>())
        };
        Ok(self.messages(session).await?.into_iter().map(told).collect())
    }

    /// The last thing said.
    pub(crate) async fn answer(&self, session: &Session) -> Result<String> {
        let (role, parts) = self.told(session).await?.pop().context("a message")?;
        ensure!(role == "assistant", "the last message is of the {role}");
        Ok(parts.concat())
    }

    /// The `messages` of every request so far, in the order in which they arrived.
    pub(crate) fn requests(&self) -> Result<Vec<Vec<Value>>> {
        let read = |body: Option<String>| -> Result<Vec<Value>> {
            let body: Value = serde_json::from_str(&body.context("a body that was kept")?)?;
            Ok(body["messages"].as_array().context("messages")?.clone())
        };
        self.model().requests().into_iter().map(|request| read(request.body)).collect()
    }

    /// Checks the invariants that hold after every scenario.
    pub(crate) async fn check(&self) -> Result<()> {
        let (attempts, answered) = self.check_rows().await?;
        let sent = self.model().counts().by_sha256;
        for (hash, count) in &sent {
            let rows = attempts.get(hash).copied().unwrap_or_default();
            ensure!(*count <= rows, "{count} requests of body {hash} for {rows} attempts");
        }
        for (hash, count) in &answered {
            ensure!(sent.get(hash) >= Some(count), "{hash} was answered and not asked");
        }
        Ok(())
    }

    /// Checks the invariants of rows alone, and rebuilds every body from them. Returns the number of attempts of each
    /// body by its hash, and of those that were answered.
    pub(crate) async fn check_rows(
        &self,
    ) -> Result<(BTreeMap<String, u64>, BTreeMap<String, u64>)> {
        let store = self.store();
        let violations = store.violations(ORG, true).await?;
        ensure!(violations.is_empty(), "{violations:#?}");
        let mut attempts: BTreeMap<String, u64> = BTreeMap::new();
        let mut answered: BTreeMap<String, u64> = BTreeMap::new();
        for row in store.sessions(ORG, SessionFilter::default(), 1_000).await?.rows {
            let id = row.at.session;
            let report = store.rebuild(ORG, id.clone(), true).await?;
            ensure!(report.is_exact(), "{report:#?}");
            let differing = api::differing_messages(store, ORG, &id).await?;
            ensure!(differing.is_empty(), "{id}: a gateway folds {differing:?} differently");
            let events = store.events(ORG, id, Seq(0), i64::MAX).await?.items;
            let mut hashes = BTreeMap::new();
            for recorded in &events {
                match &recorded.event {
                    SessionEvent::AttemptStarted(started) => {
                        let attempt = store.attempt(ORG, started.attempt.to_string()).await?;
                        let names: BTreeMap<String, String> =
                            serde_json::from_str(&attempt.components)?;
                        let mut components = BTreeMap::new();
                        for (name, hash) in names {
                            components.insert(name, store.component(ORG, &hash).await?);
                        }
                        let before: Vec<_> = events
                            .iter()
                            .filter(|event| event.seq <= attempt.through)
                            .cloned()
                            .collect();
                        let body = rebuild_body(
                            &before,
                            &components,
                            attempt.wire_version,
                            &attempt.turn,
                        )?;
                        ensure!(hash_hex(&body) == attempt.body_hash, "{attempt:?} is not rebuilt");
                        *attempts.entry(attempt.body_hash.clone()).or_default() += 1;
                        hashes.insert(started.attempt.clone(), attempt.body_hash);
                    }
                    SessionEvent::AttemptEnded(ended) => {
                        let whole = matches!(
                            ended.outcome,
                            AttemptOutcome::Completed | AttemptOutcome::Cut
                        );
                        if whole {
                            *answered.entry(hashes[&ended.attempt].clone()).or_default() += 1;
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok((attempts, answered))
    }
}

impl Session {
    /// One drain of `worker`, told nothing. Dropped, it is a worker that died.
    pub(crate) async fn run(
        &self,
        worker: &Runtime,
        control: DrainControl,
        history: History,
    ) -> (DrainExit, Option<History>) {
        let token = self.token();
        let workspace = self.workspace(token);
        Box::pin(drain(worker, &self.at, token, &workspace, control, history)).await
    }

    /// Another session where this one is, under the same token.
    pub(crate) fn another(&self, at: SessionRef) -> Self {
        Self {
            lock: self.lock.clone(),
            at,
            root: self.root.clone(),
            token: AtomicI64::new(self.token().0),
            place: Mutex::new(self.place.lock().unwrap().clone()),
        }
    }

    /// The newest token.
    pub(crate) fn token(&self) -> FencingToken {
        FencingToken(self.token.load(Ordering::Relaxed))
    }

    /// Drains find the files there from now on.
    pub(crate) fn is_held(&self, workspace: &Workspace) {
        *self.place.lock().unwrap() = Some(workspace.clone());
    }

    pub(crate) fn workspace(&self, token: FencingToken) -> Workspace {
        if let Some(workspace) = &*self.place.lock().unwrap() {
            return workspace.clone();
        }
        let lock = LocationLock { path: self.lock.clone(), token: token.0 };
        Workspace::at(self.root.clone(), self.root.display().to_string(), Some(lock))
    }

    pub(crate) fn file(&self, name: &str, content: &str) -> Result<()> {
        Ok(std::fs::write(self.root.join(name), content)?)
    }

    /// A file's content; empty when it is not there.
    pub(crate) fn content(&self, name: &str) -> String {
        std::fs::read_to_string(self.root.join(name)).unwrap_or_default()
    }

    /// Waits for a file that a tool writes.
    pub(crate) async fn until_file(&self, name: &str) -> Result<String> {
        let written = async {
            loop {
                let content = self.content(name);
                if content.ends_with('\n') {
                    return content;
                }
                sleep(LOOK).await;
            }
        };
        timeout(PATIENCE, written).await.with_context(|| format!("{name} was never written"))
    }

    /// Waits until the process whose number is in a file is gone.
    pub(crate) async fn until_dead(&self, name: &str) -> Result<()> {
        let pid = self.until_file(name).await?;
        let place = PathBuf::from("/proc").join(pid.trim());
        let gone = async {
            while place.exists() {
                sleep(LOOK).await;
            }
        };
        timeout(PATIENCE, gone).await.context("the tool's process lives on")
    }
}

fn runtime(
    url: &str,
    model: &str,
    llm: Client,
    clock: &Arc<TestClock>,
    settings: &DrainSettings,
    folder: &TempDir,
) -> Result<Runtime> {
    let sandbox = ProcessSandbox::new(
        env!("CARGO_BIN_EXE_session-testbed").into(),
        Vec::<String>::new(),
        Environment::from_vars(std::env::vars_os()),
        folder.path().to_owned(),
    );
    let default = ModelRef::new("simulated", "simulated");
    Ok(Runtime {
        store: Store::connect(&StoreOptions::new(url))?,
        signals: Arc::new(InProcess::new()),
        llm,
        tools: tools::ToolSet::standard(Arc::new(sandbox)),
        blobs: blobs::Blobs::in_folder(&folder.path().join("blobs"))?,
        models: ProviderHub::of(ConfiguredModels::single(default, Endpoint::new(model))),
        clock: clock.clone(),
        settings: Arc::new(settings.clone()),
        stored: StoredComponents::default(),
        spending: session::Spending::default(),
    })
}
