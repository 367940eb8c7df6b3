//! Looks up names, once per connection, and passes only allowed addresses on.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::error::Refused;
use crate::rules::Rules;

/// A way to look up the addresses of a name.
#[async_trait::async_trait]
pub trait Lookup: Send + Sync {
    /// Returns all addresses of `name`.
    ///
    /// # Errors
    /// The name has none, or the lookup failed.
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's lookup: its files and name servers.
#[derive(Clone, Copy, Debug)]
pub struct SystemLookup;

#[async_trait::async_trait]
impl Lookup for SystemLookup {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((name, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// Looks up `name` and checks every address. If one is refused, all are, because a name with addresses on
/// both sides is a trick or a mistake.
pub(crate) async fn checked(
    lookup: &dyn Lookup,
    rules: &Rules,
    name: &str,
) -> Result<Vec<IpAddr>, Box<dyn std::error::Error + Send + Sync>> {
    let addresses = lookup.lookup(name).await?;
    if let Some(address) = addresses.iter().find(|ip| !rules.allows_address(**ip)) {
        return Err(Refused::LeadsInside { host: name.to_owned(), address: *address }.into());
    }
    Ok(addresses)
}

/// The resolver of the HTTP client, which connects to exactly the addresses that it gets and looks up nothing
/// itself.
pub(crate) struct CheckedResolver {
    pub(crate) lookup: Arc<dyn Lookup>,
    pub(crate) rules: Arc<Rules>,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (lookup, rules) = (self.lookup.clone(), self.rules.clone());
        Box::pin(async move {
            let found = checked(&*lookup, &rules, name.as_str()).await?;
            let addresses: Addrs = Box::new(found.into_iter().map(|ip| (ip, 0).into()));
            Ok(addresses)
        })
    }
}
