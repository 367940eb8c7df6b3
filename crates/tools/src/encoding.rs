//! The text of a file, and how it is written: UTF-8 or UTF-16, with a byte order mark or without.
//!
//! Invariant: the mark is outside of the text, for every tool, and stays.

use std::borrow::Cow;

use encoding_rs::{EUC_JP, EUC_KR, Encoding, GB18030, SHIFT_JIS};

const MARK: char = '\u{FEFF}';
const UTF8_MARK: &[u8] = b"\xEF\xBB\xBF";
const LITTLE_MARK: &[u8] = b"\xFF\xFE";
const BIG_MARK: &[u8] = b"\xFE\xFF";

/// How a text is written in a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Form {
    #[default]
    Utf8,
    /// UTF-8 with a mark.
    MarkedUtf8,
    /// UTF-16 with a mark, the lower byte first.
    LittleUtf16,
    /// UTF-16 with a mark, the higher byte first.
    BigUtf16,
}

/// A text with its form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileText {
    /// Without its mark.
    pub(crate) text: String,
    pub(crate) form: Form,
}

impl Form {
    /// Returns the form of a file by its first bytes.
    pub(crate) fn detect_from(start: &[u8]) -> Self {
        // The mark of UTF-32 begins like that of UTF-16.
        if start.starts_with(b"\xFF\xFE\0\0") {
            Self::Utf8
        } else if start.starts_with(UTF8_MARK) {
            Self::MarkedUtf8
        } else if start.starts_with(LITTLE_MARK) {
            Self::LittleUtf16
        } else if start.starts_with(BIG_MARK) {
            Self::BigUtf16
        } else {
            Self::Utf8
        }
    }

    pub(crate) fn is_utf16(self) -> bool {
        matches!(self, Self::LittleUtf16 | Self::BigUtf16)
    }

    fn mark(self) -> &'static [u8] {
        match self {
            Self::Utf8 => b"",
            Self::MarkedUtf8 => UTF8_MARK,
            Self::LittleUtf16 => LITTLE_MARK,
            Self::BigUtf16 => BIG_MARK,
        }
    }

    fn unit(self, bytes: [u8; 2]) -> u16 {
        if self == Self::BigUtf16 { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }

    /// Returns the bytes of a text. A mark of the text's own is the file's.
    pub(crate) fn encode(self, text: &str) -> Cow<'_, [u8]> {
        if self == Self::Utf8 {
            return Cow::Borrowed(text.as_bytes());
        }
        let (text, mut bytes) = (strip_mark(text), self.mark().to_vec());
        if self.is_utf16() {
            let big = self == Self::BigUtf16;
            let bytes_of = |unit: u16| if big { unit.to_be_bytes() } else { unit.to_le_bytes() };
            bytes.extend(text.encode_utf16().flat_map(bytes_of));
        } else {
            bytes.extend_from_slice(text.as_bytes());
        }
        Cow::Owned(bytes)
    }
}

impl FileText {
    /// Decodes a whole file. `None` if that would lose something.
    pub(crate) fn decode(bytes: Vec<u8>) -> Option<Self> {
        let form = Form::detect_from(&bytes);
        let body = &bytes[form.mark().len()..];
        let text = match form {
            Form::Utf8 => String::from_utf8(bytes).ok()?,
            Form::MarkedUtf8 => std::str::from_utf8(body).ok()?.to_owned(),
            Form::LittleUtf16 | Form::BigUtf16 => {
                let (pairs, rest) = body.as_chunks::<2>();
                let units = pairs.iter().map(|pair| form.unit(*pair));
                let text: Result<String, _> = char::decode_utf16(units).collect();
                text.ok().filter(|_| rest.is_empty())?
            }
        };
        Some(Self { text, form })
    }
}

/// Decodes UTF-16 with a mark, with U+FFFD in place of what is none. Other bytes stay as they are, without their mark.
pub(crate) fn make_readable(bytes: &[u8]) -> Cow<'_, [u8]> {
    let form = Form::detect_from(bytes);
    let body = &bytes[form.mark().len()..];
    if !form.is_utf16() {
        return Cow::Borrowed(body);
    }
    let units = body.as_chunks::<2>().0.iter().map(|pair| form.unit(*pair));
    let text: String =
        char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    Cow::Owned(text.into_bytes())
}

/// Returns a text without a mark.
pub(crate) fn strip_mark(text: &str) -> &str {
    text.strip_prefix(MARK).unwrap_or(text)
}

