//! The folders of the host that commands in a cell see beside the system's own: where a person's compilers and interpreters
//! are. Credential files are in none of them.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Below the home: what tool managers install, and no folder in which they also keep a token.
const IN_HOME: [&str; 25] = [
    ".rustup",
    ".cargo/bin",
    ".cargo/registry",
    ".cargo/git",
    ".cargo/env",
    ".nvm/versions",
    ".nvm/alias",
    ".nvm/nvm.sh",
    ".local/bin",
    ".local/lib",
    ".local/share/mise",
    ".local/share/uv",
    ".local/share/fnm",
    ".local/share/pnpm",
    ".pyenv",
    ".rbenv",
    ".asdf",
    ".volta",
    ".bun/bin",
    ".deno/bin",
    ".sdkman/candidates",
    ".npm-global",
    ".juliaup",
    "go/bin",
    "go/pkg/mod",
];

/// Variables that tell a tool where its own folder is: kept, and where there is none, these folders of the home.
const VARIABLES: [(&str, Option<&str>); 9] = [
    ("RUSTUP_HOME", Some(".rustup")),
    ("CARGO_HOME", Some(".cargo")),
    ("NVM_DIR", Some(".nvm")),
    ("PYENV_ROOT", Some(".pyenv")),
    ("VOLTA_HOME", Some(".volta")),
    ("GOROOT", None),
    ("GOMODCACHE", Some("go/pkg/mod")),
    ("JAVA_HOME", None),
    ("RUSTUP_TOOLCHAIN", None),
];

/// The paths that a new root already has.
const SYSTEM: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/nix", "/etc", "/dev"];

/// A person's toolchains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Toolchains {
    folders: Vec<PathBuf>,
    variables: Vec<(OsString, OsString)>,
}

impl Toolchains {
    /// Looks for them by the worker's `PATH`, `HOME` and the variables of known tools.
    #[must_use]
    pub fn find(vars: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let vars: Vec<_> = vars.into_iter().collect();
        let of = |name: &str| {
            vars.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_os_str())
        };
        let home = of("HOME").map(Path::new).filter(|home| home.is_absolute());
        let home = home.filter(|home| *home != Path::new("/"));
        let mut folders: Vec<PathBuf> = Vec::new();
        let mut add = |folder: PathBuf| {
            let is_system = SYSTEM.iter().any(|system| folder.starts_with(system));
            let is_there = folder.is_absolute() && folder.exists();
            // Credentials are in it, whatever a `PATH` says.
            let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
            let has_home = home.is_some_and(|home| real(home).starts_with(real(&folder)));
            if is_there && !is_system && !has_home && folder.components().count() > 2 {
                folders.push(folder);
            }
        };
        for name in IN_HOME {
            home.map(|home| home.join(name)).into_iter().for_each(&mut add);
        }
        let mut variables = Vec::new();
        for (name, usual) in VARIABLES {
            let known = of(name).map(OsStr::to_os_string);
            let usual = || {
                let folder = home?.join(usual?);
                folder.is_dir().then(|| folder.into_os_string())
            };
            let Some(value) = known.or_else(usual) else { continue };
            match name {
                // It holds credentials too.
                "CARGO_HOME" => {
                    for part in ["bin", "registry", "git", "env"] {
                        add(Path::new(&value).join(part));
                    }
                }
                "NVM_DIR" => add(Path::new(&value).join("versions")),
                "RUSTUP_TOOLCHAIN" => {}
                _ => add(PathBuf::from(&value)),
            }
            variables.push((name.into(), value));
        }
        for folder in std::env::split_paths(of("PATH").unwrap_or_default()) {
            let in_home = home.is_some_and(|home| folder.starts_with(home));
            let is_bin = folder.file_name().is_some_and(|name| name == "bin" || name == "sbin");
            match folder.parent() {
                // Its libraries are beside it.
                Some(parent) if is_bin && !in_home && parent.components().count() > 2 => {
                    add(parent.to_path_buf());
                }
                _ => add(folder),
            }
        }
        folders.sort();
        folders.dedup();
        // One in another comes with it.
        let mut outer: Vec<PathBuf> = Vec::new();
        for folder in folders {
            if !outer.iter().any(|known| folder.starts_with(known)) {
                outer.push(folder);
            }
        }
        Self { folders: outer, variables }
    }

    /// The folders, but for those that would cover the workspace.
    pub(crate) fn folders_beside(&self, workspace: &Path) -> Vec<OsString> {
        let beside = self.folders.iter().filter(|folder| !workspace.starts_with(folder));
        beside.map(|folder| folder.clone().into_os_string()).collect()
    }

    /// All folders, for a tier without a root of its own.
    pub(crate) fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    pub(crate) fn variables(&self) -> &[(OsString, OsString)] {
        &self.variables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toolchains_are_found_and_credentials_are_not() {
        let home = tempfile::tempdir().unwrap();
        for folder in [".rustup/toolchains", ".cargo/bin", ".cargo/registry", ".ssh", "tool/bin"] {
            std::fs::create_dir_all(home.path().join(folder)).unwrap();
        }
        std::fs::write(home.path().join(".cargo/credentials.toml"), "token").unwrap();
        let path = format!(
            "{0}:{0}/..:{0}/.cargo/bin:{0}/tool/bin:/usr/bin:relative",
            home.path().display()
        );
        let vars = [("HOME", home.path().as_os_str()), ("PATH", OsStr::new(&path))];
        let found = Toolchains::find(vars.map(|(name, value)| (name.into(), value.into())));
        let below = |folder: &PathBuf| folder.strip_prefix(home.path()).unwrap().to_path_buf();
        let folders: Vec<_> = found.folders.iter().map(below).collect();
        let expected = [".cargo/bin", ".cargo/registry", ".rustup", "tool/bin"];
        assert_eq!(folders, expected.map(PathBuf::from));
        let rustup = (OsString::from("RUSTUP_HOME"), home.path().join(".rustup").into_os_string());
        assert!(found.variables.contains(&rustup));
        let inside = home.path().join(".rustup/toolchains");
        assert_eq!(
            found.folders_beside(&inside).len(),
            3,
            "the one around a workspace is left out"
        );
    }
}
