//! The network of commands: how far it reaches, and the proxies that are the only way there.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use ::egress::{AllowedHost, Attempt, Egress, Exit, Hosts, Passage, Record};
use clap::Args;
use sandbox::{Exits, Opening, Reach};
use tasks::{OnCancel, OnError, TaskGroup, TaskKind};

use super::ServeError;
use super::egress::EgressArgs;

const EXIT: TaskKind = TaskKind::new("way out of a cell", OnError::Log, OnCancel::Abort);

/// The hosts from which package managers install. None is a place where anybody keeps anything else: a host of
/// repositories, such as github.com, takes what a command sends there, and is therefore not among them.
const PACKAGES: [&str; 22] = [
    "crates.io",
    "index.crates.io",
    "static.crates.io",
    "static.rust-lang.org",
    "pypi.org",
    "files.pythonhosted.org",
    "registry.npmjs.org",
    "registry.yarnpkg.com",
    "nodejs.org",
    "proxy.golang.org",
    "sum.golang.org",
    "rubygems.org",
    "index.rubygems.org",
    "repo.maven.apache.org",
    "repo1.maven.org",
    "plugins.gradle.org",
    "services.gradle.org",
    "repo.packagist.org",
    "api.nuget.org",
    "repo.hex.pm",
    "hackage.haskell.org",
    "cran.r-project.org",
];

/// The text of a log line about one connection.
const LINE: &str = "network of a command";

/// Where Linux systems keep the certificates that they believe.
const CERTIFICATES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// How far commands get into networks.
#[derive(Debug, Clone, Args)]
pub struct NetworkArgs {
    /// Network of the commands of models: none; packages (the registries of package managers); open (every public address,
    /// by HTTP and TLS). An address inside is never reached but for --egress-allow
    #[arg(long, value_name = "REACH", value_parser = reach, default_value = "none", env = "OPENCODE_CLOUD_NETWORK")]
    pub network: Reach,
    /// Hosts of --network packages, in place of the shipped list: NAME, *.NAME or ADDRESS, each with a port or without;
    /// `default` is the shipped list, as in default,github.com
    #[arg(
        long,
        value_name = "HOST,…",
        value_delimiter = ',',
        default_value = "default",
        env = "OPENCODE_CLOUD_NETWORK_HOSTS"
    )]
    pub network_hosts: Vec<NetworkHost>,
}

/// An entry of `--network-hosts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkHost {
    /// The shipped list.
    Shipped,
    /// One host, or all below a name.
    Host(AllowedHost),
}

impl FromStr for NetworkHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim() == "default" {
            return Ok(Self::Shipped);
        }
        text.parse().map(Self::Host).map_err(|error| format!("{error}; or `default`"))
    }
}

impl fmt::Display for NetworkHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shipped => f.write_str("default"),
            Self::Host(host) => host.fmt(f),
        }
    }
}

fn reach(name: &str) -> Result<Reach, String> {
    let known = || Reach::ALL.map(Reach::name).join(", ");
    Reach::named(name).ok_or_else(|| format!("there is no network `{name}`; there are {}", known()))
}

impl NetworkArgs {
    /// Refuses hosts that would have no effect, since the network is not that of packages.
    ///
    /// # Errors
    /// [`ServeError::Usage`].
    pub(crate) fn check_hosts(&self) -> Result<(), ServeError> {
        if self.network == Reach::Packages || self.network_hosts == [NetworkHost::Shipped] {
            return Ok(());
        }
        Err(ServeError::Usage(format!(
            "--network-hosts lists the hosts of --network packages, and the network is `{}`: add --network packages, or \
             leave --network-hosts out",
            self.network
        )))
    }

    fn hosts(&self) -> Hosts {
        match self.network {
            Reach::None => return Hosts::none(),
            Reach::Open => return Hosts::Public,
            Reach::Packages => {}
        }
        let shipped = || PACKAGES.iter().filter_map(|name| name.parse().ok());
        let mut hosts = Vec::new();
        for entry in &self.network_hosts {
            match entry {
                NetworkHost::Shipped => hosts.extend(shipped()),
                NetworkHost::Host(host) => hosts.push(host.clone()),
            }
        }
        Hosts::Listed(hosts)
    }

