//! Which files look like secrets: by their names, and by what they hold. Pure.

use std::path::Path;

/// The most bytes of a file that are looked at.
pub(crate) const LOOKED_AT: u64 = 1024 * 1024;

/// Names of files that are secrets.
const NAMES: [&str; 30] = [
    ".envrc",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".yarnrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    ".s3cfg",
    ".boto",
    ".htpasswd",
    ".git-credentials",
    ".dockercfg",
    ".dockerconfigjson",
    ".vault-token",
    ".vault_pass",
    ".terraformrc",
    "terraform.rc",
    "credentials.json",
    "credentials.toml",
    "application_default_credentials.json",
    "secrets.json",
    "secrets.yaml",
    "secrets.yml",
    "secrets.toml",
    "kubeconfig",
    "wallet.dat",
    "service-account.json",
    "service_account.json",
];

/// Ends of names of keys, their stores, and settings that hold them.
const ENDS: [&str; 24] = [
    ".env",
    ".pem",
    ".key",
    ".p8",
    ".p12",
    ".pkcs12",
    ".pfx",
    ".jks",
    ".keystore",
    ".kdbx",
    ".ppk",
    ".gpg",
    ".age",
    ".ovpn",
    ".kubeconfig",
    ".tfstate",
    ".tfstate.backup",
    ".tfvars",
    ".tfvars.json",
    ".auto.tfvars",
    ".publishsettings",
    ".mobileprovision",
    ".secret",
    ".secrets",
];

/// Beginnings of names: of variables for programs, and of private keys.
const BEGINNINGS: [&str; 10] = [
    ".env.",
    ".env-",
    ".env_",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "client_secret",
    "service-account-",
    "serviceaccount",
];

/// Ends of names that show how a secret looks, and hold none.
const EXAMPLES: [&str; 6] =
    [".example", ".sample", ".template", ".dist", ".defaults", ".schema.json"];

/// Names of variables for programs that show how they look.
const EXAMPLE_VARIABLES: [&str; 4] = ["example.env", "sample.env", "template.env", "default.env"];

/// Ends of names of programs and texts about them.
const SOURCES: [&str; 14] =
    ["rs", "go", "py", "js", "ts", "tsx", "rb", "java", "kt", "c", "h", "cpp", "md", "svelte"];

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
    let is_example = EXAMPLES.iter().any(|end| name.ends_with(end))
        || EXAMPLE_VARIABLES.iter().any(|end| name.ends_with(end));
    if is_example || name.ends_with(".pub") || name.ends_with(".pub.gpg") {
        return false;
    }
    let in_folder = |folder: &str, file: &str| {
        name == file && path.parent().and_then(Path::file_name).is_some_and(|it| it == folder)
    };
    // A file of a program that is named like a key, such as id_rsa.rs, is none.
    let is_source = Path::new(&name)
        .extension()
        .and_then(|end| end.to_str())
        .is_some_and(|end| SOURCES.contains(&end));
    let begins_so = !is_source && BEGINNINGS.iter().any(|begin| name.starts_with(begin));
    begins_so
        || NAMES.contains(&name.as_str())
        || ENDS.iter().any(|end| name.ends_with(end))
        || in_folder(".docker", "config.json")
        || in_folder(".kube", "config")
        || in_folder(".aws", "credentials")
        || in_folder(".aws", "config")
        || in_folder(".cargo", "credentials")
        || in_folder("gh", "hosts.yml")
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
        // Finding trial-3 25: `prod.env` was sent.
        for secret in [
            ".env",
            "a/.env.local",
            "prod.env",
            "deploy/Staging.ENV",
            ".env-prod",
            ".envrc",
            "deploy/id_rsa",
            "id_ed25519_work",
            "id_rsa.old",
            "server.PEM",
            "tls.key",
            "apns.p8",
            "store.p12",
            "my.keystore",
            ".aws/credentials",
            ".kube/config",
            ".docker/config.json",
            ".npmrc",
            ".netrc",
            ".pypirc",
            "credentials.json",
            "gcp/client_secret_12.json",
            "service-account-prod.json",
            "terraform.tfstate",
            "terraform.tfstate.backup",
            "prod.tfvars",
            "prod.auto.tfvars.json",
            "secrets.yaml",
            "vpn.ovpn",
        ] {
            assert!(is_named_so(Path::new(secret)), "{secret}");
        }
        for plain in [
            ".env.example",
            "prod.env.sample",
            "example.env",
            "id_rsa.pub",
            "id_rsa.rs",
            "environment.rs",
            "env.rs",
            "credentials",
            "src/credentials.rs",
            "key.rs",
            "keys",
            "monkey",
            "config.json",
            "variables.tf",
            "secrets.schema.json",
            "client_secret.go",
            "package.json",
            "docs/pem.md",
        ] {
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
