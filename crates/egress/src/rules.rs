//! The rules for addresses that an organisation may reach.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use url::{Host, Url};

use crate::error::Refused;
use crate::is_public;

/// Ends of names that are never on the internet.
const INSIDE: [&str; 6] = ["localhost", "local", "internal", "lan", "intranet", "home.arpa"];

/// The ports of a listed host that names none.
const USUAL_PORTS: [u16; 2] = [80, 443];

/// The hosts that may be asked for at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Hosts {
    /// Every public one, and those in [`Rules::allowed`].
    #[default]
    Public,
    /// These, at the ports that they name, else at 80 and 443. One that is inside also has to be in [`Rules::allowed`].
    Listed(Vec<AllowedHost>),
}

impl Hosts {
    /// Returns no host at all: a network that is shut.
    #[must_use]
    pub fn none() -> Self {
        Self::Listed(Vec::new())
    }

    fn include(&self, host: &Host<&str>, port: u16) -> bool {
        let Self::Listed(listed) = self else { return true };
        let has_port =
            |listed: &&AllowedHost| listed.port().is_some() || USUAL_PORTS.contains(&port);
        listed.iter().filter(has_port).any(|listed| listed.is_host(host, port))
    }
}

/// The addresses that an organisation may reach. The default is the public internet over https.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The hosts that may be asked for. The other rules judge these besides.
    pub hosts: Hosts,
    /// Allow everything that this machine can reach, http included: for a service whose organisations are its
    /// operator.
    pub allow_private: bool,
    /// Inside hosts that organisations may also reach, http included.
    pub allowed: Vec<AllowedHost>,
}

/// An inside host that organisations may reach: `NAME`, `*.NAME`, `ADDRESS`, each with or without `:PORT`, or
/// a network such as `10.2.0.0/16`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedHost {
    /// A host by name, or all hosts below a name.
    Name {
        /// The name in lower case, without a final dot.
        name: String,
        /// It means the hosts below the name, not the name itself.
        is_parent: bool,
        /// Only this port.
        port: Option<u16>,
    },
    /// Every address in a network, including those that a name resolves to.
    Net {
        /// The network. A single address is a network of full length.
        net: IpNet,
        /// Only this port.
        port: Option<u16>,
    },
}

/// The error for text that is not an [`AllowedHost`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no host: write a name, `*.` and a name, an address (each may have a port), or a network such as 10.2.0.0/16"
)]
pub struct InvalidAllowedHost(pub String);

/// The way in which a request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To any address of the host.
    Open,
    /// Only to allowed addresses. Each is checked after the lookup.
    Checked,
}

impl Rules {
    /// Allows everything that this machine can reach: for a service whose organisations are its operator.
    #[must_use]
    pub fn everything() -> Self {
        Self { allow_private: true, ..Self::default() }
    }

    /// Judges a URL by its text. If its host is a name, the addresses are judged again when the request is
    /// sent.
    ///
    /// # Errors
    /// No request may go to the URL; the error says why, and what to do.
    pub fn check(&self, url: &Url) -> Result<Verdict, Refused> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Refused::Scheme(url.scheme().to_owned()));
        }
        let verdict = self.check_host(url)?;
        if verdict == Verdict::Checked && url.scheme() != "https" {
            let host = url.host().ok_or(Refused::NoHost)?;
            return Err(Refused::Plain(host.to_string()));
        }
        Ok(verdict)
    }

    /// Judges the host of a URL, whatever is spoken with it.
    pub(crate) fn check_host(&self, url: &Url) -> Result<Verdict, Refused> {
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Refused::Credentials);
        }
        let host = url.host().ok_or(Refused::NoHost)?;
        let shown = || host.to_string();
        if let Host::Domain(name) = host
            && name.contains(['$', '{', '}', '%'])
        {
            return Err(Refused::Placeholder(shown()));
        }
        let verdict = if self.allow_private || self.lists(url) {
            Verdict::Open
        } else {
            let is_outside = match host {
                Host::Domain(name) => is_outside_name(name),
                Host::Ipv4(ip) => is_public(ip.into()),
                Host::Ipv6(ip) => is_public(ip.into()),
            };
            if !is_outside {
                return Err(Refused::Inside(shown()));
            }
            Verdict::Checked
        };
        let port = url.port_or_known_default().ok_or(Refused::NoHost)?;
        if self.hosts.include(&host, port) { Ok(verdict) } else { Err(Refused::Unlisted(shown())) }
    }

    /// Returns whether the operator has listed the URL's host.
    #[must_use]
    pub(crate) fn lists(&self, url: &Url) -> bool {
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return false;
        };
        self.allowed.iter().any(|allowed| allowed.is_host(&host, port))
    }

    /// Returns whether a connection may go to `ip`, an address of a name.
    #[must_use]
    pub fn allows_address(&self, ip: IpAddr) -> bool {
        let in_net = |allowed: &AllowedHost| match allowed {
            AllowedHost::Net { net, port } => port.is_none() && net.contains(&canonical(ip)),
            AllowedHost::Name { .. } => false,
        };
        self.allow_private || is_public(ip) || self.allowed.iter().any(in_net)
    }
}

