//! Makes a Location's directory: its `.git` with packs, then the files.

use std::io;
use std::path::{Path, PathBuf};

use domain::UploadId;
use git_wire::{Listed, Oid};
use snapshots::{GIVEN_PACK, give};
use tracing::warn;
use workspaces::{Address, Measured, Pinned, Skeleton, skeleton};

use super::mirror::{PackFiles, blocking};
use super::{Fault, Fill, cell, sent};

/// The author of commits that the model makes: without one, git refuses to commit. Nothing is tidied up in the background,
/// since no process outlives its command.
const AUTHOR: &str = "[user]\n\tname = OpenCode\n\temail = noreply@opencode.invalid\n[maintenance]\n\tauto = false\n";

fn unmade(error: impl std::fmt::Display) -> Fault {
    Fault::later(format!("the workspace's files cannot be made: {error}"))
}

/// The beginning of a workspace.
pub(super) struct Beginning<'a> {
    /// The repository's address, if it has one.
    pub(super) address: Option<&'a Address>,
    pub(super) pinned: &'a Pinned,
    /// The refs that it shows.
    pub(super) refs: &'a [Listed],
    pub(super) packs: &'a [PackFiles],
    pub(super) changes: Option<Changes>,
}

/// Changes that were not committed where they came from.
pub(super) struct Changes {
    pub(super) upload: UploadId,
    pub(super) staged: Oid,
    pub(super) wip: Oid,
}

impl Changes {
    /// The refs by which the workspace keeps them.
    fn refs(&self) -> [(&'static str, Oid); 2] {
        [("refs/oc/sent", self.wip), ("refs/oc/staged", self.staged)]
    }
}

/// Makes the workspace at a commit. Whatever is in its directory goes first.
pub(super) async fn anew(fill: &Fill<'_>, beginning: Beginning<'_>) -> Result<(), Fault> {
    let Beginning { address, pinned, refs, packs, changes } = beginning;
    let kept = changes.as_ref().map(Changes::refs);
    let made = skeleton(address, pinned, refs, kept.as_ref().map_or(&[], |kept| kept));
    let root = fill.root.clone();
    blocking(move || {
        sandbox::empty_folder(&root)?;
        begin(&root.join(".git"), &made)
    })
    .await
    .map_err(unmade)?;
    let (root, copied) = (fill.root.clone(), packs.to_vec());
    blocking(move || copied.iter().try_for_each(|pack| give_pack(&root, pack)))
        .await
        .map_err(unmade)?;
    let of = address.map_or_else(|| "what was sent".to_owned(), Address::url);
    let stage = format!("checking out {of}");
    if let Some(changes) = &changes {
        sent::fetch(fill, &changes.upload, &fill.root.join(sent::UPLOADED)).await?;
        fill.run(&stage, workspaces::take_upload(sent::UPLOADED), cell::LONG).await?;
    }
    let bounds = fill.fills.bounds;
    let commit = changes.as_ref().map_or(pinned.commit, |changes| changes.wip);
    let said = fill.run(&stage, workspaces::measure(commit, &bounds), cell::LONG).await?;
    let measured = Measured::parse(&said).ok_or_else(|| {
        Fault::later(format!("{stage}: its sizes were not added up: {}", said.trim()))
    })?;
    measured.within(&bounds).map_err(|large| {
        Fault::ends(
            "too_large",
            format!(
                "{stage}: {large}; nothing was checked out, and a smaller repository would fit"
            ),
        )
    })?;
    let check_out = changes.map_or_else(workspaces::check_out, |changes| {
        workspaces::check_out_changes(changes.staged, changes.wip)
    });
    fill.run(&stage, check_out, cell::LONG).await.map(drop)
}

/// Puts the packs beside a restored `.git`. Where commands have left something else in the place of `.git`, there is nothing
/// to put them beside.
pub(super) async fn give_packs(fill: &Fill<'_>, packs: &[PackFiles]) -> Result<(), Fault> {
    let (root, packs) = (fill.root.clone(), packs.to_vec());
    let is_ours = root.join(".git").symlink_metadata().is_ok_and(|found| found.is_dir());
    if !is_ours {
        warn!(location.id = %fill.at.location, "there is no .git folder to give packs to");
        return Ok(());
    }
    let given = blocking(move || packs.iter().try_for_each(|pack| give_pack(&root, pack))).await;
    match given {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            warn!(location.id = %fill.at.location, %error, "something is in the way of the repository's packs");
            Ok(())
        }
        given => given.map_err(unmade),
    }
}

/// Gives one pack. Git repacks none that has a `.keep` beside it, so that the workspace's own packs stay small.
fn give_pack(root: &Path, pack: &PackFiles) -> io::Result<()> {
    let below =
        |end: &str| PathBuf::from(format!(".git/objects/pack/{GIVEN_PACK}{}.{end}", pack.id));
    give(root, &below("keep"), &mut io::empty())?;
    give(root, &below("pack"), &mut std::fs::File::open(&pack.pack)?)?;
    give(root, &below("idx"), &mut std::fs::File::open(&pack.index)?)
}

fn begin(dot: &Path, made: &Skeleton) -> io::Result<()> {
    for folder in Skeleton::folders() {
        std::fs::create_dir_all(dot.join(folder))?;
    }
    std::fs::write(dot.join("config"), format!("{}{AUTHOR}", made.config))?;
    std::fs::write(dot.join("packed-refs"), &made.packed_refs)?;
    std::fs::write(dot.join("HEAD"), &made.head)
}
