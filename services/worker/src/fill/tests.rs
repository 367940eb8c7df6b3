//! Fills from a real git server, on a real Postgres.
//!
//! Long because all of them are tried against one forge, which is made here.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use async_trait::async_trait;
use domain::SessionRef;
use egress::{EgressOptions, Rules};
use sandbox::{Command, End, Network, Outcome, Output, SandboxError};
use session::Workspace;
use store::BlobUse;
use testkit::{GitServer, git};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::WorkspaceDisk;
use crate::location::tests::World;

/// Runs commands as they are: these repositories are the tests' own.
struct Plain;

/// The same, with a count of the indexes that git makes.
struct Counted(Arc<AtomicUsize>);

#[async_trait]
impl Sandbox for Counted {
    async fn run(
        &self,
        command: Command,
        stop: &CancellationToken,
    ) -> Result<Outcome, SandboxError> {
        if command.args.iter().any(|word| word == "index-pack") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        Plain.run(command, stop).await
    }
}

/// Commands that meet the limit of a cell's memory where `git index-pack` runs.
struct Small;

#[async_trait]
impl Sandbox for Small {
    async fn run(
        &self,
        command: Command,
        stop: &CancellationToken,
    ) -> Result<Outcome, SandboxError> {
        let checks = command.args.iter().any(|word| word == "index-pack");
        let ran = Plain.run(command, stop).await?;
        let limits = if checks { vec![sandbox::Limit::Memory(1 << 30)] } else { Vec::new() };
        let end = if checks { End::OverLimit } else { ran.end };
        Ok(Outcome { end, limits, ..ran })
    }
}

#[async_trait]
impl Sandbox for Plain {
    async fn run(&self, command: Command, _: &CancellationToken) -> Result<Outcome, SandboxError> {
        let begun = Instant::now();
        let ran = tokio::process::Command::new(&command.program)
            .args(&command.args)
            .envs(command.env)
            .current_dir(&command.directory)
            .output()
            .await?;
        let text = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
        let output = Output {
            total_bytes: text.len() as u64,
            line_breaks: 0,
            head: text.into_owned(),
            tail: String::new(),
            file: None,
            lost_bytes: 0,
            file_error: None,
        };
        let end = End::Exited(ran.status.code().unwrap_or(-1));
        let (duration, network) = (begun.elapsed(), Network::Shut);
        let (limits, refused) = (Vec::new(), Vec::new());
        Ok(Outcome { end, output, duration, leftovers: 0, limits, network, refused })
    }
}

pub(crate) struct Forge {
    server: GitServer,
    repository: PathBuf,
    work: PathBuf,
    pub(crate) world: World,
}

impl Forge {
    pub(crate) async fn new() -> Result<Self> {
        Self::with(GitServer::start()?).await
    }

    async fn with(server: GitServer) -> Result<Self> {
        let mut world = World::new().await?;
        let repository = server.repository("demo")?;
        let work = world.folder.path().join("work");
        git(world.folder.path(), &["clone", "-q", &repository.display().to_string(), "work"])?;
        let allowed = vec![server.host().parse()?];
        let options = EgressOptions {
            rules: Rules { allow_private: false, allowed },
            ca_bundle: Some(std::fs::read(server.authority())?),
            ..EgressOptions::default()
        };
        let folder = world.folder.path().join("repositories");
        world.fills = Some(Fills::new(Arc::new(Plain), Egress::new(&options)?, folder));
        let forge = Self { server, repository, work, world };
        forge.push("a", "one\n")?;
        Ok(forge)
    }

    /// Commits a file and pushes it; returns the commit.
    pub(crate) fn push(&self, name: &str, text: &str) -> Result<String> {
        std::fs::write(self.work.join(name), text)?;
        git(&self.work, &["add", "-A"])?;
        git(&self.work, &["commit", "-q", "-m", name])?;
        git(&self.work, &["push", "-q", "--force", "origin", "HEAD:main"])?;
        git(&self.work, &["rev-parse", "HEAD"])
    }

    pub(crate) async fn session(&self, wanted: Option<&str>) -> Result<SessionRef> {
        self.session_of("demo", wanted).await
    }