/// Returns the encoding of East Asia in which a text is written, if it is not UTF-8 and one fits. Others have no signs by which
/// they are known.
pub(crate) fn find_encoding(text: &[u8]) -> Option<&'static Encoding> {
    let is_control = |byte: &u8| byte.is_ascii_control() && !b"\t\n\r\x0c\x1b".contains(byte);
    // The end may be that of a piece of a file, within a letter.
    let is_other = std::str::from_utf8(text).is_err_and(|error| error.error_len().is_some());
    if !is_other || text.iter().any(is_control) {
        return None;
    }
    let fits = |encoding: &'static Encoding, is_sign: fn(char) -> bool| {
        let decoded = encoding.decode_without_bom_handling_and_without_replacement(text);
        decoded.map_or(0, |decoded| {
            let others = decoded.chars().filter(|c| !c.is_ascii()).collect::<Vec<_>>();
            others.iter().filter(|c| is_sign(**c)).count() * 100 / others.len().max(1)
        })
    };
    let is_kana = |c: char| ('\u{3041}'..='\u{30FE}').contains(&c);
    let has_kana = |encoding: &'static Encoding| fits(encoding, is_kana) >= 20;
    if let Some(japanese) = [SHIFT_JIS, EUC_JP].into_iter().find(|encoding| has_kana(encoding)) {
        return Some(japanese);
    }
    // These two take almost any bytes: their usual letters tell.
    let is_hangul = |lead: u8| matches!(lead, 0xA1..=0xA3 | 0xB0..=0xC8);
    if share_pairs(text, is_hangul) >= 90 && fits(EUC_KR, |_| true) > 0 {
        return Some(EUC_KR);
    }
    let is_usual = |lead: u8| matches!(lead, 0xA1..=0xA9 | 0xB0..=0xD7);
    (share_pairs(text, is_usual) >= 70 && fits(GB18030, |_| true) > 0).then_some(GB18030)
}

/// Returns how many in a hundred pairs of bytes beyond ASCII have a lead like that and a second byte beyond ASCII too.
fn share_pairs(text: &[u8], is_lead: impl Fn(u8) -> bool) -> usize {
    let (mut usual, mut all) = (0_usize, 0_usize);
    let mut bytes = text.iter().copied();
    while let Some(lead) = bytes.find(|byte| !byte.is_ascii()) {
        let second = bytes.next().unwrap_or_default();
        usual += usize::from(is_lead(lead) && second >= 0xA1);
        all += 1;
    }
    usual * 100 / all.max(1)
}

/// Returns what can be done about a file that is not UTF-8, as a part of a sentence. `encoding` is what it seems to be.
pub(crate) fn give_advice(path: &str, encoding: Option<&'static Encoding>) -> String {
    if let Some(name) = encoding.map(Encoding::name) {
        return format!(
            "it seems to be {name}: convert it with `iconv -f {name} -t UTF-8 {path}` in shell to a file beside it, edit that, \
             and convert it back with `iconv -f UTF-8 -t {name}`"
        );
    }
    format!(
        "if it is Windows-1252 or Latin-1, `iconv -f WINDOWS-1252 -t UTF-8 {path}` in shell shows it; convert it to a file \
         beside it, edit that, and convert it back with `iconv -f UTF-8 -t WINDOWS-1252`, or change it with `perl -pi -e`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_written_as_it_was() {
        for form in [Form::Utf8, Form::MarkedUtf8, Form::LittleUtf16, Form::BigUtf16] {
            for text in ["", "a\r\n", "grün 🦀\n"] {
                let bytes = form.encode(text).into_owned();
                let read = FileText::decode(bytes.clone()).expect("a text");
                assert_eq!((read.text.as_str(), read.form), (text, form));
                assert_eq!(
                    form.encode(&format!("\u{FEFF}{text}")).len(),
                    bytes.len() + if form == Form::Utf8 { 3 } else { 0 }
                );
                assert_eq!(make_readable(&bytes).as_ref(), text.as_bytes());
            }
        }
    }

    #[test]
    fn encodings_of_east_asia_are_known_by_their_letters() {
        for (encoding, text) in [
            (GB18030, "int main() {} // \u{8FD9}\u{662F}\u{4E2D}\u{6587}\u{6CE8}\u{91CA}\n"),
            (SHIFT_JIS, "// \u{3053}\u{308C}\u{306F}\u{30C6}\u{30B9}\u{30C8}\u{3067}\u{3059}\n"),
            (EUC_JP, "// \u{3053}\u{308C}\u{306F}\u{30C6}\u{30B9}\u{30C8}\u{3067}\u{3059}\n"),
            (EUC_KR, "// \u{C548}\u{B155}\u{D558}\u{C138}\u{C694} \u{C138}\u{ACC4}\n"),
        ] {
            let bytes = encoding.encode(text).0;
            assert_eq!(find_encoding(&bytes), Some(encoding), "{}", encoding.name());
            assert_eq!(find_encoding(&[&bytes[..], &b"\0"[..]].concat()), None);
        }
        for other in
            [&b"ascii"[..], "gr\u{FC}n".as_bytes(), b"gr\xfcn\n", b"\xC4nderung", b"\x80\x91\x85a"]
        {
            assert_eq!(find_encoding(other), None, "{other:?}");
        }
    }

    #[test]
    fn what_would_lose_something_is_no_text() {
        for bytes in [&b"gr\xfcn"[..], b"\xFF\xFEa", b"\xFF\xFE\x00\xD8", b"\xFF\xFE\0\0a\0\0\0"] {
            assert_eq!(FileText::decode(bytes.to_vec()), None, "{bytes:?}");
        }
    }
}
