//! A credential comes in over HTTP, and the model sees it in turns: of `up` and of a cluster's worker, whatever
//! happens to the secrets key.

#![allow(clippy::print_stderr, reason = "a run says what it skipped, and why")]

use std::fs;
use std::io::ErrorKind;

use anyhow::{Context, Result, ensure};
use credentials::MasterKeys;
use domain::OrgId;
use journeys::{Api, World, oracle};
use reqwest::Method;
use serde_json::json;
use sha2::{Digest, Sha256};

const KEY: &str = "sk-acme-0123456789abcdef";

/// Sets up a new provider, which is the simulated model, with a key of the organisation.
async fn set_up(world: &World, api: &Api) -> Result<()> {
    let settings = json!({ "overrides": { "api": world.model_url() } });
    api.send(api.request(Method::PUT, "/platform/provider/acme").json(&settings)).await?.ok()?;
    let new = json!({ "provider": "acme", "key": KEY });
    let kept = api.post("/platform/credential", &new).await?.ok()?;
    ensure!(kept["hint"] == "cdef" && !kept.to_string().contains(KEY), "{kept}");
    Ok(())
}

/// Runs a turn at that provider: the model sees the key, and nobody else does.
async fn turn(world: &World, api: &Api, name: &str) -> Result<()> {
    let session = api.session(&world.workspace(name)?).await?;
    let prompt = json!({
        "messageID": journeys::message_id(0),
        "model": "acme/rocket-1",
        "parts": [{ "type": "text", "text": format!("say 2 words for {name}") }],
    });
    api.post(&format!("/platform/session/{session}/message"), &prompt).await?.ok()?;
    let message = prompt["messageID"].as_str().context("an id")?;
    let outcome = api.outcome(&session, message, 60).await?;
    let log = json!(api.log(&session).await?).to_string();
    ensure!(outcome == "completed" && !log.contains(KEY), "{outcome}: {log}");
    let asked = world.model().requests().pop().context("a request")?;
    ensure!(asked.headers["credential"] == hex::encode(Sha256::digest(KEY)), "{asked:?}");
    Ok(())
}

#[tokio::test]
async fn up_asks_with_a_kept_key_and_follows_a_new_secrets_key() -> Result<()> {
    let world = World::new().await?;
    let file = world.data().join("secrets.key");
    let up = world.up().await?;
    set_up(&world, up.api()).await?;
    turn(&world, up.api(), "first").await?;
    up.stop(&world).await?;

    let (old, new) = (fs::read_to_string(&file)?, MasterKeys::generate("up-2"));
    fs::write(&file, format!("{new}\n{old}\n"))?;
    let up = world.up().await?;
    turn(&world, up.api(), "second").await?;
    let said = up.process().stderr();
    ensure!(said.contains("1 data key is wrapped by `up-2` now"), "{said}");
    up.stop(&world).await?;

    fs::write(&file, new)?;
    let up = world.up().await?;
    turn(&world, up.api(), "third").await?;
    oracle(up.api(), world.model()).await?;
    up.stop(&world).await
}

#[tokio::test]
async fn up_whose_secrets_key_is_lost_keeps_new_credentials_once_it_is_told_to() -> Result<()> {
    let world = World::new().await?;
    let up = world.up().await?;
    set_up(&world, up.api()).await?;
    let id = up.api().get("/platform/credential").await?.ok()?;
    let id = id[0]["id"].as_str().context("a credential")?.to_owned();
    let cli = up.cli()?;
    up.stop(&world).await?;

    fs::remove_file(world.data().join("secrets.key"))?;
    let up = world.up().await?;
    let said = up.process().stderr();
    ensure!(said.contains("1 left as before: the secrets key `up-"), "{said}");
    let change = json!({ "key": KEY });
    let path = format!("/platform/credential/{id}");
    let request = || up.api().request(Method::PATCH, &path).json(&change);
    let refused = up.api().send(request()).await?;
    let told = refused.body.to_string();
    ensure!(refused.status >= 400 && told.contains("credentials reset-key --org"), "{told}");
    up.stop(&world).await?;

    let (org, data) = (OrgId::FIRST.to_string(), world.data().display().to_string());
    let reset = ["credentials", "reset-key", "--org", &org, "--data-dir", &data];
    let again = format!("set it again (PATCH {path})");
    for _ in 0..2 {
        let looked = cli.run(&reset).await?;
        ensure!(looked.code == Some(1) && looked.out.contains(&again), "{looked:?}");
        ensure!(looked.out.contains("--yes"), "{looked:?}");
    }
    let done = cli.run(&[&reset[..], &["--yes"]].concat()).await?;
    ensure!(done.code == Some(0) && done.out.contains("sealed with its data key 2"), "{done:?}");
    let looked = cli.run(&reset).await?;
    ensure!(looked.code == Some(0) && looked.out.contains(&again), "{looked:?}");

    let up = world.up().await?;
    let request = up.api().request(Method::PATCH, &path).json(&change);
    up.api().send(request).await?.ok()?;
    turn(&world, up.api(), "again").await?;
    oracle(up.api(), world.model()).await?;
    up.stop(&world).await?;
    // Nobody misses the old key.
    let up = world.up().await?;
    let said = up.process().stderr();
    ensure!(said.contains("seals nothing any more: 1"), "{said}");
    up.stop(&world).await
}

#[tokio::test]
async fn a_clusters_worker_asks_with_a_kept_key_and_the_secrets_key_is_changed_beside_it()
-> Result<()> {
    let world = World::new().await?;
    let flags = ["--workers=1", "--gateways=1", "--placements=1"];
    let keys = ["k1", "k2"].map(MasterKeys::generate);
    // As during a change of keys: all roles open both, and the older one wraps.
    let both = format!("--secrets-key={},{}", keys[0], keys[1]);
    let cluster = world.cluster(&[&flags[..], &[&both]].concat()).await?;
    let api = cluster.gateway(0);
    set_up(&world, api).await?;
    turn(&world, api, "first").await?;

    let gateway = cluster.of("gateway")?.pop().context("a gateway")?;
    let variables = match fs::read(format!("/proc/{}/environ", gateway.pid)) {
        // It has the password, and not even its own user reads it, but for root.
        Err(closed) if closed.kind() == ErrorKind::PermissionDenied => {
            eprintln!("SKIPPED: the database's password is closed to an ordinary user");
            return cluster.stop(&world).await;
        }
        read => String::from_utf8(read?)?,
    };
    let database = variables
        .split('\0')
        .find_map(|word| word.strip_prefix("OPENCODE_CLOUD_DATABASE_URL="))
        .context("the gateway's database")?;
    let database = format!("--database-url={database}");
    let database = database.as_str();
    let newest = format!("--secrets-key={},{}", keys[1], keys[0]);
    let rewrap = ["credentials", "rewrap", database, &newest];
    let cli = cluster.cli()?;
    let alone = format!("--secrets-key={}", keys[1]);
    let told = cli.run(&["credentials", "rewrap", database, &alone]).await?;
    ensure!(
        told.code == Some(1) && told.out.contains("the secrets key `k1` is missing"),
        "{told:?}"
    );
    for count in ["1 data key is wrapped by `k2` now", "no data key was to be wrapped"] {
        let told = cli.run(&rewrap).await?;
        ensure!(told.out.starts_with(count), "{told:?}");
        ensure!(told.out.ends_with("no secrets key but `k2` is needed any more\n"), "{told:?}");
        ensure!(!format!("{told:?}").contains(&keys[1]), "the key is shown");
    }
    turn(&world, api, "second").await?;
    oracle(api, world.model()).await?;
    cluster.stop(&world).await
}
