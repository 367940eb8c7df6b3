//! Turns the files that clients attach to a prompt into text that the model can read.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode_str;

use crate::error::ApiError;
use crate::text::{plain, shown};
use crate::view::{SelectedLines, refer_to_file};

/// The most bytes of an attached file.
pub(super) const MAX_FILE_BYTES: usize = 256 * 1024;
/// The longest name or path that is passed on, in characters.
const MAX_NAME_CHARS: usize = 1_024;
/// The action for a file that cannot be attached.
const INSTEAD: &str = "put the file into the workspace and name its path in the prompt";

/// A file as clients attach it: `url` is a `data:` URL with its content, or the `file:` URL of a workspace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attachment<'a> {
    pub(super) url: &'a str,
    pub(super) name: Option<&'a str>,
    pub(super) mime: Option<&'a str>,
}

impl Attachment<'_> {
    /// Returns a text with the name and the content, or for a `file:` URL with the path and what to do.
    ///
    /// # Errors
    /// The content is no text, is too large or cannot be decoded; the message names the file and says what to do.
    pub(super) fn text(&self) -> Result<String, ApiError> {
        if let Some(path) = self.url.strip_prefix("file://") {
            return self.reference(path);
        }
        let Some(data) = self.url.strip_prefix("data:") else {
            let message = format!(
                "{} has an address that is not read (`{}`): send its content as a `data:` URL, or {INSTEAD}",
                self.named(),
                shown(self.url)
            );
            return Err(ApiError::Invalid(message));
        };
        let malformed = || {
            ApiError::Invalid(format!("{} is a `data:` URL that cannot be decoded", self.named()))
        };
        let (kind, content) = data.split_once(',').ok_or_else(malformed)?;
        let (kind, is_base64) = match kind.strip_suffix(";base64") {
            Some(kind) => (kind, true),
            None => (kind, false),
        };
        let kind = kind.split(';').next().unwrap_or_default().trim();
        let kind = if kind.is_empty() { self.mime.unwrap_or("text/plain") } else { kind };
        if is_media(kind) {
            return Err(self.no_text(kind));
        }
        // Base64 has four characters for three bytes, and a percent-encoded byte has three.
        let most = if is_base64 { MAX_FILE_BYTES.div_ceil(3) * 4 } else { MAX_FILE_BYTES * 3 };
        if content.len() > most {
            return Err(self.too_large());
        }
        let bytes = if is_base64 {
            lenient().decode(content).map_err(|_| malformed())?
        } else {
            percent_decode_str(content).collect()
        };
        if bytes.len() > MAX_FILE_BYTES {
            return Err(self.too_large());
        }
        let text = String::from_utf8(bytes).map_err(|_| self.no_text(kind))?;
        if text.contains('\0') {
            return Err(self.no_text(kind));
        }
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(&text);
        let end = if text.ends_with('\n') { "" } else { "\n" };
        Ok(format!("<file name=\"{}\">\n{text}{end}</file>", self.name()))
    }

    /// Points at a file of the workspace, as clients do for `@path`.
    fn reference(&self, path: &str) -> Result<String, ApiError> {
        let (path, rest) = path.split_at(path.find(['?', '#']).unwrap_or(path.len()));
        let path = percent_decode_str(path).decode_utf8_lossy();
        let is_long = path.chars().count() > MAX_NAME_CHARS;
        if is_long || path.is_empty() || path.chars().any(char::is_control) {
            let message = format!("{} has a path that cannot be read: {INSTEAD}", self.named());
            return Err(ApiError::Invalid(message));
        }
        Ok(refer_to_file(&path, read_selection(rest)))
    }

    fn name(&self) -> String {
        let name = plain(self.name.unwrap_or("file")).replace('"', "'");
        name.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect()
    }

    fn named(&self) -> String {
        format!("the attached file `{}`", shown(&self.name()))
    }

    fn no_text(&self, kind: &str) -> ApiError {
        let kind = shown(kind);
        let message = format!(
            "{} ({kind}) is no text, and only text can be attached yet: {INSTEAD}",
            self.named()
        );
        ApiError::Invalid(message)
    }

    fn too_large(&self) -> ApiError {
        let message = format!("{} has more than {MAX_FILE_BYTES} bytes: {INSTEAD}", self.named());
        ApiError::TooLarge(message)
    }
}