    /// Returns the ways out of cells, whose proxies run in `role`; `None` if there is none.
    ///
    /// # Errors
    /// When a flag of the egress cannot be used.
    pub(crate) fn exits(&self, egress: &EgressArgs) -> Result<Option<Ways>, ServeError> {
        if self.network == Reach::None {
            return Ok(None);
        }
        let exit = egress.exit(self.hosts(), self.network.name())?;
        let certificates = match &egress.egress_ca {
            Some(path) => beside_the_systems(path)?,
            None => Vec::new(),
        };
        Ok(Some(Ways { exit, certificates }))
    }

    /// Returns the way of `webfetch` into networks: that of commands, since the model chooses its addresses too.
    ///
    /// # Errors
    /// When a flag of the egress cannot be used.
    pub(crate) fn pages(&self, egress: &EgressArgs) -> Result<Egress, ServeError> {
        egress.egress_to(self.hosts())
    }

    /// Returns the same settings as arguments for another process.
    pub(crate) fn words(&self) -> [String; 2] {
        let hosts: Vec<_> = self.network_hosts.iter().map(ToString::to_string).collect();
        [format!("--network={}", self.network), format!("--network-hosts={}", hosts.join(","))]
    }
}

/// Returns the system's certificates with those of a file.
fn beside_the_systems(path: &Path) -> Result<Vec<u8>, ServeError> {
    let mut all = CERTIFICATES.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default();
    let more = std::fs::read(path).map_err(|error| {
        ServeError::Usage(format!("--egress-ca: cannot read {}: {error}", path.display()))
    })?;
    all.push(b'\n');
    all.extend(more);
    Ok(all)
}

/// The ways out of cells, before there is a role in which they run.
#[derive(Debug)]
pub(crate) struct Ways {
    exit: Exit,
    certificates: Vec<u8>,
}

impl Ways {
    /// Returns what the sandbox takes. The proxies are tasks of `role`.
    pub(crate) fn within(self, role: &TaskGroup) -> Arc<dyn Exits> {
        let group = role.child("ways out of cells");
        Arc::new(Proxies { exit: self.exit, certificates: self.certificates, group })
    }
}

struct Proxies {
    exit: Exit,
    certificates: Vec<u8>,
    group: TaskGroup,
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxies").field("exit", &self.exit).finish_non_exhaustive()
    }
}

impl Exits for Proxies {
    fn serve(&self, opening: Opening) {
        let Opening { listener, reach, cell, refusals, closed } = opening;
        let record: Record = Arc::new(move |attempt| {
            let Attempt { host, port, passage, sent, received } = attempt;
            match passage {
                Passage::Passed => {
                    tracing::info!(%cell, %reach, %host, port, verdict = "passed", sent, received, "{LINE}");
                }
                Passage::Failed(why) => {
                    tracing::info!(%cell, %reach, %host, port, verdict = "failed", why, sent, received, "{LINE}");
                }
                Passage::Refused(why) => {
                    tracing::warn!(%cell, %reach, %host, port, verdict = "refused", why, sent, received, "{LINE}");
                    refusals.push(why);
                }
            }
        });
        let exit = self.exit.clone();
        self.group.spawn(EXIT, async move {
            tokio::select! {
                () = exit.serve(listener, record) => {}
                () = closed => {}
            }
            Ok::<_, std::convert::Infallible>(())
        });
    }

