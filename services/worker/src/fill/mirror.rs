//! A repository's packs: blobs with rows, and this worker's copies of them as a cache.
//!
//! ```text
//! <folder>/<org>/<repository>/<pack>.pack, .idx     checked in a cell, then renamed here: whole or not there
//! <folder>/.tmp-…                                   what is being made; a worker that died leaves it
//! ```
//!
//! Nothing in it changes once it is there, so that workers may share the folder.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blobs::{BlobError, BlobKey, Blobs};
use domain::UploadId;
use git_wire::{Listed, Oid};
use sandbox::ScratchFolder;
use store::{BlobUse, NewRepositoryPack, OriginRow, RepositoryPack};
use tokio::io::AsyncWriteExt;
use tracing::warn;
use workspaces::{Git, MAX_HAVES, parse_refs, write_refs};

use super::cell::{self, Bench};
use super::fetch::{Remote, Resolved};
use super::{Fault, Fill, sent};

/// The beginning of the names of folders in which something is made.
const MAKING: &str = ".tmp-";
/// After this time, such a folder is of a worker that died.
const LEFT_AFTER: Duration = Duration::from_hours(24);
/// The bytes of a blob that are read at once.
const PIECE: u64 = 8 * 1024 * 1024;

/// The packs of one repository.
pub(super) struct Mirror<'m, 'f> {
    fill: &'m Fill<'f>,
    id: domain::RepositoryId,
    folder: PathBuf,
    rows: Vec<(RepositoryPack, Vec<Listed>)>,
}

/// A pack on this worker's disk.
#[derive(Debug, Clone)]
pub(super) struct PackFiles {
    /// Its id.
    pub(super) id: String,
    pub(super) pack: PathBuf,
    pub(super) index: PathBuf,
}

fn unkept(error: impl std::fmt::Display) -> Fault {
    Fault::later(format!("the repository's packs cannot be kept: {error}"))
}

impl<'m, 'f> Mirror<'m, 'f> {
    pub(super) async fn open(fill: &'m Fill<'f>, origin: &OriginRow) -> Result<Self, Fault> {
        let id = origin.repository.id.clone();
        let org = fill.at.org;
        let folder = fill.fills.folder.join(org.to_string()).join(id.as_str());
        let rows = fill.runtime.store.repository_packs(org, id.clone()).await?;
        let read = |row: RepositoryPack| {
            let refs = parse_refs(&row.refs).map_err(unkept)?;
            Ok((row, refs))
        };
        let rows = rows.into_iter().map(read).collect::<Result<Vec<_>, Fault>>()?;
        let (making, made) = (fill.fills.folder.clone(), folder.clone());
        let now = Duration::from_millis(u64::try_from(fill.now()).unwrap_or_default());
        blocking(move || {
            private(&made)?;
            remove_left(&making, UNIX_EPOCH + now)
        })
        .await
        .map_err(unkept)?;
        Ok(Self { fill, id, folder, rows })
    }

    /// Returns everything that the packs were made for.
    fn known(&self) -> HashSet<Oid> {
        let refs = self.rows.iter().flat_map(|(_, refs)| refs);
        let named = refs.flat_map(|found| std::iter::once(found.oid).chain(found.peeled));
        named.chain(self.rows.iter().filter_map(|(row, _)| row.commit.parse().ok())).collect()
    }

    /// Returns the number of the newest pack and the refs then, if the packs have the commit.
    pub(super) fn has(&self, commit: Oid) -> Option<(i64, Vec<Listed>)> {
        let (newest, refs) = self.rows.last()?;
        self.known().contains(&commit).then(|| (newest.ordinal, refs.clone()))
    }

    /// Returns those refs whose objects are in the packs.
    pub(super) fn known_of(&self, refs: Vec<Listed>) -> Vec<Listed> {
        let known = self.known();
        refs.into_iter().filter(|found| known.contains(&found.oid)).collect()
    }

