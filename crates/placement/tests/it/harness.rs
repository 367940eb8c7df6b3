use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use domain::{Generation, Incarnation, LocationRef, OrgId, SessionRef, SystemClock};
use placement::{Options, PlacementNode, ReadyWork, ReadyWorkError, Timing};
use placement_api::{
    Heartbeat, HeartbeatReply, HttpPlacement, Lease, Member, PlaceRequest, Placed, Placement,
    PlacementAdmin, PlacementError, Status, Worker,
};
use signals::InProcess;
use tasks::{OnCancel, OnError, TaskGroup, TaskKind};
use tokio::net::TcpListener;

pub(crate) const SECRET: &str = "a cluster secret";
/// The longest wait in any test, generous even for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The suspicion time in [`World::mortal`]: many times a heartbeat's delay on a busy machine.
pub(crate) const SUSPICION: Duration = Duration::from_secs(2);
/// The interval of a fake worker's heartbeats.
const BEAT: Duration = Duration::from_millis(100);

/// Returns shorter times than the design's, so that tests are short but slow workers do not count as dead.
pub(crate) fn timing() -> Timing {
    Timing {
        heartbeat: Duration::from_millis(150),
        election_min: Duration::from_millis(600),
        election_max: Duration::from_millis(1_200),
        suspicion: Duration::from_hours(1),
        sweep: Duration::from_millis(200),
        ..Timing::default()
    }
}

pub(crate) fn location(nth: usize) -> LocationRef {
    LocationRef { org: OrgId::FIRST, location: format!("loc_{nth}").parse().expect("an id") }
}

pub(crate) fn session(nth: usize) -> SessionRef {
    let LocationRef { org, location } = location(nth);
    SessionRef { org, location, session: format!("ses_{nth}").parse().expect("an id") }
}

pub(crate) fn request(nth: usize) -> PlaceRequest {
    PlaceRequest { location: location(nth), session: Some(session(nth).session) }
}

/// The store's part: the ready sessions that the test sets.
#[derive(Default)]
pub(crate) struct Ready(pub(crate) Mutex<Vec<SessionRef>>);

#[async_trait]
impl ReadyWork for Ready {
    async fn unplaced(
        &self,
        after: Option<&LocationRef>,
        limit: u32,
    ) -> Result<Vec<SessionRef>, ReadyWorkError> {
        let ready = self.0.lock().expect("no panic under it");
        let mut all: Vec<SessionRef> = ready.clone();
        all.sort();
        all.dedup_by_key(|session| session.location_ref());
        all.retain(|session| after.is_none_or(|after| session.location_ref() > *after));
        all.truncate(limit as usize);
        Ok(all)
    }
}

/// The shared parts of all members in a test.
pub(crate) struct World {
    pub(crate) signals: Arc<InProcess>,
    pub(crate) ready: Arc<Ready>,
    pub(crate) tasks: TaskGroup,
    pub(crate) timing: Timing,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            signals: Arc::new(InProcess::new()),
            ready: Arc::default(),
            tasks: TaskGroup::root("test"),
            timing: timing(),
        }
    }

    /// Makes a world in which silent workers are declared dead.
    pub(crate) fn mortal() -> Self {
        let mut world = Self::new();
        world.timing.suspicion = SUSPICION;
        world
    }

    pub(crate) fn options(&self, id: u64, url: &str, dir: &Path) -> Options {
        Options {
            id,
            data_dir: dir.join(id.to_string()),
            advertise_url: url.to_owned(),
            generation: Generation(3),
            secret: Some(SECRET.to_owned()),
            single: false,
            timing: self.timing.clone(),
            clock: Arc::new(SystemClock::new()),
            signals: self.signals.clone(),
            ready_work: self.ready.clone(),
            tasks: self.tasks.role(format!("placement {id}")),
        }
    }

    /// Starts a group of one, without HTTP.
    pub(crate) async fn single(&self, dir: &Path) -> PlacementNode {
        let options = Options { single: true, ..self.options(1, "http://unused", dir) };
        let node = PlacementNode::start(options).await.expect("starts");
        within(PATIENCE, node.ready()).await;
        node
    }

    /// Starts a member that is served at `port` (0: any free one).
    pub(crate) async fn member(&self, id: u64, port: u16, dir: &Path) -> Running {
        let listener = bound(port).await;
        let port = listener.local_addr().expect("bound").port();
        let url = format!("http://127.0.0.1:{port}");
        let options = self.options(id, &url, dir);
        let role = options.tasks.clone();
        let node = PlacementNode::start(options).await.expect("starts");
        let tasks = self.tasks.child("server");
        let (router, stop) = (node.router(), tasks.token());
        let kind = TaskKind::new("server", OnError::Log, OnCancel::Wait);
        tasks.spawn(kind, async move {
            axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
        });
        Running { id, port, url, node, role, tasks }
    }

    /// Starts members 1 to `count` as one group, with a leader.
    pub(crate) async fn group(&self, count: u64, dir: &Path) -> Vec<Running> {
        let mut members = Vec::new();
        for id in 1..=count {
            members.push(self.member(id, 0, dir).await);
        }
        let all: Vec<Member> = members.iter().map(Running::member).collect();
        admin(&members[..1]).init(&all).await.expect("founded");
        for member in &members {
            within(PATIENCE, member.node.ready()).await;
        }
        members
    }
}

