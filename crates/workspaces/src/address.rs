//! The address of a repository, as people and clients write it.

use std::fmt;
use std::str::FromStr;

use git_wire::{Oid, RefName};
use url::Url;

/// The most bytes of a path.
const MAX_PATH: usize = 255;
/// The most bytes of a host with its port.
const MAX_HOST: usize = 255;

/// A repository that is reached by HTTPS, and what is wanted of it.
///
/// ```text
/// https://github.com/rust-lang/log.git@v0.4    a person's
/// /github.com/rust-lang/log@v0.4               a client's `directory`
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// The host in lower case, with its port unless that is 443.
    pub host: String,
    /// The path without slashes around it and without `.git` at its end.
    pub path: String,
    /// The branch, tag or commit; `None` for the default branch.
    pub wanted: Option<Wanted>,
}

/// A branch, a tag or a commit as a person names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Wanted(String);

/// The reason why text is no [`Address`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is another form, or has another scheme.
    #[error("a repository is https://HOST/PATH, with @REF behind it for a branch, tag or commit")]
    Form,
    /// It is of ssh.
    #[error(
        "a repository is read by https here, without a key: write https://HOST/PATH in place of an ssh address"
    )]
    Ssh,
    /// It has a name or a password.
    #[error(
        "the address holds a user name or password; only public repositories are read, by an address without one"
    )]
    Credentials,
    /// It has a query or a fragment.
    #[error(
        "the address of a repository has no `?` and no `#`; name a branch with @BRANCH behind the path"
    )]
    Extras,
    /// The path is empty, too long or has other characters.
    #[error(
        "the path of a repository has letters, digits and any of . _ ~ + -, between slashes, and at most 255 bytes"
    )]
    Path,
    /// The reference breaks git's rules.
    #[error("`@` is followed by a branch, a tag or a whole commit id")]
    Reference,
}

impl Wanted {
    /// Returns it as the person wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the commit, if it is a whole commit id.
    #[must_use]
    pub fn commit(&self) -> Option<Oid> {
        self.0.parse().ok()
    }

    /// Returns the full names that it may mean, the likeliest first: a branch wins over a tag of the same name.
    #[must_use]
    pub fn names(&self) -> Vec<RefName> {
        let full = self.0.parse().ok();
        let below = |folder: &str| format!("refs/{folder}/{}", self.0).parse().ok();
        full.into_iter().chain(below("heads")).chain(below("tags")).collect()
    }
}

impl FromStr for Wanted {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = Self(text.to_owned());
        if wanted.names().is_empty() { Err(AddressError::Reference) } else { Ok(wanted) }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Address {
    /// Reads what a person wrote: `https://HOST/PATH`, with `@REF` behind it.
    ///
    /// # Errors
    /// It is no address, or one of another kind; the error says what to write.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        if text.starts_with("ssh://")
            || (text.contains(':') && !text.contains("://") && text.contains('@'))
        {
            return Err(AddressError::Ssh);
        }
        let rest = text.strip_prefix("https://").ok_or(AddressError::Form)?;
        let (authority, path) = rest.split_once('/').ok_or(AddressError::Form)?;
        if authority.contains('@') {
            return Err(AddressError::Credentials);
        }
        if path.contains(['?', '#']) {
            return Err(AddressError::Extras);
        }
        Self::of(authority, path)
    }

    /// Reads a client's directory, `/HOST/PATH` with `@REF` behind it. `None` if its first part is no host, so that it is
    /// a directory like others.
    ///
    /// # Errors
    /// The first part is a host, and the rest no repository of it.
    pub fn of_directory(directory: &str) -> Option<Result<Self, AddressError>> {
        let (host, path) = directory.strip_prefix('/')?.split_once('/')?;
        let is_host =
            host.contains(['.', ':']) && host.starts_with(|one: char| one.is_ascii_alphanumeric());
        (is_host && url_host(host).is_some()).then(|| Self::of(host, path))
    }

    fn of(host: &str, path: &str) -> Result<Self, AddressError> {
        let (path, wanted) = match path.split_once('@') {
            Some((path, wanted)) => (path, Some(wanted.parse()?)),
            None => (path, None),
        };
        let host = url_host(host).ok_or(AddressError::Form)?;
        let path = path.trim_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._~+-".contains(&byte);
        let is_part = |part: &str| {
            !part.is_empty() && part.bytes().all(plain) && part.bytes().any(|one| one != b'.')
        };
        if path.len() > MAX_PATH || !path.split('/').all(is_part) {
            return Err(AddressError::Path);
        }
        Ok(Self { host, path: path.to_owned(), wanted })
    }

