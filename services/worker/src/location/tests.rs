//! Takeovers of a Location with each worker's own disk and with a shared one, on a real Postgres.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use blobs::{BlobSettings, Blobs, Pace};
use domain::{
    Clock, Delivery, DrainEnd, ErrorCode, IdMint, LocationId, MessageId, ModelRef, OrgId, PartId,
    ProjectId, PromptAdmitted, PromptPart, SessionCreated, SessionId, SessionRef, Stamp,
    SystemClock, TimestampMs, WorkspaceSnapshotted,
};
use llm_client::{Client, Endpoint};
use sandbox::{Environment, ProcessSandbox};
use session::{ConfiguredModels, DrainSettings, ProviderHub, StoredComponents};
use signals::InProcess;
use snapshots::{Captured, Shadow, ShadowOptions, SnapshotLimits, Touched};
use store::{Append, Hold, NewPrompt, NewSession, Seed, Started, Store, StoreOptions, Written};
use tempfile::TempDir;
use testkit::TestDatabase;

use super::*;

const ORG: OrgId = OrgId::FIRST;

pub(crate) struct World {
    pub(crate) database: TestDatabase,
    pub(crate) folder: TempDir,
    pub(crate) runtime: Runtime,
    pub(crate) fills: Option<Fills>,
}

/// A world's differences from the plain one.
pub(crate) struct Setup {
    /// The model's URL.
    pub(crate) model_url: String,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Default for Setup {
    fn default() -> Self {
        Self { model_url: "http://127.0.0.1:9".into(), clock: Arc::new(SystemClock::default()) }
    }
}

impl World {
    pub(crate) async fn new() -> Result<Self> {
        Self::with(Setup::default(), |url| url).await
    }

    /// Makes a world. `store_url` maps Postgres' URL to the store's.
    pub(crate) async fn with(
        setup: Setup,
        store_url: impl FnOnce(String) -> String,
    ) -> Result<Self> {
        let database = testkit::database().await?;
        let folder = testkit::temp_folder()?;
        let sandbox = ProcessSandbox::new(
            "/bin/false".into(),
            Vec::<String>::new(),
            Environment::from_vars(std::iter::empty()),
            folder.path().to_owned(),
        );
        let model = ModelRef::new("none", "none");
        let runtime = Runtime {
            store: Store::connect(&StoreOptions::new(store_url(database.store_url())))?,
            signals: Arc::new(InProcess::new()),
            llm: Client::new(llm_client::Options::default())?,
            tools: tools::ToolSet::standard(Arc::new(sandbox)),
            blobs: Blobs::in_folder(&folder.path().join("blobs"))?,
            models: ProviderHub::of(ConfiguredModels::single(
                model,
                Endpoint::new(setup.model_url),
            )),
            clock: setup.clock,
            settings: Arc::new(DrainSettings::default()),
            stored: StoredComponents::default(),
            spending: session::Spending::default(),
        };
        let now = runtime.clock.now_ms();
        runtime.store.ensure_organisation(ORG, "tests".into(), now).await?;
        Ok(Self { database, folder, runtime, fills: None })
    }

    /// Returns a worker's options. Workers with the same `name` share their folder.
    pub(crate) fn worker(&self, name: &str, disk: WorkspaceDisk) -> WorkerOptions {
        WorkerOptions {
            node: name.into(),
            url: String::new(),
            slots: 1,
            workspace_dir: self.folder.path().join(name),
            disk,
            snapshot_dir: self.folder.path().join(name).join(".snapshots"),
            lock_dir: self.folder.path().join("locks"),
            allow_local_paths: false,
            idle_release: Duration::MAX,
            sweep: Duration::MAX,
            blob_retention: None,
            repository_copies: 1 << 30,
        }
    }

