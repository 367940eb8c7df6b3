//! Repositories and commands that mean harm.

use super::*;

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
