//! Ports to listen on.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::path::Path;

use rand::RngExt as _;

use crate::BootError;

/// Below the ports that systems take for outgoing connections and for listeners that ask for any port, so that
/// neither comes between the choice and the server that listens there.
const QUIET: Range<u16> = 20_000..32_000;

/// Returns a loopback port that was free a moment ago. Another process may take it before it is bound, so a
/// caller that starts a server there must be ready to retry.
///
/// # Errors
/// [`BootError::Io`] if the system has no port left.
pub fn free_port() -> Result<u16, BootError> {
    let mut choices = (0..100).map(|_| rand::rng().random_range(QUIET));
    if let Some(port) = choices.find(|port| is_free(*port)) {
        return Ok(port);
    }
    let any = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
    any.map(|address| address.port()).map_err(BootError::io("find a free port on", Path::new("lo")))
}

/// Returns whether nothing listens on this loopback port now.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Binds our listener.
///
/// # Errors
/// [`BootError::PortInUse`] if another process listens there; otherwise the error for its cause.
pub async fn listen(address: SocketAddr) -> Result<tokio::net::TcpListener, BootError> {
    tokio::net::TcpListener::bind(address).await.map_err(|error| {
        if error.kind() == io::ErrorKind::AddrInUse {
            return BootError::PortInUse { port: address.port() };
        }
        BootError::io("listen on", Path::new(&address.to_string()))(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_is_none_that_the_system_gives_away() {
        let port = free_port().unwrap();
        assert!(QUIET.contains(&port), "{port}");
        let any = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(!QUIET.contains(&any.local_addr().unwrap().port()));
    }

    #[tokio::test]
    async fn a_taken_port_is_told_with_its_number() {
        let first = listen((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        let address = first.local_addr().unwrap();
        assert!(!is_free(address.port()));
        let refused = listen(address).await.unwrap_err().to_string();
        assert!(refused.starts_with(&format!("port {} is in use", address.port())), "{refused}");
    }
}
