//! The client profile: the services that this user's commands know, and the key of each.
//!
//! It is one TOML file that only its owner can read. `up` and `login` write it, and every client command reads it:
//!
//! ```toml
//! url = "http://127.0.0.1:4096"            # the service of a command that names none
//!
//! [services."http://127.0.0.1:4096"]       # a key only goes to its own service
//! key = "oc_…"
//! name = "home"                            # optional; `--url home` means this service
//! ```

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::{Table, Value};

/// The environment variable that names another file.
pub const PROFILE_VARIABLE: &str = "OPENCODE_CLOUD_PROFILE";

const HEADER: &str =
    "# Written by `opencode-cloud up` and `login`. It holds API keys: keep it to yourself.\n";

/// The reason why the profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// There is no home directory for it.
    #[error("no client profile: HOME is not set; set it, or name a file in {PROFILE_VARIABLE}")]
    NoHome,
    /// The system refused.
    #[error("cannot {action} the client profile {}: {source}; fix that, or name another file in {PROFILE_VARIABLE}", path.display())]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The file is not a profile.
    #[error(
        "{place}: the client profile is not valid ({why}); correct it, or remove it and start the service again"
    )]
    Invalid {
        /// The file, with the line if the parser names one: `FILE:LINE`.
        place: String,
        /// The parser's message.
        why: String,
    },
}

/// The services that commands know.
#[derive(Debug, Default, Deserialize)]
pub struct Profile {
    /// The service of a command that names none.
    #[serde(default)]
    pub url: Option<String>,
    #[serde(default)]
    services: BTreeMap<String, KnownService>,
}

#[derive(Deserialize)]
struct KnownService {
    key: Option<String>,
    name: Option<String>,
}

impl std::fmt::Debug for KnownService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KnownService(hidden)")
    }
}

impl Profile {
    /// Returns the key of the service at `url`, which has no trailing slash.
    #[must_use]
    pub fn key(&self, url: &str) -> Option<&str> {
        self.services.get(url)?.key.as_deref()
    }

    /// Returns the URL of the service with this name.
    #[must_use]
    pub fn url_of_name(&self, name: &str) -> Option<&str> {
        self.services().find(|(_, its)| *its == Some(name)).map(|(url, _)| url)
    }

    /// Returns URL and name of each service, in the order of the URLs.
    pub fn services(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.services.iter().map(|(url, service)| (url.as_str(), service.name.as_deref()))
    }
}

/// A profile's file, and the user that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileFile {
    path: PathBuf,
    /// Set if we are root and act for another user, who must be able to read the file.
    owner: Option<(u32, u32)>,
}

impl ProfileFile {
    /// Returns the profile of the calling user. Under `sudo` that is the user who typed the command, not root.
    ///
    /// # Errors
    /// [`ProfileError::NoHome`].
    pub fn of_caller() -> Result<Self, ProfileError> {
        let is_root = rustix::process::geteuid().is_root();
        let passwd = || fs::read_to_string("/etc/passwd").unwrap_or_default();
        let env = |name: &str| std::env::var_os(name).map(PathBuf::from);
        Self::find(is_root, env, passwd).ok_or(ProfileError::NoHome)
    }

