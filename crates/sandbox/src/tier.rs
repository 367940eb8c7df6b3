//! Which sandbox this machine gives: found by running a command in each, the best one first, never by what a setting says.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::cell::{CellOptions, CellSandbox};
use crate::checkout::CheckoutSandbox;
use crate::command::{Bytes, Cell, Command, End, Sandbox};
use crate::disk::DiskLimits;
use crate::exit::Reach;
use crate::hidden::HiddenPaths;
use crate::process::ProcessSandbox;
use crate::removal::ScratchFolder;
use crate::walls;
use crate::watch::WatchedSandbox;

/// How far commands are kept apart from the machine and from each other. The greater the better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Not at all.
    None,
    /// By landlock and a filter: from other files, from the worker's memory and from networks; not from another tenant.
    C,
    /// In namespaces, as the worker's own user.
    B,
    /// In namespaces, as users of the cell's own.
    A,
}

impl Tier {
    /// All, the best one first.
    pub const ALL: [Self; 4] = [Self::A, Self::B, Self::C, Self::None];

    /// Its name on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::None => "none",
        }
    }

    /// The tier of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The settings that a worker needs to make any of them.
#[derive(Debug, Clone)]
pub struct TierOptions {
    /// How cells are made.
    pub cells: CellOptions,
    /// An executable that calls [`crate::supervisor::main`] when its first arguments are `supervisor_prefix`.
    pub supervisor: PathBuf,
    /// Those arguments.
    pub supervisor_prefix: Vec<OsString>,
    /// A folder of the file system on which workspaces are; a command is run in a new one in it.
    pub probe_directory: PathBuf,
    /// How much of the disks commands may take, in every tier.
    pub disk: DiskLimits,
    /// In tier C, whether commands may change the `.git` of a person's checkout.
    pub open_git: bool,
    /// No better tier than this is tried.
    pub at_most: Tier,
    /// No newer ABI of landlock than this is used in tier C: to see what an older kernel leaves open.
    pub landlock_at_most: Option<i32>,
}

/// The tier that was found.
pub struct FoundTier {
    /// Which one.
    pub tier: Tier,
    /// The sandbox that runs commands in it.
    pub sandbox: Arc<dyn Sandbox>,
    /// Why the better ones are not to be had here.
    pub refused: Vec<(Tier, String)>,
    /// The parts that are weaker than they could be, and why.
    pub weaker: Vec<String>,
}

/// Finds the best tier by trying them.
pub async fn find_tier(options: &TierOptions) -> FoundTier {
    let mut found = find_best(options).await;
    let own = options.cells.spool_directory.clone();
    let walled = found.tier > Tier::None && walls::landlock_abi() > 0;
    if found.tier > Tier::None {
        let keeps = found.tier > Tier::C || !options.open_git;
        found.sandbox = Arc::new(CheckoutSandbox::new(found.sandbox, keeps, walled));
    }
    found.sandbox = Arc::new(WatchedSandbox::new(found.sandbox, options.disk, walled, own));
    found.weaker.extend(short_of_disk(options, walled));
    found
}

/// A disk on which commands may take little more, or nothing. `walled`: they can be held back from that.
fn short_of_disk(options: &TierOptions, walled: bool) -> Option<String> {
    let path = &options.probe_directory;
    let room = options.disk.disk(path)?.bytes;
    let then = match (room.is_over(), walled) {
        (false, _) => "they may take little",
        (true, true) => "they read and delete files only",
        (true, false) => "they are refused",
    };
    (room.free < room.reserve).then(|| {
        format!(
            "{} has {} left, of which commands leave {}: {then} (free some, or lower --disk-reserve)",
            path.display(),
            Bytes(room.free),
            Bytes(room.reserve)
        )
    })
}

async fn find_best(options: &TierOptions) -> FoundTier {
    let mut refused = Vec::new();
    for tier in [Tier::A, Tier::B].into_iter().filter(|tier| *tier <= options.at_most) {
        match try_cells(tier, options).await {
            Ok((sandbox, weaker)) => {
                return FoundTier { tier, sandbox: Arc::new(sandbox), refused, weaker };
            }
            Err(why) => refused.push((tier, why)),
        }
    }
    let processes = ProcessSandbox::new(
        options.supervisor.clone(),
        options.supervisor_prefix.clone(),
        options.cells.environment.clone(),
        options.cells.spool_directory.clone(),
    );
    if options.at_most >= Tier::C {
        match try_walls(&processes, options).await {
            Ok((sandbox, weaker)) => {
                let sandbox = Arc::new(sandbox);
                return FoundTier { tier: Tier::C, sandbox, refused, weaker };
            }
            Err(why) => refused.push((Tier::C, why)),
        }
    }
    let (tier, sandbox) = (Tier::None, Arc::new(processes));
    FoundTier { tier, sandbox, refused, weaker: Vec::new() }
}

