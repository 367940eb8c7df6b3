//! Workspaces that are filled from what a person's machine sent.

use super::*;

/// Stores a file as an upload.
async fn upload(forge: &Forge, org: domain::OrgId, path: &Path) -> Result<domain::UploadId> {
    let (runtime, now) = (&forge.world.runtime, forge.world.runtime.clock.now_ms());
    let id = store::Store::mint_upload(now);
    let key = blobs::BlobKey::new(&org.to_string(), "upload", id.as_str())?;
    runtime.blobs.put_file(&key, std::fs::File::open(path)?).await?;
    let new = store::NewUpload { id: id.clone(), bytes: 1, now };
    runtime.store.add_upload(org, new, u64::MAX).await?;
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
