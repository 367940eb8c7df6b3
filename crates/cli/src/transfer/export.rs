use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use client::{Client, ClientOptions, cause_text};
use domain::SessionId;
use serde_json::{Value, json};

use super::size;
use crate::CliError;
use crate::output::Screen;
use crate::session_name::find_session;
use crate::table::count;

/// Arguments of `export`.
#[derive(Debug, clap::Args)]
pub struct ExportArgs {
    /// The session, which must be idle, or the beginning of its id
    #[arg(value_name = "SESSION")]
    pub id: SessionId,
    /// Write it to this file; without one it goes to standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print the outcome as JSON; wants --output
    #[arg(long, requires = "output")]
    pub json: bool,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

/// Runs `export` and returns its exit code.
///
/// # Errors
/// [`CliError`]. A file of this name is only replaced by a whole export.
pub(crate) async fn execute(args: ExportArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let Some(output) = &args.output else {
        if screen.out.is_terminal() {
            return Err(CliError::Usage(format!(
                "an export is for `opencode-cloud import`, not for people: name a file with --output {}.jsonl, or pipe it",
                args.id
            )));
        }
        let client = Client::new(&args.client)?;
        let id = find_session(&client, Some(&args.id)).await?;
        read(&client, &id, |piece| Ok(screen.out.write(piece)?)).await?;
        return Ok(0);
    };
    let client = Client::new(&args.client)?;
    let id = &find_session(&client, Some(&args.id)).await?;
    let part = part_of(output);
    let unwritable = |error: io::Error| {
        let (path, why) = (output.display(), cause_text(&error));
        CliError::Usage(format!("cannot write {path}: {why}; name another --output"))
    };
    let mut file = File::create(&part).map_err(unwritable)?;
    let done = read(&client, id, |piece| file.write_all(piece).map_err(unwritable)).await;
    let done = done.and_then(|done| {
        file.sync_all().and_then(|()| std::fs::rename(&part, output)).map_err(unwritable)?;
        Ok(done)
    });
    if done.is_err() {
        // It may be gone; the failure before counts.
        let _removed = std::fs::remove_file(&part);
    }
    let Export { bytes, events } = done?;
    let shown = output.display();
    if args.json {
        let line =
            json!({ "session": id, "file": shown.to_string(), "bytes": bytes, "events": events });
        screen.out.line(&line.to_string())?;
        return Ok(0);
    }
    screen.out.say(&format!(
        "exported {id} to {shown}: {}, {}; it holds the whole conversation and its files\n\
         import it at another service with: opencode-cloud import {shown} --url URL",
        count(events, "event"),
        size(bytes)
    ))?;
    Ok(0)
}

/// An export that came whole.
struct Export {
    bytes: u64,
    events: u64,
}

/// Reads an export to its end, and proves that its last line came.
async fn read(
    client: &Client,
    id: &SessionId,
    mut write: impl FnMut(&Bytes) -> Result<(), CliError>,
) -> Result<Export, CliError> {
    let mut answer = client.open_export(id).await?;
    let (mut export, mut tail) = (Export { bytes: 0, events: 0 }, Vec::new());
    let mut head: Option<Vec<u8>> = Some(Vec::new());
    while let Some(piece) = client.next_piece(&mut answer).await? {
        write(&piece)?;
        export.bytes += piece.len() as u64;
        if let Some(first) = &mut head {
            first.extend_from_slice(&piece);
            if let Some(end) = first.iter().position(|byte| *byte == b'\n') {
                export.events = field(&first[..end], "events").as_u64().unwrap_or(0);
                head = None;
            }
        }
        tail.extend_from_slice(&piece);
        tail.drain(..tail.len().saturating_sub(TAIL));
    }
    let last = tail.strip_suffix(b"\n").and_then(|tail| tail.rsplit(|byte| *byte == b'\n').next());
    if last.is_some_and(|line| field(line, "type") == "end") {
        return Ok(export);
    }
    Err(CliError::Io {
        doing: "the export broke off before its last line; try again",
        source: io::ErrorKind::UnexpectedEof.into(),
    })
}

/// More bytes than the last line has.
const TAIL: usize = 1_000;

fn field(line: &[u8], name: &str) -> Value {
    let line: Value = serde_json::from_slice(line).unwrap_or(Value::Null);
    line.get(name).cloned().unwrap_or(Value::Null)
}

/// Returns the name of the file while it is not whole.
fn part_of(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".part");
    name.into()
}
