//! Converts an outcome into a settlement: bounded text, with the complete text stored separately.

use std::time::Duration;

use blobs::{BlobError, BlobKey, Blobs};
use bytes::Bytes;
use domain::ToolOutcomeKind;
use serde_json::Value;
use snapshots::Touched;

use crate::bound::{Ends, Kept, Limits, bound};
use crate::call::{Text, ToolOutcome};
use crate::outputs::{BLOB_KIND, MANAGED_PREFIX};
use crate::terminal::at_the_end;

/// The one durable result of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Settlement {
    /// Success or the kind of failure.
    pub kind: ToolOutcomeKind,
    /// One line for people.
    pub title: String,
    /// The Model Tool Output: within the limits, without NUL.
    pub output: String,
    /// `output` leaves something out.
    pub truncated: bool,
    /// The validated structured result, whole.
    pub structured: Option<Value>,
    /// The path of the complete text, if `output` is truncated and the text could be stored.
    pub managed_path: Option<String>,
    /// The reason why it could not be stored, for operators. It does not change the call's success.
    pub storage_error: Option<String>,
    /// The files of the Location that the call may have changed.
    pub touched: Touched,
}

/// How long a complete text may take to be stored before the result goes on without it, and how many bytes are stored in
/// each further second.
const PATIENCE: Duration = Duration::from_secs(5);
const BYTES_A_SECOND: u64 = 4 * 1024 * 1024;

/// Bounds an outcome. If its text is too large, stores the complete text as `name` (`tool_<id>`, unique) of
/// `org`. A store that does not answer delays the result by a few seconds at most.
///
/// The caller must let it finish and publish only its result, so that no oversized text gets out.
pub async fn settle(
    outcome: ToolOutcome,
    limits: Limits,
    blobs: &Blobs,
    org: &str,
    name: &str,
) -> Settlement {
    let ToolOutcome { kind, title, text, footer, structured, touched } = outcome;
    let mut footer = storable(bounded_footer(&footer));
    let path = format!("{MANAGED_PREFIX}{name}");
    // The command's own bytes, if a terminal would show something else at the end.
    let mut written = None;
    let text = match (text, &structured) {
        (Text::Whole(text), Some(value)) if text.is_empty() && footer.is_empty() => {
            Text::Whole(format!("{value:#}"))
        }
        (Text::Whole(text), _) => Text::Whole(storable(text)),
        (Text::Spooled(output), _) if output.is_whole() => {
            let whole = output.head + &output.tail;
            match at_the_end(&whole) {
                Some(shown) => {
                    written = Some(whole);
                    Text::Whole(shown)
                }
                None => Text::Whole(whole),
            }
        }
        (spooled @ Text::Spooled(_), _) => spooled,
    };
    if written.as_deref().is_some_and(is_written_over) {
        let line_break = if footer.is_empty() { "" } else { "\n" };
        footer += &format!(
            "{line_break}(shown as a terminal would at the end; as it was written: {path})"
        );
    }
    let (output, truncated, managed_path, storage_error) = match text {
        Text::Whole(text) => {
            let ends = Ends::of(&text);
            if written.is_none() && ends.fit(&footer, limits) {
                (bound(ends, &footer, limits, &Kept::Lost), false, None, None)
            } else {
                let text = written.as_ref().unwrap_or(&text);
                let total = text.len() as u64;
                let stored = match key(org, name) {
                    Ok(key) => {
                        let bytes = Bytes::copy_from_slice(text.as_bytes());
                        in_time(total, blobs.put(&key, bytes)).await
                    }
                    Err(error) => Err(with_causes(&error)),
                };
                let (kept, path, error) = kept(path, stored.err(), 0, total);
                (bound(ends, &footer, limits, &kept), true, path, error)
            }
        }
        Text::Spooled(mut output) => {
            let (lost, total) = (output.lost_bytes, output.total_bytes);
            let file_error = output.file_error.take();
            let (kept, path, error) = match (output.file.take(), key(org, name)) {
                (Some(file), Ok(key)) => {
                    let stored = in_time(total, blobs.put_file(&key, file)).await;
                    kept(path, stored.err(), lost, total)
                }
                (Some(_), Err(error)) => kept(path, Some(with_causes(&error)), lost, total),
                (None, _) => (Kept::Lost, None, None),
            };
            let head = at_the_end(&output.head).unwrap_or(output.head);
            let tail = at_the_end(&output.tail).unwrap_or(output.tail);
            let ends = Ends {
                head: &head,
                tail: &tail,
                total_bytes: total,
                line_breaks: output.line_breaks,
            };
            (bound(ends, &footer, limits, &kept), true, path, error.or(file_error))
        }
    };
    Settlement { kind, title, output, truncated, structured, managed_path, storage_error, touched }
}

/// Returns whether a command wrote over its own text, as progress bars do.
fn is_written_over(text: &str) -> bool {
    text.contains('\u{8}') || text.replace("\r\n", "").contains('\r')
}

fn key(org: &str, name: &str) -> Result<BlobKey, BlobError> {
    BlobKey::new(org, BLOB_KIND, name)
}

/// Stores a text of `bytes`, or gives up.
async fn in_time<T>(
    bytes: u64,
    storing: impl Future<Output = Result<T, BlobError>>,
) -> Result<T, String> {
    let limit = PATIENCE + Duration::from_secs(bytes / BYTES_A_SECOND);
    match tokio::time::timeout(limit, storing).await {
        Ok(stored) => stored.map_err(|error| with_causes(&error)),
        Err(_) => Err(format!("object storage did not take it within {} s", limit.as_secs())),
    }
}

