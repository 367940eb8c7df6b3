//! Recovery codes: short enough to be written on paper, long enough that nobody guesses one.

use rand::RngExt;
use sha2::{Digest, Sha256};

use crate::hash;

/// The number of codes in a set.
pub const RECOVERY_CODES: usize = 8;
/// Crockford's base 32: no letter looks like a digit.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// 32^26 = 2^130.
const SECRET_CHARS: usize = 26;
const CHECK_CHARS: usize = 4;
const GROUP_CHARS: usize = 5;

/// A recovery code. Nothing shows its text but [`RecoveryCode::text`].
#[derive(Clone, PartialEq, Eq)]
pub struct RecoveryCode(String);

impl std::fmt::Debug for RecoveryCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RecoveryCode")
    }
}

impl RecoveryCode {
    /// Generates a set of codes.
    #[must_use]
    pub fn set() -> Vec<Self> {
        let mut rng = rand::rng();
        let mut one = || {
            let mut letter = |_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())]);
            let secret: String = (0..SECRET_CHARS).map(&mut letter).collect();
            let check = checksum(&secret);
            Self(secret + &check)
        };
        (0..RECOVERY_CODES).map(|_| one()).collect()
    }

    /// Reads a code as somebody types it: hyphens, spaces and lower case do not matter, nor do `O`, `I` and `L` in place of
    /// the digits that they look like. `None` if it is mistyped; nobody needs to be asked about it.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let letters = text.chars().filter(|c| !c.is_whitespace() && *c != '-');
        let plain =
            letters.take(SECRET_CHARS + CHECK_CHARS + 1).map(|c| match c.to_ascii_uppercase() {
                'O' => '0',
                'I' | 'L' => '1',
                other => other,
            });
        let code: String = plain.collect();
        let is_plain = code.bytes().all(|byte| ALPHABET.contains(&byte));
        if !is_plain || code.len() != SECRET_CHARS + CHECK_CHARS {
            return None;
        }
        let (secret, check) = code.split_at(SECRET_CHARS);
        (checksum(secret) == check).then_some(Self(code))
    }

    /// Returns the text for people: six groups of five.
    #[must_use]
    pub fn text(&self) -> String {
        let groups: Vec<_> =
            self.0.as_bytes().chunks(GROUP_CHARS).map(String::from_utf8_lossy).collect();
        groups.join("-")
    }

    /// Returns what is stored of it.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        hash(&self.0)
    }
}

fn checksum(secret: &str) -> String {
    let digest = Sha256::digest(secret.as_bytes());
    let letter = |byte: &u8| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]);
    digest.iter().take(CHECK_CHARS).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_however_it_is_typed() {
        let set = RecoveryCode::set();
        assert_eq!(set.len(), RECOVERY_CODES);
        for code in &set {
            let text = code.text();
            assert_eq!(text.split('-').map(str::len).collect::<Vec<_>>(), [5; 6], "{text}");
            let loose = format!(
                " {} ",
                text.to_lowercase().replace('-', " ").replace('0', "o").replace('1', "l")
            );
            for typed in [text.clone(), loose, text.replace('-', "")] {
                assert_eq!(RecoveryCode::read(&typed).as_ref(), Some(code), "{typed}");
            }
            assert_ne!(code.hash(), set[0].hash().map(|byte| byte ^ 1));
        }
        let distinct: std::collections::BTreeSet<_> = set.iter().map(RecoveryCode::hash).collect();
        assert_eq!(distinct.len(), RECOVERY_CODES);
    }

    #[test]
    fn a_mistyped_code_is_known_without_a_look() {
        let text = RecoveryCode::set().remove(0).text();
        let other = if text.starts_with('A') { 'B' } else { 'A' };
        let swapped = format!("{other}{}", &text[1..]);
        for wrong in ["", "hello", &text[1..], &format!("{text}0"), &swapped, &"é".repeat(30)] {
            assert_eq!(RecoveryCode::read(wrong), None, "{wrong}");
        }
    }
}