    async fn session_of(&self, path: &str, wanted: Option<&str>) -> Result<SessionRef> {
        let session = self.world.session().await?;
        let (store, org) = (&self.world.runtime.store, session.org);
        let repository = store.ensure_repository(org, self.server.host(), path.into(), 1).await?;
        let wanted = wanted.map(str::to_owned);
        store.begin_with_repository(session.location_ref(), repository.id, wanted).await?;
        Ok(session)
    }

    pub(crate) async fn take_over(
        &self,
        name: &str,
        session: &SessionRef,
        token: i64,
    ) -> Result<Workspace> {
        let worker = self.world.worker(name, WorkspaceDisk::Own);
        self.world.take_over(&worker, session, token).await
    }

    /// Takes over where that must fail for good, and returns the sentence.
    async fn refused(&self, session: &SessionRef, token: i64) -> Result<String> {
        let workspace = self.take_over("a", session, token).await?;
        let error = workspace.unavailable().context("it is refused")?;
        assert_eq!(error.code.to_string(), "workspace.fill_failed");
        Ok(error.message.clone())
    }
}

pub(crate) fn root(workspace: &Workspace) -> Result<&Path> {
    workspace.root().with_context(|| format!("{:?}", workspace.unavailable()))
}

#[tokio::test]
async fn a_filled_workspace_survives_on_another_disk() -> Result<()> {
    let forge = Forge::new().await?;
    let session = forge.session(None).await?;
    let first = forge.take_over("a", &session, 1).await?;
    let here = root(&first)?;
    assert_eq!(git(here, &["status", "-sb"])?, "## main...origin/main");
    assert_eq!(git(here, &["fsck", "--strict"])?, "");
    assert_eq!(git(here, &["config", "user.name"])?, "OpenCode", "so that commands can commit");
    std::fs::write(here.join("b"), "mine")?;
    git(here, &["add", "b"])?;
    git(here, &["commit", "-q", "-m", "mine"])?;
    git(here, &["gc", "-q"])?;
    std::fs::write(here.join("b"), "not committed")?;
    let mine = git(here, &["rev-parse", "HEAD"])?;
    forge.world.capture(&session, 1, here).await?;
    std::fs::remove_dir_all(forge.world.folder.path().join("repositories"))?;
    forge.server.fault(Some("503"))?;
    let second = forge.take_over("b", &session, 2).await?;
    let there = root(&second)?;
    ensure!(here != there, "another disk");
    assert_eq!(git(there, &["rev-parse", "HEAD"])?, mine);
    assert_eq!(git(there, &["log", "--format=%s"])?, "mine\na");
    assert_eq!(git(there, &["status", "--porcelain"])?, "M b");
    git(there, &["fsck", "--strict", "--no-dangling"])?;
    Ok(())
}

#[tokio::test]
async fn a_fill_that_broke_off_is_done_again_at_the_same_commit() -> Result<()> {
    let forge = Forge::new().await?;
    let old = git(&forge.work, &["rev-parse", "HEAD"])?;
    let session = forge.session(Some("main")).await?;
    forge.server.fault(Some("cut"))?;
    let Err(away) = forge.take_over("a", &session, 1).await else {
        bail!("half a pack is no pack")
    };
    ensure!(away.to_string().contains("fetching"), "{away}");
    forge.server.fault(None)?;
    forge.push("c", "later\n")?;
    // A worker that died in mid checkout leaves this.
    let left = forge.world.folder.path().join("a").join(session.org.to_string());
    std::fs::write(left.join(format!("{}.1", session.location)).join("half"), "x")?;
    let workspace = forge.take_over("a", &session, 2).await?;
    let here = root(&workspace)?;
    assert_eq!(git(here, &["rev-parse", "HEAD"])?, old, "the pinned commit");
    ensure!(!here.join("half").exists() && !here.join("c").exists());
    ensure!(workspace.made_anew().is_none(), "nobody has worked there, so nothing was lost");
    Ok(())
}

