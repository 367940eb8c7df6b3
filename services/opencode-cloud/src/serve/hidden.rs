//! The paths of this machine that sessions do not see, wherever they work: the service's own folders, client profiles, and the
//! credentials of the people who have a home here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use sandbox::HiddenPaths;

/// Where `up` and the commands of the client keep keys, in each home.
const OF_THE_SERVICE: [&str; 2] = [".config/opencode-cloud", ".local/share/opencode-cloud"];

/// The paths that sessions do not see, and the exceptions.
#[derive(Debug, Clone, Default, Args)]
pub struct HiddenArgs {
    /// More paths that sessions do not see when they work in a directory that contains them, comma-separated. The service's own
    /// folders and the credentials in homes (such as ~/.ssh, ~/.aws and the profiles of browsers) are hidden in any case
    #[arg(
        long,
        value_name = "PATH,…",
        value_delimiter = ',',
        value_parser = parse_absolute_path,
        env = "OPENCODE_CLOUD_HIDE"
    )]
    pub hide: Vec<PathBuf>,
    /// Credentials in homes that sessions may see all the same, such as /home/me/.aws, comma-separated
    #[arg(
        long,
        value_name = "PATH,…",
        value_delimiter = ',',
        value_parser = parse_absolute_path,
        env = "OPENCODE_CLOUD_SHOW_CREDENTIALS"
    )]
    pub show_credentials: Vec<PathBuf>,
}

impl HiddenArgs {
    /// Returns what sessions do not see. `own`: folders of the service.
    pub(crate) fn paths(&self, own: impl IntoIterator<Item = PathBuf>) -> HiddenPaths {
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let homes = homes(&passwd, std::env::home_dir());
        let homes: Vec<_> =
            homes.iter().filter(|home| home.is_dir()).map(PathBuf::as_path).collect();
        let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
        let config = config.map(|config| config.join("opencode-cloud"));
        let of_homes = homes.iter().flat_map(|home| OF_THE_SERVICE.map(|name| home.join(name)));
        let credentials =
            HiddenPaths::credentials_of(homes.iter().copied(), &self.show_credentials);
        let all = own.into_iter().chain(config).chain(of_homes).chain(credentials);
        HiddenPaths::new(all.chain(self.hide.iter().cloned()))
    }
}

/// Takes an absolute path only: where a relative one leads depends on where the service was started.
fn parse_absolute_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err("write an absolute path".to_owned()) }
}

/// Returns the homes of people: those of an `/etc/passwd` (`name:password:uid:gid:comment:home:shell`), and the user's own.
fn homes(passwd: &str, own: Option<PathBuf>) -> BTreeSet<PathBuf> {
    let of_people = passwd.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let (uid, home) = (fields.get(2)?.parse::<u32>().ok()?, *fields.get(5)?);
        (uid == 0 || uid >= 1000).then(|| PathBuf::from(home))
    });
    let is_home = |home: &PathBuf| home.is_absolute() && home != Path::new("/");
    of_people.chain(own).filter(is_home).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_those_of_people() {
        let passwd = "root:x:0:0::/root:/bin/sh\ndaemon:x:1:1::/usr/sbin:/bin/false\nme:x:1000:1000::/home/me:/bin/sh\n\
                      nobody:x:65534:65534::/:/bin/false\ntorn\n";
        let found = homes(passwd, Some("/srv/me".into()));
        assert_eq!(found, ["/home/me", "/root", "/srv/me"].map(PathBuf::from).into());
    }

    #[test]
    fn a_relative_path_is_refused_rather_than_left_out() {
        for path in ["./private", "private", "", "~/private"] {
            assert!(parse_absolute_path(path).is_err(), "{path}");
        }
        assert_eq!(parse_absolute_path("/private"), Ok("/private".into()));
    }

    #[test]
    fn the_own_folders_are_hidden_whatever_is_shown() {
        let args =
            HiddenArgs { hide: vec!["/more".into()], show_credentials: vec!["/data".into()] };
        let paths = args.paths(["/data".into()]);
        assert!(paths.around(Path::new("/data/secrets.key")).is_some());
        assert!(paths.around(Path::new("/more/x")).is_some());
    }
}
