//! `shell`: runs a command in the Location's directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::{ToolClass, ToolOutcomeKind};
use rustix::fs::OFlags;
use sandbox::{Command, End, Network, OUTPUTS, Output, Sandbox};
use serde::Deserialize;
use serde_json::json;
use snapshots::Touched;

use crate::arguments::{self, quote_word};
use crate::call::{
    Stopped, Text, ToolCall, ToolContext, ToolDefinition, ToolOutcome, fields, title,
};
use crate::files::{LocationFiles, Refused, blocking};
use crate::needs::find_workdir;
use crate::outputs;
use crate::set::Tool;
use crate::suggest::did_you_mean;

const DEFAULT_TIMEOUT_MS: u64 = 120_000;
const MAX_TIMEOUT_MS: u64 = 600_000;
/// The most refusals that one result names: a footer is short.
const REFUSALS: usize = 2;
/// The most characters of a sentence about what was not kept.
const NOTE: usize = 200;
/// The hint for a command that looked for complete outputs where commands see none.
const NO_OUTPUTS: &str =
    "\n(commands do not see /tool-output in the sandbox of this machine: use read or grep)";

pub(crate) struct Shell {
    pub(crate) sandbox: Arc<dyn Sandbox>,
}

#[derive(Deserialize)]
struct Arguments {
    command: String,
    timeout_ms: Option<u64>,
    workdir: Option<String>,
}

/// Where a command starts.
struct StartPlace {
    directory: PathBuf,
    /// The command, behind what brings it there.
    script: String,
}

/// Finds the directory that a command names. `place` is in full, as the rules see it.
async fn find_start(
    place: String,
    command: String,
    context: &ToolContext,
) -> Result<StartPlace, Stopped> {
    let context = context.clone();
    blocking(move || {
        let files = LocationFiles::open_root(&context)?;
        let Ok(below) = files.relative(&place) else {
            // The rules allow it, and the sandbox shows it or not.
            let script = format!("cd -- {} || exit; {command}", quote_word(&place));
            return Ok(StartPlace { directory: context.root.clone(), script });
        };
        let opened = files.open(&below, OFlags::PATH | OFlags::DIRECTORY);
        let real =
            opened.and_then(|fd| files.real_relative(&fd)).map_err(|refused| match refused {
                Refused::Missing => {
                    let hint = did_you_mean(&files, &below);
                    Stopped::because(format!(
                        "the command did not run: the directory {place} does not exist{hint}"
                    ))
                }
                other
                @ (Refused::Outside | Refused::Hidden | Refused::GitsOwn | Refused::Io(_)) => {
                    other.told(&place, &files)
                }
            })?;
        let is_root = real == Path::new(".");
        let directory = if is_root { context.root.clone() } else { context.root.join(real) };
        Ok(StartPlace { directory, script: command })
    })
    .await
}

