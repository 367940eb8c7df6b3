//! Flags for outgoing requests: the addresses that organisations may reach, the proxy, and the trusted certificates.

use std::fmt;
use std::path::PathBuf;

use ::egress::{AllowedHost, Egress, EgressOptions, Exit, Hosts, Rules, SetupError};
use clap::Args;
use reqwest::Url;

use super::ServeError;

/// The addresses that requests may go to, and the way there.
#[derive(Clone, Default, Args)]
pub struct EgressArgs {
    /// Hosts inside that organisations may send requests to, as for a model server of your own: NAME, *.NAME or ADDRESS,
    /// each with a port or without, or a network such as 10.2.0.0/16. Hosts that flags name, such as --model-url, need no entry
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', env = "OPENCODE_CLOUD_EGRESS_ALLOW")]
    pub egress_allow: Vec<AllowedHost>,
    /// Let organisations send requests to everything that this machine reaches, also without TLS: only where they are
    /// yourself. `up` sets it unless --shared is given. Addresses that a model chooses stay under --network
    #[arg(long, env = "OPENCODE_CLOUD_EGRESS_PRIVATE")]
    pub egress_private: bool,
    /// Proxy for requests to providers, but not to this machine and --egress-allow [default: that of HTTPS_PROXY]
    #[arg(long, value_name = "URL", env = "OPENCODE_CLOUD_EGRESS_PROXY", hide_env_values = true)]
    pub egress_proxy: Option<Url>,
    /// File of certificates in PEM that are believed beside the system's
    #[arg(long, value_name = "FILE", env = "OPENCODE_CLOUD_EGRESS_CA")]
    pub egress_ca: Option<PathBuf>,
}

impl fmt::Debug for EgressArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressArgs")
            .field("egress_allow", &self.egress_allow)
            .field("egress_private", &self.egress_private)
            .field("has_proxy", &self.egress_proxy.is_some()) // it may hold a password
            .field("egress_ca", &self.egress_ca)
            .finish()
    }
}

impl EgressArgs {
    /// Returns the way out. Does not connect.
    ///
    /// # Errors
    /// When the file or the proxy cannot be used.
    pub(crate) fn egress(&self) -> Result<Egress, ServeError> {
        Egress::new(&self.options()?).map_err(Self::refused)
    }

    /// Returns the way out to addresses that a model chooses: to `hosts`, never to what only [`EgressArgs::egress_private`] opens.
    ///
    /// # Errors
    /// Those of [`EgressArgs::egress`].
    pub(crate) fn egress_to(&self, hosts: Hosts) -> Result<Egress, ServeError> {
        let options = self.options()?;
        let rules = Rules { allow_private: false, hosts, ..options.rules };
        Egress::new(&EgressOptions { rules, ..options }).map_err(Self::refused)
    }

    /// Returns the way out of commands' cells, to `hosts`, which sentences call `name`.
    ///
    /// # Errors
    /// Those of [`EgressArgs::egress`].
    pub(crate) fn exit(&self, hosts: Hosts, name: &str) -> Result<Exit, ServeError> {
        Exit::new(&self.options()?, hosts, name).map_err(Self::refused)
    }

    /// Returns the certificates of --egress-ca, in PEM.
    pub(crate) fn ca_bundle(&self) -> Result<Option<Vec<u8>>, ServeError> {
        let Some(path) = &self.egress_ca else { return Ok(None) };
        let read = std::fs::read(path).map_err(|error| {
            ServeError::Usage(format!("--egress-ca: cannot read {}: {error}", path.display()))
        });
        read.map(Some)
    }

    fn options(&self) -> Result<EgressOptions, ServeError> {
        let ca_bundle = self.ca_bundle()?;
        let allowed = self.egress_allow.clone();
        let rules = Rules { allow_private: self.egress_private, allowed, ..Rules::default() };
        let proxy = self.egress_proxy.clone();
        Ok(EgressOptions { rules, proxy, ca_bundle, ..EgressOptions::default() })
    }

    #[expect(clippy::needless_pass_by_value, reason = "the shape of `map_err`")]
    fn refused(error: SetupError) -> ServeError {
        match error {
            SetupError::Client(_) => {
                ServeError::stopped("requests to providers cannot be made", &error)
            }
            SetupError::Certificates(_) | SetupError::NoCertificates => {
                ServeError::Usage(format!("--egress-ca: {error}"))
            }
            SetupError::Proxy(_) => ServeError::Usage(format!("--egress-proxy: {error}")),
        }
    }

    /// Returns the same settings as environment variables for another process.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        let allowed: Vec<String> = self.egress_allow.iter().map(ToString::to_string).collect();
        if !allowed.is_empty() {
            all.push(("OPENCODE_CLOUD_EGRESS_ALLOW", allowed.join(",")));
        }
        all.push(("OPENCODE_CLOUD_EGRESS_PRIVATE", self.egress_private.to_string()));
        let proxy = self.egress_proxy.iter().map(ToString::to_string);
        all.extend(proxy.map(|proxy| ("OPENCODE_CLOUD_EGRESS_PROXY", proxy)));
        let ca = self.egress_ca.iter().map(|path| path.display().to_string());
        all.extend(ca.map(|path| ("OPENCODE_CLOUD_EGRESS_CA", path)));
        all
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Probe {
        #[command(flatten)]
        egress: EgressArgs,
    }

    fn args(words: &[&str]) -> EgressArgs {
        Probe::try_parse_from([&["probe"], words].concat()).expect("flags").egress
    }

    // Finding security 9: flags choose what organisations may reach, never the address of a listener.
    #[test]
    fn organisations_reach_the_internet_only_without_a_flag() {
        let rules = |words: &[&str]| args(words).egress().expect("an egress").rules().clone();
        let reaches = |rules: &Rules, url: &str| rules.check(&Url::parse(url).unwrap()).is_ok();
        let inside = "http://127.0.0.1:11434/v1";
        assert!(!reaches(&rules(&[]), inside));
        assert!(reaches(&rules(&["--egress-private"]), inside));
        let some = rules(&["--egress-allow=127.0.0.1:11434,models.corp"]);
        assert!(reaches(&some, inside) && reaches(&some, "http://models.corp:9/"));
        assert!(!reaches(&some, "http://127.0.0.1:5432/"));
    }

    #[test]
    fn another_process_reads_the_same_settings_from_its_environment() {
        let given = args(&[
            "--egress-allow=*.lab.corp,10.0.0.0/8,[fd00::1]:81,h:1",
            "--egress-proxy=http://p:1",
        ]);
        let variables = given.variables();
        let allowed =
            variables[0].1.split(',').map(|host| host.parse::<AllowedHost>().expect("a host"));
        assert_eq!(Vec::from_iter(allowed), given.egress_allow);
        assert_eq!(variables[1].1, "false");
        assert_eq!(variables[2].1, "http://p:1/");
    }

    #[test]
    fn a_file_of_certificates_that_is_none_is_refused_by_name() {
        let refused = args(&["--egress-ca=/nonexistent"]).egress().expect_err("no file");
        assert!(refused.to_string().starts_with("--egress-ca: cannot read"), "{refused}");
    }
}
