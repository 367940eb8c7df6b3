use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use client::{Client, ClientOptions, SessionView, cause_text, parsed};
use futures::stream::{self, Stream};
use serde::Deserialize;
use tokio::io::AsyncReadExt;

use super::size;
use crate::CliError;
use crate::output::Screen;
use crate::render::printable;
use crate::run_session::directory;

/// Bytes that are read at once.
const PIECE: usize = 256 * 1024;

/// Arguments of `import`.
#[derive(Debug, clap::Args)]
pub struct ImportArgs {
    /// A file that `opencode-cloud export` or the released `opencode export` wrote; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Let it work in this directory, whose files stay as they are; without one it gets a workspace with its own files
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ImportView {
    session: SessionView,
    events: u64,
    files: String,
    left_out: Vec<String>,
}

/// Runs `import` and returns its exit code.
///
/// # Errors
/// [`CliError`]. Then the service has nothing of it.
pub(crate) async fn execute(args: ImportArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let client = Client::new(&args.client)?;
    let directory = match args.directory.as_deref() {
        None => None,
        given => Some(directory(given, client.shares_paths().await?)?),
    };
    let file = open(&args.file)?;
    if let Some(bytes) = file.metadata().ok().filter(std::fs::Metadata::is_file)
        && screen.err.is_terminal()
    {
        screen.err.say(&format!("importing {} …", size(bytes.len())))?;
    }
    let body = reqwest::Body::wrap_stream(pieces(tokio::fs::File::from_std(file)));
    let answer = client.import(directory.as_deref(), body).await?;
    if args.json {
        screen.out.line(&answer.to_string())?;
        return Ok(0);
    }
    screen.out.prose(&told(&parsed(&answer, "the imported session")?))?;
    Ok(0)
}

fn told(view: &ImportView) -> String {
    let ImportView { session, events, files, left_out } = view;
    let (id, place) = (&session.id, printable::line(&session.directory, 200));
    let mut text = format!("imported {id}: {events} events; it works in {place}\n");
    text.push_str(match files.as_str() {
        "restored" => "its workspace begins with the files that it had\n",
        "left" => "the files there stay as they are; those that it had are in its snapshots\n",
        _ => "it brought no files\n",
    });
    for what in left_out {
        writeln!(text, "left out: {}", printable::line(what, 200))
            .expect("writing to a string cannot fail");
    }
    writeln!(text, "continue it with: opencode-cloud run --session {id} \"PROMPT\"")
        .expect("writing to a string cannot fail");
    text
}

fn open(path: &Path) -> Result<File, CliError> {
    if path == Path::new("-") {
        let own = io::stdin().as_fd().try_clone_to_owned();
        let failed = |source| CliError::Io { doing: "cannot read standard input", source };
        return Ok(own.map_err(failed)?.into());
    }
    File::open(path).map_err(|error| {
        let (path, why) = (path.display(), cause_text(&error));
        CliError::Usage(format!("cannot read {path}: {why}; name the file of an export, or `-`"))
    })
}

fn pieces(file: tokio::fs::File) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::try_unfold(file, async |mut file| {
        let mut piece = BytesMut::with_capacity(PIECE);
        let read = file.read_buf(&mut piece).await?;
        Ok((read > 0).then(|| (piece.freeze(), file)))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_import_says_how_to_go_on_and_what_is_missing() {
        let answer = json!({
            "session": {
                "id": "ses_1", "projectID": "prj_1", "directory": "/workspace/ses_1", "title": "t", "agent": "build",
                "tokens": { "total": 0, "input": 0, "output": 0, "reasoning": 0, "cache": { "read": 0, "write": 0 } },
                "cost": 0.0, "time": { "created": 1, "updated": 1 }, "busy": false, "seq": 9,
            },
            "events": 9, "files": "restored", "leftOut": ["attached files (2)"],
        });
        let text = told(&parsed(&answer, "an import").expect("a view"));
        assert_eq!(
            text,
            "imported ses_1: 9 events; it works in /workspace/ses_1\n\
             its workspace begins with the files that it had\n\
             left out: attached files (2)\n\
             continue it with: opencode-cloud run --session ses_1 \"PROMPT\"\n"
        );
    }
}