    /// Makes a session at its own managed Location.
    pub(crate) async fn session(&self) -> Result<SessionRef> {
        let (store, now) = (&self.runtime.store, self.runtime.clock.now_ms());
        let id = SessionId::mint(&mut IdMint::after(Stamp::default(), now));
        let project = store.ensure_project(ORG, id.to_string(), now).await?.id;
        let directory = format!("/workspace/{id}");
        let kind = LocationKind::Managed;
        let location =
            store.ensure_location(ORG, project.clone(), kind, directory.clone(), now).await?.id;
        self.create(id, project, location, directory, now).await
    }

    /// Another session at the Location of the first.
    pub(crate) async fn session_at(&self, first: &SessionRef) -> Result<SessionRef> {
        let (store, now) = (&self.runtime.store, self.runtime.clock.now_ms());
        let row = store.session(first.org, first.session.clone()).await?;
        let id = SessionId::mint(&mut IdMint::after(Stamp::default(), now));
        self.create(id, row.project, first.location.clone(), row.directory, now).await
    }

    async fn create(
        &self,
        id: SessionId,
        project: ProjectId,
        location: LocationId,
        directory: String,
        now: TimestampMs,
    ) -> Result<SessionRef> {
        let created = SessionCreated {
            by: None,
            project,
            location: location.clone(),
            directory,
            title: "a test".into(),
            agent: "build".into(),
            model: None,
            parent: None,
            named: true,
            rules: Vec::new(),
            metadata: None,
        };
        let new = NewSession { id: id.clone(), created, now };
        self.runtime.store.create_session(ORG, new).await?;
        Ok(SessionRef { org: ORG, location, session: id })
    }

    pub(crate) async fn take_over(
        &self,
        worker: &WorkerOptions,
        session: &SessionRef,
        token: i64,
    ) -> Result<Workspace> {
        let at = session.location_ref();
        Ok(take_over(&self.runtime, worker, self.fills.as_ref(), &at, FencingToken(token)).await?)
    }

    /// Gives the session work.
    pub(crate) async fn prompt(&self, session: &SessionRef) -> Result<()> {
        self.prompt_with(session, "go").await
    }

    pub(crate) async fn prompt_with(&self, session: &SessionRef, text: &str) -> Result<()> {
        let now = self.runtime.clock.now_ms();
        let mut mint = IdMint::after(Stamp::default(), now);
        let prompt = PromptAdmitted {
            by: None,
            message: MessageId::mint(&mut mint),
            delivery: Delivery::Steer,
            parts: vec![PromptPart::Text { id: PartId::mint(&mut mint), text: text.into() }],
            agent: None,
            model: None,
            wake: true,
            digest: String::new(),
            synthetic: None,
        };
        let prompt = NewPrompt { session: session.session.clone(), prompt, now };
        self.runtime.store.admit_prompt(ORG, prompt).await?;
        Ok(())
    }

