//! Sign-in at an identity provider as people see it: an owner sets it up from the command line, and a browser signs in.

use anyhow::{Context, Result, bail, ensure};
use journeys::{Up, World, executable};
use serde_json::{Value, json};

use crate::console::{DARK_MS, walk};
use crate::idp::Idp;

#[tokio::test]
async fn a_person_signs_in_at_an_identity_provider_in_a_browser() -> Result<()> {
    executable()?; // report a missing executable first
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
    let ticket = ticket["url"].as_str().context("an address")?;
    let (seen, report) = walk("sso.mjs", up.api(), &[("ticket", ticket)], async |_| {
        let people = owner.run(&["user", "list", "--json"]).await?.report()?;
        let ada = people.as_array().context("people")?;
        let ada = ada.iter().find(|person| person["name"] == "Ada").context("Ada")?;
        let disabled =
            owner.run(&["user", "disable", ada["id"].as_str().context("an id")?]).await?;
        ensure!(disabled.code == Some(0), "{disabled:?}");
        Ok(())
    })
    .await?;
    let seen = seen.iter().filter(|step| !step.starts_with("waits "));
    let seen: Vec<Value> = seen.map(|step| serde_json::from_str(step)).collect::<Result<_, _>>()?;
    let [tested, owners, recovered, login, logout] = &seen[..] else { bail!("{seen:?}") };
    ensure!(report["faults"] == json!([]), "{seen:?}: {report}");
    ensure!(report["dark"].as_u64().is_some_and(|ms| ms < DARK_MS), "{report}");

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
