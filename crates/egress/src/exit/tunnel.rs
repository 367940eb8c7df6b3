//! A tunnel: bytes in both directions, of which only the name in TLS's first message is looked at.

use std::io;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;

use super::judge::Turned;

/// How long the first message may take.
const HELLO: Duration = Duration::from_secs(20);
/// The most bytes of it.
const HELLO_BYTES: usize = 64 * 1024;

/// A tunnel that was allowed, and that the command has not entered yet.
pub(super) struct Tunnel {
    pub(super) client: OnUpgrade,
    pub(super) upstream: TcpStream,
    /// The name that TLS has to ask for, if it is bound to one.
    pub(super) name: Option<String>,
}

impl Tunnel {
    /// Carries bytes until both ends have said all. A torn connection is an end like others.
    pub(super) async fn run(mut self) -> Result<(), Turned> {
        let client = match self.client.await {
            Ok(client) => client,
            Err(error) => return Err(Turned::Failed(error.to_string())),
        };
        let mut client = TokioIo::new(client);
        if let Some(name) = self.name {
            let hello = tokio::time::timeout(HELLO, hello(&mut client)).await;
            let silent = || Turned::Refused("nothing but TLS goes there".to_owned());
            let (bytes, asked) = hello.map_err(|_| silent())?.map_err(|_| silent())?;
            if !is_same(&asked, &name) {
                let why = if asked.is_empty() {
                    "its TLS asks for no name".to_owned()
                } else {
                    format!("its TLS asks for {asked}")
                };
                return Err(Turned::Refused(why));
            }
            if self.upstream.write_all(&bytes).await.is_err() {
                return Ok(());
            }
        }
        if let Err(error) = copy_bidirectional(&mut client, &mut self.upstream).await {
            tracing::debug!(%error, "a command's tunnel was torn");
        }
        Ok(())
    }
}

fn is_same(one: &str, other: &str) -> bool {
    one.trim_end_matches('.').eq_ignore_ascii_case(other.trim_end_matches('.'))
}

/// Reads TLS's first message. Returns all that was read, and the name that it asks for.
async fn hello(client: &mut (impl AsyncRead + Unpin)) -> io::Result<(Vec<u8>, String)> {
    let (mut all, mut acceptor) = (Vec::new(), Acceptor::default());
    let mut part = [0; 4096];
    while all.len() < HELLO_BYTES {
        let count = client.read(&mut part).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        all.extend_from_slice(&part[..count]);
        let mut rest = &part[..count];
        while !rest.is_empty() {
            acceptor.read_tls(&mut rest)?;
            match acceptor.accept() {
                Ok(Some(accepted)) => {
                    let name = accepted.client_hello().server_name().unwrap_or_default().to_owned();
                    return Ok((all, name));
                }
                Ok(None) => {}
                Err((error, _)) => return Err(io::Error::other(error)),
            }
        }
    }
    Err(io::Error::other("it is too long"))
}
