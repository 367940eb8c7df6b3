//! The command line as a person's tool: services, credentials, and sessions that travel.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Result, ensure};
use journeys::{Cli, World};

#[tokio::test]
async fn a_login_checks_its_key_before_it_is_stored() -> Result<()> {
    let world = World::new().await?;
    let up = world.up().await?;
    let (url, key) = (up.api().url().to_owned(), up.api().key().to_owned());
    let cli = Cli::of_profile(&world)?;
    let none = cli.run(&["services"]).await?;
    ensure!(none.out.contains("opencode-cloud login URL"), "{none:?}");

    let wrong = cli.run_with_input(&["login", &url], "oc-not-the-key-of-this-service\n").await?;
    ensure!(wrong.code == Some(1) && wrong.err.contains("nothing was stored"), "{wrong:?}");
    let model = world.model_url();
    let foreign = cli.run_with_input(&["login", &model], &key).await?;
    ensure!(foreign.err.contains("not as OpenCode Cloud does"), "{foreign:?}");
    let empty = cli.run_with_input(&["login", &url], "").await?;
    ensure!(empty.code == Some(2) && empty.err.contains("--key-file"), "{empty:?}");
    ensure!(!world.profile().exists(), "a login that failed stores nothing");

    let done = cli.run_with_input(&["login", &url, "--name", "work"], &key).await?;
    ensure!(done.code == Some(0) && !format!("{done:?}").contains(&key), "{done:?}");
    ensure!(fs::metadata(world.profile())?.permissions().mode() & 0o777 == 0o600);
    for args in [&["session", "list"][..], &["session", "list", "--url", "work"]] {
        let listed = cli.run(args).await?;
        ensure!(listed.code == Some(0), "{args:?}: {listed:?}");
    }
    let unknown = cli.run(&["session", "list", "--url", "play"]).await?;
    ensure!(unknown.code == Some(2) && unknown.err.contains("services"), "{unknown:?}");
    let services = cli.run(&["services"]).await?;
    ensure!(services.out.contains(&format!("*  {url}  work")), "{services:?}");

    let gone = cli.run(&["logout", "work"]).await?;
    ensure!(gone.code == Some(0) && gone.out.contains("still valid there"), "{gone:?}");
    ensure!(!fs::read_to_string(world.profile())?.contains(&key));
    let refused = cli.run(&["session", "list", "--url", &url]).await?;
    ensure!(refused.code == Some(1) && refused.err.starts_with("error: no API key for"));

    let file = world.folder().join("key");
    fs::write(&file, format!("{key}\n"))?;
    let file = file.display().to_string();
    let bare = url.trim_start_matches("http://");
    let done = cli.run(&["login", bare, "--key-file", &file, "--json"]).await?;
    ensure!(done.report()?["url"] == url.as_str(), "{done:?}");
    ensure!(cli.run(&["session", "list"]).await?.code == Some(0));
    up.stop(&world).await
}
