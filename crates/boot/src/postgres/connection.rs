//! The address and secrets of our Postgres.

use std::fmt;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// The superuser that initdb creates. Only migrations may use it.
pub const SUPERUSER: &str = "postgres";
/// The database that we create.
pub const DATABASE: &str = "opencode_cloud";

/// The address of our Postgres, and its secret. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Connection {
    port: u16,
    socket_folder: Option<PathBuf>,
    password: String,
}

impl Connection {
    pub(super) fn new(port: u16, socket_folder: Option<PathBuf>, password: String) -> Self {
        Self { port, socket_folder, password }
    }

    /// Returns the port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn socket_folder(&self) -> Option<&Path> {
        self.socket_folder.as_deref()
    }

    /// Returns its URL over loopback without user and password.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://127.0.0.1:{}/{DATABASE}", self.port)
    }

    /// Returns its URL over the Unix socket without user and password; that costs less CPU per statement.
    /// Uses loopback if the data folder's path is too long for a socket. Only the user that runs Postgres and
    /// root can connect there.
    #[must_use]
    pub fn socket_url(&self) -> String {
        let mut url = self.url();
        if let Some(folder) = &self.socket_folder {
            url.push_str("?host=");
            push_encoded(&mut url, folder);
        }
        url
    }

    /// Returns the superuser's URL of `database` over loopback, to create roles and for tests.
    #[must_use]
    pub fn superuser_url(&self, database: &str) -> String {
        // The password is hexadecimal and the names are ours, so nothing needs encoding.
        format!("postgres://{SUPERUSER}:{}@127.0.0.1:{}/{database}", self.password, self.port)
    }

    /// Returns the password for `name` (a role, or several that share one), derived from the data folder's
    /// secret. It is the same at each start. The code that creates the role sets it.
    #[must_use]
    pub fn password_for(&self, name: &str) -> String {
        let secret = format!("{}\0{name}", self.password);
        hex::encode(Sha256::digest(secret.as_bytes()))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Connection");
        shown.field("port", &self.port).field("socket_folder", &self.socket_folder);
        shown.finish_non_exhaustive()
    }
}

fn push_encoded(url: &mut String, path: &Path) {
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                url.push(char::from(byte));
            }
            other => write!(url, "%{other:02X}").expect("a String takes all that is written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> Connection {
        Connection::new(5555, Some("/data dir/socket".into()), "beef".into())
    }

    #[test]
    fn every_name_has_a_password_of_its_own() {
        let here = connection();
        let url = here.superuser_url(DATABASE);
        assert_eq!(url, "postgres://postgres:beef@127.0.0.1:5555/opencode_cloud");
        assert_ne!(here.password_for("oc_app"), here.password_for("oc_sched"));
        assert_eq!(here.password_for("oc_app"), connection().password_for("oc_app"));
    }

    #[test]
    fn the_socket_is_in_the_url_and_no_secret_is_in_the_debug_text() {
        let here = connection();
        let url = "postgres://127.0.0.1:5555/opencode_cloud?host=/data%20dir/socket";
        assert_eq!(here.socket_url(), url);
        assert!(!format!("{here:?}").contains("beef"));
    }
}
