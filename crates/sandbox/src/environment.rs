//! The environment that commands see.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::toolchain::Toolchains;
use crate::{root, wire};

/// What is passed on from the worker. All else stays: provider credentials never reach a tool this way.
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

/// A short allow-list of the worker's variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment(Vec<(OsString, OsString)>);

impl Environment {
    /// Keeps the allowed ones of `vars`. Start-up code passes `std::env::vars_os()`.
    pub fn from_vars(vars: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut kept: Vec<_> = vars
            .into_iter()
            .filter(|(name, _)| PASSED_ON.iter().any(|allowed| name == OsStr::new(allowed)))
            .collect();
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
                "PAGER=cat",
                "PATH=/usr/local/bin:/usr/bin:/bin",
                "TERM=dumb"
            ]
        );
    }
}
