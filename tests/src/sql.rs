//! The service's own Postgres, for what no route does: a second organisation, a future schema.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use domain::{Clock, OrgId, SystemClock};
use sqlx::Connection;

use crate::Api;

/// Returns the superuser's URL of the Postgres in a data folder, while it runs.
///
/// # Errors
/// When none runs there.
pub fn superuser_url(data: &Path) -> Result<String> {
    let folder = data.join("postgres");
    let read = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let password = read("password")?;
    let pid_file = read("pgdata/postmaster.pid")?;
    let port = pid_file.lines().nth(3).context("the fourth line of postmaster.pid is the port")?;
    let (user, database) = (boot::SUPERUSER, boot::DATABASE);
    Ok(format!("postgres://{user}:{}@127.0.0.1:{}/{database}", password.trim(), port.trim()))
}

/// Creates a second organisation, because no route does so yet. Returns the same service with its key.
///
/// # Errors
/// When the service's Postgres cannot be asked.
pub async fn another_organisation(api: &Api, data: &Path) -> Result<Api> {
    let (text, key) = auth::generate_key("another organisation's");
    let mut postgres = sqlx::PgConnection::connect(&superuser_url(data)?).await?;
    let (org, now) = (OrgId::random(), SystemClock::new().now_ms());
    sqlx::query("INSERT INTO organisation (org_id, name, created_ms) VALUES ($1, 'another', $2)")
        .bind(org.0)
        .bind(now)
        .execute(&mut postgres)
        .await?;
    sqlx::query(
        "INSERT INTO api_key (org_id, id, hash, name, scopes, created_ms) VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(org.0)
    .bind(key.id)
    .bind(key.hash)
    .bind(key.name)
    .bind(key.scopes)
    .bind(now)
    .execute(&mut postgres)
    .await?;
    postgres.close().await?;
    Api::new(api.url(), &text)
}