/// Reads the end of a `file:` URL: `?start=3&end=5`, or `#L3-L5` as code hosts write it. Anything else selects nothing.
fn read_selection(rest: &str) -> Option<SelectedLines> {
    let (query, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let query = query.strip_prefix('?').unwrap_or_default();
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let find = |name: &str| {
        let value = pairs.clone().find(|(key, _)| *key == name)?.1;
        value.trim().parse::<u32>().ok()
    };
    let (first, last) = match find("start") {
        Some(first) => (first, find("end")),
        None => {
            let lines = fragment.strip_prefix('L')?;
            let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
            let last = last.strip_prefix('L').unwrap_or(last);
            (first.parse().ok()?, last.parse().ok())
        }
    };
    let first = first.max(1);
    // Some editors count an empty selection as one that ends before it begins.
    Some(SelectedLines { first, last: last.map(|last| last.max(first)) })
}

/// Returns whether files of this type are no text, whatever their bytes.
fn is_media(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    let group = kind.split('/').next().unwrap_or_default();
    let is_xml = kind.ends_with("+xml");
    (["image", "audio", "video", "font"].contains(&group) && !is_xml) || kind == "application/pdf"
}

/// Some clients leave the padding out.
fn lenient() -> GeneralPurpose {
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(&STANDARD, config)
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    fn read(url: &str) -> Result<String, String> {
        let attachment = Attachment { url, name: Some("a\"b\n.txt"), mime: None };
        attachment.text().map_err(|error| error.to_string())
    }

    #[test]
    fn text_of_any_type_becomes_readable() {
        let expected = Ok("<file name=\"a'b.txt\">\ncafé\n</file>".to_owned());
        for url in [
            "data:text/plain;base64,Y2Fmw6kK",
            "data:text/plain;charset=utf-8;base64,Y2Fmw6k=",
            "data:application/json;base64,Y2Fmw6k",
            "data:application/octet-stream;base64,77u/Y2Fmw6k=",
            "data:image/svg+xml,caf%C3%A9",
            "data:,caf%C3%A9%0A",
        ] {
            assert_eq!(read(url), expected, "{url}");
        }
    }

    // Check heldout-3, scenario 2: the selection was cut off, and the model read the whole file.
    #[test]
    fn a_selection_of_lines_comes_to_the_model() {
        for (rest, says) in [
            ("", "to /w/my file.rs: read it"),
            ("?start=3&end=5", "to lines 3 to 5 of /w/my file.rs: read them"),
            ("?end=5&start=3", "to lines 3 to 5 of /w/my file.rs: read them"),
            ("?start=3&end=3", "to line 3 of /w/my file.rs: read it"),
            ("?start=3", "to /w/my file.rs from line 3 on: read that"),
            ("?start=0&end=2", "to lines 1 to 2 of /w/my file.rs: read them"),
            ("?start=5&end=3", "to line 5 of /w/my file.rs: read it"),
            ("?start=3&end=", "to /w/my file.rs from line 3 on: read that"),
            ("#L3-L5", "to lines 3 to 5 of /w/my file.rs: read them"),
            ("#L3-5", "to lines 3 to 5 of /w/my file.rs: read them"),
            ("#L7", "to line 7 of /w/my file.rs: read it"),
            ("#install", "to /w/my file.rs: read it"),
            ("?start=x&end=5", "to /w/my file.rs: read it"),
            ("?version=2", "to /w/my file.rs: read it"),
            ("?start=99999999999999999999", "to /w/my file.rs: read it"),
        ] {
            let there = read(&format!("file:///w/my%20file.rs{rest}")).expect("a path");
            assert_eq!(there, format!("The prompt refers {says} before you answer."), "{rest}");
        }
    }

    #[test]
    fn what_is_no_text_is_refused_with_what_to_do() {
        let large = STANDARD.encode(vec![b'x'; MAX_FILE_BYTES + 1]);
        let fits = STANDARD.encode(vec![b'x'; MAX_FILE_BYTES]);
        assert!(read(&format!("data:text/plain;base64,{fits}")).is_ok());
        for (url, says) in [
            ("data:image/png;base64,iVBORw0KGgo=".to_owned(), "(image/png) is no text"),
            ("data:application/pdf;base64,JVBERi0=".to_owned(), "(application/pdf) is no text"),
            ("data:text/plain;base64,/w==".to_owned(), "is no text"),
            ("data:text/plain;base64,YQBi".to_owned(), "is no text"),
            (format!("data:text/plain;base64,{large}"), "more than 262144 bytes"),
            (format!("data:,{}", "x".repeat(MAX_FILE_BYTES + 1)), "more than 262144 bytes"),
            ("https://files.example/a.txt".to_owned(), "put the file into the workspace"),
        ] {
            let said = read(&url).expect_err(says);
            assert!(said.contains(says) && said.contains("into the workspace"), "{said}");
            assert!(said.contains("`a'b.txt`"), "{said}");
        }
        for url in ["data:text/plain;base64,!", "data:text/plain", "file://", "file:///a%00b"] {
            assert!(read(url).is_err(), "{url}");
        }
    }
}
