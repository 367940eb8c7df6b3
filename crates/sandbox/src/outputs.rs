//! The folder of a cell from which its commands read complete outputs of earlier calls. The worker writes it, and commands
//! see it read-only.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::command::OutputFile;
use crate::removal::{ScratchFolder, remove_tree};

/// The most bytes that the folder of a cell holds. Files that a command does not ask for make room.
const MOST: u64 = 256 * 1024 * 1024;

/// Folders are named by this and the process that made them.
const PREFIX: &str = "outputs-";

/// A folder that goes with its cell.
pub(crate) struct Outputs(ScratchFolder);

impl Outputs {
    pub(crate) fn make(spool: &Path) -> io::Result<Self> {
        sweep(spool)?;
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let folder = ScratchFolder::make(spool, &prefix)?;
        // Commands are another user than the worker. No other process gets to the spool folder.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Puts files there that are not there yet.
    pub(crate) async fn show(&self, files: &[OutputFile]) -> io::Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        let (folder, files) = (self.path().to_path_buf(), files.to_vec());
        tokio::task::spawn_blocking(move || put(&folder, &files)).await.map_err(io::Error::other)?
    }
}

/// Removes the folders of workers that were killed.
fn sweep(spool: &Path) -> io::Result<()> {
    for entry in fs::read_dir(spool)? {
        let entry = entry?;
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        let is_left = owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists());
        if is_left {
            // One that stays keeps nobody from working.
            if let Err(error) = remove_tree(&entry.path()) {
                tracing::warn!(%error, "outputs of a worker that is gone cannot be removed");
            }
        }
    }
    Ok(())
}

fn put(folder: &Path, files: &[OutputFile]) -> io::Result<()> {
    if let Some(file) = files.iter().find(|file| !is_plain(&file.name)) {
        return Err(io::Error::other(format!("`{}` is not a name of an output", file.name)));
    }
    let missing: Vec<_> = files.iter().filter(|file| !folder.join(&file.name).exists()).collect();
    let wanted: u64 = missing.iter().map(|file| file.content.len() as u64).sum();
    make_room(folder, files, wanted)?;
    for OutputFile { name, content } in missing {
        // Whole or not at all, also for a command that runs already.
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(folder)?;
        io::Write::write_all(&mut file, content)?;
        file.as_file().set_permissions(Permissions::from_mode(0o444))?;
        file.persist(folder.join(name)).map_err(|error| error.error)?;
    }
    Ok(())
}

fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(plain)
}

/// Removes files that nobody asks for now, if the folder would become too large.
fn make_room(folder: &Path, asked: &[OutputFile], wanted: u64) -> io::Result<()> {
    let mut there = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        there.push((entry.path(), entry.metadata()?.len()));
    }
    let all: u64 = there.iter().map(|(_, bytes)| bytes).sum();
    if all + wanted <= MOST {
        return Ok(());
    }
    let is_asked = |path: &Path| asked.iter().any(|file| path.ends_with(&file.name));
    for (path, _) in there.iter().filter(|(path, _)| !is_asked(path)) {
        fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, content: &'static str) -> OutputFile {
        OutputFile { name: name.into(), content: content.into() }
    }

    #[tokio::test]
    async fn files_are_put_once_and_names_stay_in_the_folder() {
        let spool = tempfile::tempdir().expect("a folder");
        let outputs = Outputs::make(spool.path()).expect("made");
        outputs.show(&[file("tool_1", "one"), file("tool_2", "two")]).await.expect("put");
        outputs.show(&[file("tool_1", "other")]).await.expect("there already");
        let read = |name: &str| fs::read_to_string(outputs.path().join(name)).expect("readable");
        assert_eq!((read("tool_1"), read("tool_2")), ("one".into(), "two".into()));
        for name in ["../x", ".hidden", "", "a/b"] {
            outputs.show(&[file(name, "x")]).await.expect_err(name);
        }
        assert_eq!(fs::read_dir(outputs.path()).expect("a folder").count(), 2);
        let left = spool.path().join("outputs-999999999-x");
        fs::create_dir(&left).expect("made");
        let other = Outputs::make(spool.path()).expect("made");
        assert!(!left.exists() && outputs.path().exists() && other.path().exists());
        let folder = outputs.path().to_path_buf();
        drop(outputs);
        assert!(!folder.exists(), "it goes with its cell");
    }

    #[test]
    fn files_that_nobody_asks_for_make_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let asked = [file("new", "new")];
        fs::write(folder.path().join("old"), "old").expect("written");
        make_room(folder.path(), &asked, MOST).expect("looked at");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }
}