    /// Fetches what the packs lack, checks it, keeps it, and returns the number of the new pack.
    pub(super) async fn fetch(
        &self,
        remote: &Remote<'_>,
        commit: Oid,
        resolved: &Resolved,
    ) -> Result<i64, Fault> {
        let known = self.known();
        let wants = workspaces::wanted(commit, &resolved.refs, &known);
        let newest =
            self.rows.iter().rev().flat_map(|(_, refs)| refs.iter().map(|found| found.oid));
        let mut seen = HashSet::new();
        let haves: Vec<Oid> = newest.filter(|oid| seen.insert(*oid)).take(MAX_HAVES).collect();
        let scratch = self.scratch_with_packs().await?;
        self.fill.stage("fetching", 0).await?;
        // An old server's pack may have to be completed.
        let (name, check) = match resolved.old {
            None => ("incoming.pack", workspaces::index_pack()),
            Some(_) => ("uploaded", workspaces::index_upload(commit)),
        };
        let incoming = scratch.path().join(name);
        let bytes = remote.pack(self.fill, resolved, &wants, &haves, &incoming).await?;
        self.fill.stage("checking", bytes).await?;
        let stage = format!("checking {}", remote.url());
        let said = self.run(&scratch, &stage, check).await?;
        let id =
            pack_id(&said).ok_or_else(|| Fault::later(format!("{stage}: git named no pack")))?;
        let bytes = made_bytes(&scratch).await?;
        let new = NewRepositoryPack {
            pack: id,
            bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
            commit: commit.to_string(),
            refs: write_refs(&resolved.refs),
            default_branch: resolved.head.as_ref().map(ToString::to_string),
            now: self.fill.now(),
        };
        self.add(&scratch, new).await
    }

    /// Checks a pack that somebody has sent, keeps it, and returns its number. It must have the commit.
    pub(super) async fn take(&self, upload: Option<&UploadId>, commit: Oid) -> Result<i64, Fault> {
        let stage = "checking what was sent";
        let upload = upload.ok_or_else(sent::gone)?;
        let scratch = self.scratch_with_packs().await?;
        let bytes = sent::fetch(self.fill, upload, &scratch.path().join("uploaded")).await?;
        self.fill.stage("checking", bytes).await?;
        let said = self.run(&scratch, stage, workspaces::index_upload(commit)).await?;
        let pack =
            pack_id(&said).ok_or_else(|| Fault::later(format!("{stage}: git named no pack")))?;
        let bytes = made_bytes(&scratch).await?;
        let new = NewRepositoryPack {
            pack,
            bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
            commit: commit.to_string(),
            refs: String::new(),
            default_branch: None,
            now: self.fill.now(),
        };
        self.add(&scratch, new).await
    }

    /// Keeps a checked pack with its index: on this disk, as blobs, and then as a row.
    async fn add(&self, scratch: &ScratchFolder, new: NewRepositoryPack) -> Result<i64, Fault> {
        let [pack, index] = self.keep(scratch, &new.pack).await?;
        for (of, file) in [(BlobUse::RepositoryIndex, index), (BlobUse::Repository, pack)] {
            let key = self.key(of, &new.pack)?;
            self.fill.runtime.blobs.renew_file(&key, file).await.map_err(unkept)?;
        }
        let (org, id) = (self.fill.at.org, self.id.clone());
        Ok(self.fill.runtime.store.add_repository_pack(org, id, new).await?)
    }

    /// Returns the packs up to a number, and gets those that this worker does not have.
    pub(super) async fn packs(&self, through: i64) -> Result<Vec<PackFiles>, Fault> {
        let rows =
            self.fill.runtime.store.repository_packs(self.fill.at.org, self.id.clone()).await?;
        let mut packs = Vec::new();
        for row in rows.into_iter().filter(|row| row.ordinal <= through) {
            let files = self.files(&row.pack);
            if !self.is_here(&files).await? {
                self.get(&row).await?;
            }
            packs.push(files);
        }
        Ok(packs)
    }

