use rand::RngExt;
use sha2::{Digest, Sha256};
use store::NewKey;

use crate::Scope;

const PREFIX: &str = "oc_";
/// 62^43 > 2^256.
const SECRET_CHARS: usize = 43;
const CHECK_CHARS: usize = 6;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The shortest bootstrap key that is taken.
pub const MIN_BOOTSTRAP_CHARS: usize = 20;

/// A key that looks like one of ours and cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyFormError {
    /// Its last characters do not follow from the others.
    #[error("the key is mistyped: its checksum does not match; copy it again, whole")]
    Checksum,
}

/// A bootstrap key that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BootstrapKeyError {
    /// It could be guessed.
    #[error("a bootstrap key has at least {MIN_BOOTSTRAP_CHARS} characters; this one has {0}")]
    Short(usize),
    /// It could not be sent in a header.
    #[error("a bootstrap key has only visible ASCII characters, without spaces")]
    Characters,
    /// It has the form of a generated key.
    #[error(transparent)]
    Form(#[from] KeyFormError),
}

/// A fresh key: `oc_`, 256 random bits in base62, and 6 characters that tell a typo from another key.
#[must_use]
pub fn generate() -> String {
    let mut rng = rand::rng();
    let secret: String =
        (0..SECRET_CHARS).map(|_| char::from(BASE62[rng.random_range(0..BASE62.len())])).collect();
    let check = checksum(&secret);
    format!("{PREFIX}{secret}{check}")
}

/// What is stored and looked up instead of a key: its SHA-256.
#[must_use]
pub fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// Refuses a key of our form whose checksum is wrong, without asking the database. Any other text may
/// be a bootstrap key.
///
/// # Errors
/// [`KeyFormError::Checksum`]: it was mistyped.
pub fn check_form(key: &str) -> Result<(), KeyFormError> {
    let Some(body) = key.strip_prefix(PREFIX) else { return Ok(()) };
    if body.len() != SECRET_CHARS + CHECK_CHARS || !body.bytes().all(|b| b.is_ascii_alphanumeric())
    {
        return Ok(());
    }
    let (secret, check) = body.split_at(SECRET_CHARS);
    if checksum(secret) == check { Ok(()) } else { Err(KeyFormError::Checksum) }
}

fn checksum(secret: &str) -> String {
    let digest = Sha256::digest(secret.as_bytes());
    digest
        .iter()
        .take(CHECK_CHARS)
        .map(|byte| char::from(BASE62[usize::from(*byte) % BASE62.len()]))
        .collect()
}

/// A fresh key with everything allowed: the text to show once, and the row to store.
#[must_use]
pub fn generate_key(name: &str) -> (String, NewKey) {
    let key = generate();
    let row = row(&key, name);
    (key, row)
}

/// The row of a key that the operator chose.
///
/// # Errors
/// [`BootstrapKeyError`] when it is short, cannot be sent, or is a mistyped generated key.
pub fn bootstrap_key(key: &str) -> Result<NewKey, BootstrapKeyError> {
    if key.len() < MIN_BOOTSTRAP_CHARS {
        return Err(BootstrapKeyError::Short(key.chars().count()));
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(BootstrapKeyError::Characters);
    }
    check_form(key)?;
    Ok(row(key, "bootstrap"))
}

fn row(key: &str, name: &str) -> NewKey {
    let hash = hash(key);
    // The id follows from the hash, so that storing the same key again is the same row.
    let id: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    NewKey {
        id: format!("key_{id}"),
        hash: hash.to_vec(),
        name: name.to_owned(),
        scopes: vec![Scope::ALL.to_owned()],
        expires_ms: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_keys_differ_and_have_their_form() {
        let (one, two) = (generate(), generate());
        assert_ne!(one, two);
        assert_eq!(one.len(), PREFIX.len() + SECRET_CHARS + CHECK_CHARS);
        assert_eq!(check_form(&one), Ok(()));
    }

    #[test]
    fn a_typo_in_any_place_is_told_apart() {
        let key = generate();
        for place in PREFIX.len()..key.len() {
            let mut bytes = key.clone().into_bytes();
            bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
            let typo = String::from_utf8(bytes).expect("ASCII");
            assert_eq!(check_form(&typo), Err(KeyFormError::Checksum), "{place}");
        }
    }

    #[test]
    fn a_bootstrap_key_is_any_visible_text_of_twenty_characters() {
        assert!(bootstrap_key("correct-horse-battery").is_ok());
        assert!(matches!(bootstrap_key("short"), Err(BootstrapKeyError::Short(5))));
        let spaced = bootstrap_key("correct horse battery staple");
        assert!(matches!(spaced, Err(BootstrapKeyError::Characters)));
        let (key, row) = generate_key("first");
        assert_eq!(row.hash, hash(&key).to_vec());
        assert_eq!(bootstrap_key(&key).expect("a generated key is fine").id, row.id);
    }
}
