//! Keys and tokens that must not be shown, and their redaction in texts that repeat them.

use std::fmt;
use std::sync::Arc;

use reqwest::header::HeaderValue;
use zeroize::Zeroizing;

/// A string that is never shown: `Debug` is redacted and there is no `Display`. Its memory is overwritten
/// when the last clone is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<Zeroizing<String>>);

impl Secret {
    /// Makes a secret without surrounding white space (such as a file's last line break).
    #[must_use]
    pub fn new(secret: &str) -> Self {
        Self(Arc::new(Zeroizing::new(secret.trim().to_owned())))
    }

    /// Returns the secret itself. Do not log it.
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

/// Marks a header's value as sensitive, so that its `Debug` hides it too.
pub(crate) fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// Removes one request's secrets from texts of the provider: some repeat the key that they refuse.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redactor(Vec<Secret>);

impl Redactor {
    /// The shortest secret that is redacted. Shorter ones would match ordinary words.
    const MIN_BYTES: usize = 6;

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
        redactor.add(["sk-12345678\n", "key", "s3cr3t"].map(Secret::new));
        // Finding llm 13: six characters are enough for a secret.
        assert_eq!(redactor.redact("no s3cr3t here".to_owned()), "no [redacted] here");
        let said = "Incorrect API key provided: sk-12345678.".to_owned();
        assert_eq!(redactor.redact(said), "Incorrect API key provided: [redacted].");
        assert!(!format!("{redactor:?}").contains("sk-"));
    }
}