    /// Returns whether this worker has a pack, and notes that it is used now: what is not used goes first.
    async fn is_here(&self, files: &PackFiles) -> Result<bool, Fault> {
        let (files, now) =
            (files.clone(), Duration::from_millis(u64::try_from(self.fill.now()).unwrap_or(0)));
        blocking(move || {
            if !(files.pack.is_file() && files.index.is_file()) {
                return Ok(false);
            }
            match File::open(&files.pack).and_then(|pack| pack.set_modified(UNIX_EPOCH + now)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                noted => noted.map(|()| true),
            }
        })
        .await
        .map_err(unkept)
    }

    /// Gets a pack's blob and its index, which is made again if need be. The pack was checked when it came; its id is
    /// the hash of its content.
    async fn get(&self, row: &RepositoryPack) -> Result<(), Fault> {
        let (blobs, key) = (&self.fill.runtime.blobs, self.key(BlobUse::Repository, &row.pack)?);
        let scratch = self.scratch().await?;
        copy_blob(blobs, &key, &scratch.path().join("incoming.pack")).await.map_err(unkept)?;
        if !self.has_index(row, &scratch).await? {
            let index = workspaces::index_known_pack("incoming.pack", "incoming.idx");
            let said = self.run(&scratch, "checking a kept pack", index).await?;
            if pack_id(&said).as_deref() != Some(row.pack.as_str()) {
                return Err(unkept(format!("the blob of the pack {} is damaged", row.pack)));
            }
        }
        self.keep(&scratch, &row.pack).await.map(drop)
    }

    /// Gets the index of a pack that is there, and returns whether both are whole. Git takes a second for each 40 MB to
    /// make one, in which a taken-over session waits.
    async fn has_index(
        &self,
        row: &RepositoryPack,
        scratch: &ScratchFolder,
    ) -> Result<bool, Fault> {
        let [pack, index] = ["incoming.pack", "incoming.idx"].map(|name| scratch.path().join(name));
        let key = self.key(BlobUse::RepositoryIndex, &row.pack)?;
        match copy_blob(&self.fill.runtime.blobs, &key, &index).await {
            Ok(_) => {}
            Err(CopyError::Blob(BlobError::NotFound(_))) => return Ok(false), // of a pack from before
            Err(error) => return Err(unkept(error)),
        }
        let id = row.pack.parse::<Oid>().map_err(unkept)?;
        blocking(move || {
            let is_whole = workspaces::belongs(File::open(pack)?, File::open(&index)?, id)?;
            if !is_whole {
                std::fs::remove_file(index)?;
            }
            Ok(is_whole)
        })
        .await
        .map_err(unkept)
    }

    /// Moves a pack and its index to their places, and returns them.
    async fn keep(&self, scratch: &ScratchFolder, id: &str) -> Result<[File; 2], Fault> {
        let (from, to) = (scratch.path().to_path_buf(), self.files(id));
        blocking(move || {
            // The pack comes last: with it, both are there.
            for (name, to) in [("incoming.idx", &to.index), ("incoming.pack", &to.pack)] {
                let from = from.join(name);
                if !from.symlink_metadata()?.is_file() {
                    return Err(io::Error::other(format!("{name} is no file")));
                }
                std::fs::rename(from, to)?;
            }
            Ok([File::open(&to.pack)?, File::open(&to.index)?])
        })
        .await
        .map_err(unkept)
    }

    fn files(&self, id: &str) -> PackFiles {
        let of = |end: &str| self.folder.join(format!("{id}.{end}"));
        PackFiles { id: id.to_owned(), pack: of("pack"), index: of("idx") }
    }

    fn key(&self, of: BlobUse, pack: &str) -> Result<BlobKey, Fault> {
        let name = format!("{}-{pack}", self.id);
        let org = self.fill.at.org.to_string();
        BlobKey::new(&org, of.kind(), &name).map_err(unkept)
    }

