//! How to reach our Postgres.

use std::fmt;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// The superuser that initdb makes. Only migrations may use it.
pub const SUPERUSER: &str = "postgres";
/// The database that we make.
pub const DATABASE: &str = "opencode_cloud";

/// Where our Postgres listens, and the secret that opens it. Cheap to clone.
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

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn socket_folder(&self) -> Option<&Path> {
        self.socket_folder.as_deref()
    }

    /// The URL for migrations, as the superuser, over loopback.
    #[must_use]
    pub fn superuser_url(&self) -> String {
        self.tcp_url(SUPERUSER, &self.password, DATABASE)
    }

    /// The superuser's URL of another database of this server, over loopback.
    #[must_use]
    pub fn superuser_url_of(&self, database: &str) -> String {
        self.tcp_url(SUPERUSER, &self.password, database)
    }

    /// The URL with which `role` connects over loopback, once it has [its password](Self::role_password).
    #[must_use]
    pub fn role_url(&self, role: &str) -> String {
        self.tcp_url(role, &self.role_password(role), DATABASE)
    }

    /// As [`role_url`](Self::role_url) over the Unix socket, which costs less CPU per statement. Over
    /// loopback where the data folder's path is too long for a socket. Only for the user who runs
    /// Postgres, or root.
    #[must_use]
    pub fn role_socket_url(&self, role: &str) -> String {
        let mut url = self.role_url(role);
        if let Some(folder) = &self.socket_folder {
            url.push_str("?host=");
            push_encoded(&mut url, folder);
        }
        url
    }

    /// The password of a login role, derived from the data folder's secret: the same at each start. Whoever
    /// makes the role gives it this one.
    #[must_use]
    pub fn role_password(&self, role: &str) -> String {
        let secret = format!("{}\0{role}", self.password);
        hex::encode(Sha256::digest(secret.as_bytes()))
    }

    /// Roles and databases are our own identifiers and passwords are hexadecimal: nothing to encode.
    fn tcp_url(&self, role: &str, password: &str, database: &str) -> String {
        format!("postgres://{role}:{password}@127.0.0.1:{}/{database}", self.port)
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
    fn every_role_has_a_password_of_its_own() {
        let here = connection();
        assert_eq!(here.superuser_url(), "postgres://postgres:beef@127.0.0.1:5555/opencode_cloud");
        assert_ne!(here.role_password("oc_app"), here.role_password("oc_sched"));
        assert_eq!(here.role_password("oc_app"), connection().role_password("oc_app"));
        assert!(here.role_url("oc_app").contains(&here.role_password("oc_app")));
    }

    #[test]
    fn the_socket_is_in_the_url_and_no_secret_is_in_the_debug_text() {
        let here = connection();
        assert!(
            here.role_socket_url("oc_app").ends_with("/opencode_cloud?host=/data%20dir/socket")
        );
        assert!(!format!("{here:?}").contains("beef"));
    }
}
