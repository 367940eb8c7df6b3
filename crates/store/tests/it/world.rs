//! The world that every test starts from, and the whole rows that it compares, before and after.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;

use domain::{
    Claim, ComponentList, Control, ControlAdmitted, Delivery, FencingToken, IdMint, LocationId,
    LocationRef, MessageId, OrgId, PartId, ProjectId, PromptAdmitted, PromptPart, SessionCreated,
    SessionEvent, SessionId, SessionRef, SideOutcome, Stamp, TimestampMs, TurnOutcome,
};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use store::{
    AdmittedControl, AdmittedPrompt, Append, Creation, DrainEnd, DrainWrite, Hold, LocationKind,
    NewControl, NewPrompt, NewSession, Started, Store, StoreError, StoreOptions, Taken, Written,
};
use testkit::TestDatabase;
use tokio::task::JoinSet;

pub(crate) const NOW: TimestampMs = 1_795_293_590_000;

/// A session's hot row, whole.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub(crate) struct HeadRow {
    pub(crate) incarnation: i64,
    pub(crate) next_seq: i64,
    pub(crate) claim: i64,
    pub(crate) pending: i32,
    pub(crate) open: bool,
    pub(crate) handed_over: bool,
    pub(crate) recoveries: i16,
    pub(crate) wake_seq: i64,
    pub(crate) parked_seq: i64,
    pub(crate) interrupt_seq: i64,
    pub(crate) ready: bool,
}

impl HeadRow {
    /// The claim that the session began with.
    pub(crate) fn first_claim(&self) -> i64 {
        self.incarnation << 32
    }
}

/// One organisation with a project and a Location, in a database of its own.
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) org: OrgId,
    pub(crate) project: ProjectId,
    pub(crate) location: LocationId,
    /// A superuser: for looking at what no role may see, and for tampering.
    pub(crate) root: PgPool,
    clock: AtomicI64,
    pub(crate) database: TestDatabase,
}

impl World {
    pub(crate) async fn new() -> Self {
        let database = testkit::database().await.expect("a test database");
        let url = database.store_url();
        Self::through(database, &url).await
    }

    /// The same, with a store that reaches the database by `url`.
    pub(crate) async fn through(database: TestDatabase, url: &str) -> Self {
        let store = Store::connect(&StoreOptions::new(url)).expect("a URL");
        let root = PgPoolOptions::new()
            .max_connections(4)
            .connect(&database.superuser_url())
            .await
            .expect("a superuser's connection");
        let (org, project, location) = organisation(&store).await;
        Self { store, org, project, location, root, clock: AtomicI64::new(NOW), database }
    }

