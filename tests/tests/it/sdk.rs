//! Every method of the released SDK against our service. The programs are in `tests/third-party/opencode-sdk`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use journeys::{World, executable, oracle, repository};
use serde::Deserialize;
use simulated_model::Script;
use tokio::process::Command;
use tokio::time::timeout;

use crate::npm;

/// Where each operation of the released contract says how it is answered.
const OPERATIONS: &str = "crates/api/contract/operations.tsv";

/// The methods of one of the SDK's two clients, and the calls that were made.
#[derive(Deserialize)]
struct Tried {
    methods: BTreeSet<String>,
    calls: Vec<Call>,
}

#[derive(Deserialize)]
struct Call {
    method: String,
    /// The operation that the call asked for.
    operation: Option<String>,
    /// The difference between the answer and the one that was expected.
    fault: Option<String>,
}

#[tokio::test]
async fn every_method_of_the_released_sdk_is_answered() -> Result<()> {
    executable()?; // report a missing executable first
    let folder = npm::installed("opencode-sdk", "@opencode-ai/sdk").await;
    let world = World::new().await?;
    let place = world.workspace("sdk")?;
    let up = world.up_with(&["--directory", place.to_str().context("UTF-8")?]).await?;
    let operations = repository().join(OPERATIONS);
    world.model().script(Script {
        matches: "begin and hold".into(),
        words: Some(5),
        hang_after_chunks: Some(3),
        times: Some(2), // one for each client
        ..Script::default()
    })?;
    let mut node = Command::new("node");
    node.arg("program.mjs").args([up.api().url(), up.api().key()]).arg(&place).arg(&operations);
    node.current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(Duration::from_secs(150), node.output()).await.context("it ends")??;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    let tried: BTreeMap<String, Tried> = serde_json::from_slice(&output.stdout)?;
    for (client, Tried { methods, calls }) in &tried {
        let faults = calls.iter().filter_map(|call| Some((&call.method, call.fault.as_ref()?)));
        let faults: Vec<String> =
            faults.map(|(method, fault)| format!("{client} {method}: {fault}")).collect();
        ensure!(faults.is_empty(), "{said}{}", faults.join("\n"));
        let called: BTreeSet<String> = calls.iter().map(|call| call.method.clone()).collect();
        ensure!(called == *methods, "{client}: {:?}", methods.symmetric_difference(&called));
    }
    let rows = std::fs::read_to_string(&operations)?;
    let rows = rows.lines().filter(|line| !line.starts_with('#'));
    let rows: BTreeSet<&str> = rows.filter_map(|line| line.split('\t').nth(2)).collect();
    let calls = &tried.get("v2").context("the newer client")?.calls;
    let asked: BTreeSet<&str> = calls.iter().filter_map(|call| call.operation.as_deref()).collect();
    ensure!(asked == rows, "no call is for {:?}", rows.difference(&asked));
    oracle(up.api(), world.model()).await?;
    up.stop(&world).await
}