    fn find(
        is_root: bool,
        env: impl Fn(&str) -> Option<PathBuf>,
        passwd: impl FnOnce() -> String,
    ) -> Option<Self> {
        if let Some(path) = env(PROFILE_VARIABLE).filter(|path| !path.as_os_str().is_empty()) {
            return Some(Self { path, owner: None });
        }
        let number = |name: &str| env(name)?.to_str()?.parse::<u32>().ok();
        if is_root
            && let Some(uid) = number("SUDO_UID").filter(|uid| *uid != 0)
            && let Some((gid, home)) = user_of(&passwd(), uid)
        {
            return Some(Self { path: below(&home.join(".config")), owner: Some((uid, gid)) });
        }
        let config = env("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
        let config = config.or_else(|| {
            let home = env("HOME").filter(|path| path.is_absolute());
            home.map(|home| home.join(".config"))
        })?;
        Some(Self { path: below(&config), owner: None })
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the profile. A missing file is an empty profile.
    ///
    /// # Errors
    /// When the file cannot be read, or is not a profile.
    pub fn read(&self) -> Result<Profile, ProfileError> {
        let text = self.text()?;
        toml::from_str(&text).map_err(|error| self.invalid(&text, &error))
    }

    /// Stores the key of the service at each of `urls`. The first URL becomes the default service, unless the default
    /// is on another machine. Returns whether it is the default now. The rest of the file stays.
    ///
    /// # Errors
    /// When the old file is not a profile, or the new one cannot be written.
    pub fn remember(&self, urls: &[String], key: &str) -> Result<bool, ProfileError> {
        self.edit(|table| {
            let current = table.get("url").and_then(Value::as_str);
            let is_default = current.is_none_or(crate::is_loopback);
            if let Some(first) = urls.first().filter(|_| is_default) {
                table.insert("url".to_owned(), Value::String(first.clone()));
            }
            for url in urls {
                set(table, url, "key", key);
            }
            is_default
        })
    }

    /// Stores the key of the service at `url`, which becomes the default.
    ///
    /// # Errors
    /// Those of [`ProfileFile::remember`].
    pub fn log_in(&self, url: &str, key: &str, name: Option<&str>) -> Result<(), ProfileError> {
        self.edit(|table| {
            table.insert("url".to_owned(), Value::String(url.to_owned()));
            set(table, url, "key", key);
            if let Some(name) = name {
                set(table, url, "name", name);
            }
        })
    }

    /// Forgets the services at `urls`, and the default if it is one of them. Returns the services that are left.
    ///
    /// # Errors
    /// Those of [`ProfileFile::remember`].
    pub fn log_out(&self, urls: &[String]) -> Result<Vec<String>, ProfileError> {
        self.edit(|table| {
            if table
                .get("url")
                .and_then(Value::as_str)
                .is_some_and(|url| urls.iter().any(|gone| gone == url))
            {
                table.remove("url");
            }
            let Some(services) = table.get_mut("services").and_then(Value::as_table_mut) else {
                return Vec::new();
            };
            for url in urls {
                services.remove(url);
            }
            services.keys().cloned().collect()
        })
    }

    /// Makes the service at `url` the default.
    ///
    /// # Errors
    /// Those of [`ProfileFile::remember`].
    pub fn choose(&self, url: &str) -> Result<(), ProfileError> {
        self.edit(|table| drop(table.insert("url".to_owned(), Value::String(url.to_owned()))))
    }

    /// Changes the file in one step, under a lock.
    fn edit<T>(&self, change: impl FnOnce(&mut Table) -> T) -> Result<T, ProfileError> {
        self.make_folder().map_err(|source| self.io("write", source))?;
        // The lock lets two commands that write at once keep each other's keys.
        let lock = self.path.with_added_extension("lock");
        let lock = OpenOptions::new().create(true).append(true).mode(0o600).open(&lock);
        let lock = lock.and_then(|file| {
            self.hand_over(&self.path.with_added_extension("lock"))?;
            file.lock()?;
            Ok(file)
        });
        let _held: File = lock.map_err(|source| self.io("write", source))?;
        let text = self.text()?;
        let mut table: Table =
            text.parse().map_err(|error: toml::de::Error| self.invalid(&text, &error))?;
        let result = change(&mut table);
        self.replace(&format!("{HEADER}{table}")).map_err(|source| self.io("write", source))?;
        Ok(result)
    }

    fn text(&self) -> Result<String, ProfileError> {
        match fs::read_to_string(&self.path) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(String::new())
            }
            text => text.map_err(|source| self.io("read", source)),
        }
    }

    fn make_folder(&self) -> io::Result<()> {
        let Some(folder) = self.path.parent() else { return Ok(()) };
        let missing: Vec<&Path> = folder
            .ancestors()
            .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
            .collect();
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        missing.into_iter().try_for_each(|made| self.hand_over(made))
    }

    /// Replaces the file in one step. Only its owner can read the old or the new one.
    fn replace(&self, text: &str) -> io::Result<()> {
        let fresh = self.path.with_added_extension("new");
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        self.hand_over(&fresh)?;
        fs::rename(&fresh, &self.path)
    }

    fn hand_over(&self, path: &Path) -> io::Result<()> {
        match self.owner {
            Some((uid, gid)) => chown(path, Some(uid), Some(gid)),
            None => Ok(()),
        }
    }

    fn io(&self, action: &'static str, source: io::Error) -> ProfileError {
        ProfileError::Io { action, path: self.path.clone(), source }
    }

    fn invalid(&self, text: &str, error: &toml::de::Error) -> ProfileError {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map(|before| format!(":{}", before.matches('\n').count() + 1));
        let place = format!("{}{}", self.path.display(), line.unwrap_or_default());
        // The surrounding text may contain a key.
        ProfileError::Invalid { place, why: error.message().to_owned() }
    }
}

/// Sets a value of the service at `url`. A file whose `services` are not tables was refused before.
fn set(table: &mut Table, url: &str, name: &str, value: &str) {
    let services = table.entry("services").or_insert_with(|| Value::Table(Table::new()));
    let Some(services) = services.as_table_mut() else { return };
    let service = services.entry(url).or_insert_with(|| Value::Table(Table::new()));
    if let Some(service) = service.as_table_mut() {
        service.insert(name.to_owned(), Value::String(value.to_owned()));
    }
}

fn below(config: &Path) -> PathBuf {
    config.join("opencode-cloud/profile.toml")
}

