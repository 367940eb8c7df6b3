//! `secrets init`: the secrets of a new cluster, made once.
//!
//! `kept ─complete─▶ all`: what is there already stays, so that a second run changes nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use boot::NatsRole;
use clap::{Args, Subcommand};
use cli::output::Screen;
use credentials::MasterKeys;

use super::ServeError;
use super::kubernetes::{ApiArgs, Made};

/// Arguments of `secrets`.
#[derive(Debug, Clone, Args)]
pub struct SecretsCommand {
    /// The subcommand.
    #[command(subcommand)]
    pub what: What,
}

/// The subcommands of `secrets`.
#[derive(Debug, Clone, Subcommand)]
pub enum What {
    /// Make the secrets that a cluster needs, where they are missing; those that are there stay as they are
    Init(InitArgs),
}

/// Arguments of `secrets init`.
#[derive(Debug, Clone, Args)]
pub struct InitArgs {
    /// Folder for the secrets, one file each
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with = "kubernetes",
        required_unless_present = "kubernetes"
    )]
    pub dir: Option<PathBuf>,
    /// Name of a Kubernetes Secret for them, in the namespace of this pod
    #[arg(long, value_name = "NAME")]
    pub kubernetes: Option<String>,
    /// The cluster's Postgres, as a user that may create roles; without a password in it, one is made too
    #[arg(long, value_name = "URL", env = "OPENCODE_CLOUD_DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// Address of the cluster's NATS, for a server that takes the made `nats.conf`; without it no secrets for NATS are made
    #[arg(long, value_name = "HOST:PORT")]
    pub nats: Option<String>,
    /// The API of Kubernetes.
    #[command(flatten)]
    pub api: ApiArgs,
}

/// Makes the missing secrets.
///
/// # Errors
/// [`ServeError`] when the URL cannot be read, or the secrets cannot be kept.
pub async fn execute(command: SecretsCommand, screen: &mut Screen) -> Result<u8, ServeError> {
    let What::Init(args) = command.what;
    let nats = args.nats.as_deref();
    let told = match (&args.dir, &args.kubernetes) {
        (_, Some(name)) => {
            let all = complete(&BTreeMap::new(), &args.database_url, nats)?;
            match args.api.create_secret(name, &all).await? {
                Made::Created => format!("the Secret {name} is made, with {} keys", all.len()),
                Made::Kept => format!("the Secret {name} is there already and stays as it is"),
            }
        }
        (Some(dir), None) => in_folder(dir, &args.database_url, nats)?,
        (None, None) => {
            return Err(ServeError::Usage("give --dir DIR or --kubernetes NAME".to_owned()));
        }
    };
    screen.out.say(&told).map_err(|error| ServeError::stopped("cannot print", &error))?;
    Ok(0)
}

/// Returns all secrets: those that are kept, and new ones in place of missing ones.
fn complete(
    kept: &BTreeMap<String, String>,
    database: &str,
    nats: Option<&str>,
) -> Result<BTreeMap<String, String>, ServeError> {
    let mut all = kept.clone();
    let mut secret =
        |name: &str, make: fn() -> String| all.entry(name.to_owned()).or_insert_with(make).clone();
    let migrate = secret("migrate-password", auth::generate);
    let serve = secret("serve-password", auth::generate);
    secret("cluster-secret", auth::generate);
    secret("bootstrap-key", auth::generate);
    secret("metrics-token", auth::generate);
    secret("secrets-key", || MasterKeys::generate_like("cluster"));
    let admin_url = match store::url_password(database)? {
        Some(_) => database.to_owned(),
        None => {
            let password = secret("admin-password", auth::generate);
            let user = database.split_once("://").and_then(|(_, rest)| rest.split_once('@'));
            let user = user.map_or("postgres", |(user, _)| user);
            store::role_url(database, user, Some(&password))?
        }
    };
    let migrate_url = store::role_url(database, "oc_migrate", Some(&migrate))?;
    let serve_url = store::role_url(database, "oc_app", Some(&serve))?;
    let mut derived = vec![
        ("admin-url".to_owned(), admin_url),
        ("migrate-url".to_owned(), migrate_url),
        ("database-url".to_owned(), serve_url),
    ];
    if let Some(nats) = nats {
        let mut users = String::new();
        for role in NatsRole::ALL {
            let user = role.user();
            let password = secret(&format!("nats-{user}-password"), auth::generate);
            users.push_str(&role.entry(&password));
            derived.push((format!("nats-{user}-url"), format!("nats://{user}:{password}@{nats}")));
        }
        let config = format!(
            "listen: \"0.0.0.0:4222\"\nhttp: \"0.0.0.0:8222\"\nauthorization {{ users: [\n{users}] }}\n"
        );
        derived.push(("nats.conf".to_owned(), config));
    }
    for (name, value) in derived {
        all.entry(name).or_insert(value);
    }
    Ok(all)
}

