//! Which files look like secrets: by their names, and by what they hold. Pure.

use std::path::Path;

/// The most bytes of a file that are looked at.
pub(crate) const LOOKED_AT: u64 = 1024 * 1024;

/// Names of files that are secrets.
const NAMES: [&str; 13] = [
    ".netrc",
    "_netrc",
    ".pgpass",
    ".htpasswd",
    ".git-credentials",
    ".dockercfg",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "credentials.json",
    "terraform.tfstate",
    "kubeconfig",
];

/// Ends of names of keys and their stores.
const ENDS: [&str; 8] = [".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk"];

/// Ends of names that show how a secret looks, and hold none.
const EXAMPLES: [&str; 5] = [".example", ".sample", ".template", ".dist", ".defaults"];

/// The beginnings of tokens, with the number of characters that follow at least.
const TOKENS: [(&str, usize); 14] = [
    ("AKIA", 16),
    ("ASIA", 16),
    ("ghp_", 36),
    ("gho_", 36),
    ("ghs_", 36),
    ("github_pat_", 40),
    ("glpat-", 20),
    ("xoxb-", 20),
    ("xoxp-", 20),
    ("sk-ant-", 30),
    ("sk-proj-", 30),
    ("sk_live_", 20),
    ("AIza", 35),
    ("npm_", 36),
];

/// Returns whether a file's name is that of a secret. `path` is below the top of the repository.
pub(crate) fn is_named_so(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let name = name.to_ascii_lowercase();
    if EXAMPLES.iter().any(|end| name.ends_with(end)) || name.ends_with(".pub") {
        return false;
    }
    let in_folder = |folder: &str, file: &str| {
        name == file && path.parent().and_then(Path::file_name).is_some_and(|it| it == folder)
    };
    name == ".env"
        || name.starts_with(".env.")
        || NAMES.contains(&name.as_str())
        || ENDS.iter().any(|end| name.ends_with(end))
        || in_folder(".aws", "credentials")
        || in_folder(".docker", "config.json")
}

/// Returns whether a file holds something that looks like a key or a token.
pub(crate) fn holds_one(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let is_key = text.split("-----BEGIN ").skip(1).any(|rest| {
        rest.split_once("-----").is_some_and(|(kind, _)| kind.ends_with("PRIVATE KEY"))
    });
    is_key || TOKENS.iter().any(|(begin, least)| has_token(&text, begin, *least))
}

fn has_token(text: &str, begin: &str, least: usize) -> bool {
    let is_part = |one: char| one.is_ascii_alphanumeric() || one == '_' || one == '-';
    text.match_indices(begin).any(|(at, _)| {
        let is_begun = !text[..at].ends_with(is_part);
        let rest = &text[at + begin.len()..];
        is_begun && rest.chars().take_while(|one| is_part(*one)).nth(least - 1).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_their_names() {
        for secret in [".env", "a/.env.local", "deploy/id_rsa", "server.PEM", ".aws/credentials"] {
            assert!(is_named_so(Path::new(secret)), "{secret}");
        }
        for plain in [".env.example", "id_rsa.pub", "environment.rs", "credentials", "key.rs"] {
            assert!(!is_named_so(Path::new(plain)), "{plain}");
        }
    }

    #[test]
    fn secrets_are_known_by_what_they_hold() {
        let token = format!("token = \"ghp_{}\"", "a".repeat(36));
        assert!(holds_one(token.as_bytes()));
        let key = ["-----BEGIN OPENSSH PRIVATE", " KEY-----\nx"].concat();
        assert!(holds_one(key.as_bytes()));
        for plain in ["ghp_short", "AKIA is a prefix", "-----BEGIN CERTIFICATE-----\nx", ""] {
            assert!(!holds_one(plain.as_bytes()), "{plain}");
        }
        let inside = format!("xAKIA{}", "A".repeat(16));
        assert!(!holds_one(inside.as_bytes()), "a part of a longer word");
    }
}
