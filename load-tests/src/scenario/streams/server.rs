//! A server of long answers in OpenAI's chat protocol, lean enough to hold thousands open.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{DELTAS, HALF, Manner};

/// The time between two events of a slow answer.
const PACE: Duration = Duration::from_millis(40);
/// The largest head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Arguments of `streams-server`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    manner: Manner,
}

/// Serves until it is killed. A request whose path begins with `/warm` gets its whole answer; `GET /release` lets all
/// waiting answers continue.
pub(crate) async fn run(args: &Args) -> anyhow::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", args.port)).await?;
    let (release, released) = watch::channel(false);
    let release = Arc::new(release);
    let manner = args.manner;
    let mut connections = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await?;
        let (release, released) = (release.clone(), released.clone());
        connections.spawn(async move {
            // A client that disconnects is no error here.
            let _gone = serve(socket, manner, &release, released).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(
    mut socket: TcpStream,
    manner: Manner,
    release: &watch::Sender<bool>,
    released: watch::Receiver<bool>,
) -> anyhow::Result<Infallible> {
    socket.set_nodelay(true)?;
    let mut read = Vec::new();
    loop {
        let head = head(&mut socket, &mut read).await?;
        match head.split(' ').nth(1).unwrap_or_default() {
            "/release" => release.send_replace(true),
            path if head.starts_with("POST") => {
                let warms = path.starts_with("/warm");
                let released = if warms { watch::channel(true).1 } else { released.clone() };
                answer(&mut socket, manner, released).await?;
                continue;
            }
            _ => false,
        };
        socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
    }
}

/// Returns the head of the next request. Its body is read and dropped.
async fn head(socket: &mut TcpStream, read: &mut Vec<u8>) -> anyhow::Result<String> {
    let end = loop {
        if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        anyhow::ensure!(read.len() < MAX_HEAD_BYTES, "a request's head is too large");
        anyhow::ensure!(socket.read_buf(read).await? > 0, "closed");
    };
    let head = String::from_utf8(read[..end].to_vec())?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let whole = end + length.unwrap_or(0);
    while read.len() < whole {
        anyhow::ensure!(socket.read_buf(read).await? > 0, "closed");
    }
    read.drain(..whole);
    Ok(head)
}

async fn answer(
    socket: &mut TcpStream,
    manner: Manner,
    mut released: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    socket.write_all(head.as_bytes()).await?;
    let chunks = |range: Range<usize>| range.map(|at| chunk(&delta(at))).collect::<String>();
    match manner {
        Manner::Burst => socket.write_all(chunks(0..HALF).as_bytes()).await?,
        Manner::Slow => {
            for at in 0..HALF {
                tokio::time::sleep(PACE).await;
                socket.write_all(chunk(&delta(at)).as_bytes()).await?;
            }
        }
    }
    released.wait_for(|released| *released).await.context("the server ends")?;
    socket.write_all(chunks(HALF..DELTAS).as_bytes()).await?;
    let end = [chunk(END), chunk("data: [DONE]\n\n"), "0\r\n\r\n".to_owned()].concat();
    Ok(socket.write_all(end.as_bytes()).await?)
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// Returns the text of the delta with this number.
pub(super) fn text(at: usize) -> String {
    format!(" a word or two {at:04}")
}

fn delta(at: usize) -> String {
    let text = text(at);
    format!(
        "data: {{\"id\":\"chatcmpl-DZMU0example0example0example\",\"object\":\"chat.completion.chunk\",\
         \"created\":1777410000,\"model\":\"a-model\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_0example0\",\
         \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null}}],\"usage\":null}}\n\n"
    )
}

const END: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

/// Returns the size of an answer's body.
pub(super) fn answer_bytes() -> usize {
    (0..DELTAS).map(|at| delta(at).len()).sum::<usize>() + END.len()
}
