//! Copies of an exported session, each under ids of its own: an organisation takes no id twice.

use anyhow::{Context, ensure};
use history::hash_hex;
use serde_json::json;

/// The beginnings of the ids in an export that must be new. Those of places and keys become the importer's.
const PREFIXES: [&str; 6] = ["ses_", "msg_", "evt_", "trn_", "att_", "prt_"];
/// The characters of an id after its prefix, as the service makes them.
const LENGTH: usize = 26;
/// How many of them, at the end, are the copy's number.
const NUMBER: usize = 6;

/// An export in which the ends of all ids are known.
pub(super) struct Copies {
    /// All lines but the last, which has their digest.
    lines: String,
    /// Where each id's number begins.
    places: Vec<usize>,
    /// The session's id without its number.
    session: String,
}

impl Copies {
    /// Reads an export of a session whose ids the service made.
    pub(super) fn of_export(export: &str) -> anyhow::Result<Self> {
        let end = export.trim_end().rfind('\n').context("the export is one line")? + 1;
        let lines = export[..end].to_owned();
        let mut places = Vec::new();
        for prefix in PREFIXES {
            for (at, _) in lines.match_indices(prefix) {
                let first = at + prefix.len();
                let id = lines.get(first..first + LENGTH).unwrap_or_default();
                if id.len() == LENGTH && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                    places.push(first + LENGTH - NUMBER);
                }
            }
        }
        let named = lines.split("\"session\":\"").nth(1).and_then(|rest| rest.split('"').next());
        let named = named.context("the export names no session")?;
        ensure!(
            named.starts_with("ses_") && named.len() == "ses_".len() + LENGTH,
            "the export's session {named} has no id of the service's"
        );
        let session = named[..named.len() - NUMBER].to_owned();
        Ok(Self { lines, places, session })
    }

    /// Returns the id of the session of a copy.
    pub(super) fn session_of(&self, number: u32) -> String {
        format!("{}{}", self.session, digits(number))
    }

    /// Writes a copy as an export.
    pub(super) fn write_copy(&self, number: u32) -> String {
        let number = digits(number);
        let mut copy = self.lines.clone();
        for place in &self.places {
            copy.replace_range(*place..*place + NUMBER, &number);
        }
        let (lines, digest) = (copy.matches('\n').count(), hash_hex(copy.as_bytes()));
        copy.push_str(&json!({ "type": "end", "lines": lines, "sha256": digest }).to_string());
        copy.push('\n');
        copy
    }
}

/// Returns a number as it stands in ids, which begin again after a million copies.
fn digits(number: u32) -> String {
    format!("{:0NUMBER$}", number % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_ids_of_its_own_and_a_digest() {
        let (session, message) =
            ("ses_ddde50fd3fffYCJ8viziAbCdEf", "msg_2221a8403000M34EKqAl0T0MXq");
        let lines = format!(
            "{{\"type\":\"header\",\"session\":\"{session}\"}}\n{{\"message\":\"{message}\",\"x\":\"msg_short\"}}\n"
        );
        let copies =
            Copies::of_export(&format!("{lines}{{\"type\":\"end\"}}\n")).expect("an export");
        let (copy, named) = (copies.write_copy(7), copies.session_of(7));
        assert_eq!(named, "ses_ddde50fd3fffYCJ8vizi000007");
        let kept: Vec<&str> = copy.lines().take(2).collect();
        assert!(kept[0].contains(&named) && kept[1].contains("msg_2221a8403000M34EKqAl000007"));
        assert!(kept[1].contains("msg_short"));
        let digest = hash_hex(format!("{}\n{}\n", kept[0], kept[1]).as_bytes());
        assert!(copy.lines().last().is_some_and(|end| end.contains(&digest)));
    }
}
