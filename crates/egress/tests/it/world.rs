//! Names with the test's addresses, and listeners that record connections.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use egress::{Egress, EgressOptions, Lookup, Rules};
use reqwest::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// A lookup that gives a name its next list of addresses, and repeats the last one.
#[derive(Default)]
pub(crate) struct Names {
    lists: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    asked: AtomicUsize,
}

impl Names {
    pub(crate) fn with(self, name: &str, lists: &[&[&str]]) -> Self {
        let parse = |list: &&[&str]| list.iter().map(|ip| ip.parse().unwrap()).collect();
        let mut parsed: Vec<Vec<IpAddr>> = lists.iter().map(parse).collect();
        parsed.reverse();
        self.lists.lock().unwrap().insert(name.to_owned(), parsed);
        self
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

#[async_trait::async_trait]
impl Lookup for Names {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut lists = self.lists.lock().unwrap();
        let left = lists.get_mut(name).ok_or_else(|| io::Error::other("no such name"))?;
        Ok(if left.len() > 1 { left.pop().unwrap() } else { left[0].clone() })
    }
}

/// Makes an egress whose organisations may reach `allowed` besides the internet.
pub(crate) fn egress(allowed: &[&str], names: &Arc<Names>, proxy: Option<&str>) -> Egress {
    let allowed = allowed.iter().map(|text| text.parse().unwrap()).collect();
    let rules = Rules { allowed, ..Rules::default() };
    let proxy = proxy.map(|url| Url::parse(url).unwrap());
    Egress::with_lookup(&EgressOptions { rules, proxy, ..EgressOptions::default() }, names.clone())
        .unwrap()
}

/// Starts a listener that records the first bytes of each connection and answers with `answer`.
pub(crate) async fn listener(answer: &'static str) -> (u16, mpsc::UnboundedReceiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = mpsc::unbounded_channel();
    #[expect(clippy::disallowed_methods, reason = "a test's own server")]
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = vec![0; 4_096];
            let count = stream.read(&mut bytes).await.unwrap_or(0);
            bytes.truncate(count);
            if tell.send(bytes).is_err() {
                return;
            }
            let _gone = stream.write_all(answer.as_bytes()).await;
        }
    });
    (port, told)
}

/// Returns whether the bytes begin a TLS handshake.
pub(crate) fn is_handshake(bytes: &[u8]) -> bool {
    bytes.first() == Some(&22)
}
