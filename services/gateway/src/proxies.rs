//! Who a client is behind proxies. Only proxies that the operator names are believed, and only about whoever connected to
//! them: everything further left in their header anybody may have written.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use axum::http::{HeaderMap, HeaderName, header::FORWARDED};
use ipnet::{IpNet, Ipv4Net};

/// The most addresses of a header that are looked at.
const MAX_HOPS: usize = 32;

/// The header in which the proxies name their clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProxyHeader {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// A text that names no header of proxies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no header of proxies: write x-forwarded-for or forwarded")]
pub struct UnknownProxyHeader(String);

impl FromStr for ProxyHeader {
    type Err = UnknownProxyHeader;

    fn from_str(text: &str) -> Result<Self, UnknownProxyHeader> {
        match text.to_ascii_lowercase().as_str() {
            "x-forwarded-for" => Ok(Self::XForwardedFor),
            "forwarded" => Ok(Self::Forwarded),
            _ => Err(UnknownProxyHeader(text.to_owned())),
        }
    }
}

impl fmt::Display for ProxyHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
        })
    }
}

/// The network of a proxy: an address, or one with a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyNetwork(IpNet);

/// A text that is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no address of a proxy: write an IP address or a network, such as 10.0.0.0/8")]
pub struct ProxyNetworkError(String);

impl FromStr for ProxyNetwork {
    type Err = ProxyNetworkError;

    fn from_str(text: &str) -> Result<Self, ProxyNetworkError> {
        let address = text.parse::<IpAddr>().map(|ip| IpNet::from(ip.to_canonical()));
        let network = address.or_else(|_| text.parse::<IpNet>()).ok();
        network
            .and_then(|network| {
                // Addresses of clients are compared as IPv4 where they are that in disguise.
                let IpAddr::V4(ip) = network.addr().to_canonical() else { return Some(network) };
                let prefix = network.prefix_len().checked_sub(network.max_prefix_len() - 32)?;
                Some(IpNet::from(Ipv4Net::new(ip, prefix).ok()?))
            })
            .map(Self)
            .ok_or_else(|| ProxyNetworkError(text.to_owned()))
    }
}

/// The proxies that are believed. The default is none: then the client is whoever connects.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies {
    networks: Vec<ProxyNetwork>,
    header: ProxyHeader,
}

impl TrustedProxies {
    /// Believes proxies in these networks, which name their clients in `header`. They must replace or append to it.
    #[must_use]
    pub fn new(networks: Vec<ProxyNetwork>, header: ProxyHeader) -> Self {
        Self { networks, header }
    }

    /// Returns whether an address is a proxy's.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.networks.iter().any(|network| network.0.contains(&ip))
    }

    /// Returns the client of a request that `peer` has sent: from the right of the header, the first address that is no
    /// proxy's. What cannot be read ends the look: the proxy that wrote it is the client then.
    #[must_use]
    pub fn client_of(&self, peer: SocketAddr, headers: &HeaderMap) -> SocketAddr {
        if !self.contains(peer.ip()) {
            return peer;
        }
        let mut client = peer.ip();
        for hop in self.hops(headers).rev().take(MAX_HOPS) {
            let Some(ip) = hop else { break };
            client = ip;
            if !self.contains(ip) {
                break;
            }
        }
        SocketAddr::new(client, peer.port())
    }

    /// Returns the addresses of the header from left to right; `None` for one that is none.
    fn hops(&self, headers: &HeaderMap) -> impl DoubleEndedIterator<Item = Option<IpAddr>> {
        let name = match self.header {
            ProxyHeader::XForwardedFor => HeaderName::from_static("x-forwarded-for"),
            ProxyHeader::Forwarded => FORWARDED,
        };
        let mut hops = Vec::new();
        for line in headers.get_all(name) {
            match line.to_str() {
                Ok(line) => hops.extend(line.split(',').map(|element| match self.header {
                    ProxyHeader::XForwardedFor => address(element),
                    ProxyHeader::Forwarded => forwarded_for(element),
                })),
                Err(_) => hops.push(None),
            }
        }
        hops.into_iter()
    }
}

/// Returns the address of an element of `Forwarded`: `for=192.0.2.1`, `For="[2001:db8::1]:4711";proto=https`.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let mut named = element.split(';').filter_map(|pair| pair.trim().split_once('='));
    let (_, node) = named.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
    address(node.trim().trim_matches('"'))
}

