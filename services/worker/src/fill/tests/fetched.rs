//! Workspaces that are filled from a git server.

use super::*;

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