fn kept(
    path: String,
    error: Option<String>,
    lost: u64,
    total: u64,
) -> (Kept, Option<String>, Option<String>) {
    match error {
        Some(error) => (Kept::Lost, None, Some(error)),
        None if lost > 0 => {
            let kept = Kept::Partly { path: path.clone(), bytes: total - lost };
            (kept, Some(path), None)
        }
        None => (Kept::At(path.clone()), Some(path), None),
    }
}

/// Returns an error and its causes on one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Replaces NUL, which Postgres text cannot contain.
fn storable(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{FFFD}") } else { text }
}

/// Cuts a footer to 512 bytes and 4 lines.
fn bounded_footer(footer: &str) -> String {
    let lines = footer.lines().take(4).collect::<Vec<_>>().join("\n");
    let cut = lines.floor_char_boundary(512);
    lines[..cut].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn outcome(text: String, structured: Option<Value>) -> ToolOutcome {
        ToolOutcome::completed("did it".into(), text, structured)
    }

    async fn settled(outcome: ToolOutcome, blobs: &Blobs) -> Settlement {
        settle(outcome, Limits::default(), blobs, "org", "tool_1").await
    }

    async fn stored(blobs: &Blobs) -> String {
        let key = BlobKey::new("org", BLOB_KIND, "tool_1").unwrap();
        String::from_utf8(blobs.get(&key).await.unwrap().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_small_result_is_itself() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::in_folder(folder.path()).unwrap();
        let settled = settled(outcome("a\0b".into(), Some(json!({"n": 1}))), &blobs).await;
        let expected = Settlement {
            kind: ToolOutcomeKind::Completed,
            title: "did it".into(),
            output: "a\u{FFFD}b".into(),
            truncated: false,
            structured: Some(json!({"n": 1})),
            managed_path: None,
            storage_error: None,
            touched: Touched::Nothing,
        };
        assert_eq!(settled, expected);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_large_result_is_kept_whole_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::in_folder(folder.path()).unwrap();
        let text: String = (0..5_000).map(|n| format!("line {n}\n")).collect();
        let settled = settled(outcome(text.clone(), None), &blobs).await;
        assert_eq!(settled.managed_path.as_deref(), Some("/tool-output/tool_1"));
        assert!(settled.truncated && settled.output.contains("is in /tool-output/tool_1:"));
        assert!(settled.output.starts_with("line 0\n") && settled.output.ends_with("line 4999\n"));
        assert_eq!(stored(&blobs).await, text);
    }

    #[tokio::test]
    async fn a_model_sees_the_end_and_the_whole_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::in_folder(folder.path()).unwrap();
        let spooled = |text: &str| sandbox::Output {
            head: text.to_owned(),
            tail: String::new(),
            total_bytes: text.len() as u64,
            line_breaks: 0,
            file: None,
            lost_bytes: 0,
            file_error: None,
        };
        let of = |text: &str| ToolOutcome {
            text: Text::Spooled(spooled(text)),
            footer: "(exit code 0)".into(),
            ..outcome(String::new(), None)
        };
        let bar: String = (0..100).map(|n| format!("\r{n}%")).collect();
        let shown = settled(of(&bar), &blobs).await;
        let expected = "99%\n(exit code 0)\n(shown as a terminal would at the end; as it was written: /tool-output/tool_1)";
        assert_eq!((shown.output.as_str(), shown.truncated), (expected, true));
        assert_eq!(stored(&blobs).await, bar);
        let blobs = Blobs::in_folder(&folder.path().join("colours")).unwrap();
        let log = "\u{1b}[2m12:00\u{1b}[0m INFO x\n";
        let shown = settled(of(log), &blobs).await;
        assert_eq!(shown.output, "12:00 INFO x\n(exit code 0)");
        assert_eq!(
            (shown.managed_path.as_deref(), stored(&blobs).await.as_str()),
            (Some("/tool-output/tool_1"), log)
        );
        let plain = settled(of("a\r\nb\n"), &blobs).await;
        assert_eq!((plain.output.as_str(), plain.truncated), ("a\r\nb\n(exit code 0)", false));
    }

    #[tokio::test]
    async fn a_store_that_fails_does_not_fail_the_tool() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::in_folder(folder.path()).unwrap();
        std::fs::write(folder.path().join("o"), "in the way").unwrap();
        let settled = settled(outcome("x".repeat(60_000), None), &blobs).await;
        assert_eq!((settled.kind, settled.managed_path), (ToolOutcomeKind::Completed, None));
        assert!(settled.output.contains("could not be kept") && settled.truncated);
        assert!(settled.storage_error.unwrap().contains("cannot store blob"));
    }

    #[tokio::test]
    async fn a_structured_result_alone_is_previewed_and_stays_whole() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::in_folder(folder.path()).unwrap();
        let value = json!({ "rows": (0..9_000).collect::<Vec<_>>() });
        let settled = settled(outcome(String::new(), Some(value.clone())), &blobs).await;
        assert!(settled.output.len() <= 51_200 && settled.output.starts_with("{\n"));
        assert_eq!(settled.structured, Some(value.clone()));
        assert_eq!(serde_json::from_str::<Value>(&stored(&blobs).await).unwrap(), value);
    }
}