#[tokio::test]
async fn a_branch_that_was_rewritten_takes_nothing_away() -> Result<()> {
    let forge = Forge::new().await?;
    let session = forge.session(None).await?;
    let first = forge.take_over("a", &session, 1).await?;
    let old = git(root(&first)?, &["rev-parse", "HEAD"])?;
    git(&forge.work, &["checkout", "-q", "--orphan", "new"])?;
    let new = forge.push("z", "other history\n")?;
    git(&forge.repository, &["gc", "-q", "--prune=now"])?;
    let other = forge.session(None).await?;
    let second = forge.take_over("a", &other, 1).await?;
    assert_eq!(git(root(&second)?, &["rev-parse", "HEAD"])?, new);
    assert_eq!(git(root(&first)?, &["rev-parse", "HEAD"])?, old);
    git(root(&first)?, &["fsck", "--strict"])?;
    Ok(())
}

#[tokio::test]
async fn what_is_there_is_not_fetched_again() -> Result<()> {
    let forge = Forge::new().await?;
    let fetches = |forge: &Forge| forge.server.requests().matches("POST").count();
    forge.take_over("a", &forge.session(None).await?, 1).await?;
    assert_eq!(fetches(&forge), 2, "refs and a pack");
    forge.take_over("a", &forge.session(None).await?, 1).await?;
    assert_eq!(fetches(&forge), 3, "refs");
    forge.push("b", "two\n")?;
    let third = forge.take_over("a", &forge.session(None).await?, 1).await?;
    assert_eq!(fetches(&forge), 5);
    assert_eq!(git(root(&third)?, &["log", "--format=%s"])?, "b\na");
    git(root(&third)?, &["fsck", "--strict"])?;
    Ok(())
}

#[tokio::test]
async fn each_failure_says_where_it_came_from_and_what_to_do() -> Result<()> {
    let forge = Forge::new().await?;
    let session = forge.session(Some("nope")).await?;
    let told = forge.refused(&session, 1).await?;
    ensure!(told.contains("no branch or tag `nope`; it has main"), "{told}");
    let told = forge.refused(&forge.session_of("other", None).await?, 1).await?;
    ensure!(told.contains("404") && told.contains("check the address"), "{told}");
    for (fault, says) in [("401", "private"), ("302", "redirects")] {
        forge.server.fault(Some(fault))?;
        let told = forge.refused(&forge.session(None).await?, 1).await?;
        ensure!(told.contains(says) && told.contains(&forge.server.host()), "{told}");
    }
    forge.server.fault(Some("503"))?;
    let session = forge.session(None).await?;
    let Err(away) = forge.take_over("a", &session, 1).await else { bail!("it is tried again") };
    ensure!(away.to_string().contains("503"), "{away}");
    forge.server.fault(None)?;
    let origin = forge.world.runtime.store.origin(session.location_ref()).await?;
    let fault = origin.context("an origin")?.fault.context("a fault")?;
    ensure!(fault.code == "later", "{fault:?}");
    root(&forge.take_over("a", &session, 2).await?)?;
    Ok(())
}

#[tokio::test]
async fn no_address_inside_is_read_that_nobody_has_listed() -> Result<()> {
    let mut forge = Forge::new().await?;
    let egress = Egress::new(&EgressOptions::default())?;
    let folder = forge.world.folder.path().join("repositories");
    forge.world.fills = Some(Fills::new(Arc::new(Plain), egress, folder));
    let told = forge.refused(&forge.session(None).await?, 1).await?;
    ensure!(told.contains("--egress-allow"), "{told}");
    assert_eq!(forge.server.requests(), "");
    Ok(())
}

#[tokio::test]
async fn what_is_too_large_is_not_checked_out() -> Result<()> {
    let mut forge = Forge::new().await?;
    forge.push("large", &"0".repeat(100_000))?;
    let bounds = FillBounds { file_bytes: 50_000, ..FillBounds::default() };
    forge.world.fills = forge.world.fills.map(|fills| fills.with_bounds(bounds));
    let session = forge.session(None).await?;
    let told = forge.refused(&session, 1).await?;
    ensure!(told.contains("a file of 100000 bytes"), "{told}");
    let left = forge.world.folder.path().join("a").join(session.org.to_string());
    ensure!(!left.join(format!("{}.1", session.location)).join("large").exists());
    Ok(())
}