fn in_folder(dir: &Path, database: &str, nats: Option<&str>) -> Result<String, ServeError> {
    let failed = |action: &str, path: &Path, error: &io::Error| {
        ServeError::stopped(&format!("cannot {action} {}", path.display()), error)
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| failed("make the folder", dir, &error))?;
    let mut kept = BTreeMap::new();
    for entry in fs::read_dir(dir).map_err(|error| failed("read", dir, &error))? {
        let path = entry.map_err(|error| failed("read", dir, &error))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        // An unfinished file of an earlier run, or something that is none of ours.
        if name.starts_with('.') || !path.is_file() {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(|error| failed("read", &path, &error))?;
        kept.insert(name, text);
    }
    let all = complete(&kept, database, nats)?;
    let mut made = 0;
    for (name, value) in all.iter().filter(|(name, _)| !kept.contains_key(*name)) {
        let path = dir.join(name);
        // In one step: half a secret would be a wrong one for ever.
        let fresh = dir.join(format!(".{name}.new"));
        let written = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)
            .and_then(|mut file| {
                file.write_all(value.as_bytes())?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&fresh, &path));
        written.map_err(|error| failed("write", &path, &error))?;
        made += 1;
    }
    let folder = dir.display();
    Ok(match made {
        0 => format!("all secrets are in {folder} already"),
        made => format!("{made} secrets are made in {folder}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATABASE: &str = "postgres://admin@db:5432/oc?sslmode=require";

    #[test]
    fn a_second_run_changes_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let read = || {
            let files = fs::read_dir(dir.path()).expect("a folder").map(|entry| {
                let path = entry.expect("an entry").path();
                (path.clone(), fs::read_to_string(path).expect("a text"))
            });
            files.collect::<BTreeMap<_, _>>()
        };
        let told = in_folder(dir.path(), DATABASE, Some("nats:4222")).expect("made");
        let first = read();
        assert_eq!(told, format!("{} secrets are made in {}", first.len(), dir.path().display()));
        in_folder(dir.path(), DATABASE, Some("nats:4222")).expect("kept");
        assert_eq!(read(), first);
        // A lost one comes again, and the others stay.
        fs::remove_file(dir.path().join("cluster-secret")).expect("removed");
        in_folder(dir.path(), DATABASE, Some("nats:4222")).expect("made");
        let changed = read().into_iter().filter(|(path, text)| first.get(path) != Some(text));
        let names: Vec<_> =
            changed.map(|(path, _)| path.file_name().map(ToOwned::to_owned)).collect();
        assert_eq!(names, [Some("cluster-secret".into())]);
    }

    #[test]
    fn urls_contain_the_passwords_that_were_made() {
        let all = complete(&BTreeMap::new(), DATABASE, Some("nats:4222")).expect("secrets");
        let url = |user: &str, name: &str| {
            format!("postgres://{user}:{}@db:5432/oc?sslmode=require", all[name])
        };
        assert_eq!(all["admin-url"], url("admin", "admin-password"));
        assert_eq!(all["migrate-url"], url("oc_migrate", "migrate-password"));
        assert_eq!(all["database-url"], url("oc_app", "serve-password"));
        let nats = format!("nats://worker:{}@nats:4222", all["nats-worker-password"]);
        assert_eq!(all["nats-worker-url"], nats);
        assert!(all["nats.conf"].contains(&all["nats-placement-password"]));
        MasterKeys::parse(&all["secrets-key"]).expect("a key");
        auth::bootstrap_key(&all["bootstrap-key"]).expect("a key");
        let passwords: std::collections::BTreeSet<_> =
            all.iter().filter(|(name, _)| name.ends_with("password")).map(|(_, it)| it).collect();
        assert_eq!(passwords.len(), 6, "each is another one");
    }

    #[test]
    fn a_given_password_is_taken_and_nats_is_left_to_others() {
        let all =
            complete(&BTreeMap::new(), "postgres://root:p%40ss@db/oc", None).expect("secrets");
        assert_eq!(all["admin-url"], "postgres://root:p%40ss@db/oc");
        assert!(!all.keys().any(|name| name.starts_with("nats") || name == "admin-password"));
        let refused = complete(&BTreeMap::new(), "mysql://x", None).expect_err("no Postgres");
        assert!(refused.to_string().contains("postgres://USER"), "{refused}");
    }
}