/// Binds `port` (0: any free one). After a stop, another process may use it for a moment.
async fn bound(port: u16) -> TcpListener {
    let end = Instant::now() + PATIENCE;
    loop {
        match TcpListener::bind(("127.0.0.1", port)).await {
            Ok(listener) => return listener,
            Err(error) => assert!(Instant::now() < end, "{port}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A member and its listener.
pub(crate) struct Running {
    pub(crate) id: u64,
    pub(crate) port: u16,
    pub(crate) url: String,
    pub(crate) node: PlacementNode,
    /// Fails when the member cannot continue.
    pub(crate) role: TaskGroup,
    tasks: TaskGroup,
}

impl Running {
    pub(crate) fn member(&self) -> Member {
        Member { id: self.id, url: self.url.clone(), voter: true }
    }

    pub(crate) async fn stop(self) -> u16 {
        self.tasks.shutdown(Duration::from_millis(200)).await;
        self.node.shutdown().await;
        self.port
    }
}

fn urls(members: &[Running]) -> Vec<String> {
    members.iter().map(|member| member.url.clone()).collect()
}

pub(crate) fn admin(members: &[Running]) -> PlacementAdmin {
    PlacementAdmin::new(urls(members), Some(SECRET.to_owned()))
}

pub(crate) fn client(members: &[Running]) -> Arc<HttpPlacement> {
    Arc::new(HttpPlacement::new(urls(members), Some(SECRET.to_owned())))
}

/// Places, with retries while a leader is elected.
pub(crate) async fn place(placement: &dyn Placement, nth: usize) -> Placed {
    let end = Instant::now() + PATIENCE;
    loop {
        match placement.place(request(nth)).await {
            Ok(placed) => return placed,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Sends a heartbeat, with retries while a leader is elected.
pub(crate) async fn hear(placement: &dyn Placement, beat: Heartbeat) -> HeartbeatReply {
    let end = Instant::now() + PATIENCE;
    loop {
        match placement.heartbeat(beat.clone()).await {
            Ok(reply) => return reply,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until the group's status satisfies `wanted`.
pub(crate) async fn until(node: &PlacementNode, wanted: impl Fn(&Status) -> bool) -> Status {
    let end = Instant::now() + PATIENCE;
    loop {
        let status = node.status();
        if wanted(&status) {
            return status;
        }
        assert!(Instant::now() < end, "not reached: {status:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(limit, future).await.expect("in time")
}

/// A worker's knowledge from its heartbeats.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) version: u64,
    pub(crate) leases: Vec<Lease>,
    pub(crate) drain: bool,
    pub(crate) superseded: bool,
    pub(crate) release: Vec<Lease>,
    pub(crate) beats: u32,
}

/// A worker that only sends heartbeats.
pub(crate) struct FakeWorker {
    pub(crate) worker: Worker,
    pub(crate) known: Arc<Mutex<Known>>,
    tasks: TaskGroup,
}

pub(crate) fn worker(name: &str) -> Worker {
    Worker {
        incarnation: Incarnation::random(),
        node: name.to_owned(),
        url: format!("http://{name}:1"),
        slots: 4,
    }
}

pub(crate) fn beat(worker: &Worker, known: u64) -> Heartbeat {
    Heartbeat::new(worker.clone(), known)
}

impl FakeWorker {
    /// Starts the heartbeats, and waits until the worker is known.
    pub(crate) async fn start(world: &World, name: &str, placement: Arc<dyn Placement>) -> Self {
        let tasks = world.tasks.child(name);
        let this = Self { worker: worker(name), known: Arc::default(), tasks };
        let (worker, known) = (this.worker.clone(), this.known.clone());
        let kind = TaskKind::new("heartbeats", OnError::Log, OnCancel::Abort);
        this.tasks.spawn(kind, async move {
            loop {
                let (version, released) = {
                    let known = known.lock().expect("no panic under it");
                    (known.version, known.release.clone())
                };
                let beat = Heartbeat { released: released.clone(), ..beat(&worker, version) };
                let answer = placement.heartbeat(beat).await;
                take_in(&mut known.lock().expect("no panic under it"), answer, &released);
                tokio::time::sleep(BEAT).await;
            }
            #[expect(unreachable_code, reason = "names the error type")]
            Ok::<(), std::convert::Infallible>(())
        });
        this.until(|known| known.beats > 0).await;
        this
    }

    pub(crate) async fn until(&self, wanted: impl Fn(&Known) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !wanted(&self.known.lock().expect("no panic under it")) {
            assert!(Instant::now() < end, "not reached: {}", self.worker.node);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn leases(&self) -> Vec<Lease> {
        self.known.lock().expect("no panic under it").leases.clone()
    }

    pub(crate) fn incarnation(&self) -> Incarnation {
        self.worker.incarnation
    }

    /// Silences the worker, like SIGKILL.
    pub(crate) async fn kill(&self) {
        self.tasks.shutdown(Duration::ZERO).await;
    }
}

fn take_in(known: &mut Known, answer: Result<HeartbeatReply, PlacementError>, released: &[Lease]) {
    match answer {
        Ok(reply) => {
            known.version = reply.version;
            known.drain = reply.drain;
            known.beats += 1;
            known.release.retain(|lease| !released.contains(lease));
            if let Some(leases) = reply.leases {
                known.leases = leases;
            }
        }
        Err(PlacementError::Superseded) => known.superseded = true,
        Err(_) => {}
    }
}
