use std::borrow::Cow;
use std::fmt;

/// The stable, namespaced key of a Context Source or of a contribution: `area/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceKey(Cow<'static, str>);

/// The error for text that is not a [`SourceKey`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no key of a Context Source: it is `area/name`, each of letters, digits and . _ - % and the name \
     with more / if it likes, at most 256 bytes"
)]
pub struct InvalidKey(pub String);

impl SourceKey {
    /// The most bytes of a key.
    pub const MAX_BYTES: usize = 256;

    /// Makes a key that is known at compile time, such as `core/date`. In a `const`, an invalid key does not
    /// compile.
    #[must_use]
    pub const fn fixed(text: &'static str) -> Self {
        assert!(is_namespaced(text), "a key is `area/name`");
        Self(Cow::Borrowed(text))
    }

    /// Makes a key from other text.
    ///
    /// # Errors
    /// [`InvalidKey`] if it has no namespace, is too long, or has other characters.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidKey> {
        let text = text.into();
        if is_namespaced(&text) { Ok(Self(Cow::Owned(text))) } else { Err(InvalidKey(text)) }
    }

    /// Makes the key of `name` in `area`. Characters that keys cannot have are escaped, so that two names
    /// never share a key. The caller must bound its length.
    pub(crate) fn escaped(area: &'static str, name: &str) -> Self {
        let mut text = format!("{area}/");
        for byte in name.bytes() {
            if is_plain(byte) {
                text.push(char::from(byte));
            } else {
                text.push_str(&format!("%{byte:02x}"));
            }
        }
        Self(Cow::Owned(text))
    }

    /// Returns the key in its stored form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns whether a byte may be in a part of a key.
pub(crate) const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

const fn is_namespaced(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut area = None;
    while at < bytes.len() {
        match bytes[at] {
            b'/' if area.is_none() => area = Some(at),
            b'/' | b'%' if area.is_some() => {}
            byte if is_plain(byte) => {}
            _ => return false,
        }
        at += 1;
    }
    match area {
        Some(area) => area > 0 && area + 1 < bytes.len() && bytes.len() <= SourceKey::MAX_BYTES,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_an_area_and_a_name() {
        for good in ["core/date", "plugin/acme/board", "entry/a.b-c_%20", "mcp/X"] {
            assert_eq!(SourceKey::new(good).expect(good).as_str(), good);
        }
        let long = format!("core/{}", "x".repeat(SourceKey::MAX_BYTES));
        for bad in ["", "date", "/date", "core/", "core date/x", "core/da te", "c%/x", "ä/b", &long]
        {
            assert_eq!(SourceKey::new(bad).expect_err(bad), InvalidKey(bad.into()));
        }
    }
}
