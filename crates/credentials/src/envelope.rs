//! Envelope encryption: a master key, which only processes have, wraps an organisation's data keys, and a
//! data key seals its secrets.
//!
//! Both use AES-256-GCM with a random nonce. A sealed secret is bound to its organisation, row and version,
//! so someone who can write to the database cannot put one row's secret into another row, or restore an old
//! one.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use domain::OrgId;
use store::{Sealed, WrappedKey};
use zeroize::Zeroizing;

/// The length of a key in bytes.
const KEY_BYTES: usize = 32;
/// The most master keys of a process: the current one, and older ones for data keys that are not rewrapped
/// yet.
const MAX_KEYS: usize = 16;
const MAX_ID_CHARS: usize = 40;

/// The reasons why sealing or opening fails. None contains any part of the secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// The master keys cannot be read.
    #[error(
        "the secrets key cannot be read: {0}; it is `ID:BASE64`, 32 random bytes, then older ones after commas"
    )]
    Keys(String),
    /// The master key that wraps a data key is not available.
    #[error("the secrets key `{0}` is missing: give it again, after the current one")]
    MissingKey(String),
    /// A master key with this name is available, but does not unwrap the data key.
    #[error(
        "the secrets key `{0}` is not the one of this name that wrapped the data key, or that was changed: give the one of then"
    )]
    OtherKey(String),
    /// The bytes were not sealed for this row.
    #[error("a stored secret cannot be opened: it was changed, or is of another row")]
    Refused,
}

/// An AES-256-GCM key. Its memory is overwritten on drop.
struct Key(Zeroizing<[u8; KEY_BYTES]>);

impl Key {
    fn random() -> Self {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        aws_lc_rs::rand::fill(key.as_mut()).expect("the system gives random bytes");
        Self(key)
    }

    fn seal(&self, aad: &[u8], secret: &[u8]) -> Vec<u8> {
        let cipher = self.cipher();
        let mut bytes = secret.to_vec();
        let nonce = cipher
            .seal_in_place_append_tag(Aad::from(aad), &mut bytes)
            .expect("a secret is far shorter than AES-GCM's bound");
        [nonce.as_ref().as_slice(), &bytes].concat()
    }

    fn open(&self, aad: &[u8], sealed: &[u8]) -> Result<Vec<u8>, EnvelopeError> {
        let (nonce, bytes) = sealed.split_at_checked(NONCE_LEN).ok_or(EnvelopeError::Refused)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| EnvelopeError::Refused)?;
        let mut bytes = bytes.to_vec();
        let opened = self.cipher().open_in_place(nonce, Aad::from(aad), &mut bytes);
        let length = opened.map_err(|_| EnvelopeError::Refused)?.len();
        bytes.truncate(length);
        Ok(bytes)
    }

    fn cipher(&self) -> RandomizedNonceKey {
        RandomizedNonceKey::new(&AES_256_GCM, self.0.as_ref())
            .expect("a key of 32 bytes is AES-256's")
    }
}

/// The master keys of a process. The first one wraps, all unwrap.
pub struct MasterKeys(Vec<(String, Key)>);

impl MasterKeys {
    /// Makes a random key as text, for the file that the first start writes.
    #[must_use]
    pub fn generate(id: &str) -> String {
        format!("{id}:{}", STANDARD.encode(Key::random().0.as_ref()))
    }

    /// Makes a random key with a unique id that starts with `prefix`, so that two keys are never confused.
    #[must_use]
    pub fn generate_like(prefix: &str) -> String {
        let mut name = [0; 4];
        aws_lc_rs::rand::fill(&mut name).expect("the system gives random bytes");
        Self::generate(&format!("{prefix}-{:08x}", u32::from_be_bytes(name)))
    }

