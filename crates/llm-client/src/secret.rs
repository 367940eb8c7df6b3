//! What must not be shown: keys, tokens, and texts of others that repeat them.

use std::fmt;
use std::sync::Arc;

use reqwest::header::HeaderValue;

/// A string that is not shown: `Debug` is redacted and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Keeps the secret; white space around it (a file's last line break) is dropped.
    #[must_use]
    pub fn new(secret: &str) -> Self {
        Self(secret.trim().into())
    }

    /// The secret itself. Do not log it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret([redacted])")
    }
}

/// Marks a header's value, so that its `Debug` hides it too.
pub(crate) fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// Takes the secrets of one request out of texts that a provider wrote: some repeat the key that they refuse.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redactor(Vec<Secret>);

impl Redactor {
    /// Anything shorter would hit ordinary words.
    const MIN_BYTES: usize = 8;

    pub(crate) fn add(&mut self, secrets: impl IntoIterator<Item = Secret>) {
        self.0.extend(secrets.into_iter().filter(|secret| secret.0.len() >= Self::MIN_BYTES));
    }

    pub(crate) fn redact(&self, text: String) -> String {
        self.0.iter().map(Secret::expose).fold(text, |text, secret| {
            if text.contains(secret) { text.replace(secret, "[redacted]") } else { text }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out_and_short_ones_hit_no_words() {
        let mut redactor = Redactor::default();
        redactor.add(["sk-12345678\n", "key"].map(Secret::new));
        let said = "Incorrect API key provided: sk-12345678.".to_owned();
        assert_eq!(redactor.redact(said), "Incorrect API key provided: [redacted].");
        assert!(!format!("{redactor:?}").contains("sk-"));
    }
}