impl AllowedHost {
    pub(crate) fn is_host(&self, host: &Host<&str>, asked: u16) -> bool {
        match (self, host) {
            (Self::Name { name, is_parent, port }, Host::Domain(domain)) => {
                let domain = domain.trim_end_matches('.').to_ascii_lowercase();
                let is_it = if *is_parent {
                    domain.strip_suffix(name.as_str()).is_some_and(|rest| rest.ends_with('.'))
                } else {
                    domain == *name
                };
                is_it && port.is_none_or(|port| port == asked)
            }
            (Self::Net { net, port }, Host::Ipv4(ip)) => {
                net.contains(&IpAddr::V4(*ip)) && port.is_none_or(|port| port == asked)
            }
            (Self::Net { net, port }, Host::Ipv6(ip)) => {
                let ip = canonical(IpAddr::V6(*ip));
                net.contains(&ip) && port.is_none_or(|port| port == asked)
            }
            (Self::Name { .. }, Host::Ipv4(_) | Host::Ipv6(_))
            | (Self::Net { .. }, Host::Domain(_)) => false,
        }
    }
}

impl AllowedHost {
    /// The only port, if it names one.
    pub(crate) fn port(&self) -> Option<u16> {
        match self {
            Self::Name { port, .. } | Self::Net { port, .. } => *port,
        }
    }
}

impl fmt::Display for AllowedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = match self {
            Self::Name { name, is_parent, port } => {
                write!(f, "{}{name}", if *is_parent { "*." } else { "" })?;
                port
            }
            Self::Net { net, port: None } => return write!(f, "{net}"),
            Self::Net { net, port } => {
                match net.addr() {
                    IpAddr::V4(ip) => write!(f, "{ip}")?,
                    IpAddr::V6(ip) => write!(f, "[{ip}]")?,
                }
                port
            }
        };
        port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl FromStr for AllowedHost {
    type Err = InvalidAllowedHost;

    fn from_str(text: &str) -> Result<Self, InvalidAllowedHost> {
        let invalid = || InvalidAllowedHost(text.to_owned());
        let text = text.trim();
        if let Ok(net) = text.parse::<IpNet>() {
            return Ok(Self::Net { net, port: None });
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self::Net { net: ip.into(), port: None });
        }
        let (pattern, is_parent) = match text.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        // The URL parser validates hosts and ports and normalises them. This scheme has no default port that
        // it would hide.
        let url = Url::parse(&format!("wss://{pattern}/")).map_err(|_| invalid())?;
        let is_plain = url.path() == "/" && url.query().is_none() && url.username().is_empty();
        let has_port = pattern.rsplit(':').next().is_some_and(|end| end.parse::<u16>().is_ok())
            && pattern.contains(':')
            && !pattern.ends_with(']');
        let port = if has_port { url.port_or_known_default() } else { None };
        match url.host() {
            Some(Host::Domain(name)) if is_plain => {
                let name = name.trim_end_matches('.').to_ascii_lowercase();
                let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
                if name.is_empty() || !is_name {
                    return Err(invalid());
                }
                Ok(Self::Name { name, is_parent, port })
            }
            Some(Host::Ipv4(ip)) if is_plain && !is_parent => {
                Ok(Self::Net { net: IpAddr::V4(ip).into(), port })
            }
            Some(Host::Ipv6(ip)) if is_plain && !is_parent => {
                Ok(Self::Net { net: IpAddr::V6(ip).into(), port })
            }
            Some(_) | None => Err(invalid()),
        }
    }
}

