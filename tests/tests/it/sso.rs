//! Sign-in at an identity provider as people see it: an owner sets it up from the command line, and a browser signs in.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use journeys::{Up, World, executable};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::idp::Idp;
use crate::npm::installed;
use crate::web::chromium;

/// How long the whole visit may take on a busy machine. Each step has a limit of its own.
const LIMIT: Duration = Duration::from_secs(120);

#[tokio::test]
async fn a_person_signs_in_at_an_identity_provider_in_a_browser() -> Result<()> {
    executable()?; // report a missing executable first
    let browser = chromium()?;
    let folder = installed("console", "playwright-core").await;
    let (idp, world) = (Idp::start().await, World::new().await?);
    // Without a key of ours, `up` makes an owner and writes their key into the profile.
    let (data, model) = (world.data().display().to_string(), world.model_url());
    let flags = ["up", "--port", "0", "--data-dir", &data, "--model-url", &model];
    let up = Up::launch(&world, &flags.map(str::to_owned), &[], None).await?;
    let owner = up.cli()?;

    let add = [
        "sso",
        "add",
        "Example",
        "--issuer",
        &idp.url,
        "--client-id",
        "later",
        "--public",
        "--json",
    ];
    let rules =
        ["--group", "eng=member", "--scope", "groups", "--scope", "profile", "--scope", "email"];
    let made = owner.run(&[&add[..], &rules].concat()).await?;
    ensure!(made.code == Some(0), "{made:?}");
    let made = made.report()?;
    let redirect = made["redirect_url"].as_str().context("an address")?;
    let (client, secret) = idp.register(redirect, "ES256", "client_secret_post").await;
    let file = world.folder().join("secret");
    std::fs::write(&file, secret.context("a secret")?)?;
    let file = file.display().to_string();
    let changed = owner
        .run(&["sso", "change", "Example", "--client-id", &client, "--secret-file", &file])
        .await?;
    ensure!(changed.out.contains("has to be tested"), "{changed:?}");
    let early = owner.run(&["sso", "activate", "Example"]).await?;
    ensure!(early.code == Some(1) && early.err.contains("test it first"), "{early:?}");
    let ticket = owner.run(&["sso", "test", "Example", "--no-wait", "--json"]).await?.report()?;

    idp.control(json!({ "person": { "sub": "ada", "name": "Ada", "groups": ["eng"] } })).await;
    let parts = json!({
        "service": up.api().url(), "ticket": ticket["url"], "key": up.api().key(), "browser": browser,
    });
    let mut node = Command::new("node");
    node.arg("sso.mjs").arg(parts.to_string()).current_dir(folder).kill_on_drop(true);
    node.stdin(Stdio::null());
    let visited = timeout(LIMIT, node.output()).await.context("the visit takes too long")?;
    let visited = visited.context("node is needed: ./dev test installs it")?;
    let told = String::from_utf8_lossy(&visited.stderr);
    let seen = String::from_utf8(visited.stdout)?;
    let seen: Vec<Value> = seen.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let [tested, owners, recovered, login, logout] = &seen[..] else { bail!("{seen:?}: {told}") };
    ensure!(visited.status.success() && logout["faults"] == json!([]), "{seen:?}: {told}");

    let page = tested["tested"].as_str().context("a text")?;
    for part in
        ["Subject\nada", "ES256", "would join as member: the group eng", "Nobody was logged in"]
    {
        ensure!(page.contains(part), "{part}: {page}");
    }
    ensure!(tested["cookies"] == json!([]), "{tested}");
    let report = owners["report"].as_str().context("a text")?;
    ensure!(report.contains("would join as member") && report.contains("ES256"), "{report}");
    ensure!(owners["at"].as_str().is_some_and(|at| at.ends_with("/sso")), "{owners}");
    let said = |name: &str| recovered[name].as_str().unwrap_or_default().to_owned();
    ensure!(
        said("alert").contains("with a recovery code from 127.0.0.1; 7 are left"),
        "{recovered}"
    );
    ensure!(said("left").contains("7 of 8 still work"), "{recovered}");
    // The login before the fresh one went with it.
    ensure!(recovered["logins"] == 2 && recovered["others"] == 401, "{recovered}");
    let codes = owner.run(&["recovery", "show"]).await?;
    ensure!(codes.out.contains("7 of 8 codes work"), "{codes:?}");
    let codes = owner.run(&["recovery", "create"]).await?;
    ensure!(codes.out.lines().count() == 8 && codes.err.contains("not shown"), "{codes:?}");
    let me = &login["me"];
    ensure!(
        me["status"] == 200
            && me["body"]["actor"]["name"] == "Ada"
            && me["body"]["role"] == "member",
        "{me}"
    );
    let cookies = login["cookies"].as_array().context("cookies")?;
    ensure!(
        cookies.len() == 1 && cookies[0]["httpOnly"] == true && cookies[0]["sameSite"] == "Strict",
        "{login}"
    );
    ensure!(logout["after"] == 401, "{logout}");
    let listed = owner.run(&["sso", "list"]).await?;
    ensure!(listed.out.contains("Example") && listed.out.contains("active"), "{listed:?}");
    up.stop(&world).await
}