    async fn run(&self, scratch: &ScratchFolder, stage: &str, git: Git) -> Result<String, Fault> {
        let name = format!("repository {}", self.id);
        let bench = Bench { name, directory: scratch.path(), lock: None };
        cell::run(self.fill.fills, &bench, stage, git, cell::LONG).await
    }

    /// Makes a bare repository with all packs so far.
    async fn scratch_with_packs(&self) -> Result<ScratchFolder, Fault> {
        let scratch = self.scratch().await?;
        for pack in self.packs(i64::MAX).await? {
            let to = scratch.path().join("objects/pack");
            blocking(move || copy_pack(&pack, &to)).await.map_err(unkept)?;
        }
        Ok(scratch)
    }

    /// Makes an empty bare repository for one command.
    async fn scratch(&self) -> Result<ScratchFolder, Fault> {
        scratch(&self.fill.fills.folder, |root| {
            for folder in ["objects/pack", "refs/heads"] {
                std::fs::create_dir_all(root.join(folder))?;
            }
            std::fs::write(root.join("HEAD"), "ref: refs/heads/main\n")?;
            std::fs::write(
                root.join("config"),
                "[core]\n\trepositoryformatversion = 0\n\tbare = true\n",
            )
        })
        .await
    }
}

/// Returns the bytes of the pack that a scratch folder has after its check.
async fn made_bytes(scratch: &ScratchFolder) -> Result<u64, Fault> {
    let made = scratch.path().join("incoming.pack");
    blocking(move || Ok(made.metadata()?.len())).await.map_err(unkept)
}

/// Why a blob could not be copied to a file.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error(transparent)]
    Disk(#[from] io::Error),
    #[error("the blob is shorter than it was")]
    Short,
}

/// Copies a blob to a file, in pieces, and returns its bytes.
pub(super) async fn copy_blob(blobs: &Blobs, key: &BlobKey, to: &Path) -> Result<u64, CopyError> {
    let mut file = tokio::fs::File::create(to).await?;
    let size = blobs.size(key).await?;
    let mut at = 0;
    while at < size {
        let piece = blobs.get_range(key, at..(at + PIECE).min(size)).await?;
        if piece.is_empty() {
            return Err(CopyError::Short);
        }
        at += piece.len() as u64;
        file.write_all(&piece).await?;
    }
    file.flush().await?;
    Ok(size)
}

/// Makes a folder for what is being made. It goes when it is dropped.
pub(super) async fn scratch(
    folder: &Path,
    begin: impl FnOnce(&Path) -> io::Result<()> + Send + 'static,
) -> Result<ScratchFolder, Fault> {
    let folder = folder.to_path_buf();
    blocking(move || {
        private(&folder)?;
        let made = ScratchFolder::make(&folder, MAKING)?;
        begin(made.path())?;
        Ok(made)
    })
    .await
    .map_err(unkept)
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await?
}

fn private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn copy_pack(pack: &PackFiles, to: &Path) -> io::Result<()> {
    for (from, end) in [(&pack.pack, "pack"), (&pack.index, "idx")] {
        std::fs::copy(from, to.join(format!("pack-{}.{end}", pack.id)))?;
    }
    Ok(())
}

/// Removes folders of workers that died while they made something.
fn remove_left(folder: &Path, now: SystemTime) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let is_one = entry.file_name().to_str().is_some_and(|name| name.starts_with(MAKING));
        // Another worker may remove it at the same time.
        let Ok(changed) = entry.metadata().and_then(|found| found.modified()) else { continue };
        let age = now.duration_since(changed).unwrap_or_default();
        if is_one
            && age > LEFT_AFTER
            && let Err(error) = sandbox::remove_tree(&entry.path())
        {
            warn!(%error, "what a worker that died has left cannot be removed");
        }
    }
    Ok(())
}

/// Returns the id that `git index-pack` prints.
fn pack_id(said: &str) -> Option<String> {
    let id =
        said.lines().rev().find_map(|line| line.trim().rsplit('\t').next()?.parse::<Oid>().ok());
    id.map(|id| id.to_string())
}
