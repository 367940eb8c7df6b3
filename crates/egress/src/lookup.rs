//! Looks names up, once for each connection, and lets through only what is allowed.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::error::Refused;
use crate::rules::Rules;

/// Gives the addresses of a name.
#[async_trait::async_trait]
pub trait Lookup: Send + Sync {
    /// All addresses of `name`.
    ///
    /// # Errors
    /// It has none, or nobody answered.
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's way: its files and name servers.
#[derive(Clone, Copy, Debug)]
pub struct SystemLookup;

#[async_trait::async_trait]
impl Lookup for SystemLookup {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((name, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// Looks `name` up and checks every address that it has: one that is refused refuses all, since a name with addresses
/// on both sides is a trick, or a mistake.
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

/// For the HTTP client, which connects to the addresses that it is given and looks nothing up itself.
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
