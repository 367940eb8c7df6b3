//! The environment that commands see.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::exit::EXIT_PORT;
use crate::toolchain::Toolchains;
use crate::{root, wire};

/// The variables that are passed on from the worker. All others stay: provider credentials never reach a tool this way.
const PASSED_ON: [&str; 10] = [
    "PATH",
    "HOME",
    "LANG",
    "TZ",
    "USER",
    "SHELL",
    "TMPDIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "LC_ALL",
];

/// Programs that would wait for a person at a terminal are told that there is none.
const FIXED: [(&str, &str); 4] =
    [("TERM", "dumb"), ("PAGER", "cat"), ("GIT_PAGER", "cat"), ("GIT_TERMINAL_PROMPT", "0")];

/// By these, programs find the proxy of a cell that has a way out.
const PROXY: [&str; 11] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "CARGO_HTTP_PROXY",
    "PIP_PROXY",
    "npm_config_proxy",
    "npm_config_https_proxy",
    "YARN_HTTPS_PROXY",
];

/// Node obeys the proxy's variables from its version 24 on, where this says so.
const BESIDE_PROXY: [(&str, &str); 3] = [
    ("NO_PROXY", "localhost,127.0.0.1,::1"),
    ("no_proxy", "localhost,127.0.0.1,::1"),
    ("NODE_USE_ENV_PROXY", "1"),
];

/// By these, programs find certificates.
const CERTIFICATES: [&str; 8] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "npm_config_cafile",
];

/// The variables by which programs choose how letters are written.
fn is_locale(name: &OsStr) -> bool {
    name == "LANG" || name == "LC_ALL"
}

fn java_options() -> String {
    let of = |kind| format!("-D{kind}.proxyHost=127.0.0.1 -D{kind}.proxyPort={EXIT_PORT}");
    format!("{} {}", of("http"), of("https"))
}

/// The way out of a cell that has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit {
    /// Whether there are certificates beside the system's.
    pub(crate) certificates: bool,
}

/// A short allow-list of the worker's variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment(Vec<(OsString, OsString)>);

impl Environment {
    /// Keeps the allowed ones of `vars`. Start-up code passes `std::env::vars_os()`.
    pub fn from_vars(vars: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut kept: Vec<_> = vars
            .into_iter()
            .filter(|(name, _)| PASSED_ON.iter().any(|allowed| name == OsStr::new(allowed)))
            .filter(|(name, value)| !is_locale(name) || !value.is_empty())
            .collect();
        if !kept.iter().any(|(name, _)| is_locale(name)) {
            // Otherwise programs take each byte beyond ASCII for a letter of its own.
            kept.push(("LANG".into(), "C.UTF-8".into()));
        }
        if !kept.iter().any(|(name, _)| name == "PATH") {
            kept.push(("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()));
        }
        kept.extend(FIXED.map(|(name, value)| (name.into(), value.into())));
        kept.sort();
        Self(kept)
    }

    /// The variables of a command in a cell, as `NAME=value`: those of the host that name its folders are replaced.
    pub(crate) fn in_a_cell(
        &self,
        toolchains: &Toolchains,
        more: &[(OsString, OsString)],
        exit: Option<Exit>,
    ) -> Vec<OsString> {
        let mut all: BTreeMap<&OsStr, &OsStr> = self.vars().collect();
        for gone in ["TMPDIR", "CARGO_HOME", "RUSTUP_HOME"] {
            all.remove(OsStr::new(gone));
        }
        let shell = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
        for (name, value) in
            [("HOME", root::HOME), ("USER", "agent"), ("LOGNAME", "agent"), ("SHELL", shell)]
        {
            all.insert(OsStr::new(name), OsStr::new(value));
        }
        let proxy = format!("http://127.0.0.1:{EXIT_PORT}");
        let java = java_options();
        if let Some(Exit { certificates }) = exit {
            all.extend(PROXY.map(|name| (OsStr::new(name), OsStr::new(&proxy))));
            all.extend(BESIDE_PROXY.map(|(name, value)| (OsStr::new(name), OsStr::new(value))));
            all.insert(OsStr::new("JAVA_TOOL_OPTIONS"), OsStr::new(&java));
            if certificates {
                let file = OsStr::new(root::CERTIFICATES);
                all.extend(CERTIFICATES.map(|name| (OsStr::new(name), file)));
            }
        }
        all.extend(toolchains.variables().iter().map(|(name, value)| (&**name, &**value)));
        all.extend(more.iter().map(|(name, value)| (&**name, &**value)));
        all.into_iter().map(|(name, value)| wire::variable(name, value)).collect()
    }

    /// Name and value, sorted by name.
    pub(crate) fn vars(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_not_passed_on() {
        let vars = [("OPENAI_API_KEY", "sk-1"), ("HOME", "/home/a"), ("TERM", "xterm")];
        let environment = Environment::from_vars(vars.map(|(k, v)| (k.into(), v.into())));
        let seen: Vec<_> = environment
            .vars()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        assert_eq!(
            seen,
            [
                "GIT_PAGER=cat",
                "GIT_TERMINAL_PROMPT=0",
                "HOME=/home/a",
                "LANG=C.UTF-8",
                "PAGER=cat",
                "PATH=/usr/local/bin:/usr/bin:/bin",
                "TERM=dumb"
            ]
        );
    }

    // Finding: report 30-b21 (github/copilot-cli#3601): commands counted bytes for letters.
    #[test]
    fn commands_have_a_locale_of_utf_8_unless_one_is_set() {
        for (set, langs) in [
            ([("LANG", ""), ("TZ", "UTC")], vec!["C.UTF-8"]),
            ([("LANG", "de_DE.UTF-8"), ("TZ", "UTC")], vec!["de_DE.UTF-8"]),
            ([("LC_ALL", "C"), ("TZ", "UTC")], vec![]),
        ] {
            let environment = Environment::from_vars(set.map(|(k, v)| (k.into(), v.into())));
            let of_lang = environment.vars().filter(|(name, _)| *name == "LANG");
            let seen: Vec<_> = of_lang.filter_map(|(_, value)| value.to_str()).collect();
            assert_eq!(seen, langs, "{set:?}");
        }
    }
}