    /// Captures a directory, and writes only that row, like a drain.
    pub(crate) async fn capture(
        &self,
        session: &SessionRef,
        token: i64,
        root: &Path,
    ) -> Result<Captured> {
        let Runtime { store, blobs, clock, .. } = &self.runtime;
        let row = store.location(session.org, session.location.clone()).await?;
        let (mut seed, mut limits) = (Vec::new(), SnapshotLimits::default());
        if let Some(Seed { location, .. }) = row.seed {
            seed = store.pack_names(session.org, vec![location]).await?;
        }
        if store.origin(session.location_ref()).await?.is_some() {
            limits = of_repositories(session::SnapshotSettings::default()).limits;
        }
        let shadow = Shadow::open(ShadowOptions {
            root: root.to_owned(),
            cache: self.folder.path().join("cache"),
            blobs: blobs.clone(),
            at: session.location_ref(),
            token: FencingToken(token),
            lock: None,
            packs: Vec::new(),
            seed,
            git: true,
            hidden: HiddenPaths::default(),
            limits,
            clock: clock.clone(),
        })
        .await?;
        let captured = shadow.capture(&Touched::Anything).await?.context("a first capture")?;
        let now = clock.now_ms();
        self.prompt(session).await?;
        let token = FencingToken(token);
        let started =
            store.start_drain(session.clone(), token, store::KnownLog::NOTHING, Hold::Look).await?;
        let Started::Ready(write, ..) = started else { bail!("the session is not ready") };
        let event = WorkspaceSnapshotted {
            token,
            ordinal: captured.ordinal,
            tree: captured.tree.to_string().try_into()?,
            parent: None,
            pack: captured.pack.clone(),
            bytes: 0,
            turn: None,
            base: true,
            files: Vec::new(),
            more: 0,
            directories: Vec::new(),
            skipped: Vec::new(),
        };
        let mut mint = write.mint(now);
        let (events, end) = ([event.into()], DrainEnd::Park);
        let append = Append { events: &events, promoted: 0, progress: true, end, components: &[] };
        let written = write.commit(&mut mint, now, append).await?;
        ensure!(matches!(written, Written::Next(_)), "the row is not written");
        Ok(captured)
    }
}

fn root(workspace: &Workspace) -> Result<&Path> {
    workspace.root().with_context(|| format!("{:?}", workspace.unavailable()))
}

fn read(workspace: &Workspace, name: &str) -> Result<Option<String>> {
    Ok(std::fs::read_to_string(root(workspace)?.join(name)).ok())
}

#[tokio::test]
async fn on_disks_of_their_own_the_newest_snapshot_goes_where_the_location_goes() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let (a, b) = (world.worker("a", WorkspaceDisk::Own), world.worker("b", WorkspaceDisk::Own));
    let first = world.take_over(&a, &session, 1).await?;
    std::fs::write(root(&first)?.join("kept"), "kept")?;
    world.capture(&session, 1, root(&first)?).await?;
    std::fs::write(root(&first)?.join("late"), "in no snapshot")?;
    // Nobody else was there, so nothing is lost.
    let again = world.take_over(&a, &session, 2).await?;
    assert_eq!(read(&again, "late")?.as_deref(), Some("in no snapshot"));
    ensure!(root(&again)? != root(&first)? && !root(&first)?.exists(), "one directory a token");
    let other = world.take_over(&b, &session, 3).await?;
    assert_eq!(read(&other, "kept")?.as_deref(), Some("kept"));
    assert_eq!(read(&other, "late")?, None);
    // This worker has old files of the Location, but restores like any other.
    let back = world.take_over(&a, &session, 4).await?;
    assert_eq!((read(&back, "kept")?.as_deref(), read(&back, "late")?), (Some("kept"), None));
    let left = std::fs::read_dir(a.workspace_dir.join(ORG.to_string()))?.count();
    assert_eq!(left, 2, "the directory and how it was made; nothing of earlier tokens");
    Ok(())
}

#[tokio::test]
async fn that_files_were_made_anew_is_told_under_every_later_token_of_the_same_disk() -> Result<()>
{
    let world = World::new().await?;
    let session = world.session().await?;
    let (a, b) = (world.worker("a", WorkspaceDisk::Own), world.worker("b", WorkspaceDisk::Own));
    let first = world.take_over(&a, &session, 1).await?;
    assert_eq!(first.made_anew(), None, "nobody was there before");
    let captured = world.capture(&session, 1, root(&first)?).await?;
    let tree = captured.tree.to_string().try_into()?;
    let other = world.take_over(&b, &session, 3).await?;
    assert_eq!(other.made_anew(), Some((FencingToken(3), Some(&tree))));
    // Neither the worker's end nor a newer token undoes it.
    let again = world.take_over(&b, &session, 6).await?;
    assert_eq!(again.made_anew(), Some((FencingToken(3), Some(&tree))));
    let back = world.take_over(&a, &session, 8).await?;
    assert_eq!(back.made_anew(), Some((FencingToken(8), Some(&tree))), "its files were old");
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_restored_is_not_used_and_is_tried_again() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let (a, b) = (world.worker("a", WorkspaceDisk::Own), world.worker("b", WorkspaceDisk::Own));
    let first = world.take_over(&a, &session, 1).await?;
    std::fs::write(root(&first)?.join("kept"), "kept")?;
    world.capture(&session, 1, root(&first)?).await?;
    let blobs = world.folder.path().join("blobs");
    std::fs::rename(&blobs, blobs.with_extension("aside"))?;
    let failed = world.take_over(&b, &session, 2).await?;
    let error = failed.unavailable().context("it cannot be had")?;
    assert_eq!(error.code, ErrorCode::WorkspaceRestoreFailed);
    std::fs::remove_dir_all(&blobs).ok();
    std::fs::rename(blobs.with_extension("aside"), &blobs)?;
    let restored = world.take_over(&b, &session, 3).await?;
    assert_eq!(read(&restored, "kept")?.as_deref(), Some("kept"));
    Ok(())
}

