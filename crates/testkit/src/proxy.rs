//! A network with faults between a client and a server.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The current faults. Flows are identified by number.
#[derive(Debug, Clone, Copy, Default)]
struct Weather {
    /// Flows below this number are lost: nothing passes any more, and neither end notices.
    lost: u64,
    /// Flows below this number are cut: both ends notice.
    cut: u64,
    /// Nothing passes for now.
    is_still: bool,
    /// The server's answers do not pass for now; the client's requests do.
    is_mute: bool,
}

impl Weather {
    fn is_cut(self, flow: u64) -> bool {
        flow < self.cut
    }

    fn passes(self, flow: u64, is_answer: bool) -> bool {
        self.is_cut(flow) || (flow >= self.lost && !self.is_still && !(self.is_mute && is_answer))
    }
}

/// A listener that forwards bytes to a server and back, subject to the faults. Dropping it stops it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    server: Arc<Mutex<String>>,
    weather: watch::Sender<Weather>,
    flows: Arc<AtomicU64>,
    _carrying: JoinSet<()>,
}

impl Proxy {
    /// Listens on its own port for flows to `server`.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn to(server: impl Into<String>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let server = Arc::new(Mutex::new(server.into()));
        let to = server.clone();
        let address = listener.local_addr()?;
        let (weather, seen) = watch::channel(Weather::default());
        let flows = Arc::<AtomicU64>::default();
        let counted = flows.clone();
        let mut carrying = JoinSet::new();
        carrying.spawn(async move {
            let mut all = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let flow = counted.fetch_add(1, Ordering::SeqCst);
                let to = to.lock().unwrap_or_else(PoisonError::into_inner).clone();
                all.spawn(carry(client, to, flow, seen.clone()));
                while all.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, server, weather, flows, _carrying: carrying })
    }

    /// Leads new flows to another server.
    pub fn lead_to(&self, server: impl Into<String>) {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = server.into();
    }

    /// Returns the address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns `url` through this proxy.
    #[must_use]
    pub fn url(&self, url: &str) -> String {
        let (head, rest) = url.rsplit_once('@').unwrap_or(("", url));
        let name = rest.split_once('/').map_or("", |(_, name)| name);
        format!("{head}@{}/{name}", self.address)
    }

    /// Returns the number of flows so far.
    #[must_use]
    pub fn flows(&self) -> u64 {
        self.flows.load(Ordering::SeqCst)
    }

    /// Makes the current flows vanish, as when a firewall forgets them: nothing passes, and neither end
    /// notices. New flows pass.
    pub fn lose_flows(&self) {
        let flows = self.flows();
        self.weather.send_modify(|weather| weather.lost = flows);
    }

    /// Cuts the current flows, as when the server dies. New flows pass.
    pub fn cut_flows(&self) {
        let flows = self.flows();
        self.weather.send_modify(|weather| weather.cut = flows);
    }

    /// Stops all traffic, as when the server is suspended. With `false`, everything that was sent passes.
    pub fn still(&self, is_still: bool) {
        self.weather.send_modify(|weather| weather.is_still = is_still);
    }

    /// Suppresses the server's answers.
    pub fn mute(&self, is_mute: bool) {
        self.weather.send_modify(|weather| weather.is_mute = is_mute);
    }
}

async fn carry(client: TcpStream, server: String, flow: u64, weather: watch::Receiver<Weather>) {
    let Ok(server) = TcpStream::connect(&server).await else { return };
    for end in [&client, &server] {
        // An end without this option is only slower.
        let _ = end.set_nodelay(true);
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut until_cut = weather.clone();
    tokio::select! {
        () = pump(from_client, to_server, flow, false, weather.clone()) => {}
        () = pump(from_server, to_client, flow, true, weather) => {}
        _ = until_cut.wait_for(|weather| weather.is_cut(flow)) => {}
    }
}

/// Forwards bytes until its source ends and the last byte has passed.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    flow: u64,
    is_answer: bool,
    mut weather: watch::Receiver<Weather>,
) {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut bytes).await;
        if weather.wait_for(|weather| weather.passes(flow, is_answer)).await.is_err() {
            return;
        }
        let Ok(length @ 1..) = read else { return };
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}
