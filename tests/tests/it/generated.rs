//! Requests that Schemathesis generates from our own documents: none is answered with a failure of ours, and each answer
//! has the shape that its document says.

use anyhow::{Context, Result, ensure};
use journeys::{Api, World};
use serde_json::{Value, json};
use tokio::process::Command;

/// Generated cases of each operation, unless `SCHEMATHESIS_CASES` says another number.
const CASES: &str = "3";
/// Streams and waits end when they are told to, a check looks at every row, and no pack of git can be generated.
const EXCLUDED: &str = "/(event|log|wait|check|upload)$";

/// Makes a project with a session that has had an answer, and returns the project's id.
async fn furnish(world: &World, api: &Api) -> Result<String> {
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
    Ok(project.to_owned())
}

/// Sends requests of a document as the owner, with these parameters known. Returns a line that counts them.
async fn generate(document: &str, known: impl Fn(&str) -> Value) -> Result<String> {
    let world = World::new().await?;
    let up = world.up_of_owner(&[]).await?;
    let api = up.api();
    let project = furnish(&world, api).await?;
    let config = world.logs().join("schemathesis.toml");
    let known = known(&project);
    let known = known.as_object().context("parameters")?.iter();
    let known: String = known.map(|(name, value)| format!("\"path.{name}\" = {value}\n")).collect();
    std::fs::write(&config, format!("[parameters]\n{known}"))?;
    let cases = std::env::var_os("SCHEMATHESIS_CASES").unwrap_or_else(|| CASES.into());
    let checks = "not_a_server_error,response_schema_conformance,content_type_conformance,\
                  status_code_conformance";
    let mut command = Command::new("schemathesis");
    command.arg("--config-file").arg(&config).arg("run");
    command.arg(format!("{}{document}", api.url()));
    command.arg("--header").arg(format!("Authorization: Bearer {}", api.key()));
    command.arg("--max-examples").arg(cases).args(["--seed", "1", "--request-timeout", "60"]);
    command.args(["--phases", "examples,coverage,fuzzing", "--checks", checks, "--no-color"]);
    command.args(["--exclude-path-regex", EXCLUDED, "--continue-on-failure"]);
    let ran = command.current_dir(world.logs()).output().await;
    let ran = ran.context("schemathesis is needed: ./dev test installs it")?;
    let told = String::from_utf8_lossy(&ran.stdout);
    ensure!(ran.status.success(), "{told}\n{}", String::from_utf8_lossy(&ran.stderr));
    let counted = told.lines().find(|line| line.contains(" generated, ")).unwrap_or_default();
    // Sessions were deleted among others, so requests at the model have lost their rows: only the rows are judged.
    let broken = api.get("/platform/check?blobs=true").await?.ok()?;
    ensure!(broken == json!([]), "{broken:#}");
    up.stop(&world).await?;
    Ok(counted.trim().to_owned())
}

#[tokio::test]
async fn generated_requests_of_our_document_are_answered_as_it_says() -> Result<()> {
    let counted = generate(
        "/platform/openapi.json",
        |project| json!({ "session": "ses_generated", "project": project, "message": "msg_generated", "provider": "acme" }),
    );
    println!("{}", counted.await?);
    Ok(())
}

#[tokio::test]
async fn generated_requests_of_the_released_contract_are_too() -> Result<()> {
    let counted = generate(
        "/doc",
        |project| json!({ "sessionID": "ses_generated", "projectID": project, "messageID": "msg_generated", "providerID": "acme" }),
    );
    println!("{}", counted.await?);
    Ok(())
}