/// Returns the IPv4 address inside a mapped IPv6 one.
fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

fn is_outside_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_inside =
        |end: &str| name == end || name.strip_suffix(end).is_some_and(|rest| rest.ends_with('.'));
    name.contains('.') && !INSIDE.iter().any(|end| is_inside(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allowed: &[&str]) -> Rules {
        let allowed = allowed.iter().map(|text| text.parse().expect("a host")).collect();
        Rules { allowed, ..Rules::default() }
    }

    fn check(rules: &Rules, url: &str) -> Result<Verdict, Refused> {
        rules.check(&Url::parse(url).expect("a URL"))
    }

    // Finding security 4: the SSRF corpus. The text of each URL is refused, before any lookup.
    #[test]
    fn no_form_of_a_private_address_passes() {
        let rules = Rules::default();
        // A name that is not plainly inside is judged by its addresses, later.
        let is_plain = |line: &&str| {
            let is_a_name = line.to_lowercase().contains("example") && !line.contains('@');
            !line.starts_with('#') && !is_a_name
        };
        for url in include_str!("../corpus.txt").lines().filter(is_plain) {
            let url = url.replace("PORT", "8443");
            let Ok(parsed) = Url::parse(&url) else { continue }; // no request can be made there
            assert!(rules.check(&parsed).is_err(), "{url}");
        }
        for url in include_str!("../public.txt").lines().filter(|line| !line.starts_with('#')) {
            let url = url.replace("PORT", "8443");
            assert_eq!(check(&rules, &url), Ok(Verdict::Checked), "{url}");
        }
    }

    #[test]
    fn the_internet_is_reached_by_https_only() {
        let rules = Rules::default();
        assert_eq!(check(&rules, "https://api.openai.com/v1"), Ok(Verdict::Checked));
        assert_eq!(check(&rules, "https://1.1.1.1/"), Ok(Verdict::Checked));
        assert_eq!(check(&rules, "https://[2606:4700::1111]:8443/"), Ok(Verdict::Checked));
        assert_eq!(
            check(&rules, "http://api.openai.com/v1"),
            Err(Refused::Plain("api.openai.com".to_owned()))
        );
    }

    #[test]
    fn what_the_operator_allows_is_open_at_that_port_only() {
        let rules = rules(&["models.corp:8000", "*.lab.corp", "10.2.0.0/16", "[fd00::5]:81"]);
        for open in [
            "http://models.corp:8000/v1",
            "http://MODELS.corp.:8000/v1",
            "http://a.lab.corp/",
            "https://b.a.lab.corp:9/",
            "http://10.2.3.4:11434/",
            "http://[::ffff:10.2.3.4]/",
            "http://[fd00::5]:81/",
        ] {
            assert_eq!(check(&rules, open), Ok(Verdict::Open), "{open}");
        }
        for refused in [
            "http://models.corp/v1",
            "http://models.corp:8001/",
            "http://lab.corp/",
            "http://evillab.corp/",
            "http://10.3.0.1/",
            "http://[fd00::5]/",
        ] {
            assert!(check(&rules, refused).is_err(), "{refused}");
        }
        assert!(rules.allows_address("10.2.9.9".parse().expect("an address")));
        assert!(!rules.allows_address("10.3.9.9".parse().expect("an address")));
        let all = Rules { allow_private: true, ..Rules::default() };
        assert_eq!(check(&all, "http://127.0.0.1:11434/v1"), Ok(Verdict::Open));
    }

    #[test]
    fn an_entry_that_is_no_host_is_refused() {
        for bad in ["", "*", "*.10.0.0.1", "http://h", "a b", "h/path", "h:99999", "10.0.0.0/33"] {
            assert!(bad.parse::<AllowedHost>().is_err(), "{bad}");
        }
        let name = AllowedHost::Name { name: "h".into(), is_parent: false, port: Some(443) };
        assert_eq!("H:443".parse(), Ok(name));
    }
}
