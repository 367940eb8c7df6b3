//! Whom a request asks for, and whether it may have them.

use http::{Method, Request, StatusCode, Uri};
use reqwest::Url;

use super::{Passage, Place};
use crate::error::{EgressError, Refused};
use crate::rules::{Hosts, Rules, Verdict};

/// The port between mail servers: a service's addresses would soon be on every list of senders of spam.
const MAIL: u16 = 25;

/// The reason why a request goes no further.
#[derive(Debug)]
pub(super) enum Turned {
    /// A rule forbids it; the rest of a sentence.
    Refused(String),
    /// Nobody was reached.
    Failed(String),
}

impl Turned {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Refused(_) => StatusCode::FORBIDDEN,
            Self::Failed(_) => StatusCode::BAD_GATEWAY,
        }
    }

    pub(super) fn sentence(&self, place: &Place) -> String {
        match self {
            Self::Refused(why) => format!("network: {place} was refused; {why}"),
            Self::Failed(why) => format!("network: {place} was not reached: {why}"),
        }
    }

    pub(super) fn passage(self, place: &Place) -> Passage {
        match self {
            Self::Refused(_) => Passage::Refused(self.sentence(place)),
            Self::Failed(why) => Passage::Failed(why),
        }
    }
}

impl From<Refused> for Turned {
    fn from(refused: Refused) -> Self {
        Self::Refused(match refused {
            Refused::Unlisted(_) => "it is not in this workspace's network".to_owned(),
            Refused::Inside(_) => "it is on this machine or in a private network".to_owned(),
            Refused::LeadsInside { address, .. } => {
                format!("it leads to {address}, which is on this machine or in a private network")
            }
            Refused::Credentials => "the address holds a user name or password".to_owned(),
            Refused::Scheme(_) | Refused::NoHost | Refused::Placeholder(_) | Refused::Plain(_) => {
                "it is no host".to_owned()
            }
        })
    }
}

impl From<EgressError> for Turned {
    fn from(error: EgressError) -> Self {
        match error {
            EgressError::Refused(refused) => refused.into(),
            EgressError::Network { message, .. } => Self::Failed(message),
            other @ (EgressError::Slow(_)
            | EgressError::TooLarge(_)
            | EgressError::Redirects(_)
            | EgressError::BadRedirect
            | EgressError::Barred(_)) => Self::Failed(other.to_string()),
        }
    }
}

/// Whom a request asks for.
pub(super) struct Target {
    /// The host as it stands there.
    pub(super) host: String,
    /// Its port; 0 without one.
    pub(super) port: u16,
    /// The address to judge and to go to.
    pub(super) url: Result<Url, Turned>,
}

impl Target {
    /// `Err`: the request is none to a proxy.
    pub(super) fn of<B>(request: &Request<B>) -> Result<Self, &'static str> {
        let uri = request.uri();
        let is_tunnel = request.method() == Method::CONNECT;
        let authority = uri.authority().ok_or("this is a proxy; ask it for a whole address")?;
        let text = if is_tunnel {
            if uri.scheme().is_some() || authority.port_u16().is_none() {
                return Err("CONNECT takes a host and a port");
            }
            // The scheme has no effect but that of a port that is not shown.
            format!("https://{authority}/")
        } else if uri.scheme_str() == Some("http") {
            uri.to_string()
        } else {
            return Err("an https:// address is asked for by CONNECT");
        };
        let port = authority.port_u16().or((!is_tunnel).then_some(80)).unwrap_or(0);
        let host = authority.host().chars().take(253).collect();
        Ok(Self { host, port, url: parse(uri, &text) })
    }
}

/// Parses an address as the connection will. Where that disagrees with how requests are read, it is none.
fn parse(uri: &Uri, text: &str) -> Result<Url, Turned> {
    let url = Url::parse(text).map_err(|_| Turned::from(Refused::NoHost))?;
    let asked = uri.port_u16().or(url.port_or_known_default());
    if url.port_or_known_default() != asked || asked == Some(0) {
        return Err(Refused::NoHost.into());
    }
    Ok(url)
}

/// Judges an address by its text.
pub(super) fn verdict(rules: &Rules, name: &str, url: &Url) -> Result<Verdict, Turned> {
    let verdict = rules.check_host(url).map_err(|refused| {
        if matches!(refused, Refused::Unlisted(_)) {
            return Turned::Refused(format!("this workspace's network is `{name}`"));
        }
        refused.into()
    })?;
    if rules.hosts == Hosts::Public && url.port_or_known_default() == Some(MAIL) {
        return Err(Turned::Refused("no mail is sent from here".to_owned()));
    }
    Ok(verdict)
}