    fn certificates(&self) -> &[u8] {
        &self.certificates
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Probe {
        #[command(flatten)]
        network: NetworkArgs,
    }

    fn args(words: &[&str]) -> NetworkArgs {
        Probe::try_parse_from([&["probe"], words].concat()).expect("flags").network
    }

    fn listed(words: &[&str]) -> Vec<String> {
        match args(words).hosts() {
            Hosts::Listed(hosts) => hosts.iter().map(ToString::to_string).collect(),
            Hosts::Public => panic!("everything"),
        }
    }

    #[test]
    fn a_network_is_shut_unless_a_flag_opens_it() {
        let none = args(&[]);
        assert_eq!(none.network, Reach::None);
        assert!(none.exits(&EgressArgs::default()).expect("flags").is_none());
        let some = args(&["--network=packages"]).exits(&EgressArgs::default());
        assert!(some.expect("flags").is_some());
        assert_eq!(args(&["--network=open"]).hosts(), Hosts::Public);
        let wrong = Probe::try_parse_from(["probe", "--network=some"]).err().expect("a mistake");
        assert!(wrong.to_string().contains("there are none, packages, open"), "{wrong}");
    }

    // Finding security-3 H5: `up` opened private addresses for providers, and with them for pages that a model asks for.
    #[test]
    fn webfetch_reaches_what_commands_reach_and_nothing_inside() {
        let egress = EgressArgs {
            egress_private: true,
            egress_allow: vec!["nexus.corp:8081".parse().expect("a host")],
            ..EgressArgs::default()
        };
        let reaches = |words: &[&str], url: &str| {
            let pages = args(words).pages(&egress).expect("flags");
            pages.rules().check(&url.parse().expect("a URL")).is_ok()
        };
        let networks: [&[&str]; 4] = [
            &[],
            &["--network=packages"],
            &["--network=packages", "--network-hosts=default,127.0.0.1,169.254.169.254,a.local"],
            &["--network=open"],
        ];
        for network in networks {
            for inside in [
                "http://127.0.0.1:4096/sim/requests",
                "https://[::1]/",
                "https://169.254.169.254/latest/meta-data",
                "https://10.0.0.1/",
                "https://a.local/",
                "http://localhost/",
            ] {
                assert!(!reaches(network, inside), "{inside} by {network:?}");
            }
        }
        let page = "https://docs.example.com/page";
        assert!(!reaches(&[], page) && !reaches(&["--network=packages"], page));
        assert!(reaches(&["--network=open"], page));
        assert!(
            !reaches(&[], "https://crates.io/")
                && reaches(&["--network=packages"], "https://crates.io/")
        );
        assert!(!reaches(&["--network=packages"], "https://crates.io:8443/"), "another port");
        // The operator has named it for the network, and as a host inside that may be reached.
        let nexus = "http://nexus.corp:8081/";
        assert!(reaches(&["--network=packages", "--network-hosts=nexus.corp:8081"], nexus));
        assert!(!reaches(&[], nexus) && !reaches(&["--network=packages"], nexus));
    }

    #[test]
    fn the_list_of_hosts_is_replaced_or_added_to() {
        let shipped = listed(&["--network=packages"]);
        assert_eq!(shipped, PACKAGES, "each is a host");
        assert_eq!(
            listed(&["--network=packages", "--network-hosts=nexus.corp:8081"]),
            ["nexus.corp:8081"]
        );
        let more = listed(&["--network=packages", "--network-hosts=default,github.com,*.corp"]);
        assert_eq!(more.len(), PACKAGES.len() + 2);
        assert!(more.contains(&"github.com".to_owned()) && more.contains(&"*.corp".to_owned()));
        assert!(Probe::try_parse_from(["probe", "--network-hosts=http://h"]).is_err());
    }

    // A newcomer's hosts were ignored without a word.
    #[test]
    fn hosts_without_the_network_of_packages_are_refused() {
        for network in ["--network=none", "--network=open"] {
            args(&[network]).check_hosts().expect("the default");
            args(&[network, "--network-hosts=default"]).check_hosts().expect("the default");
            let refused = args(&[network, "--network-hosts=default,h"]).check_hosts();
            let refused = refused.expect_err("no effect").to_string();
            assert!(refused.contains("add --network packages"), "{refused}");
        }
        args(&["--network=packages", "--network-hosts=h"]).check_hosts().expect("it has an effect");
    }

    #[test]
    fn another_process_gets_the_same_network() {
        let given = args(&["--network=packages", "--network-hosts=default,*.corp,h:1"]);
        let words = given.words();
        let again = args(&words.each_ref().map(String::as_str));
        assert_eq!((again.network, again.network_hosts), (given.network, given.network_hosts));
    }
}
