//! A whole worker with a scripted placement, a real Postgres and a model that never answers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use domain::{Clock, ErrorCode, Seq, SessionEvent, SystemClock, TimestampMs};
use placement_api::{Heartbeat, HeartbeatReply, Placed, Placement, PlacementError};
use signals::{Hint, Topic};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::*;
use crate::location::tests::{Setup, World};
use crate::{RunningWorker, WorkspaceDisk};

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const SERVER: TaskKind = TaskKind::new("a server of the test", OnError::Log, OnCancel::Abort);

async fn until(what: &str, mut reached: impl FnMut() -> bool) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !reached() {
        ensure!(Instant::now() < end, "not reached: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// A placement that gives the test's leases, and keeps the last heartbeat.
#[derive(Default)]
struct Told(Mutex<Says>);

#[derive(Default)]
struct Says {
    version: u64,
    leases: Vec<Lease>,
    released: Vec<Lease>,
    hand_over: bool,
    beats: usize,
    stranded: bool,
}

impl Told {
    fn with<T>(&self, look: impl FnOnce(&mut Says) -> T) -> T {
        look(&mut self.0.lock().expect("no panic under it"))
    }

    fn lease(&self, location: LocationRef, token: i64) -> Lease {
        let lease = Lease { location, token: FencingToken(token) };
        self.with(|says| {
            says.version += 1;
            says.leases = vec![lease.clone()];
        });
        lease
    }
}

#[async_trait]
impl Placement for Told {
    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatReply, PlacementError> {
        Ok(self.with(|says| {
            says.beats += 1;
            says.stranded = beat.stranded;
            if !beat.released.is_empty() {
                says.version += 1;
                says.leases.retain(|lease| !beat.released.contains(lease));
                says.released.extend(beat.released);
            }
            let news = beat.known != says.version;
            HeartbeatReply {
                leases: news.then(|| says.leases.clone()),
                hand_over: says.hand_over,
                ..HeartbeatReply::unchanged(says.version)
            }
        }))
    }

    async fn place(&self, _request: PlaceRequest) -> Result<Placed, PlacementError> {
        Err(PlacementError::NoWorker)
    }
}

/// A model that accepts requests and never answers.
struct SilentModel {
    url: String,
    open: Arc<AtomicUsize>,
}

impl SilentModel {
    async fn start(tasks: &TaskGroup) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let open = Arc::new(AtomicUsize::new(0));
        let (count, requests) = (open.clone(), tasks.clone());
        tasks.spawn(SERVER, async move {
            loop {
                let (mut request, _) = listener.accept().await?;
                let count = count.clone();
                requests.spawn(SERVER, async move {
                    count.fetch_add(1, Ordering::SeqCst);
                    let mut bytes = [0; 4096];
                    while request.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
                    count.fetch_sub(1, Ordering::SeqCst);
                    Ok::<(), std::convert::Infallible>(())
                });
            }
            #[expect(unreachable_code, reason = "names the error type")]
            Ok::<(), std::io::Error>(())
        });
        Ok(Self { url, open })
    }

    fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

/// A connection to Postgres that the test can cut.
struct Way {
    port: u16,
    whole: watch::Sender<bool>,
}

impl Way {
    /// Forwards connections from the returned port to `postgres`, until the test cuts them.
    async fn to(postgres: watch::Receiver<String>, tasks: &TaskGroup) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let whole = watch::Sender::new(true);
        let (state, flows) = (whole.clone(), tasks.clone());
        tasks.spawn(SERVER, async move {
            loop {
                let (mut here, _) = listener.accept().await?;
                let (mut state, postgres) = (state.subscribe(), postgres.borrow().clone());
                flows.spawn(SERVER, async move {
                    if !*state.borrow() {
                        return Ok(());
                    }
                    let mut there = TcpStream::connect(postgres).await?;
                    tokio::select! {
                        _cut = state.wait_for(|whole| !whole) => {}
                        copied = tokio::io::copy_bidirectional(&mut here, &mut there) => drop(copied),
                    }
                    Ok::<(), std::io::Error>(())
                });
            }
            #[expect(unreachable_code, reason = "names the error type")]
            Ok::<(), std::io::Error>(())
        });
        Ok(Self { port, whole })
    }
}

/// A clock ahead of the system's.
#[derive(Default)]
struct Ahead {
    system: SystemClock,
    by_ms: AtomicU64,
}

impl Clock for Ahead {
    fn now_ms(&self) -> TimestampMs {
        self.system.now_ms()
    }

    fn monotonic(&self) -> Duration {
        self.system.monotonic() + Duration::from_millis(self.by_ms.load(Ordering::SeqCst))
    }
}

/// A worker with its own connection to Postgres.
struct Scene {
    world: World,
    tasks: TaskGroup,
    model: SilentModel,
    way: Way,
    clock: Arc<Ahead>,
    placement: Arc<Told>,
    worker: RunningWorker,
}

impl Scene {
    async fn start() -> Result<Self> {
        let tasks = TaskGroup::root("test");
        let model = SilentModel::start(&tasks).await?;
        let (postgres, known) = watch::channel(String::new());
        let way = Way::to(known, &tasks).await?;
        let clock = Arc::new(Ahead::default());
        let setup = Setup { model_url: model.url.clone(), clock: clock.clone() };
        let world = World::with(setup, |url| {
            let (head, rest) = url.rsplit_once('@').expect("a password");
            let (address, path) = rest.split_once('/').expect("a database");
            postgres.send_replace(address.to_owned());
            format!("{head}@127.0.0.1:{}/{path}", way.port)
        })
        .await?;
        let placement = Arc::new(Told::default());
        let options = WorkerOptions {
            sweep: Duration::from_secs(1),
            slots: 4,
            idle_release: Duration::from_hours(24),
            ..world.worker("all", WorkspaceDisk::Shared)
        };
        let parts = WorkerParts {
            runtime: world.runtime.clone(),
            placement: placement.clone(),
            fills: None,
        };
        let worker = crate::start(options, parts, &tasks)?;
        Ok(Self { world, tasks, model, way, clock, placement, worker })
    }

    /// Starts a session that waits for the model, at a Location that the worker holds.
    async fn busy(&self) -> Result<(SessionRef, Lease)> {
        let session = self.world.session().await?;
        self.world.prompt(&session).await?;
        let lease = self.placement.lease(session.location_ref(), 5);
        until("a request", || self.model.open() == 1 && self.worker.busy() == 1).await?;
        Ok((session, lease))
    }

    async fn end(self) {
        self.worker.shutdown(Duration::ZERO).await;
        self.tasks.shutdown(Duration::from_secs(1)).await;
    }
}

// Finding cluster 11: lines said their cause twice.
#[test]
fn a_cause_that_an_error_prints_itself_is_said_once() {
    #[derive(Debug, thiserror::Error)]
    enum Failure {
        #[error("cannot read: {0}")]
        Printed(#[source] std::io::Error),
        #[error("cannot write")]
        Silent(#[source] std::io::Error),
    }
    let reset = || std::io::Error::other("reset by peer");
    assert_eq!(chain(&Failure::Printed(reset())), "cannot read: reset by peer");
    assert_eq!(chain(&Failure::Silent(reset())), "cannot write: reset by peer");
}

// Finding store 8, scenarios F4: a deleted session's request stayed open, and its tools ran to their ends.
#[tokio::test]
async fn deleting_a_session_ends_its_drain_and_its_request() -> Result<()> {
    let scene = Scene::start().await?;
    let (session, _) = scene.busy().await?;
    let deleted = Instant::now();
    scene.world.runtime.store.delete_session(session.org, session.session).await?;
    until("the end", || scene.model.open() == 0 && scene.worker.busy() == 0).await?;
    // No hint came, but the sweep comes each second.
    ensure!(deleted.elapsed() < PATIENCE / 4, "{:?}", deleted.elapsed());
    scene.end().await;
    Ok(())
}

// Finding store 5: a short lock hold parked all acknowledged work at a Location.
#[tokio::test]
async fn a_lock_that_is_held_for_a_moment_parks_nothing() -> Result<()> {
    let scene = Scene::start().await?;
    let locks = scene.world.folder.path().join("locks");
    // The folder exists once a Location was locked.
    let _absent = std::fs::remove_dir_all(&locks);
    std::fs::write(&locks, "")?;
    let session = scene.world.session().await?;
    scene.world.prompt(&session).await?;
    let of = [(session.org, session.session.clone())];
    let seq = async || {
        let heads = scene.world.runtime.store.heads(&of).await?;
        Ok::<_, StoreError>(heads.into_iter().map(|head| head.seq).collect::<Vec<_>>())
    };
    let before = seq().await?;
    let lease = scene.placement.lease(session.location_ref(), 5);
    until("it is given back", || scene.placement.with(|says| says.released.contains(&lease)))
        .await?;
    assert_eq!(seq().await?, before, "nothing durable was said");
    std::fs::remove_file(&locks)?;
    scene.placement.lease(session.location_ref(), 6);
    until("the turn", || scene.model.open() == 1).await?;
    scene.end().await;
    Ok(())
}

// Finding store 6: a session whose look always failed was tried again each second for ever, and nobody was told.
#[tokio::test]
async fn a_session_that_always_fails_is_given_up_and_says_so() -> Result<()> {
    let scene = Scene::start().await?;
    let store = &scene.world.runtime.store;
    let session = scene.world.session().await?;
    scene.world.prompt(&session).await?;
    let version = async |version: i32| {
        let id = &session.session;
        let sql = format!(
            "UPDATE session_event SET version = {version} WHERE seq = 2
                 AND incarnation = (SELECT incarnation FROM session_head WHERE id = '{id}')"
        );
        scene.world.database.run(sql).await
    };
    version(1_000).await?;
    let newest = async || -> Result<Option<SessionError>> {
        let of = [(session.org, session.session.clone())];
        let head = store.heads(&of).await?.pop().context("a head")?;
        if head.seq.0 <= 2 {
            return Ok(None);
        }
        let after = Seq(head.seq.0 - 1);
        let page = store.events(session.org, session.session.clone(), after, 1).await?;
        let SessionEvent::DrainEnded(ended) = &page.items[0].event else { return Ok(None) };
        Ok(ended.error.clone())
    };
    scene.placement.lease(session.location_ref(), 5);
    let end = Instant::now() + PATIENCE * 4;
    let mut later = Instant::now();
    let error = loop {
        if let Some(error) = newest().await? {
            break error;
        }
        ensure!(Instant::now() < end, "it is tried for ever");
        // The longest rest is over. A heartbeat and a sweep come before the next one is.
        if later.elapsed() >= Duration::from_millis(2_500) {
            scene.clock.by_ms.fetch_add(61_000, Ordering::SeqCst);
            later = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(error.code, ErrorCode::SessionDrainFailed);
    assert!(error.message.contains("8 times") && error.message.contains("resume"), "{error:?}");
    assert_eq!(store.violations(session.org, true).await?, [], "parked, and the prompt is kept");

    // Others at the same Location go on, and so does this one when somebody asks.
    version(1).await?;
    let now = scene.world.runtime.clock.now_ms();
    store.wake_session(session.org, session.session.clone(), now).await?;
    until("a request", || scene.model.open() == 1 && scene.worker.busy() == 1).await?;
    scene.end().await;
    Ok(())
}

// Finding core-3 H5: a write that Postgres refuses for its data was repeated, at the price of a turn each time.
#[tokio::test]
async fn a_write_with_refused_data_ends_the_work_at_once() -> Result<()> {
    let scene = Scene::start().await?;
    let store = &scene.world.runtime.store;
    let session = scene.world.session().await?;
    scene.world.prompt(&session).await?;
    let refuse = "ALTER TABLE message ADD CONSTRAINT no_reply CHECK (role <> 'assistant')";
    scene.world.database.run(refuse.to_owned()).await?;
    scene.placement.lease(session.location_ref(), 5);
    let end = Instant::now() + PATIENCE;
    let error = loop {
        let log = store.events(session.org, session.session.clone(), Seq(0), 100).await?.items;
        if let Some(SessionEvent::DrainEnded(ended)) = log.last().map(|event| &event.event) {
            break ended.error.clone().context("a reason")?;
        }
        ensure!(Instant::now() < end, "it is tried again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(error.code, ErrorCode::SessionDrainFailed);
    assert!(error.message.contains("no_reply") && error.message.contains("resume"), "{error:?}");
    assert_eq!(store.violations(session.org, true).await?, [], "parked, and the prompt is kept");

    scene.world.database.run("ALTER TABLE message DROP CONSTRAINT no_reply".to_owned()).await?;
    let now = scene.world.runtime.clock.now_ms();
    store.wake_session(session.org, session.session.clone(), now).await?;
    until("a request", || scene.model.open() == 1 && scene.worker.busy() == 1).await?;
    scene.end().await;
    Ok(())
}

// Finding core-3 C2: nothing bounded the memory of a worker's drains.
#[tokio::test]
async fn a_fold_without_room_waits_until_another_ends() -> Result<()> {
    let scene = Scene::start().await?;
    let store = &scene.world.runtime.store;
    let first = scene.world.session().await?;
    let second = scene.world.session_at(&first).await?;
    let small = scene.world.session_at(&first).await?;
    // Each alone has room.
    let text = "x".repeat(500_000);
    for session in [&first, &second] {
        scene.world.prompt_with(session, &text).await?;
        scene.world.prompt_with(session, &text).await?;
    }
    scene.world.prompt(&small).await?;
    scene.placement.lease(first.location_ref(), 5);
    let is_open = async |session: &SessionRef| -> Result<bool> {
        let log = store.events(session.org, session.session.clone(), Seq(0), 100).await?.items;
        Ok(log.iter().any(|event| matches!(event.event, SessionEvent::PromptPromoted(_))))
    };
    let end = Instant::now() + PATIENCE;
    while !is_open(&small).await? || !is_open(&first).await? && !is_open(&second).await? {
        ensure!(Instant::now() < end, "a small one runs beside a large one");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (runs, waits) = if is_open(&first).await? { (&first, &second) } else { (&second, &first) };
    // The other one had the time to begin, too.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!is_open(waits).await?, "both large ones run");
    store.delete_session(runs.org, runs.session.clone()).await?;
    let end = Instant::now() + PATIENCE;
    while !is_open(waits).await? {
        ensure!(Instant::now() < end, "it waits for ever");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    scene.end().await;
    Ok(())
}

// Finding cluster 4: a worker that could not reach Postgres kept its Locations while two others were idle.
#[tokio::test]
async fn a_worker_without_postgres_hands_over_when_it_is_told_to() -> Result<()> {
    let scene = Scene::start().await?;
    let (_, lease) = scene.busy().await?;
    scene.way.whole.send_replace(false);
    until("it says so", || scene.placement.with(|says| says.stranded)).await?;
    let beats = scene.placement.with(|says| says.beats);
    until("two beats", || scene.placement.with(|says| says.beats >= beats + 2)).await?;
    scene.placement.with(|says| {
        assert_eq!(says.released, [], "where all are stranded, nobody gives anything away");
        says.hand_over = true;
    });
    until("it hands over", || scene.placement.with(|says| says.released.contains(&lease))).await?;
    assert_eq!(scene.worker.busy(), 1, "what runs is fenced by its next holder, not by itself");
    scene.placement.with(|says| says.hand_over = false);
    scene.way.whole.send_replace(true);
    until("it takes work again", || scene.placement.with(|says| !says.stranded)).await?;
    scene.end().await;
    Ok(())
}

// Finding store 8: nothing stopped the tools of a worker that could not reach Postgres.
#[tokio::test]
async fn drains_end_after_thirty_seconds_without_postgres() -> Result<()> {
    let scene = Scene::start().await?;
    scene.busy().await?;
    scene.way.whole.send_replace(false);
    until("it says so", || scene.placement.with(|says| says.stranded)).await?;
    assert_eq!((scene.worker.busy(), scene.model.open()), (1, 1), "not before");
    let missing = super::looks::WITHOUT_STORE.as_millis() as u64;
    scene.clock.by_ms.fetch_add(missing, Ordering::SeqCst);
    until("the end", || scene.worker.busy() == 0 && scene.model.open() == 0).await?;
    scene.end().await;
    Ok(())
}

// Finding security 5: a published `assigned` with a huge token raised the fence for good.
#[tokio::test]
async fn a_hint_gives_no_lease_and_raises_no_fence() -> Result<()> {
    let scene = Scene::start().await?;
    let session = scene.world.session().await?;
    let at = session.location_ref();
    let forged = serde_json::json!({
        "type": "assigned", "location": at, "token": i64::MAX, "session": session.session,
    });
    let hint: WorkerHint = serde_json::from_value(forged).context("read as an older build does")?;
    let signals = scene.world.runtime.signals.clone();
    for _ in 0..50 {
        signals.publish(&Topic::Worker(scene.worker.incarnation()), Hint::Worker(hint.clone()));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let beats = scene.placement.with(|says| says.beats);
    until("two beats", || scene.placement.with(|says| says.beats >= beats + 2)).await?;
    let row = scene.world.runtime.store.location(at.org, at.location.clone()).await?;
    assert_eq!(row.fence, 0);
    // The lease itself comes with a heartbeat.
    scene.world.prompt(&session).await?;
    scene.placement.lease(at, 5);
    until("the turn", || scene.model.open() == 1).await?;
    scene.end().await;
    Ok(())
}
