//! Managed Tool Output Files, as a session's tools see them.

use std::error::Error;

use async_trait::async_trait;
use blobs::{BlobError, BlobKey, Blobs};
use bytes::Bytes;
use futures::TryStreamExt as _;
use sandbox::{OUTPUTS, OutputFile};

use crate::call::{Stopped, ToolContext};

/// The directory of Managed Tool Output Files for models: one flat directory.
pub const MANAGED_PREFIX: &str = "/tool-output/";
/// The kind of their blobs.
pub const BLOB_KIND: &str = "tool-output";
/// The most files that one search or command sees, the newest first.
const MAX_FILES: usize = 64;
/// The most bytes of them that one search or command sees.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// A reason why names cannot be listed now.
pub type Unlisted = Box<dyn Error + Send + Sync>;

/// Resolves `/tool-output/NAME` for one session.
#[async_trait]
pub trait ManagedOutputs: Send + Sync {
    /// Returns the complete file; `None` if the name does not exist, has expired, or is not for this session.
    async fn read(&self, name: &str) -> Result<Option<Bytes>, BlobError>;

    /// Returns the names of this session's own files, the newest first, at most `limit`.
    async fn names(&self, limit: usize) -> Result<Vec<String>, Unlisted>;
}

/// All files of one organisation. Names cannot be guessed; for stricter access, put another resolver in
/// front.
#[derive(Debug, Clone)]
pub struct OrgOutputs {
    /// The blobs.
    pub blobs: Blobs,
    /// The organisation's id.
    pub org: String,
}

#[async_trait]
impl ManagedOutputs for OrgOutputs {
    async fn read(&self, name: &str) -> Result<Option<Bytes>, BlobError> {
        let key = match BlobKey::new(&self.org, BLOB_KIND, name) {
            Ok(key) => key,
            Err(BlobError::BadName(_)) => return Ok(None),
            Err(other) => return Err(other),
        };
        match self.blobs.get(&key).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(BlobError::NotFound(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    async fn names(&self, limit: usize) -> Result<Vec<String>, Unlisted> {
        let mut all: Vec<_> = self.blobs.list(&self.org, BLOB_KIND).try_collect().await?;
        all.sort_by_key(|listed| std::cmp::Reverse(listed.stored_ms));
        Ok(all.into_iter().take(limit).map(|listed| listed.name).collect())
    }
}

/// Returns whether a path is the directory of Managed Tool Output Files, or one of them.
pub(crate) fn is_managed(path: &str) -> bool {
    path.starts_with(MANAGED_PREFIX) || path == OUTPUTS
}

/// Returns whether a path is the directory itself.
pub(crate) fn is_directory(path: &str) -> bool {
    path.trim_end_matches('/') == OUTPUTS
}

/// Returns the names of the session's files, in their order.
pub(crate) async fn names(context: &ToolContext) -> Result<Vec<String>, Stopped> {
    let mut names = context.outputs.names(MAX_FILES).await.map_err(|error| {
        Stopped::because(format!("{OUTPUTS} cannot be listed now ({error}); try again later"))
    })?;
    names.sort();
    Ok(names)
}

/// Returns the bytes of one file, given by its path.
pub(crate) async fn managed(context: &ToolContext, path: &str) -> Result<Bytes, Stopped> {
    let name = path.strip_prefix(MANAGED_PREFIX).unwrap_or(path);
    match context.outputs.read(name).await {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(Stopped::because(format!("{path} does not exist, or has expired"))),
        Err(error) => {
            Err(Stopped::because(format!("{path} cannot be read now ({error}); try again later")))
        }
    }
}

/// Reads files by their names, as many as one search or command may see. Those that are gone are left out.
pub(crate) async fn files(
    context: &ToolContext,
    names: Vec<String>,
) -> Result<Vec<OutputFile>, Stopped> {
    let (mut files, mut bytes) = (Vec::new(), 0);
    for name in names.into_iter().take(MAX_FILES) {
        let content = context.outputs.read(&name).await.map_err(|error| {
            let path = format!("{MANAGED_PREFIX}{name}");
            Stopped::because(format!("{path} cannot be read now ({error}); try again later"))
        })?;
        let Some(content) = content else { continue };
        bytes += content.len();
        if bytes > MAX_BYTES {
            break;
        }
        files.push(OutputFile { name, content });
    }
    Ok(files)
}

/// Returns the files that a command names, then the session's own; none if it does not speak of the directory.
pub(crate) async fn named_by(
    command: &str,
    context: &ToolContext,
) -> Result<Vec<OutputFile>, Stopped> {
    if !command.contains(OUTPUTS) {
        return Ok(Vec::new());
    }
    let mut all = names_in(command);
    for name in names(context).await? {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    files(context, all).await
}

/// Returns the names that follow the directory's in a text.
fn names_in(command: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for after in command.split(MANAGED_PREFIX).skip(1) {
        let end = after.find(|c: char| !(c.is_ascii_alphanumeric() || "_-.".contains(c)));
        let name = after[..end.unwrap_or(after.len())].trim_end_matches('.');
        if !name.is_empty() && !name.starts_with('.') && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_files_in_any_place() {
        let command = "tail -n3 '/tool-output/tool_1' /tool-output/tool_2; ls /tool-output/ >x \
                       && cat /tool-output/tool_1|sort <\"/tool-output/tool-3.txt\". /tool-output/../x";
        assert_eq!(names_in(command), ["tool_1", "tool_2", "tool-3.txt"]);
        assert_eq!(names_in("ls /tool-output"), [""; 0]);
    }

    #[test]
    fn only_that_directory_is_managed() {
        assert!(is_managed("/tool-output") && is_managed("/tool-output/tool_1"));
        assert!(!is_managed("/tool-outputs") && !is_managed("tool-output/x"));
        assert!(is_directory("/tool-output/") && !is_directory("/tool-output/tool_1"));
    }
}
