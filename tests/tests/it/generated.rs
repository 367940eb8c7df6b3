//! Requests that Schemathesis generates from our own document: none is answered with a failure of ours, and each answer
//! has the shape that the document says.

use anyhow::{Context, Result, ensure};
use journeys::{KEY, World};
use serde_json::json;
use tokio::process::Command;

/// Generated cases of each operation, unless `SCHEMATHESIS_CASES` says another number.
const CASES: &str = "4";

#[tokio::test]
async fn generated_requests_meet_no_failure_and_no_other_shape() -> Result<()> {
    let world = World::new().await?;
    let up = world.up().await?;
    let api = up.api();
    let place = world.workspace("generated")?;
    let place = place.to_str().context("UTF-8")?;
    let project = api.post("/project", &json!({ "directory": place })).await?.ok()?;
    let project = project["id"].as_str().context("an id")?;
    let new = json!({ "id": "ses_generated" });
    api.post(&format!("/project/{project}/session"), &new).await?.ok()?;
    let own = "/platform/session/ses_generated";
    let prompt = json!({ "id": "msg_generated", "text": "say 3 words" });
    api.post(&format!("{own}/message"), &prompt).await?.ok()?;
    api.post(&format!("{own}/wait"), &json!({})).await?.ok()?;

    let config = world.logs().join("schemathesis.toml");
    let known = format!(
        "[parameters]\n\"path.session\" = \"ses_generated\"\n\"path.project\" = \"{project}\"\n\
         \"path.message\" = \"msg_generated\"\n\"path.provider\" = \"acme\"\n"
    );
    std::fs::write(&config, known)?;
    let cases = std::env::var_os("SCHEMATHESIS_CASES").unwrap_or_else(|| CASES.into());
    let checks = "not_a_server_error,response_schema_conformance,content_type_conformance,\
                  status_code_conformance";
    let mut command = Command::new("schemathesis");
    command.arg("--config-file").arg(&config).arg("run");
    command.arg(format!("{}/platform/openapi.json", api.url()));
    command.arg("--header").arg(format!("Authorization: Bearer {KEY}"));
    command.arg("--max-examples").arg(cases).args(["--seed", "1", "--request-timeout", "60"]);
    command.args(["--phases", "examples,coverage,fuzzing", "--checks", checks, "--no-color"]);
    // A stream and a wait end when they are told to, a check looks at every row, and no pack of git can be generated.
    command.args(["--exclude-path-regex", "/(log|wait|check|upload)$", "--continue-on-failure"]);
    let ran = command.current_dir(world.logs()).output().await;
    let ran = ran.context("schemathesis is needed: ./dev test installs it")?;
    let told = String::from_utf8_lossy(&ran.stdout);
    ensure!(ran.status.success(), "{told}\n{}", String::from_utf8_lossy(&ran.stderr));
    println!("{}", told.lines().filter(|line| line.contains(" generated")).collect::<String>());
    // Sessions were deleted among others, so requests at the model have lost their rows: only the rows are judged.
    let broken = api.get("/platform/check?blobs=true").await?.ok()?;
    ensure!(broken == json!([]), "{broken:#}");
    up.stop(&world).await
}