    /// A time later than every one before.
    pub(crate) fn tick(&self) -> TimestampMs {
        self.clock.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn mint(&self) -> IdMint {
        IdMint::after(Stamp::default(), self.tick())
    }

    pub(crate) fn at(&self) -> LocationRef {
        LocationRef { org: self.org, location: self.location.clone() }
    }

    /// Another Location of the project.
    pub(crate) async fn another_location(&self) -> LocationId {
        let directory = format!("/workspace/{}", self.tick());
        let (kind, now) = (LocationKind::Managed, self.tick());
        let made = self.store.ensure_location(self.org, self.project.clone(), kind, directory, now);
        made.await.expect("a Location").id
    }

    pub(crate) async fn session(&self) -> SessionRef {
        self.session_at(&self.location).await
    }

    pub(crate) async fn session_at(&self, location: &LocationId) -> SessionRef {
        let id = SessionId::mint(&mut self.mint());
        let (session, made) = self.create(id, location, None).await;
        assert_eq!(made, Creation::Created);
        session
    }

    /// Asks for a session, below `parent` if there is one.
    pub(crate) async fn create(
        &self,
        id: SessionId,
        location: &LocationId,
        parent: Option<&SessionRef>,
    ) -> (SessionRef, Creation) {
        let made = self.try_create(id.clone(), location, parent).await.expect("an answer");
        (SessionRef { org: self.org, location: location.clone(), session: id }, made)
    }

    pub(crate) async fn try_create(
        &self,
        id: SessionId,
        location: &LocationId,
        parent: Option<&SessionRef>,
    ) -> Result<Creation, StoreError> {
        let created = SessionCreated {
            by: None,
            project: self.project.clone(),
            location: location.clone(),
            directory: "/workspace".into(),
            title: "New session".into(),
            agent: "build".into(),
            model: None,
            parent: parent.map(|parent| parent.session.clone()),
            named: false,
            rules: Vec::new(),
            metadata: None,
        };
        let new = NewSession { id, created, now: self.tick() };
        self.store.create_session(self.org, new).await
    }

    /// Deletes a session and makes it again: the same id at the same Location.
    pub(crate) async fn make_again(&self, session: &SessionRef) {
        let id = || session.session.clone();
        self.store.delete_session(self.org, id()).await.expect("deleted");
        let (_, made) = self.create(id(), &session.location, None).await;
        assert_eq!(made, Creation::Created);
    }

    /// A new session below `parent`.
    pub(crate) async fn child(&self, parent: &SessionRef) -> SessionRef {
        let id = SessionId::mint(&mut self.mint());
        let (session, made) = self.create(id, &parent.location, Some(parent)).await;
        assert_eq!(made, Creation::Created);
        session
    }

    /// A request for a Compaction.
    pub(crate) fn compaction(&self) -> ControlAdmitted {
        ControlAdmitted {
            message: MessageId::mint(&mut self.mint()),
            delivery: Delivery::Steer,
            control: Control::Compaction,
            wake: true,
            digest: "compaction".into(),
        }
    }

    pub(crate) async fn try_control(
        &self,
        session: &SessionRef,
        control: &ControlAdmitted,
    ) -> Result<AdmittedControl, StoreError> {
        let (session, control) = (session.session.clone(), control.clone());
        self.store.admit_control(self.org, NewControl { session, control, now: self.tick() }).await
    }

    pub(crate) fn prompt(&self, text: &str) -> PromptAdmitted {
        let mut mint = self.mint();
        PromptAdmitted {
            by: None,
            message: MessageId::mint(&mut mint),
            delivery: Delivery::Steer,
            parts: vec![PromptPart::Text { id: PartId::mint(&mut mint), text: text.to_owned() }],
            agent: None,
            model: None,
            wake: true,
            digest: text.to_owned(),
            synthetic: None,
        }
    }

    pub(crate) async fn try_admit(
        &self,
        session: &SessionRef,
        prompt: &PromptAdmitted,
    ) -> Result<AdmittedPrompt, StoreError> {
        let (session, prompt) = (session.session.clone(), prompt.clone());
        self.store.admit_prompt(self.org, NewPrompt { session, prompt, now: self.tick() }).await
    }

    pub(crate) async fn admit(&self, session: &SessionRef, text: &str) -> PromptAdmitted {
        let prompt = self.prompt(text);
        self.try_admit(session, &prompt).await.expect("an admission");
        prompt
    }

    /// Admits without a wake.
    pub(crate) async fn admit_only(&self, session: &SessionRef, text: &str) -> PromptAdmitted {
        let prompt = PromptAdmitted { wake: false, ..self.prompt(text) };
        self.try_admit(session, &prompt).await.expect("an admission");
        prompt
    }

    pub(crate) async fn fence(&self, token: i64) {
        self.store.raise_fence(self.at(), FencingToken(token)).await.expect("the highest token");
    }

    /// Looks at a session that must want a drain.
    pub(crate) async fn look(
        &self,
        session: &SessionRef,
        token: i64,
        hold: Hold,
    ) -> (DrainWrite, Taken) {
        let token = FencingToken(token);
        match self.store.start_drain(session.clone(), token, store::KnownLog::NOTHING, hold).await {
            Ok(Started::Ready(write, taken, _)) => (*write, taken),
            other => panic!("not ready but {}", name(&other)),
        }
    }

    /// Locks a session that must want a drain.
    pub(crate) async fn start(&self, session: &SessionRef, token: i64) -> (DrainWrite, Taken) {
        self.look(session, token, Hold::Lock).await
    }

    /// How a start that must not claim went.
    pub(crate) async fn refused(&self, session: &SessionRef, token: i64) -> &'static str {
        let token = FencingToken(token);
        name(
            &self
                .store
                .start_drain(session.clone(), token, store::KnownLog::NOTHING, Hold::Lock)
                .await,
        )
    }

