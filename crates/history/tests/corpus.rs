//! A corpus of (rows, body): this build can rebuild every sent body, byte for byte.
//!
//! A file holds the log of one real session, the components of its requests, and the bodies that the provider
//! received. Files of a wire version are only ever added. If one fails, the encoder or the fold has changed, and
//! needs a new `WIRE_VERSION` beside the old one. `crates/session/tests/it/corpus.rs` writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use domain::{EventId, RecordedEvent, Seq, SessionEvent, TurnId};
use history::{RebuildError, hash_hex, rebuild_body};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Case {
    events: Vec<Row>,
    /// By hash: text, or JSON as text.
    components: BTreeMap<String, String>,
    requests: Vec<Request>,
}

#[derive(Deserialize)]
struct Row {
    seq: i64,
    id: EventId,
    time_ms: i64,
    kind: String,
    version: i32,
    payload: String,
}

#[derive(Deserialize)]
struct Request {
    attempt: String,
    turn: TurnId,
    through: i64,
    wire_version: i32,
    /// Hash by name.
    components: BTreeMap<String, String>,
    body_sha256: String,
    body: String,
}

impl Case {
    /// Rebuilds a request's body from rows whose payloads went through `change`.
    fn rebuild(
        &self,
        request: &Request,
        wire_version: i32,
        change: impl Fn(&Row) -> String,
    ) -> Result<Vec<u8>, RebuildError> {
        let events: Vec<RecordedEvent> = self
            .events
            .iter()
            .filter(|row| row.seq <= request.through)
            .map(|row| RecordedEvent {
                seq: Seq(row.seq),
                id: row.id.clone(),
                time: row.time_ms,
                claim: None,
                event: SessionEvent::read(&row.kind, row.version, &change(row))
                    .expect("a row of the corpus is read by every later build"),
            })
            .collect();
        let component = |hash: &String| self.components[hash].clone().into_bytes();
        let components =
            request.components.iter().map(|(name, hash)| (name.clone(), component(hash))).collect();
        rebuild_body(&events, &components, wire_version, &request.turn)
    }
}

/// Returns every case of this build's wire version, by the name of its file.
fn cases() -> Vec<(String, Case)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/wire-1");
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .expect("the corpus is committed")
        .map(|entry| entry.expect("its folder can be read").path())
        .collect();
    paths.sort();
    let read = |path: &Path| {
        let text = std::fs::read_to_string(path).expect("a file of the corpus");
        let case: Case = serde_json::from_str(&text).expect("a case");
        (path.file_stem().expect("a name").to_string_lossy().into_owned(), case)
    };
    paths.iter().map(|path| read(path)).collect()
}

#[test]
fn every_body_that_was_sent_is_rebuilt_to_the_byte() {
    let cases = cases();
    assert!(!cases.is_empty(), "an empty corpus proves nothing");
    for (name, case) in &cases {
        assert!(!case.requests.is_empty(), "{name} has no request");
        for request in &case.requests {
            let at = format!("{name}, {}", request.attempt);
            let body = case
                .rebuild(request, request.wire_version, |row| row.payload.clone())
                .unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(String::from_utf8_lossy(&body), request.body, "{at}");
            assert_eq!(hash_hex(&body), request.body_sha256, "{at}");
        }
    }
}

#[test]
fn a_body_of_another_encoder_is_never_passed_off_as_rebuilt() {
    for (name, case) in cases() {
        let request = &case.requests[0];
        for unknown in [0, 1_000] {
            let other = case.rebuild(request, unknown, |row| row.payload.clone());
            assert!(matches!(other, Err(RebuildError::EncoderChanged { .. })), "{name}");
        }
    }
}

/// The place of each event's visible text in its payload, or of the number that decides what the model sees.
const SEEN: [(&str, &str); 15] = [
    ("prompt.promoted", "/parts/0/text"),
    ("epoch.started", "/baseline"),
    ("context.updated", "/rendered"),
    ("notice.recorded", "/text"),
    ("turn.replied", "/parts/0/text"),
    ("turn.replied", "/parts/0/metadata"),
    ("turn.replied", "/parts/1/metadata"),
    ("tool.called", "/intent/arguments"),
    ("tool.called", "/intent/metadata"),
    ("tool.settled", "/output"),
    ("compaction.started", "/prompt"),
    ("compaction.reminded", "/reminder"),
    ("compaction.ended", "/checkpoint"),
    ("revert.committed", "/from"),
    ("title.started", "/prompt"),
];

/// Changes the case of a text's last letter in the payload, or its number. Returns `None` if the text is not there.
fn damaged(payload: &str, place: &str) -> Option<String> {
    let mut value: Value = serde_json::from_str(payload).expect("a payload is JSON");
    let text = value.pointer_mut(place)?;
    if let Some(number) = text.as_i64() {
        *text = Value::from(number - 1);
        return Some(value.to_string());
    }
    let mut bytes = text.as_str()?.to_owned().into_bytes();
    let letter = bytes.iter_mut().rev().find(|byte| byte.is_ascii_alphabetic())?;
    *letter ^= 0x20;
    *text = Value::String(String::from_utf8(bytes).expect("a letter for a letter"));
    Some(value.to_string())
}

/// Changing one byte of any row that a model saw changes the body: rows cannot be changed unnoticed, and no case
/// passes because nothing is compared.
#[test]
fn one_changed_byte_of_a_row_is_seen_in_the_body() {
    let mut noticed = BTreeSet::new();
    let mut there = BTreeSet::new();
    for (name, case) in cases() {
        for (kind, place) in SEEN {
            for damage in case.events.iter().filter(|row| row.kind == kind) {
                let Some(payload) = damaged(&damage.payload, place) else { continue };
                there.insert((kind, place));
                let differs = case.requests.iter().any(|request| {
                    let body = case
                        .rebuild(request, request.wire_version, |row| {
                            if row.seq == damage.seq {
                                payload.clone()
                            } else {
                                row.payload.clone()
                            }
                        })
                        .unwrap_or_else(|error| panic!("{name}: {error}"));
                    hash_hex(&body) != request.body_sha256
                });
                if differs {
                    noticed.insert((kind, place));
                }
            }
        }
        for request in &case.requests {
            for hash in request.components.values() {
                let text = &case.components[hash];
                assert_eq!(&hash_hex(text.as_bytes()), hash, "{name}: a component is not its own");
            }
        }
    }
    assert_eq!(there, noticed, "what a model sees is not in any body of the corpus");
    assert_eq!(there, SEEN.into(), "the corpus lacks a kind");
}