#[tokio::test]
async fn a_tracked_file_too_large_for_snapshots_comes_back() -> Result<()> {
    let forge = Forge::new().await?;
    forge.push("large", &"0123456789abcdef".repeat(17 << 16))?;
    let session = forge.session(None).await?;
    let first = forge.take_over("a", &session, 1).await?;
    std::fs::write(root(&first)?.join("small"), "mine")?;
    std::fs::remove_file(root(&first)?.join("a"))?;
    forge.world.capture(&session, 1, root(&first)?).await?;
    let second = forge.take_over("b", &session, 2).await?;
    let there = root(&second)?;
    assert_eq!(git(there, &["status", "--porcelain"])?, "D a\n?? small");
    assert_eq!(there.join("large").metadata()?.len(), 17 << 20);
    Ok(())
}

#[tokio::test]
async fn an_index_is_kept_and_made_again_when_it_is_lost() -> Result<()> {
    let mut forge = Forge::new().await?;
    let session = forge.session(None).await?;
    forge.take_over("a", &session, 1).await?;
    let kept = forge.world.folder.path().join("blobs/o").join(session.org.to_string());
    let kept = kept.join(BlobUse::RepositoryIndex.kind());
    let index = std::fs::read_dir(&kept)?.next().context("an index")??.path();
    let whole = std::fs::read(&index)?;

    let made = Arc::new(AtomicUsize::new(0));
    forge.world.fills.as_mut().context("fills")?.sandbox = Arc::new(Counted(made.clone()));
    for (token, bytes, expected) in
        [(2, Some(&whole[..]), 0), (3, Some(&whole[1..]), 1), (4, None, 2)]
    {
        std::fs::remove_dir_all(forge.world.folder.path().join("repositories"))?;
        match bytes {
            Some(bytes) => std::fs::write(&index, bytes)?,
            None => std::fs::remove_file(&index)?,
        }
        let there = forge.take_over(&format!("worker-{token}"), &session, token).await?;
        git(root(&there)?, &["fsck", "--strict"])?;
        assert_eq!(made.load(Ordering::Relaxed), expected, "before the takeover {token}");
    }
    Ok(())
}

#[tokio::test]
async fn a_large_file_that_was_deleted_stays_deleted() -> Result<()> {
    let forge = Forge::new().await?;
    let large = "0123456789abcdef".repeat(17 << 16);
    forge.push("kept", &large)?;
    forge.push("deleted", &large)?;
    let session = forge.session(None).await?;
    let first = forge.take_over("a", &session, 1).await?;
    std::fs::remove_file(root(&first)?.join("deleted"))?;
    forge.world.capture(&session, 1, root(&first)?).await?;
    let second = forge.take_over("b", &session, 2).await?;
    assert_eq!(git(root(&second)?, &["status", "--porcelain"])?, "D deleted");
    Ok(())
}