/// Returns an address with or without a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let ip = text
        .parse::<IpAddr>()
        .or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()))
        .or_else(|_| text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>());
    ip.ok().map(|ip| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn proxies(networks: &[&str], header: ProxyHeader) -> TrustedProxies {
        let networks = networks.iter().map(|text| text.parse().expect("a network")).collect();
        TrustedProxies::new(networks, header)
    }

    fn client(proxies: &TrustedProxies, peer: &str, lines: &[(&str, &str)]) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            headers.append(name, HeaderValue::from_str(value).expect("visible"));
        }
        let peer = SocketAddr::new(peer.parse().expect("an address"), 9);
        proxies.client_of(peer, &headers).ip().to_string()
    }

    // Finding security-3 H2: clients behind a proxy were one address, and shut each other out.
    #[test]
    fn a_client_is_the_first_from_the_right_that_is_no_proxy() {
        const XFF: &str = "x-forwarded-for";
        let none = TrustedProxies::default();
        assert_eq!(client(&none, "10.0.0.1", &[(XFF, "192.0.2.7")]), "10.0.0.1");
        let trusted = proxies(&["10.0.0.0/8", "2001:db8:1::/48"], ProxyHeader::XForwardedFor);
        for (peer, lines, expected) in [
            // Nobody is believed who is no proxy.
            ("192.0.2.1", &[(XFF, "192.0.2.7")][..], "192.0.2.1"),
            ("10.0.0.1", &[(XFF, "192.0.2.7")], "192.0.2.7"),
            ("::ffff:10.0.0.1", &[(XFF, "192.0.2.7:4711")], "192.0.2.7"),
            // The entries that a client wrote itself stand further left.
            ("10.0.0.1", &[(XFF, "198.51.100.1, 192.0.2.7, 10.2.0.3")], "192.0.2.7"),
            ("10.0.0.1", &[(XFF, "198.51.100.1"), (XFF, "192.0.2.7")], "192.0.2.7"),
            ("10.0.0.1", &[(XFF, "[2001:db8::7]:80, 2001:db8:1::2")], "2001:db8::7"),
            // Without a word that can be read, it is the proxy that left it out.
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &[(XFF, "192.0.2.7, unknown")], "10.0.0.1"),
            ("10.0.0.1", &[(XFF, "192.0.2.7, , 10.2.0.3")], "10.2.0.3"),
            ("10.0.0.1", &[(XFF, "10.2.0.3, 10.2.0.4")], "10.2.0.3"),
            // The other header is nobody's word.
            ("10.0.0.1", &[("forwarded", "for=192.0.2.9")], "10.0.0.1"),
        ] {
            assert_eq!(client(&trusted, peer, lines), expected, "{peer} {lines:?}");
        }
        let many = format!("192.0.2.7{}", ", 10.1.1.1".repeat(MAX_HOPS));
        assert_eq!(client(&trusted, "10.0.0.1", &[(XFF, &many)]), "10.1.1.1", "no long look");
    }

    #[test]
    fn the_standard_header_is_read_in_all_its_forms() {
        let trusted = proxies(&["10.0.0.1"], ProxyHeader::Forwarded);
        let by = |value: &str| client(&trusted, "10.0.0.1", &[("forwarded", value)]);
        assert_eq!(by("for=192.0.2.60;proto=http;by=203.0.113.43"), "192.0.2.60");
        assert_eq!(by("proto=https; For=\"[2001:db8:cafe::17]:4711\""), "2001:db8:cafe::17");
        assert_eq!(by("for=198.51.100.1, for=192.0.2.43"), "192.0.2.43");
        assert_eq!(by("for=_hidden"), "10.0.0.1");
        assert_eq!(client(&trusted, "10.0.0.1", &[("x-forwarded-for", "192.0.2.7")]), "10.0.0.1");
    }

    #[test]
    fn a_proxy_is_an_address_or_a_network() {
        for text in ["10.0.0.1", "10.0.0.0/8", "::1", "2001:db8::/32"] {
            assert!(text.parse::<ProxyNetwork>().is_ok(), "{text}");
        }
        let disguised: ProxyNetwork = "::ffff:10.0.0.0/104".parse().unwrap();
        assert_eq!(disguised, "10.0.0.0/8".parse().unwrap());
        for text in ["", "proxy", "::ffff:10.0.0.0/90", "10.0.0.0/33", "10.0.0.1:80", "*"] {
            assert!(text.parse::<ProxyNetwork>().is_err(), "{text}");
        }
        assert_eq!("X-Forwarded-For".parse(), Ok(ProxyHeader::XForwardedFor));
        assert!("x-real-ip".parse::<ProxyHeader>().is_err());
    }
}