    /// Returns the address for people and for git, without what is wanted.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}/{}", self.host, self.path)
    }

    /// Returns the directory by which clients know it: that of the project, without what is wanted.
    #[must_use]
    pub fn directory(&self) -> String {
        format!("/{}/{}", self.host, self.path)
    }

    /// Returns the addresses to ask, in this order: some servers know a repository only with `.git`, others only without.
    #[must_use]
    pub fn urls(&self) -> [String; 2] {
        let url = self.url();
        let longer = format!("{url}.git");
        [url, longer]
    }
}

/// Returns a host as it is kept: lower case, without the port 443.
fn url_host(host: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    if host.is_empty() || host.len() > MAX_HOST || !host.bytes().all(plain) {
        return None;
    }
    let url = Url::parse(&format!("https://{host}/")).ok()?;
    let name = url.host_str()?;
    Some(match url.port() {
        Some(port) => format!("{name}:{port}"),
        None => name.to_owned(),
    })
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url())?;
        match &self.wanted {
            Some(wanted) => write!(f, "@{wanted}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_address_is_read_as_people_write_it() {
        let read = |text: &str| {
            Address::parse(text).map(|it| (it.host, it.path, it.wanted.map(|it| it.0)))
        };
        let is = |host: &str, path: &str, wanted: Option<&str>| {
            Ok((host.to_owned(), path.to_owned(), wanted.map(str::to_owned)))
        };
        assert_eq!(read("https://GitHub.com/o/r.git"), is("github.com", "o/r", None));
        assert_eq!(read("https://h.org:443/r/@feature/x"), is("h.org", "r", Some("feature/x")));
        assert_eq!(read("https://127.0.0.1:8443/r@v1"), is("127.0.0.1:8443", "r", Some("v1")));
        assert_eq!(read("https://u:p@h.org/r"), Err(AddressError::Credentials));
        assert_eq!(read("git@github.com:o/r"), Err(AddressError::Ssh));
        assert_eq!(read("ssh://git@h.org/r"), Err(AddressError::Ssh));
        assert_eq!(read("http://h.org/r"), Err(AddressError::Form));
        assert_eq!(read("ext::sh -c id"), Err(AddressError::Form));
        assert_eq!(read("file:///etc"), Err(AddressError::Form));
        assert_eq!(read("https://h.org/r?x=1"), Err(AddressError::Extras));
        for bad in [
            "https://h.org/",
            "https://h.org/a/../b",
            "https://h.org/a//b",
            "https://h.org/a b",
            "https://h.org/%2e",
        ] {
            assert_eq!(read(bad), Err(AddressError::Path), "{bad}");
        }
        for bad in ["https://h.org/r@", "https://h.org/r@a..b", "https://h.org/r@a\nb"] {
            assert_eq!(read(bad), Err(AddressError::Reference), "{bad}");
        }
    }

    #[test]
    fn a_directory_is_a_repository_only_behind_a_host() {
        let of = |text: &str| Address::of_directory(text).map(|it| it.map(|it| it.to_string()));
        assert_eq!(of("/github.com/o/r@main"), Some(Ok("https://github.com/o/r@main".to_owned())));
        assert_eq!(of("/localhost:81/r"), Some(Ok("https://localhost:81/r".to_owned())));
        assert_eq!(of("/home/me/r"), None);
        assert_eq!(of("/workspace/a"), None);
        assert_eq!(of("/.cache/a"), None);
        assert_eq!(of("/github.com/a b"), Some(Err(AddressError::Path)));
    }

    #[test]
    fn what_is_wanted_may_be_a_branch_or_a_tag() {
        let names = |text: &str| {
            let wanted: Wanted = text.parse().expect("a reference");
            wanted.names().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(names("v1"), ["refs/heads/v1", "refs/tags/v1"]);
        assert_eq!(names("refs/tags/v1")[0], "refs/tags/v1");
    }

    proptest! {
        /// An address that is read is written so that it is read again.
        #[test]
        fn an_address_survives_its_text(text in "https://[a-z0-9.:]{1,12}/[a-zA-Z0-9./~_-]{1,20}(@[a-z/.]{1,8})?") {
            if let Ok(address) = Address::parse(&text) {
                prop_assert_eq!(Address::parse(&address.to_string()), Ok(address));
            }
        }
    }
}
