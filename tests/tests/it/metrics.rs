//! Metrics as a real Prometheus reads them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use journeys::{KEY, Process, World, eventually, oracle};
use serde_json::Value;
use tokio::net::TcpListener;

/// Returns Prometheus, which `./dev test` installs.
fn prometheus() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("prometheus"));
    let mut found = found.filter(|program| program.is_file());
    found.next().context("no prometheus is on the PATH: ./dev test installs it")
}

#[tokio::test]
async fn a_prometheus_scrapes_a_service_and_no_secret_is_there() -> Result<()> {
    let program = prometheus()?;
    let world = World::new().await?;
    let port = boot::free_port()?;
    let flags = ["--metrics-bind", &format!("127.0.0.1:{port}")];
    let up = world.up_with(&flags).await?;
    let place = world.workspace("a-secret-place")?;
    let session = up.api().session(&place).await?;
    ensure!(up.api().prompt(&session, "run echo CANARY", 60).await? == "completed");

    let text = reqwest::get(format!("http://127.0.0.1:{port}/metrics")).await?.text().await?;
    for line in [
        "oc_admissions_total{outcome=\"stored\"} 1\n",
        "oc_tool_seconds_count{tool=\"shell\",outcome=\"completed\"} 1\n",
        "oc_provider_attempts_total{provider=\"custom\",outcome=\"completed\"} 2\n",
        "oc_drain_ends_total{exit=\"completed\"} 1\n",
        "oc_leases 1\n",
    ] {
        ensure!(text.contains(line), "{line:?} is not in {text}");
    }
    for secret in [session.as_str(), "a-secret-place", "CANARY", KEY] {
        ensure!(!text.contains(secret), "{secret} is in {text}");
    }
    ensure!(text.len() < 300_000, "{} bytes", text.len());
    let public = up.api().get("/metrics").await?;
    ensure!(!public.body.to_string().contains("oc_drains"), "{public:?}");

    let config = world.folder().join("prometheus.yml");
    let scrapes = format!(
        "scrape_configs:\n- job_name: oc\n  scrape_interval: 1s\n  static_configs: [{{ targets: ['127.0.0.1:{port}'] }}]\n"
    );
    std::fs::write(&config, scrapes)?;
    let listen = format!("127.0.0.1:{}", boot::free_port()?);
    let args = [
        format!("--config.file={}", config.display()),
        format!("--storage.tsdb.path={}", world.folder().join("tsdb").display()),
        format!("--web.listen-address={listen}"),
    ];
    let server = Process::start("prometheus", &program, &args, &[], &world.logs())?;
    let client = reqwest::Client::builder().timeout(Duration::from_secs(5)).build()?;
    let query = format!("http://{listen}/api/v1/query?query=");
    let value = eventually("Prometheus has scraped", 60, async || {
        let asked = client.get(format!("{query}oc_turn_seconds_count")).send().await;
        let Ok(answer) = asked else { return Ok(None) };
        let Ok(answer) = answer.json::<Value>().await else { return Ok(None) };
        let value = answer["data"]["result"][0]["value"][1].as_str().map(str::to_owned);
        Ok(value)
    })
    .await?;
    ensure!(value == "2", "two turns: {value}");
    drop(server);
    oracle(up.api(), world.model()).await?;
    up.stop(&world).await
}

// Attack 11 of production: the collector is down, or as slow as tar.
#[tokio::test]
async fn a_collector_that_takes_nothing_stops_no_work() -> Result<()> {
    let away = boot::free_port()?;
    // It takes connections, and says nothing.
    let tar = TcpListener::bind("127.0.0.1:0").await?;
    for port in [away, tar.local_addr()?.port()] {
        let world = World::new().await?;
        let up = world.up_with(&["--otlp-endpoint", &format!("http://127.0.0.1:{port}")]).await?;
        let session = up.api().session(&world.workspace("place")?).await?;
        let began = Instant::now();
        for _ in 0..20 {
            ensure!(up.api().prompt(&session, "say 2 words", 60).await? == "completed");
        }
        ensure!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        eventually("the loss is told", 30, async || {
            let said = up.process().stderr();
            Ok(said.contains("the collector of traces does not take them").then_some(()))
        })
        .await?;
        oracle(up.api(), world.model()).await?;
        up.stop(&world).await?;
    }
    Ok(())
}
