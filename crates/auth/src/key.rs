use access::{Actor, Scopes};
use domain::{KeyId, TimestampMs};
use rand::RngExt;
use sha2::{Digest, Sha256};
use store::{NewKey, NewOwnedKey};

/// Keys of before keys had owners.
const PREFIX: &str = "oc_";
/// Keys of people, and of service accounts: an id, a secret, and a checksum.
const PERSONAL: &str = "ocu_";
const SERVICE: &str = "ocs_";
/// 62^43 > 2^256.
const SECRET_CHARS: usize = 43;
const CHECK_CHARS: usize = 6;
/// The part of an owned key that is its id. 62^8 > 2^47.
const NAME_CHARS: usize = 8;
/// The part that is secret. 62^35 > 2^208.
const OWNED_SECRET_CHARS: usize = 35;
/// 62^16 > 2^95.
const ID_CHARS: usize = 16;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The shortest accepted bootstrap key.
pub const MIN_BOOTSTRAP_CHARS: usize = 20;

/// The reason why a text cannot be a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyFormError {
    /// Its checksum is wrong.
    #[error("the key is mistyped: its checksum does not match; copy it again, whole")]
    Checksum,
    /// It begins like a generated key, but has another length or other characters.
    #[error(
        "the key is mistyped: one that begins with `oc_`, `ocu_` or `ocs_` has 49 letters and digits after that; copy \
         it again, whole"
    )]
    Form,
    /// It is neither a generated key nor a bootstrap key.
    #[error(
        "this is no API key: a key begins with `ocu_`, `ocs_` or `oc_`, or was given with --bootstrap-key and has at \
         least 20 characters"
    )]
    NoKey,
}

/// The reason why a bootstrap key is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BootstrapKeyError {
    /// It is short enough to be guessed.
    #[error("a bootstrap key has at least {MIN_BOOTSTRAP_CHARS} characters; this one has {0}")]
    Short(usize),
    /// It cannot be sent in a header.
    #[error("a bootstrap key has only visible ASCII characters, without spaces")]
    Characters,
    /// It looks like a mistyped generated key.
    #[error(transparent)]
    Form(#[from] KeyFormError),
    /// It is a key of somebody.
    #[error(
        "a bootstrap key is no key of a person or service account; leave it out, or choose another text"
    )]
    Owned,
}

/// Generates a key of the old form: `oc_`, 256 random bits in base62, and a checksum of 6 characters that detects
/// typing errors. It belongs to the first service account.
#[must_use]
pub fn generate() -> String {
    let secret = random(SECRET_CHARS);
    let check = checksum(&secret);
    format!("{PREFIX}{secret}{check}")
}

/// A key that was made, whose text is shown once.
#[derive(Clone)]
pub struct MadeKey {
    /// Its id.
    pub id: KeyId,
    /// Its text.
    pub text: String,
}

impl std::fmt::Debug for MadeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MadeKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl MadeKey {
    /// Generates a key of `owner`.
    #[must_use]
    pub fn of(owner: &Actor) -> Self {
        Self::named(owner, &random(NAME_CHARS))
    }

    /// Generates another secret of the key `id`; `None` for a key whose text has no id.
    #[must_use]
    pub fn again(owner: &Actor, id: &KeyId) -> Option<Self> {
        let name = id.as_str().strip_prefix("key_").filter(|name| name.len() == NAME_CHARS)?;
        Some(Self::named(owner, name))
    }

    fn named(owner: &Actor, name: &str) -> Self {
        let prefix = if owner.is_person() { PERSONAL } else { SERVICE };
        let body = format!("{name}{}", random(OWNED_SECRET_CHARS));
        let text = format!("{prefix}{body}{}", checksum(&body));
        Self { id: key_id(name), text }
    }

    /// Returns the row to store.
    #[must_use]
    pub fn row(
        &self,
        owner: Actor,
        name: String,
        scopes: Vec<String>,
        expires_ms: Option<TimestampMs>,
    ) -> NewOwnedKey {
        let hash = hash(&self.text).to_vec();
        NewOwnedKey { id: self.id.clone(), hash, name, scopes, owner, expires_ms }
    }
}

fn key_id(name: &str) -> KeyId {
    format!("key_{name}").parse().expect("letters and digits")
}

/// Returns random letters and digits.
pub(crate) fn random(count: usize) -> String {
    let mut rng = rand::rng();
    (0..count).map(|_| char::from(BASE62[rng.random_range(0..BASE62.len())])).collect()
}

/// Returns a key's SHA-256, which is stored and looked up instead of the key.
#[must_use]
pub fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// How a text that may be a key is looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyForm {
    /// By its hash.
    Old,
    /// By the id that it names.
    Owned(KeyId),
}