    /// Parses `ID:BASE64` of 32 bytes, the current key first; others follow after commas or line breaks.
    ///
    /// # Errors
    /// [`EnvelopeError::Keys`], which does not repeat the text.
    pub fn parse(text: &str) -> Result<Self, EnvelopeError> {
        let refused = |problem: &str| EnvelopeError::Keys(problem.to_owned());
        let mut keys: Vec<(String, Key)> = Vec::new();
        let parts = text.split([',', '\n']).map(str::trim).filter(|part| !part.is_empty());
        for part in parts {
            let (id, encoded) = part.split_once(':').ok_or_else(|| refused("it has no `:`"))?;
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if id.is_empty() || id.len() > MAX_ID_CHARS || !id.chars().all(plain) {
                return Err(refused("an id has 1 to 40 letters, digits, `-`, `_` or `.`"));
            }
            let bytes = STANDARD.decode(encoded.trim()).map_err(|_| refused("it is no base64"))?;
            let key = bytes.try_into().map_err(|_| refused("a key has 32 bytes"))?;
            if keys.iter().any(|(known, _)| known == id) {
                return Err(refused("two keys have the same id"));
            }
            keys.push((id.to_owned(), Key(Zeroizing::new(key))));
        }
        if keys.is_empty() || keys.len() > MAX_KEYS {
            return Err(refused("there must be 1 to 16 keys"));
        }
        Ok(Self(keys))
    }

    /// Returns the id of the current key.
    #[must_use]
    pub fn current(&self) -> &str {
        &self.0[0].0
    }

    /// Makes a new data key for an organisation.
    pub(crate) fn new_data_key(&self, org: OrgId, id: i32) -> (DataKey, WrappedKey) {
        let key = DataKey { id, key: Key::random() };
        let wrapped = self.wrap(org, &key);
        (key, wrapped)
    }

    /// Wraps a data key with the current master key.
    pub(crate) fn wrap(&self, org: OrgId, key: &DataKey) -> WrappedKey {
        let (key_id, master) = &self.0[0];
        let wrapped = master.seal(&wrapping(org, key.id), key.key.0.as_ref());
        WrappedKey { id: key.id, key_id: key_id.clone(), wrapped }
    }

    /// # Errors
    /// The master key is missing or differs from the one with this name, or the wrapped key belongs to
    /// another organisation.
    pub(crate) fn unwrap(&self, org: OrgId, key: &WrappedKey) -> Result<DataKey, EnvelopeError> {
        let master = self.0.iter().find(|(id, _)| *id == key.key_id);
        let (_, master) = master.ok_or_else(|| EnvelopeError::MissingKey(key.key_id.clone()))?;
        let other = || EnvelopeError::OtherKey(key.key_id.clone());
        let bytes = master.open(&wrapping(org, key.id), &key.wrapped).map_err(|_| other())?;
        let bytes = bytes.try_into().map_err(|_| other())?;
        Ok(DataKey { id: key.id, key: Key(Zeroizing::new(bytes)) })
    }
}

impl fmt::Debug for MasterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(id, _)| id)).finish()
    }
}

/// An organisation's data key.
pub(crate) struct DataKey {
    id: i32,
    key: Key,
}

impl DataKey {
    /// Seals a row's secret.
    pub(crate) fn seal(&self, row: &Row<'_>, secret: &[u8]) -> Sealed {
        Sealed { secret: self.id, bytes: self.key.seal(&row.aad(), secret) }
    }

    /// # Errors
    /// [`EnvelopeError::Refused`]: the bytes were not sealed with this key for this row.
    pub(crate) fn open(&self, row: &Row<'_>, sealed: &Sealed) -> Result<Vec<u8>, EnvelopeError> {
        self.key.open(&row.aad(), &sealed.bytes)
    }
}

/// The row that a secret is bound to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) org: OrgId,
    /// The row's id, whose prefix gives its kind.
    pub(crate) id: &'a str,
    pub(crate) version: i64,
}

impl Row<'_> {
    fn aad(&self) -> Vec<u8> {
        let version = self.version.to_be_bytes();
        // The parts around the id have fixed lengths, so no two rows have the same bytes.
        [self.org.0.as_bytes().as_slice(), self.id.as_bytes(), &version].concat()
    }
}