/// Returns the group and home of a user from an `/etc/passwd` (`name:password:uid:gid:comment:home:shell`).
fn user_of(passwd: &str, uid: u32) -> Option<(u32, PathBuf)> {
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, its, gid, _, home, ..] = fields[..] else { return None };
        (its.parse() == Ok(uid)).then_some(())?;
        Some((gid.parse().ok()?, PathBuf::from(home)))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const HERE: &str = "http://127.0.0.1:4096";

    fn file(folder: &Path) -> ProfileFile {
        ProfileFile { path: below(&folder.join(".config")), owner: None }
    }

    // Finding trial 1: the first key was shown once and could be lost for good.
    #[test]
    fn a_profile_keeps_the_key_of_each_service_for_its_owner_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path());
        assert_eq!(file.read().expect("none yet").key(HERE), None);
        let other = "http://127.0.0.1:4098".to_owned();
        file.remember(&[HERE.to_owned()], "oc_one").expect("written");
        file.remember(std::slice::from_ref(&other), "oc_two").expect("written");
        let profile = file.read().expect("readable");
        assert_eq!((profile.key(HERE), profile.key(&other)), (Some("oc_one"), Some("oc_two")));
        assert_eq!(profile.key("http://127.0.0.1:1"), None, "a key goes to no other service");
        assert_eq!(profile.url.as_deref(), Some(other.as_str()), "the last service that started");
        let mode = |path: &Path| path.metadata().expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(file.path()), 0o600);
        assert_eq!(mode(file.path().parent().expect("a folder")), 0o700);
        assert!(!format!("{profile:?}").contains("oc_one"));
    }

    #[test]
    fn a_service_elsewhere_and_unknown_settings_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path());
        file.make_folder().expect("a folder");
        let before = "url = \"https://oc.example\"\nnewer = 3\n[services.\"https://oc.example\"]\nkey = \"k\"\n";
        fs::write(file.path(), before).expect("written");
        file.remember(&[HERE.to_owned()], "oc_one").expect("written");
        let profile = file.read().expect("readable");
        assert_eq!(profile.url.as_deref(), Some("https://oc.example"));
        assert_eq!(profile.key("https://oc.example"), Some("k"));
        assert_eq!(profile.key(HERE), Some("oc_one"));
        assert!(fs::read_to_string(file.path()).expect("text").contains("newer = 3"));
    }

    #[test]
    fn a_login_is_the_default_until_its_logout() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path());
        assert!(file.remember(&[HERE.to_owned()], "oc_one").expect("written"));
        file.log_in("https://oc.example", "oc_two", Some("work")).expect("written");
        let is_default = file.remember(&[HERE.to_owned()], "oc_one").expect("written");
        assert!(!is_default, "a service of this machine does not take its place");
        let profile = file.read().expect("readable");
        assert_eq!(profile.url.as_deref(), Some("https://oc.example"));
        assert_eq!(profile.url_of_name("work"), Some("https://oc.example"));
        assert_eq!(profile.url_of_name("home"), None);
        assert_eq!(profile.services().count(), 2);
        file.choose(HERE).expect("written");
        let left = file.log_out(&["https://oc.example".to_owned()]).expect("written");
        assert_eq!(left, [HERE]);
        assert_eq!(file.read().expect("readable").url.as_deref(), Some(HERE));
        file.log_out(&left).expect("written");
        let profile = file.read().expect("readable");
        assert_eq!((profile.url.as_deref(), profile.services().count()), (None, 0));
        assert!(!fs::read_to_string(file.path()).expect("text").contains("oc_"));
    }

    #[test]
    fn an_invalid_profile_is_refused_without_showing_its_text() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path());
        file.make_folder().expect("a folder");
        fs::write(file.path(), "# mine\nurl = oc_secret\n").expect("written");
        let error = file.read().expect_err("not TOML").to_string();
        assert!(
            error.contains("profile.toml:2: the client profile is not valid")
                && !error.contains("oc_secret"),
            "{error}"
        );
        assert!(file.remember(&[HERE.to_owned()], "k").is_err(), "it is not overwritten");
    }

    #[test]
    fn the_profile_is_the_callers_under_sudo_too() {
        let find = |is_root: bool, env: &[(&str, &str)]| {
            let env = |name: &str| {
                env.iter().find(|(key, _)| *key == name).map(|(_, value)| PathBuf::from(value))
            };
            let passwd =
                || "root:x:0:0::/root:/bin/sh\nme:x:1000:100:a,b:/home/me:/bin/sh\n".into();
            let found = ProfileFile::find(is_root, env, passwd)?;
            Some((found.path.display().to_string(), found.owner))
        };
        let sudo = [("HOME", "/root"), ("SUDO_UID", "1000")];
        let mine = "/home/me/.config/opencode-cloud/profile.toml".to_owned();
        assert_eq!(find(true, &sudo), Some((mine.clone(), Some((1000, 100)))));
        assert_eq!(find(false, &[("HOME", "/home/me"), ("SUDO_UID", "7")]), Some((mine, None)));
        let root = "/root/.config/opencode-cloud/profile.toml".to_owned();
        assert_eq!(find(true, &[("HOME", "/root"), ("SUDO_UID", "0")]), Some((root, None)));
        let xdg = find(false, &[("HOME", "/home/me"), ("XDG_CONFIG_HOME", "/x")]);
        assert_eq!(xdg, Some(("/x/opencode-cloud/profile.toml".to_owned(), None)));
        let named = find(true, &[("SUDO_UID", "1000"), (PROFILE_VARIABLE, "/p.toml")]);
        assert_eq!(named, Some(("/p.toml".to_owned(), None)));
        assert_eq!(find(false, &[]), None);
    }
}