/// A folder in which a command is run.
fn probe_folder(options: &TierOptions) -> Result<ScratchFolder, String> {
    let folder = ScratchFolder::make(&options.probe_directory, ".probe-");
    folder.map_err(|error| format!("{}: {error}", options.probe_directory.display()))
}

fn probe(script: &str, directory: &Path, shown: Option<PathBuf>) -> Command {
    let cell = Cell {
        name: "probe".to_owned(),
        workspace: Some(directory.to_path_buf()),
        shown,
        protect: false,
        network: Reach::None,
        hidden: HiddenPaths::default(),
    };
    Command { cell, ..Command::shell(script, directory.to_path_buf(), Duration::from_secs(20)) }
}

async fn try_cells(
    tier: Tier,
    options: &TierOptions,
) -> Result<(CellSandbox, Vec<String>), String> {
    if tier == Tier::A && !rustix::process::geteuid().is_root() {
        return Err("the service was not started by root".to_owned());
    }
    let sandbox = CellSandbox::new(tier, options.cells.clone(), options.disk);
    let folder = probe_folder(options)?;
    // It looks at its own view: who it is, what it sees, and that its files become the worker's.
    let script = "[ \"$(id -u)\" = 1000 ] && [ ! -e /sys/kernel ] && [ \"$PWD\" = /workspace ] && echo ok >seen";
    let command = probe(script, folder.path(), Some("/workspace".into()));
    succeed(&sandbox, command.clone()).await?;
    let owner = |path: &Path| path.metadata().map(|it| it.uid()).map_err(|it| it.to_string());
    let written = owner(&folder.path().join("seen"))
        .map_err(|error| format!("what a command wrote is not there: {error}"))?;
    if written != owner(folder.path())? {
        return Err("what a command writes does not become the worker's".to_owned());
    }
    let mut weaker = Vec::new();
    if let Some(why) = sandbox.missing_groups(&command).await.map_err(|error| error.to_string())? {
        weaker.push(format!(
            "no control groups: memory is looked at and not limited, processes are limited by user ({why})"
        ));
    }
    if walls::landlock_abi() == 0 {
        weaker.push("there is no second wall: this kernel has no landlock".to_owned());
    }
    if tier == Tier::B && rustix::process::geteuid().is_root() {
        weaker.push(
            "commands are root's on this machine, in namespaces and without its rights".to_owned(),
        );
    }
    Ok((sandbox, weaker))
}

async fn try_walls(
    processes: &ProcessSandbox,
    options: &TierOptions,
) -> Result<(ProcessSandbox, Vec<String>), String> {
    let abi = walls::landlock_abi().min(options.landlock_at_most.unwrap_or(i32::MAX));
    if abi == 0 {
        return Err(
            "this kernel has no landlock (CONFIG_SECURITY_LANDLOCK, lsm=landlock)".to_owned()
        );
    }
    let sandbox = processes.clone().walled(options.cells.toolchains.clone(), options.cells.limits);
    let sandbox = sandbox.landlock_at_most(abi);
    let folder = probe_folder(options)?;
    let outside = folder.path().with_extension("outside");
    let script = format!("echo ok >seen; ! (echo x >{}) 2>/dev/null", outside.display());
    let ran = succeed(&sandbox, probe(&script, folder.path(), None)).await;
    let _was_refused = std::fs::remove_file(outside);
    ran?;
    let mut weaker =
        vec!["commands have the service's own user: they see the machine's processes, and can change modes and times of the \
              service's files; their memory is looked at and not limited".to_owned()];
    weaker.push(if options.open_git {
        "the .git of a checkout is open to commands: git outside runs what they put there".to_owned()
    } else {
        "commands do not commit, and make no new files beside the .git of a checkout, which landlock cannot keep otherwise \
         (--open-git lets them)"
            .to_owned()
    });
    let open = walls::open_in(abi);
    if !open.is_empty() {
        weaker.push(format!("landlock is of ABI {abi}: {}", open.join(", ")));
    }
    Ok((sandbox, weaker))
}

async fn succeed(sandbox: &impl Sandbox, command: Command) -> Result<(), String> {
    let outcome = sandbox.run(command, &CancellationToken::new()).await;
    let outcome = outcome.map_err(|error| error.to_string())?;
    if outcome.end == End::Exited(0) {
        return Ok(());
    }
    Err(format!("a command in it came to {:?}: {}", outcome.end, outcome.output.head.trim()))
}
