//! A blob without a row is deleted once nobody can need it; a blob with a row stays.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use journeys::{Api, World, events_of, eventually};
use reqwest::Method;
use serde_json::json;

/// Makes a session with a tool output larger than a model sees, and returns the path of the whole output.
async fn spilled(api: &Api, directory: &Path, blobs: &Path) -> Result<(String, PathBuf)> {
    let session = api.session(directory).await?;
    let prompt = api.admit(&session, "run seq 1 30000").await?;
    ensure!(api.outcome(&session, &prompt, 60).await? == "completed");
    let log = api.log(&session).await?;
    let settled = events_of(&log, "tool.settled");
    let path = settled.iter().find_map(|event| event["managed_path"].as_str());
    let name = path.and_then(|path| path.strip_prefix("/tool-output/")).context("a file")?;
    let blob = blobs.join("tool-output").join(name);
    ensure!(fs::read_to_string(&blob)?.contains("\n29999\n"), "{}", blob.display());
    Ok((session, blob))
}

#[tokio::test]
async fn what_a_deleted_session_kept_goes_after_a_while_and_what_others_keep_stays() -> Result<()> {
    let world = World::new().await?;
    // Longer than a row comes after its blob, even on a busy machine.
    let up = world.up_with(&["--blob-retention=5"]).await?;
    let api = up.api();
    let place = world.workspace("place")?;
    let blobs = world.data().join("blobs/o");
    let mine = fs::read_dir(&blobs).ok().and_then(|mut all| all.next()).transpose()?;
    ensure!(mine.is_none(), "nothing is stored at first");
    let organisation = blobs.join("00000000-0000-4000-8000-000000000001");
    let (gone, goes) = spilled(api, &place, &organisation).await?;
    let (stays, kept) = spilled(api, &place, &organisation).await?;
    let prompt = api.admit(&stays, "create a.txt containing one").await?;
    ensure!(api.outcome(&stays, &prompt, 60).await? == "completed");
    // A blob whose worker died before it wrote the row; and a file that is not ours.
    let orphan = organisation.join("snapshot/loc_x-1-1-0123456789abcdef");
    fs::write(&orphan, "never named")?;
    let strange = blobs.join("readme/tool-output/file");
    fs::create_dir_all(strange.parent().context("a folder")?)?;
    fs::write(&strange, "of somebody")?;
    let packs = fs::read_dir(organisation.join("snapshot"))?.count();
    ensure!(packs > 1, "the files are captured");

    let path = format!("/platform/session/{gone}");
    api.send(api.request(Method::DELETE, &path)).await?.ok()?;
    let are_gone = async || Ok((!goes.exists() && !orphan.exists()).then_some(()));
    eventually("what no row names is deleted", 60, are_gone).await?;
    ensure!(kept.exists() && strange.exists());
    ensure!(fs::read_dir(organisation.join("snapshot"))?.count() == packs - 1);
    // It can still be read.
    let name = kept.file_name().and_then(|name| name.to_str()).context("a name")?;
    let prompt = api.admit(&stays, &format!("read /tool-output/{name}")).await?;
    ensure!(api.outcome(&stays, &prompt, 60).await? == "completed");
    let log = api.log(&stays).await?;
    let read = events_of(&log, "tool.settled").pop().context("a result")?;
    ensure!(
        read["outcome"] == "completed"
            && read["title"].as_str().is_some_and(|it| it.contains(name)),
        "{read}"
    );
    // The check finds a row whose blob is missing.
    let check = "/platform/check?settled=true&blobs=true";
    ensure!(api.get(check).await?.ok()? == json!([]));
    fs::remove_file(&kept)?;
    let broken = api.get(check).await?.ok()?;
    let found = broken.as_array().and_then(|found| found.first()).context("a violation")?;
    ensure!(found["invariant"] == "I14" && found["session"] == stays.as_str(), "{broken}");
    ensure!(found["found"].as_str().is_some_and(|text| text.contains(name)), "{broken}");
    up.stop(&world).await
}