#[async_trait]
impl Tool for Shell {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "shell".into(),
            description: "Runs a command with bash in the working directory and returns its output (stdout and stderr) and \
                          exit code. There is no terminal and no input. When the command ends, processes that it left in \
                          the background are ended too. After timeout_ms (120000 unless given, at most 600000) it is \
                          killed. Complete outputs of earlier calls are in /tool-output, read-only. To find, read and change \
                          files, prefer glob, grep, read, edit and write."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "command": {"type": "string", "description": "The command line"},
                    "timeout_ms": {"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS, "description": "When to kill it, in milliseconds"}
                },
                "required": ["command"]
            }),
            result_schema: Some(fields(&["exit_code", "signal", "timed_out", "output_bytes"], &json!({
                "exit_code": {"type": ["integer", "null"]},
                "signal": {"type": ["integer", "null"]},
                "timed_out": {"type": "boolean"},
                "output_bytes": {"type": "integer", "minimum": 0}
            }))),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Unsafe
    }

    async fn run(&self, call: &ToolCall, context: &ToolContext) -> Result<ToolOutcome, Stopped> {
        let Arguments { command, timeout_ms, workdir } = arguments::parse(call)?;
        let has_nul = |text: &str| text.contains('\0');
        if command.trim().is_empty() || has_nul(&command) || workdir.as_deref().is_some_and(has_nul)
        {
            return Err(Stopped::because("the command is empty or holds a NUL"));
        }
        let mut cell = context.cell.clone();
        let place = find_workdir(workdir.as_deref(), &context.shown_root);
        let (start, title) = match place {
            Some(place) => {
                // The whole Location stays its workspace.
                cell.workspace.get_or_insert_with(|| context.root.clone());
                let title = title(&format!("Run in {place}:"), &command);
                (find_start(place, command.clone(), context).await?, title)
            }
            None => {
                let (directory, script) = (context.root.clone(), command.clone());
                (StartPlace { directory, script }, title("Run", &command))
            }
        };
        let outputs = if self.sandbox.shows_outputs() {
            outputs::named_by(&command, context).await?
        } else {
            Vec::new()
        };
        let timeout_ms = timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS).clamp(1, MAX_TIMEOUT_MS);
        let timeout = Duration::from_millis(timeout_ms);
        let script = Command {
            keep_bytes: context.limits.max_bytes(),
            lock: context.lock.clone(),
            cell,
            outputs,
            live: context.live.clone(),
            ..Command::shell(&start.script, start.directory, timeout)
        };
        let outcome = self.sandbox.run(script, &context.cancel).await;
        let outcome = outcome.map_err(|error| Stopped::Midway(error.to_string()))?;
        let (kind, mut footer) = match outcome.end {
            End::Exited(code) => (ToolOutcomeKind::Completed, format!("(exit code {code})")),
            End::Signaled(signal) => {
                (ToolOutcomeKind::Completed, format!("(ended by signal {signal})"))
            }
            End::TimedOut => {
                let advice = "give a larger timeout_ms, or split the work";
                (ToolOutcomeKind::Failed, format!("(killed after {timeout_ms} ms: {advice})"))
            }
            End::Cancelled => (ToolOutcomeKind::Interrupted, "(interrupted)".to_owned()),
            End::OverLimit => (ToolOutcomeKind::Failed, "(killed at a limit)".to_owned()),
        };
        let by_itself = matches!(outcome.end, End::Exited(_) | End::Signaled(_));
        if by_itself && outcome.leftovers > 0 {
            footer += &format!(
                "\n(processes left in the background were ended: {}; they do not outlive the command)",
                outcome.leftovers
            );
        }
        for limit in &outcome.limits {
            footer += &format!("\n({limit})");
        }
        let succeeded = outcome.end == End::Exited(0);
        for sentence in outcome.refused.iter().take(REFUSALS) {
            footer += &format!("\n({sentence})");
        }
        if outcome.refused.len() > REFUSALS {
            footer += &format!("\n(network: {} more refusals)", outcome.refused.len() - REFUSALS);
        }
        if let Some(note) = outcome.notes.first() {
            let (note, more) = (note.chars().take(NOTE), outcome.notes.len() - 1);
            footer += &format!("\n({}", note.collect::<String>());
            footer += &if more > 0 { format!("; and {more} more)") } else { ")".to_owned() };
        }
        if by_itself && !succeeded && outcome.refused.is_empty() {
            footer += hint(outcome.network, &outcome.output);
        }
        if by_itself && !succeeded && command.contains(OUTPUTS) && !self.sandbox.shows_outputs() {
            footer += NO_OUTPUTS;
        }
        let (exit_code, signal) = match outcome.end {
            End::Exited(code) => (Some(code), None),
            End::Signaled(signal) => (None, Some(signal)),
            End::TimedOut | End::Cancelled | End::OverLimit => (None, None),
        };
        let structured = json!({
            "exit_code": exit_code,
            "signal": signal,
            "timed_out": outcome.end == End::TimedOut,
            "output_bytes": outcome.output.total_bytes,
        });
        let text = Text::Spooled(outcome.output);
        let touched = Touched::Anything;
        Ok(ToolOutcome { kind, title, text, footer, structured: Some(structured), touched })
    }
}

/// How programs say that they reached nobody. It decides about a hint, and nothing else.
const NO_NETWORK: [&str; 14] = [
    "network is unreachable",
    "could not resolve",
    "couldn't resolve",
    "temporary failure in name resolution",
    "name or service not known",
    "failed to lookup address",
    "no address associated with hostname",
    "enetunreach",
    "eai_again",
    "enotfound",
    "getaddrinfo",
    "name resolution",
    "unable to resolve",
    "resolving timed out",
];

/// A sentence for a command that failed, where its output says that it met the network's end.
fn hint(network: Network, output: &Output) -> &'static str {
    if !is_about_a_network(output) {
        return "";
    }
    match network {
        Network::Host => "",
        Network::Shut => {
            "\n(commands run in a sandbox without a network: nothing can be downloaded, and only what they start \
             themselves answers; use what is installed, or ask for what is missing)"
        }
        Network::Unopened(_) => {
            "\n(a network was asked for, and the sandbox of this machine is of tier C, which cannot open one: nothing can be \
             downloaded; use what is installed, or ask for what is missing)"
        }
        Network::Through(_) => {
            "\n(commands reach the network through the proxy in HTTPS_PROXY only: names cannot be looked up, and protocols \
             other than HTTP and TLS, such as ssh, do not work)"
        }
    }
}

fn is_about_a_network(output: &Output) -> bool {
    [&output.head, &output.tail].iter().any(|text| {
        let text = text.to_lowercase();
        NO_NETWORK.iter().any(|words| text.contains(words))
    })
}