#[tokio::test]
async fn a_location_waits_for_object_storage_that_is_away() -> Result<()> {
    let mut world = World::new().await?;
    let session = world.session().await?;
    let (a, b) = (world.worker("a", WorkspaceDisk::Own), world.worker("b", WorkspaceDisk::Own));
    let first = world.take_over(&a, &session, 1).await?;
    std::fs::write(root(&first)?.join("kept"), "kept")?;
    world.capture(&session, 1, root(&first)?).await?;
    ensure!(a.workspace_dir.join(".locks").is_dir(), "its locks are on its own disk");
    let settings = BlobSettings {
        endpoint: Some("http://127.0.0.1:9".into()),
        access_key: Some("id".into()),
        secret_key: Some("CANARY".into()),
        pace: Pace { retries: 0, ..Pace::default() },
        ..BlobSettings::at("s3://bucket".parse().map_err(anyhow::Error::msg)?)
    };
    let there = std::mem::replace(&mut world.runtime.blobs, Blobs::open(&settings)?);
    let away = take_over(&world.runtime, &b, None, &session.location_ref(), FencingToken(2)).await;
    let Err(TakeoverError::Away { error, patience, .. }) = away else { bail!("{away:?}") };
    assert_eq!(
        (error.code, patience),
        (ErrorCode::WorkspaceRestoreFailed.into(), Patience::STORAGE)
    );
    ensure!(error.message.contains("s3://bucket: it cannot be reached"), "{}", error.message);
    ensure!(!error.message.contains("CANARY"));
    world.runtime.blobs = there;
    let restored = world.take_over(&b, &session, 3).await?;
    assert_eq!(read(&restored, "kept")?.as_deref(), Some("kept"));
    Ok(())
}

#[tokio::test]
async fn on_a_shared_disk_a_location_begins_with_the_files_that_it_was_given() -> Result<()> {
    let world = World::new().await?;
    let (from, to) = (world.session().await?, world.session().await?);
    let shared = world.worker("all", WorkspaceDisk::Shared);
    let source = world.take_over(&shared, &from, 1).await?;
    std::fs::write(root(&source)?.join("given"), "given")?;
    let captured = world.capture(&from, 1, root(&source)?).await?;
    let location: LocationId = from.location.clone();
    let seed = Seed { location, tree: captured.tree.to_string().try_into()? };
    world.runtime.store.seed_location(to.location_ref(), seed).await?;
    let first = world.take_over(&shared, &to, 1).await?;
    assert_eq!(read(&first, "given")?.as_deref(), Some("given"));
    std::fs::write(root(&first)?.join("given"), "changed")?;
    let next = world.take_over(&shared, &to, 2).await?;
    assert_eq!(read(&next, "given")?.as_deref(), Some("changed"), "only its first holder fills it");
    Ok(())
}