    /// Commits a drain's write; promotions and progress are counted from `events`.
    pub(crate) async fn write(
        &self,
        write: DrainWrite,
        events: &[SessionEvent],
        end: DrainEnd,
    ) -> Result<(), StoreError> {
        match self.try_write(write, events, end).await? {
            Written::Next(_) => Ok(()),
            Written::Stale => panic!("the head has moved"),
            Written::Superseded => panic!("the token is not the fence"),
            Written::Unstored => panic!("a component is not stored"),
            Written::Unanswered(_, error) => Err(error),
        }
    }

    /// Commits a drain's write, if it still may be.
    pub(crate) async fn try_write(
        &self,
        write: DrainWrite,
        events: &[SessionEvent],
        end: DrainEnd,
    ) -> Result<Written, StoreError> {
        let promoted = events
            .iter()
            .filter(|event| matches!(event.kind(), "prompt.promoted" | "control.delivered"))
            .count();
        let progress = events.iter().any(|event| match event {
            SessionEvent::CompactionEnded(ended) => ended.outcome == SideOutcome::Completed,
            SessionEvent::ToolSettled(_) => true,
            SessionEvent::TurnSettled(settled) => settled.outcome != TurnOutcome::Lost,
            _ => false,
        });
        let promoted = i32::try_from(promoted).expect("few");
        let now = self.tick();
        let mut mint = write.mint(now);
        let components = &components(events);
        write.commit(&mut mint, now, Append { events, promoted, progress, end, components }).await
    }

    /// Starts a drain and commits `events` with its claim.
    pub(crate) async fn drain(
        &self,
        session: &SessionRef,
        token: i64,
        events: &[SessionEvent],
        end: DrainEnd,
    ) -> Claim {
        let (tx, _) = self.start(session, token).await;
        let claim = tx.claim();
        self.write(tx, events, end).await.expect("the claim's own write");
        claim
    }

    /// Goes on under `claim`.
    pub(crate) async fn resume(
        &self,
        session: &SessionRef,
        claim: Claim,
        events: &[SessionEvent],
        end: DrainEnd,
    ) -> Result<(), StoreError> {
        let (write, _) =
            self.store.resume_drain(session.clone(), claim, store::KnownLog::NOTHING).await?;
        self.write(write, events, end).await
    }

    pub(crate) async fn head(&self, session: &SessionRef) -> HeadRow {
        sqlx::query_as("SELECT * FROM session_head WHERE org_id = $1 AND id = $2")
            .bind(session.org.0)
            .bind(session.session.as_str())
            .fetch_one(&self.root)
            .await
            .expect("a head")
    }

    /// Everything that is stored of a session: its head, its log and its projections.
    pub(crate) async fn rows(&self, session: &SessionRef) -> Vec<String> {
        sqlx::query_scalar(
            "SELECT 'head: ' || h::text FROM session_head h WHERE org_id = $1 AND id = $2
             UNION ALL SELECT 'event: ' || e::text FROM session_event e
                 WHERE org_id = $1
                     AND incarnation = (SELECT incarnation FROM session_head WHERE org_id = $1 AND id = $2)
             UNION ALL SELECT name || ': ' || line FROM projection_rows($1, $2) ORDER BY 1",
        )
        .bind(session.org.0)
        .bind(session.session.as_str())
        .fetch_all(&self.root)
        .await
        .expect("rows")
    }

    /// The log's kinds, in order.
    pub(crate) async fn kinds(&self, session: &SessionRef) -> Vec<String> {
        sqlx::query_scalar(
            "SELECT kind FROM session_event WHERE org_id = $1
                 AND incarnation = (SELECT incarnation FROM session_head WHERE org_id = $1 AND id = $2) ORDER BY seq",
        )
        .bind(session.org.0)
        .bind(session.session.as_str())
        .fetch_all(&self.root)
        .await
        .expect("a log")
    }