fn wrapping(org: OrgId, id: i32) -> Vec<u8> {
    [b"data-key".as_slice(), org.0.as_bytes(), &id.to_be_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORG: OrgId = OrgId::FIRST;

    fn row(id: &str, version: i64) -> Row<'_> {
        Row { org: ORG, id, version }
    }

    #[test]
    fn a_secret_opens_only_in_its_own_row_and_version() {
        let master = MasterKeys::parse(&MasterKeys::generate("k1")).expect("a key");
        let (key, wrapped) = master.new_data_key(ORG, 1);
        let sealed = key.seal(&row("crd_a", 1), b"sk-secret");
        let again = key.seal(&row("crd_a", 1), b"sk-secret");
        assert_ne!(sealed, again, "a nonce is not used twice");
        assert!(!sealed.bytes.windows(9).any(|window| window == b"sk-secret"));
        let key = master.unwrap(ORG, &wrapped).expect("the same key");
        assert_eq!(key.open(&row("crd_a", 1), &sealed).expect("opened"), b"sk-secret");

        let refused = |row: Row<'_>, sealed: &Sealed| key.open(&row, sealed).expect_err("opened");
        assert_eq!(refused(row("crd_b", 1), &sealed), EnvelopeError::Refused);
        assert_eq!(refused(row("crd_a", 2), &sealed), EnvelopeError::Refused);
        let foreign = Row { org: OrgId::random(), ..row("crd_a", 1) };
        assert_eq!(refused(foreign, &sealed), EnvelopeError::Refused);
        for n in 0..sealed.bytes.len() {
            let mut changed = sealed.clone();
            changed.bytes[n] ^= 1;
            assert_eq!(refused(row("crd_a", 1), &changed), EnvelopeError::Refused, "byte {n}");
            changed.bytes.truncate(n);
            assert_eq!(refused(row("crd_a", 1), &changed), EnvelopeError::Refused, "{n} bytes");
        }
        let other = Some(EnvelopeError::OtherKey("k1".into()));
        assert_eq!(master.unwrap(OrgId::random(), &wrapped).err(), other);
        let namesake = MasterKeys::parse(&MasterKeys::generate("k1")).expect("a key");
        assert_eq!(namesake.unwrap(ORG, &wrapped).err(), other);
    }

    #[test]
    fn a_new_master_key_wraps_and_the_older_ones_still_unwrap() {
        let (old, new) = (MasterKeys::generate("old"), MasterKeys::generate("new"));
        let before = MasterKeys::parse(&old).expect("a key");
        let (key, wrapped) = before.new_data_key(ORG, 3);
        let sealed = key.seal(&row("crd_a", 1), b"x");
        let both = MasterKeys::parse(&format!("{new}\n{old}\n")).expect("two keys");
        assert_eq!(both.current(), "new");
        let rewrapped = both.wrap(ORG, &both.unwrap(ORG, &wrapped).expect("the older one"));
        assert_eq!((rewrapped.id, rewrapped.key_id.as_str()), (3, "new"));
        let after = MasterKeys::parse(&new).expect("a key");
        let key = after.unwrap(ORG, &rewrapped).expect("the new one");
        assert_eq!(key.open(&row("crd_a", 1), &sealed).expect("opened"), b"x");
        let missing = after.unwrap(ORG, &wrapped).err().expect("no longer there");
        assert_eq!(missing, EnvelopeError::MissingKey("old".into()));
        assert!(missing.to_string().contains("give it again"), "{missing}");
    }

    #[test]
    fn master_keys_are_read_strictly_and_never_shown() {
        let good = MasterKeys::generate("k1");
        let keys = MasterKeys::parse(&good).expect("a key");
        assert_eq!(format!("{keys:?}"), r#"["k1"]"#);
        let secret = good.split_once(':').expect("two parts").1.to_owned();
        let bad = [
            String::new(),
            secret.clone(),
            format!(":{secret}"),
            format!("k 1:{secret}"),
            format!("k1:{}", &secret[4..]),
            format!("k1:{secret}!"),
            format!("k1:{secret},k1:{secret}"),
        ];
        for text in bad {
            let error = MasterKeys::parse(&text).expect_err(&text).to_string();
            assert!(!error.contains(&secret[4..]), "{error}");
            assert!(error.contains("ID:BASE64"), "{error}");
        }
    }
}
