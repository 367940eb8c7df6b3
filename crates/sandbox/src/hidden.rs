//! Paths that no session may reach, although its directory may contain them: the service's own folders, and the folders and
//! files in which people keep credentials.
//!
//! Files are known by device and inode, so that no link, bind mount or other name leads to them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The places of a home that hold credentials: keys, tokens, passwords, and the profiles of browsers with their cookies.
const CREDENTIALS: [&str; 38] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".oci",
    ".kube",
    ".docker",
    ".netrc",
    ".git-credentials",
    ".pgpass",
    ".my.cnf",
    ".npmrc",
    ".pypirc",
    ".vault-token",
    ".password-store",
    ".terraform.d",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".config/gh",
    ".config/glab-cli",
    ".config/git/credentials",
    ".config/gcloud",
    ".config/op",
    ".config/doctl",
    ".config/containers/auth.json",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/vivaldi",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".local/share/opencode/auth.json",
    ".mozilla",
];

/// The same, of browsers in containers of their own.
const BROWSERS: [&str; 4] =
    ["snap/firefox", "snap/chromium", ".var/app/org.mozilla.firefox", ".var/app/com.google.Chrome"];

/// Paths of this machine that sessions do not see. One that is made later counts too. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct HiddenPaths(Arc<[PathBuf]>);

impl HiddenPaths {
    /// Hides these, and what those of them that are links lead to now, so that a command that removes such a link uncovers
    /// nothing. Relative ones are left out. Blocking.
    pub fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let given = paths.into_iter().filter(|path| path.is_absolute());
        let both = given.flat_map(|path| [path.canonicalize().ok(), Some(path)]);
        let paths: BTreeSet<_> = both.flatten().collect();
        Self(paths.into_iter().collect())
    }

    /// Returns where the people of these homes keep credentials, but for the paths in `shown`.
    pub fn credentials_of<'h>(
        homes: impl IntoIterator<Item = &'h Path>,
        shown: &[PathBuf],
    ) -> Vec<PathBuf> {
        let is_shown = |path: &Path| shown.iter().any(|shown| path.starts_with(shown));
        let names = || CREDENTIALS.iter().chain(&BROWSERS);
        let all = homes.into_iter().flat_map(|home| names().map(move |name| home.join(name)));
        all.filter(|path| !is_shown(path)).collect()
    }

    /// Returns whether nothing is hidden.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the identities of those that are there now. Blocking.
    #[must_use]
    pub fn identities(&self) -> HiddenFiles {
        let found = self.0.iter().filter_map(|path| fs::metadata(path).ok());
        HiddenFiles(found.map(|found| (found.dev(), found.ino())).collect())
    }

    /// Returns the real paths of those below `directory` that are there now. Blocking.
    #[must_use]
    pub fn below(&self, directory: &Path) -> Vec<PathBuf> {
        let mut folders = RealFolders::default();
        let real = self.0.iter().filter_map(|path| folders.find_real(path));
        let below: BTreeSet<_> =
            real.filter(|path| path != directory && path.starts_with(directory)).collect();
        below.into_iter().collect()
    }

    /// Returns the real paths below `directory` at which programs of this machine listen: who connects to one acts as that
    /// program, such as a container engine. Those that were bound by a relative name are not found. Blocking.
    #[must_use]
    pub fn sockets_below(directory: &Path) -> Vec<PathBuf> {
        // Num RefCount Protocol Flags Type St Inode Path (proc_net(5)).
        let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let named = table.lines().filter_map(|line| line.find(" /").map(|at| &line[at + 1..]));
        let real = named.filter_map(|path| Path::new(path).canonicalize().ok());
        let below: BTreeSet<_> = real.filter(|path| path.starts_with(directory)).collect();
        below.into_iter().collect()
    }

    /// Returns the hidden path that `path`, a real one, is or lies in, whether it is there or not. Blocking.
    #[must_use]
    pub fn around(&self, path: &Path) -> Option<&Path> {
        let mut folders = RealFolders::default();
        let mut paths = self.0.iter().map(PathBuf::as_path);
        paths.find(|hidden| {
            path.starts_with(hidden)
                || folders.find_real(hidden).is_some_and(|real| path.starts_with(real))
        })
    }
}

/// The real paths of folders that were looked up. Hidden paths share few folders, and each look-up follows a path from the
/// root.
#[derive(Default)]
struct RealFolders<'p>(BTreeMap<&'p Path, Option<PathBuf>>);

impl<'p> RealFolders<'p> {
    /// Returns the real path of what is at `path`; `None` if nothing is there.
    fn find_real(&mut self, path: &'p Path) -> Option<PathBuf> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return path.canonicalize().ok();
        };
        let real = self.0.entry(folder).or_insert_with(|| folder.canonicalize().ok());
        let place = real.as_ref()?.join(name);
        let kind = fs::symlink_metadata(&place).ok()?.file_type();
        if kind.is_symlink() { place.canonicalize().ok() } else { Some(place) }
    }
}

/// Files and folders by device and inode.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HiddenFiles(BTreeSet<(u64, u64)>);

impl HiddenFiles {
    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the file of this device and inode is one of them.
    #[must_use]
    pub fn contains(&self, device: u64, inode: u64) -> bool {
        self.0.contains(&(device, inode))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn credentials_of_a_home_are_hidden_unless_shown() {
        let home = Path::new("/home/me");
        let paths = HiddenPaths::credentials_of([home], &[]);
        for name in [".ssh", ".netrc", ".config/gh", ".mozilla", "snap/firefox"] {
            assert!(paths.contains(&home.join(name)), "{name}");
        }
        let shown = HiddenPaths::credentials_of([home], &[home.join(".aws")]);
        assert!(!shown.contains(&home.join(".aws")) && shown.len() + 1 == paths.len());
    }

    #[test]
    fn a_path_is_hidden_by_its_place_and_by_its_identity() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("real")).unwrap();
        symlink("real", root.join("data")).unwrap();
        let hidden = HiddenPaths::new([root.join("data"), root.join("later"), "relative".into()]);
        assert_eq!(hidden.below(&root), [root.join("real")]);
        assert_eq!(hidden.below(&root.join("real")), Vec::<PathBuf>::new());
        assert!(hidden.around(&root.join("real/a")).is_some());
        assert!(hidden.around(&root.join("later/a")).is_some());
        assert_eq!(hidden.around(&root.join("laterally")), None);
        let real = fs::metadata(root.join("real")).unwrap();
        assert!(hidden.identities().contains(real.dev(), real.ino()));
    }

    #[test]
    fn a_removed_link_uncovers_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("dotfiles/aws")).unwrap();
        symlink("dotfiles", root.join("dots")).unwrap();
        symlink("dots/aws", root.join(".aws")).unwrap();
        let hidden = HiddenPaths::new([root.join(".aws")]);
        for link in [".aws", "dots"] {
            fs::remove_file(root.join(link)).unwrap();
            assert_eq!(hidden.below(&root), [root.join("dotfiles/aws")], "{link}");
            assert!(hidden.around(&root.join("dotfiles/aws/credentials")).is_some(), "{link}");
            let real = fs::metadata(root.join("dotfiles/aws")).unwrap();
            assert!(hidden.identities().contains(real.dev(), real.ino()), "{link}");
        }
    }
}