#[tokio::test]
async fn the_second_session_of_a_commit_stores_little() -> Result<()> {
    let forge = Forge::new().await?;
    let mut text = String::new();
    for line in 0..200_000_u64 {
        text += &format!("{:x}\n", line.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
    forge.push("large", &text)?;
    let (one, two) = (forge.session(None).await?, forge.session(None).await?);
    let first = forge.take_over("a", &one, 1).await?;
    let whole = forge.world.capture(&one, 1, root(&first)?).await?;
    let second = forge.take_over("a", &two, 1).await?;
    let little = forge.world.capture(&two, 1, root(&second)?).await?;
    ensure!(whole.bytes > 1_000_000 && little.bytes < 20_000, "{} {}", whole.bytes, little.bytes);
    // It is whole on another disk, also once the first session and its Location are gone there.
    std::fs::write(root(&second)?.join("mine"), "mine")?;
    let third = forge.take_over("b", &two, 2).await?;
    assert_eq!(git(root(&third)?, &["status", "--porcelain"])?, "");
    assert_eq!(std::fs::read_to_string(root(&third)?.join("large"))?, text);
    Ok(())
}

#[tokio::test]
async fn a_session_that_shares_content_begins_with_its_own_commit() -> Result<()> {
    let forge = Forge::new().await?;
    let (one, two) = (forge.session(None).await?, forge.session(None).await?);
    let first = forge.take_over("a", &one, 1).await?;
    std::fs::write(root(&first)?.join("a"), "another session's")?;
    forge.world.capture(&one, 1, root(&first)?).await?;
    forge.take_over("a", &two, 1).await?;
    // It died before its first snapshot; nothing of the other session is here.
    let again = forge.take_over("b", &two, 2).await?;
    assert_eq!(git(root(&again)?, &["status", "--porcelain"])?, "");
    assert_eq!(std::fs::read_to_string(root(&again)?.join("a"))?, "one\n");
    let (runtime, now) = (&forge.world.runtime, forge.world.runtime.clock.now_ms());
    let id = runtime.store.ask_out(two.clone(), "patch", now).await?;
    out::make(runtime, forge.world.fills.as_ref().context("fills")?, two.org, &id).await?;
    assert_eq!(runtime.store.session_out(two.org, id).await?.state, "nothing");
    Ok(())
}

#[tokio::test]
async fn a_zombies_fill_is_fenced() -> Result<()> {
    let forge = Forge::new().await?;
    let session = forge.session(None).await?;
    let (store, at) = (&forge.world.runtime.store, session.location_ref());
    store.raise_fence(at.clone(), FencingToken(2)).await?;
    let fills = forge.world.fills.as_ref().context("fills")?;
    let root = forge.world.folder.path().join("zombie");
    std::fs::create_dir(&root)?;
    let runtime = &forge.world.runtime;
    let zombie = Fill { fills, runtime, at: &at, token: FencingToken(1), lock: None, root };
    let origin = store.origin(at.clone()).await?.context("an origin")?;
    let fenced = zombie.anew(&origin).await;
    ensure!(matches!(fenced, Err(Fault::Store(StoreError::Superseded))), "{fenced:?}");
    let origin = store.origin(at).await?.context("an origin")?;
    ensure!(origin.commit.is_none() && !origin.is_filled, "{origin:?}");
    Ok(())
}

/// Stores a file as an upload.
async fn upload(forge: &Forge, org: domain::OrgId, path: &Path) -> Result<domain::UploadId> {
    let (runtime, now) = (&forge.world.runtime, forge.world.runtime.clock.now_ms());
    let id = store::Store::mint_upload(now);
    let key = blobs::BlobKey::new(&org.to_string(), "upload", id.as_str())?;
    runtime.blobs.put_file(&key, std::fs::File::open(path)?).await?;
    runtime.store.add_upload(org, id.clone(), 1, now).await?;
    Ok(id)
}

/// Begins a session with what is in the folder of work: its commit, and what is not committed.
async fn sent(forge: &Forge, with_commits: bool) -> Result<SessionRef> {
    let session = forge.world.session().await?;
    let (org, work) = (session.org, &forge.work);
    let head = git(work, &["rev-parse", "HEAD"])?;
    let staged = git(work, &["write-tree"])?;
    let staged = git(work, &["commit-tree", "-p", &head, "-m", "staged", &staged])?;
    git(work, &["add", "-A"])?;
    let wip = git(work, &["write-tree"])?;
    let wip = git(work, &["commit-tree", "-p", &head, "-m", "wip", &wip])?;
    git(work, &["read-tree", &staged])?;
    let pack = |name: &str, revisions: &str| {
        let path = forge.world.folder.path().join(name);
        let to = path.display();
        let line =
            format!("printf '{revisions}' | git pack-objects --revs --thin --stdout -q >'{to}'");
        git(work, &["-c", &format!("alias.make=!{line}"), "make"])?;
        Ok::<_, anyhow::Error>(path)
    };
    let commits = pack("commits", &format!("{head}\\n"))?;
    let changes = pack("changes", &format!("{wip}\\n{staged}\\n^{head}\\n"))?;
    let commits = if with_commits { Some(upload(forge, org, &commits).await?) } else { None };
    let changes = Some(upload(forge, org, &changes).await?);
    let store = &forge.world.runtime.store;
    let repository = store.ensure_repository(org, "here".into(), "demo-1".into(), 1).await?.id;
    let wip = Some(store::SentChanges { staged, wip });
    let new = store::NewSent {
        repository,
        commit: head,
        branch: Some("refs/heads/main".into()),
        sent: store::SentRow { commits, changes, wip },
        now: forge.world.runtime.clock.now_ms(),
    };
    store.begin_with_sent(session.location_ref(), new.clone()).await?;
    store.begin_with_sent(session.location_ref(), new).await?;
    Ok(session)
}

#[tokio::test]
async fn what_was_sent_is_as_it_was_and_survives() -> Result<()> {
    let forge = Forge::new().await?;
    std::fs::write(forge.work.join("a"), "mine, not committed\n")?;
    std::fs::write(forge.work.join("staged"), "staged\n")?;
    git(&forge.work, &["add", "staged"])?;
    std::fs::write(forge.work.join("new"), "untracked\n")?;
    let session = sent(&forge, true).await?;
    let first = forge.take_over("a", &session, 1).await?;
    let status = " M a\nA  staged\n?? new";
    let here = root(&first)?;
    assert_eq!(git(here, &["status", "--porcelain"])?, status.trim_start());
    assert_eq!(git(here, &["log", "--format=%s"])?, "a");
    assert_eq!(git(here, &["remote"])?, "");
    git(here, &["fsck", "--strict", "--no-dangling"])?;
    assert_eq!(forge.server.requests(), "", "no server is asked");
    std::fs::write(here.join("theirs"), "the session's\n")?;
    forge.world.capture(&session, 1, here).await?;
    // The second session needs no commits, and the first one none of its uploads any more.
    let other = sent(&forge, false).await?;
    let workspace = forge.take_over("a", &other, 1).await?;
    assert_eq!(git(root(&workspace)?, &["log", "--format=%s"])?, "a");
    std::fs::remove_dir_all(forge.world.folder.path().join("repositories"))?;
    let second = forge.take_over("b", &session, 2).await?;
    let there = root(&second)?;
    assert_eq!(
        git(there, &["status", "--porcelain"])?,
        format!("{status}\n?? theirs").trim_start()
    );
    git(there, &["fsck", "--strict", "--no-dangling"])?;
    // The patch is for the machine that has the rest.
    let (runtime, now) = (&forge.world.runtime, forge.world.runtime.clock.now_ms());
    let id = runtime.store.ask_out(session.clone(), "patch", now).await?;
    out::make(runtime, forge.world.fills.as_ref().context("fills")?, session.org, &id).await?;
    let made = runtime.store.session_out(session.org, id).await?;
    let (name, _) = made.blob.with_context(|| format!("{:?}", made.fault))?;
    let key = blobs::BlobKey::new(&session.org.to_string(), "out", &name)?;
    let patch = String::from_utf8(runtime.blobs.get(&key).await?.into())?;
    ensure!(patch.contains("+the session's") && !patch.contains("not committed"), "{patch}");
    Ok(())
}

#[tokio::test]
async fn an_upload_that_is_gone_or_no_pack_is_told() -> Result<()> {
    let forge = Forge::new().await?;
    let session = sent(&forge, false).await?;
    let told = forge.refused(&session, 1).await?;
    ensure!(told.contains("run --here"), "{told}");
    let session = sent(&forge, true).await?;
    let origin = forge.world.runtime.store.origin(session.location_ref()).await?;
    let upload = origin.and_then(|origin| origin.sent?.commits).context("an upload")?;
    let key = blobs::BlobKey::new(&session.org.to_string(), "upload", upload.as_str())?;
    // A stored blob never changes, so the harm takes its place.
    forge.world.runtime.blobs.delete(&key).await?;
    forge.world.runtime.blobs.put(&key, "PACK and nothing that follows".into()).await?;
    let told = forge.refused(&session, 1).await?;
    ensure!(told.contains("checking what was sent"), "{told}");
    Ok(())
}

/// Attack 20: commands have put a link to elsewhere in the place of `.git`, or below it.
#[tokio::test]
async fn a_git_folder_that_leads_elsewhere_gets_nothing() -> Result<()> {
    let forge = Forge::new().await?;
    let outside = forge.world.folder.path().join("outside");
    std::fs::create_dir_all(outside.join("objects/pack"))?;
    for below in [".git", ".git/objects"] {
        let session = forge.session(None).await?;
        let first = forge.take_over("a", &session, 1).await?;
        let link = root(&first)?.join(below);
        std::fs::remove_dir_all(&link)?;
        std::os::unix::fs::symlink(&outside, &link)?;
        forge.world.capture(&session, 1, root(&first)?).await?;
        let second = forge.take_over("b", &session, 2).await?;
        ensure!(root(&second)?.join(below).is_symlink(), "{below}");
        let written = std::fs::read_dir(outside.join("objects/pack"))?.count();
        let written = written + std::fs::read_dir(&outside)?.count();
        assert_eq!(written, 1, "{below}: nothing was written there");
    }
    Ok(())
}

#[tokio::test]
async fn a_repository_that_means_harm_does_none() -> Result<()> {
    let forge = Forge::new().await?;
    // This shows first that git would do it outside, if somebody had set it up so.
    let hooks = "hooks/post-checkout";
    std::fs::create_dir(forge.work.join("hooks"))?;
    forge.push(".gitattributes", "* filter=evil\n")?;
    forge.push(".gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = https://h.org/x\n")?;
    std::fs::write(forge.work.join(hooks), "#!/bin/sh\ntouch \"$PWD/../pwned\"\n")?;
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(forge.work.join(hooks), executable)?;
    forge.push("z", "z")?;
    let session = forge.session(None).await?;
    let workspace = forge.take_over("a", &session, 1).await?;
    let here = root(&workspace)?;
    ensure!(here.join(hooks).exists() && !here.join("../pwned").exists());
    git(here, &["-c", "core.hooksPath=hooks", "checkout", "-q", "--detach"])?;
    ensure!(here.join("../pwned").exists(), "the hook works where git is told to run it");

    let make = "set -e; blob=$(echo x | git hash-object -w --stdin); \
                inner=$(printf '100644 blob %s\\tconfig\\n' $blob | git mktree); \
                tree=$(printf '040000 tree %s\\t.GIT\\n' $inner | git mktree); \
                git push -q --force origin $(git commit-tree -m x $tree):refs/heads/main";
    let script = forge.world.folder.path().join("make.sh");
    std::fs::write(&script, make)?;
    git(&forge.work, &["-c", &format!("alias.make=!sh {}", script.display()), "make"])?;
    let told = forge.refused(&forge.session(None).await?, 1).await?;
    ensure!(told.contains("hasDotgit") && told.contains("checking"), "{told}");
    let bare = forge.world.folder.path().join("bare");
    git(
        forge.world.folder.path(),
        &["clone", "-q", "--no-checkout", &forge.repository.display().to_string(), "bare"],
    )?;
    ensure!(
        git(&bare, &["ls-tree", "-r", "--name-only", "HEAD"])? == ".GIT/config",
        "git itself takes it"
    );
    Ok(())
}

#[tokio::test]
async fn what_a_session_did_goes_out_of_any_worker() -> Result<()> {
    let forge = Forge::new().await?;
    let session = forge.session(None).await?;
    let runtime = &forge.world.runtime;
    let fills = forge.world.fills.clone().context("fills")?;
    let (store, now) = (&runtime.store, runtime.clock.now_ms());
    let early = store.ask_out(session.clone(), "patch", now).await?;
    out::make(runtime, &fills, session.org, &early).await?;
    assert_eq!(store.session_out(session.org, early).await?.state, "nothing");
    let workspace = forge.take_over("a", &session, 1).await?;
    let here = root(&workspace)?;
    std::fs::write(here.join("b"), "mine\n")?;
    git(here, &["add", "b"])?;
    git(here, &["commit", "-q", "-m", "mine"])?;
    std::fs::write(here.join("c"), "not committed\n")?;
    forge.world.capture(&session, 1, here).await?;
    let head = git(here, &["rev-parse", "HEAD"])?;
    let folder = forge.world.folder.path();
    for kind in ["patch", "bundle"] {
        let id = store.ask_out(session.clone(), kind, now).await?;
        assert_eq!(store.asked_outs(now, 9).await?, [(session.org, id.clone())]);
        out::make(runtime, &fills, session.org, &id).await?;
        let made = store.session_out(session.org, id).await?;
        let (name, _) = made.blob.with_context(|| format!("{:?}", made.fault))?;
        let key = blobs::BlobKey::new(&session.org.to_string(), "out", &name)?;
        std::fs::write(folder.join(kind), runtime.blobs.get(&key).await?)?;
        assert_eq!(made.head.is_some(), kind == "bundle");
    }
    git(&forge.work, &["apply", "--check", &folder.join("patch").display().to_string()])?;
    git(
        &forge.work,
        &["fetch", "-q", &folder.join("bundle").display().to_string(), "refs/oc/*:refs/oc/*"],
    )?;
    assert_eq!(git(&forge.work, &["rev-parse", "refs/oc/head"])?, head);
    assert_eq!(git(&forge.work, &["show", "refs/oc/wip:c"])?, "not committed");
    Ok(())
}

/// Attack 16: a long chain of deltas is unpacked in a cell, and what takes too much there ends with a sentence.
#[tokio::test]
async fn a_chain_of_deltas_is_taken_or_its_limit_is_told() -> Result<()> {
    let mut forge = Forge::new().await?;
    let mut feed = String::new();
    let mut text: Vec<String> = (0..400).map(|line| format!("line {line}\n")).collect();
    for commit in 0..300 {
        text[commit] = format!("changed {commit}\n");
        let all = text.concat();
        let head = "commit refs/heads/main\ncommitter A <a@b> 1700000000 +0000\ndata 1\nx\n";
        feed += &format!("{head}M 100644 inline f\ndata {}\n{all}\n", all.len());
    }
    let path = forge.world.folder.path().join("feed");
    std::fs::write(&path, feed)?;
    let load = format!("alias.load=!git fast-import --force --quiet <'{}'", path.display());
    git(&forge.repository, &["-c", &load, "load"])?;
    git(&forge.repository, &["repack", "-adfq", "--depth=4095", "--window=400"])?;
    let packs = git(
        &forge.repository,
        &["-c", "alias.chains=!git verify-pack -sv objects/pack/*.idx", "chains"],
    )?;
    let longest = packs
        .lines()
        .filter_map(|line| line.strip_prefix("chain length = ")?.split(':').next()?.parse().ok());
    let longest: u32 = longest.max().context("chains")?;
    ensure!(longest > 50, "a bare git has made a chain of {longest}: {packs}");
    let session = forge.session(None).await?;
    let workspace = forge.take_over("a", &session, 1).await?;
    assert_eq!(git(root(&workspace)?, &["rev-list", "--count", "HEAD"])?, "300");
    git(root(&workspace)?, &["fsck", "--strict"])?;

    let fills = forge.world.fills.take().context("fills")?;
    forge.world.fills = Some(Fills { sandbox: Arc::new(Small), ..fills });
    forge.push("new", "new\n")?;
    let told = forge.refused(&forge.session(None).await?, 1).await?;
    ensure!(told.contains("checking https://") && told.contains("out of memory"), "{told}");
    ensure!(told.contains("a smaller repository would fit"), "{told}");
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_not_gits_is_read_too() -> Result<()> {
    let forge = Forge::with(GitServer::start_dulwich()?).await?;
    let lines: String = (0..2_000).map(|line| format!("line {line}\n")).collect();
    forge.push("long", &lines)?;
    git(&forge.work, &["tag", "-a", "-m", "v1", "v1"])?;
    git(&forge.work, &["push", "-q", "origin", "v1", "HEAD:aside"])?;
    let first = forge.take_over("a", &forge.session(Some("v1")).await?, 1).await?;
    let here = root(&first)?;
    assert_eq!(git(here, &["log", "--format=%s"])?, "long\na");
    assert_eq!(git(here, &["branch", "-r"])?, "origin/aside\n  origin/main");
    git(here, &["fsck", "--strict"])?;
    // The pack of what is new may lean on the first one.
    forge.push("long", &format!("{lines}one more\n"))?;
    let session = forge.session(None).await?;
    let second = forge.take_over("a", &session, 1).await?;
    assert_eq!(git(root(&second)?, &["status", "-sb"])?, "## main...origin/main");
    assert_eq!(git(root(&second)?, &["log", "--format=%s"])?, "long\nlong\na");
    git(root(&second)?, &["fsck", "--strict"])?;
    std::fs::write(root(&second)?.join("mine"), "mine")?;
    forge.world.capture(&session, 1, root(&second)?).await?;
    std::fs::remove_dir_all(forge.world.folder.path().join("repositories"))?;
    let third = forge.take_over("b", &session, 2).await?;
    assert_eq!(git(root(&third)?, &["status", "--porcelain"])?, "?? mine");
    git(root(&third)?, &["fsck", "--strict"])?;
    let told = forge.refused(&forge.session_of("other", None).await?, 1).await?;
    ensure!(told.contains("404") && told.contains("check the address"), "{told}");
    Ok(())
}