    /// Waits until `count` backends of this database wait for a lock. False: one of `tasks`, which were to wait, is over.
    pub(crate) async fn waits_beside(&self, tasks: &mut JoinSet<()>, count: i64) -> bool {
        let waiting = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        loop {
            let now: i64 =
                sqlx::query_scalar(waiting).fetch_one(&self.root).await.expect("a count");
            if now >= count {
                return true;
            }
            if let Some(ended) = tasks.try_join_next() {
                ended.expect("no panic");
                return false;
            }
        }
    }

    /// The oracle and a rebuild of every session find nothing wrong.
    pub(crate) async fn assert_sound(&self, settled: bool) {
        let found = self.store.violations(self.org, settled).await.expect("the oracle's answer");
        assert_eq!(found, []);
        assert_eq!(self.store.usage_violations(self.org).await.expect("a recount"), []);
        let sessions: Vec<String> =
            sqlx::query_scalar("SELECT id FROM session_head WHERE org_id = $1")
                .bind(self.org.0)
                .fetch_all(&self.root)
                .await
                .expect("heads");
        for session in sessions {
            let id: SessionId = session.parse().expect("an id");
            let report = self.store.rebuild(self.org, id, true).await.expect("a rebuild");
            assert!(report.is_exact(), "{report:?}");
        }
        assert_eq!(self.unannounced().await, Vec::<String>::new());
        assert_eq!(self.overfull().await, Vec::<String>::new());
    }

    /// The sessions whose head promises room that their inbox may not have.
    async fn overfull(&self) -> Vec<String> {
        sqlx::query_scalar(
            "SELECT h.id FROM session_head h WHERE h.inbox_room > 0
                AND h.inbox_room + (inbox_size(h.org_id, h.incarnation)).bytes > 16777216",
        )
        .fetch_all(&self.root)
        .await
        .expect("heads")
    }

    /// The events that no row of `session_change` tells of, and the rows that tell of events that are not there.
    pub(crate) async fn unannounced(&self) -> Vec<String> {
        sqlx::query_scalar(
            "WITH told AS (
                SELECT c.incarnation, n AS seq FROM session_change c, generate_series(c.first, c.last) AS n
                WHERE NOT c.gone AND c.incarnation IN (SELECT h.incarnation FROM session_head h)
            )
            SELECT coalesce('untold ' || e.incarnation || ' ' || e.seq, 'unwritten ' || t.incarnation || ' ' || t.seq)
            FROM (SELECT w.* FROM session_event w WHERE w.incarnation NOT IN (SELECT g.incarnation FROM gone_session g)) e
            FULL JOIN told t ON t.incarnation = e.incarnation AND t.seq = e.seq
            WHERE (e.seq IS NULL) <> (t.seq IS NULL) LIMIT 5",
        )
        .fetch_all(&self.root)
        .await
        .expect("changes")
    }
}

/// The components that attempts name inline, each with some bytes.
pub(crate) fn components(events: &[SessionEvent]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut components = Vec::new();
    for event in events {
        if let SessionEvent::AttemptStarted(attempt) = event
            && let ComponentList::Inline(names) = &attempt.components
        {
            let hash = |hash| (hex::decode(hash).expect("a hash"), b"a component".to_vec());
            components.extend(names.values().map(hash));
        }
    }
    components
}

/// A new organisation with a project and a Location.
pub(crate) async fn organisation(store: &Store) -> (OrgId, ProjectId, LocationId) {
    let org = OrgId::random();
    store.ensure_organisation(org, "Acme".into(), NOW).await.expect("an organisation");
    let project = store.ensure_project(org, "/workspace".into(), NOW).await.expect("a project").id;
    let (kind, directory) = (LocationKind::Managed, "/workspace".to_owned());
    let made = store.ensure_location(org, project.clone(), kind, directory, NOW).await;
    (org, project, made.expect("a Location").id)
}

pub(crate) fn name(started: &Result<Started, StoreError>) -> &'static str {
    match started {
        Ok(Started::Ready(..)) => "ready",
        Ok(Started::Superseded) => "superseded",
        Ok(Started::Idle) => "idle",
        Ok(Started::Long(..)) => "long",
        Err(StoreError::NotFound) => "not found",
        Err(_) => "failed",
    }
}

pub(crate) fn is_fenced<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Fenced { .. }))
}

/// Polls `future` at most `polls` times and drops it then, as a handler whose client goes away.
pub(crate) async fn dropped_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
