//! A managed Postgres: its administrator may create roles and databases, and is no superuser.

use anyhow::{Result, ensure};
use journeys::{PostgresServer, World, executable, init_postgres};

/// Runs `migrate` as a user of that server, and returns whether it succeeded and all that it said.
fn migrate(server: &PostgresServer, user: &str) -> Result<(bool, String)> {
    let url = format!("--database-url=postgres://{user}@{}/oc", server.address());
    let passwords = ["--migrate-password=one-of-a-test", "--serve-password=another-of-a-test"];
    let mut command = std::process::Command::new(executable()?);
    let output = command.args(["migrate", &url]).args(passwords).output()?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// Finding ops-3 B2: the migration was refused with "must be member of role oc_owner".
#[tokio::test]
async fn a_managed_postgres_takes_the_migration() -> Result<()> {
    let world = World::new().await?;
    let data = world.data().join("postgres");
    init_postgres(&data)?;
    let mut server = PostgresServer::start(&data, &world.logs(), &[]).await?;
    let users = "CREATE ROLE administrator LOGIN CREATEDB CREATEROLE; CREATE ROLE nobody LOGIN";
    server.execute("postgres", users).await?;
    server.execute("postgres", "CREATE DATABASE oc OWNER administrator").await?;

    let (is_well, said) = migrate(&server, "nobody")?;
    ensure!(!is_well && said.contains("or have CREATEROLE and CREATEDB"), "{said}");
    // The second time is that of the next upgrade.
    for _ in 0..2 {
        let (is_well, said) = migrate(&server, "administrator")?;
        ensure!(is_well, "{said}");
    }
    server.stop().await
}