// Finding store 5: a lock that was held for a moment was recorded durably, and every waiting prompt was parked.
#[tokio::test]
async fn a_location_that_cannot_be_had_now_is_no_missing_workspace() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let (at, token) = (session.location_ref(), FencingToken(3));
    let worker = world.worker("all", WorkspaceDisk::Shared);
    // No lock can be taken where none can be created.
    std::fs::write(&worker.lock_dir, "")?;
    let away = take_over(&world.runtime, &worker, None, &at, token).await;
    let Err(TakeoverError::Away { error, .. }) = away else { bail!("{away:?}") };
    assert_eq!(error.code, ErrorCode::WorkspaceLocked);
    std::fs::remove_file(&worker.lock_dir)?;
    assert_eq!(world.take_over(&worker, &session, 3).await?.unavailable(), None);
    // Its directory is on a disk that is not mounted here.
    let elsewhere = world.worker("elsewhere", WorkspaceDisk::Shared);
    let away = take_over(&world.runtime, &elsewhere, None, &at, FencingToken(4)).await;
    let Err(TakeoverError::Away { error, .. }) = away else { bail!("{away:?}") };
    assert_eq!(error.code, ErrorCode::WorkspaceUnavailable);
    Ok(())
}

// Finding security 15: a Location that was created while local paths were allowed stayed usable for ever.
#[tokio::test]
async fn a_worker_without_local_paths_takes_no_local_location_over() -> Result<()> {
    let world = World::new().await?;
    let (store, now) = (&world.runtime.store, world.runtime.clock.now_ms());
    let folder = testkit::temp_folder()?;
    let directory = folder.path().to_str().context("a plain path")?.to_owned();
    let project = store.ensure_project(ORG, directory.clone(), now).await?.id;
    let kind = LocationKind::Local;
    let location = store.ensure_location(ORG, project, kind, directory.clone(), now).await?.id;
    let at = LocationRef { org: ORG, location };
    let closed = world.worker("closed", WorkspaceDisk::Shared);
    let taken = take_over(&world.runtime, &closed, None, &at, FencingToken(1)).await?;
    ensure!(taken.root().is_none(), "its files are reached");
    let error = taken.unavailable().context("why")?;
    ensure!(error.code == ErrorCode::WorkspaceUnavailable, "{error:?}");
    ensure!(error.message.contains("--allow-local-paths"), "{error:?}");
    let open = WorkerOptions { allow_local_paths: true, ..closed };
    let taken = take_over(&world.runtime, &open, None, &at, FencingToken(2)).await?;
    ensure!(taken.root() == Some(folder.path()), "{:?}", taken.root());
    Ok(())
}

// Finding security-3 M1: session A at `P` replaced `P/sub`, where session B worked, by a link.
#[tokio::test]
async fn a_local_directory_that_became_a_link_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().canonicalize().expect("a folder");
    let (sub, target) = (root.join("sub"), root.join("target"));
    std::fs::create_dir(&sub).expect("a folder");
    let none = HiddenPaths::default();
    assert_eq!(refuse_local(none.clone(), sub.clone()).await, None);
    std::fs::rename(&sub, &target).expect("moved");
    std::os::unix::fs::symlink(&target, &sub).expect("a link");
    let why = refuse_local(none.clone(), sub.clone()).await.expect("refused");
    assert!(why.contains("was replaced by a link"), "{why}");
    let why = refuse_local(none, sub.join("below")).await;
    assert_eq!(why, None, "one that is not there has a sentence of its own");
}

// Finding security-3 H7: the service's own folder was a directory for sessions like any other.
#[tokio::test]
async fn the_services_own_folder_is_no_directory_for_sessions() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().canonicalize().expect("a folder");
    std::fs::create_dir_all(root.join("data/workspaces")).expect("a folder");
    let hidden = HiddenPaths::new([root.join("data")]);
    for own in ["data", "data/workspaces"] {
        let why = refuse_local(hidden.clone(), root.join(own)).await.expect("refused");
        assert!(why.contains("the service's own data"), "{why}");
    }
    assert_eq!(refuse_local(hidden, root).await, None);
}
