use llm_protocol::Delivery;

/// The reason why an address is refused. No request was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The scheme is not HTTP.
    #[error("`{0}` is no scheme of an address; it begins with https://")]
    Scheme(String),
    /// It has no host.
    #[error("the address has no host")]
    NoHost,
    /// It contains a user name or password.
    #[error("the address holds a user name or password; keep it as a credential")]
    Credentials,
    /// A placeholder in it has no value.
    #[error("the host `{0}` has a placeholder without a value; set it in the provider's `env`")]
    Placeholder(String),
    /// It is not among the hosts that may be asked for.
    #[error(
        "the network of this service does not include the host `{0}`; whoever runs the service can open it with --network"
    )]
    Unlisted(String),
    /// It is on this machine or in a private network.
    #[error(
        "the host `{0}` is on this machine or in a private network, which organisations may not reach; whoever runs the \
         service can allow it with --egress-allow"
    )]
    Inside(String),
    /// Its name resolves to an inside address.
    #[error(
        "the host `{host}` leads to {address}, which is on this machine or in a private network, which organisations may \
         not reach; whoever runs the service can allow it with --egress-allow"
    )]
    LeadsInside {
        /// The name.
        host: String,
        /// One of its addresses.
        address: std::net::IpAddr,
    },
    /// It uses http instead of https.
    #[error("the host `{0}` is reached by https only")]
    Plain(String),
}

/// The reason why there is no whole answer.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// The address, or one that it redirected to, is refused.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The network failed.
    #[error("{message}")]
    Network {
        /// How far the request got.
        delivery: Delivery,
        /// The failure, without the URL.
        message: String,
    },
    /// The time limit passed.
    #[error("it took longer than {} s", .0.as_secs())]
    Slow(std::time::Duration),
    /// The answer is too long.
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
    /// It redirects too often.
    #[error("it redirects more than {0} times")]
    Redirects(usize),
    /// It redirects to something that is not an address.
    #[error("it redirects to what is no address")]
    BadRedirect,
    /// It redirects to an address where the caller does not want to go: the caller's words.
    #[error("{0}")]
    Barred(String),
}

/// The reason why an egress cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// TLS could not be set up.
    #[error("the HTTP client cannot be set up: {0}")]
    Client(#[source] reqwest::Error),
    /// The CA bundle cannot be parsed.
    #[error("the CA bundle cannot be read: {0}; it is certificates in PEM")]
    Certificates(#[source] reqwest::Error),
    /// The CA bundle is empty.
    #[error("the CA bundle holds no certificate; it is certificates in PEM")]
    NoCertificates,
    /// The proxy's URL is invalid.
    #[error("the proxy's address cannot be used: {0}; it is one like http://proxy.corp:3128")]
    Proxy(#[source] reqwest::Error),
}
