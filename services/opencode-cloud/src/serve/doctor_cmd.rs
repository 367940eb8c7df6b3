//! `doctor`: what this machine gives, and why not more.

use clap::Args;
use cli::output::Screen;
use sandbox::{Limits, Tier, landlock_abi};

use super::ServeError;
use super::args::DrainArgs;
use super::blobs::BlobArgs;
use super::egress::EgressArgs;

/// Arguments of `doctor`.
#[derive(Debug, Clone, Args)]
pub struct DoctorArgs {
    /// Where workspaces would be: the file system decides about tier A [default: the folder for temporary files]
    #[arg(long, value_name = "DIR", env = "OPENCODE_CLOUD_WORKSPACE_DIR")]
    pub workspace_dir: Option<std::path::PathBuf>,
    /// Which sandbox would be taken.
    #[command(flatten)]
    pub drains: DrainArgs,
    /// Where blobs would be.
    #[command(flatten)]
    pub blobs: BlobArgs,
    /// The certificates that are believed.
    #[command(flatten)]
    pub egress: EgressArgs,
}

/// Tries every sandbox and says what came of it. Exits with 1 when commands would be refused in `up`.
///
/// # Errors
/// [`ServeError`] when nothing can be written.
pub async fn execute(args: DoctorArgs, screen: &mut Screen) -> Result<u8, ServeError> {
    let temporary = std::env::temp_dir();
    let folder = args.workspace_dir.as_ref().unwrap_or(&temporary);
    let policy = args.drains.commands(true);
    let found = policy.find(&temporary, folder, None).await;
    let limits = Limits::of_this_machine();
    let abi = landlock_abi();
    let mut lines = vec![policy.told(&found), String::new()];
    for tier in Tier::ALL.into_iter().filter(|tier| *tier != Tier::None) {
        let why = found.refused.iter().find(|(refused, _)| *refused == tier);
        lines.push(match why {
            Some((_, why)) => format!("tier {tier}    no: {why}"),
            None if tier < found.tier => {
                format!("tier {tier}    not tried: {} is better", found.tier)
            }
            None if tier > found.tier => format!("tier {tier}    not tried: no such one is wanted"),
            None => format!("tier {tier}    yes: a command ran in it"),
        });
    }
    lines.push(match abi {
        0 => {
            "landlock  no: this kernel has none, or it is not among its security modules".to_owned()
        }
        _ => format!("landlock  yes: ABI {abi}"),
    });
    if found.tier >= Tier::B {
        let groups = found.weaker.iter().find(|why| why.starts_with("no control groups"));
        lines.push(match groups {
            Some(why) => format!("limits    weak: {why}"),
            None => format!(
                "limits    yes: {} MiB and {} processes for each session",
                limits.memory_bytes >> 20,
                limits.processes
            ),
        });
    }
    lines.push(args.drains.disk.describe_disk(folder));
    lines.push(args.blobs.told(&args.egress).await);
    for line in lines {
        screen.out.say(&line).map_err(|error| ServeError::Stopped(error.to_string()))?;
    }
    Ok(u8::from(!policy.is_enough(found.tier)))
}