/// Reads the form of a key. Refuses texts that cannot be keys, without a database lookup: incomplete generated keys,
/// and texts that cannot be bootstrap keys either.
///
/// # Errors
/// [`KeyFormError`]: it was mistyped, or is not a key.
pub fn check_form(key: &str) -> Result<KeyForm, KeyFormError> {
    let owned = [PERSONAL, SERVICE].into_iter().find_map(|prefix| key.strip_prefix(prefix));
    let Some(body) = owned.or_else(|| key.strip_prefix(PREFIX)) else {
        let may_be_bootstrap =
            key.len() >= MIN_BOOTSTRAP_CHARS && key.bytes().all(|byte| byte.is_ascii_graphic());
        return if may_be_bootstrap { Ok(KeyForm::Old) } else { Err(KeyFormError::NoKey) };
    };
    if body.len() != SECRET_CHARS + CHECK_CHARS || !body.bytes().all(|b| b.is_ascii_alphanumeric())
    {
        return Err(KeyFormError::Form);
    }
    let (secret, check) = body.split_at(SECRET_CHARS);
    if checksum(secret) != check {
        return Err(KeyFormError::Checksum);
    }
    Ok(if owned.is_some() { KeyForm::Owned(key_id(&secret[..NAME_CHARS])) } else { KeyForm::Old })
}

fn checksum(secret: &str) -> String {
    let digest = Sha256::digest(secret.as_bytes());
    digest
        .iter()
        .take(CHECK_CHARS)
        .map(|byte| char::from(BASE62[usize::from(*byte) % BASE62.len()]))
        .collect()
}

/// Generates a key with all scopes: the text to show once, and the row to store.
#[must_use]
pub fn generate_key(name: &str) -> (String, NewKey) {
    let key = generate();
    let row = row(&key, name);
    (key, row)
}

/// Returns the row for a key that the operator chose.
///
/// # Errors
/// [`BootstrapKeyError`] if it is short, cannot be sent, or is a mistyped generated key.
pub fn bootstrap_key(key: &str) -> Result<NewKey, BootstrapKeyError> {
    if key.len() < MIN_BOOTSTRAP_CHARS {
        return Err(BootstrapKeyError::Short(key.chars().count()));
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(BootstrapKeyError::Characters);
    }
    if check_form(key)? != KeyForm::Old {
        return Err(BootstrapKeyError::Owned);
    }
    Ok(row(key, "bootstrap"))
}

fn row(key: &str, name: &str) -> NewKey {
    let hash = hash(key);
    // The id is random, because ids are shown and must reveal nothing of the key. The hash finds the same key
    // again.
    let id = random(ID_CHARS);
    NewKey {
        id: format!("key_{id}"),
        hash: hash.to_vec(),
        name: name.to_owned(),
        scopes: vec![Scopes::EVERYTHING.to_owned()],
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
        assert_eq!(check_form(&one), Ok(KeyForm::Old));
    }

    #[test]
    fn an_owned_key_names_its_id_and_a_rotated_one_the_same() {
        for (owner, prefix) in [("usr_a", "ocu_"), ("svc_a", "ocs_")] {
            let owner: Actor = owner.parse().expect("an actor");
            let made = MadeKey::of(&owner);
            assert!(made.text.starts_with(prefix) && made.text.len() == 53, "{}", made.text.len());
            assert_eq!(check_form(&made.text), Ok(KeyForm::Owned(made.id.clone())));
            let again = MadeKey::again(&owner, &made.id).expect("an owned key");
            assert!(again.id == made.id && again.text != made.text);
            let typo = made.text.replace(|_| true, "A");
            assert!(check_form(&format!("{prefix}{}", &typo[4..])).is_err());
            assert!(!format!("{made:?}").contains(&made.text[12..]));
            assert!(matches!(bootstrap_key(&made.text), Err(BootstrapKeyError::Owned)));
        }
        let old: KeyId = "key_0123456789abcdef".parse().expect("an id");
        assert!(MadeKey::again(&"svc_first".parse().expect("an actor"), &old).is_none());
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
        assert_eq!(bootstrap_key(&key).expect("a generated key is fine").hash, row.hash);
    }

    // Finding security 21: the id of a key showed 64 bits of its hash.
    #[test]
    fn an_id_says_nothing_of_its_key() {
        let (key, row) = generate_key("first");
        let hash: String = row.hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(!hash.contains(row.id.trim_start_matches("key_")));
        assert_ne!(bootstrap_key(&key).expect("a key").id, row.id);
    }

    // Finding security 10: texts that cannot be keys were looked up, with a connection each.
    #[test]
    fn what_cannot_be_a_key_is_refused_without_a_look() {
        let key = generate();
        assert_eq!(check_form(&key[..key.len() - 1]), Err(KeyFormError::Form));
        assert_eq!(check_form("oc_"), Err(KeyFormError::Form));
        assert_eq!(check_form("oc_this-is-no-key-of-ours-is-it"), Err(KeyFormError::Form));
        for short in ["", "password", "has spaces in between it"] {
            assert_eq!(check_form(short), Err(KeyFormError::NoKey), "{short}");
        }
        assert_eq!(check_form("correct-horse-battery"), Ok(KeyForm::Old));
    }
}
