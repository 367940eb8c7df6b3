//! `placement …`: the operator's commands to the placement group.

use clap::{Args, Subcommand};
use cli::output::Screen;
use placement_api::{Member, PlacementAdmin};
use store::Store;

use super::ServeError;
use super::roles::PlacementArgs;

/// Arguments of `placement`.
#[derive(Debug, Clone, Args)]
pub struct PlacementCommand {
    /// The subcommand.
    #[command(subcommand)]
    pub what: What,
}

/// The subcommands of `placement`.
#[derive(Debug, Clone, Subcommand)]
pub enum What {
    /// Run a member of the group
    Serve(Box<PlacementArgs>),
    /// Found a group of members that run, each given as ID=URL, at the first of them
    Init {
        /// The members, as ID=URL
        #[arg(required = true, value_name = "ID=URL")]
        members: Vec<String>,
        /// If any of them belongs to a group already, leave that as it is and succeed
        #[arg(long)]
        if_needed: bool,
        /// The database, as oc_migrate: the generation of fencing tokens is raised there first
        #[arg(
            long,
            value_name = "URL",
            env = "OPENCODE_CLOUD_DATABASE_URL",
            hide_env_values = true
        )]
        database_url: String,
        /// The group's address.
        #[command(flatten)]
        group: GroupArgs,
    },
    /// Show leader, members, workers and leases
    Status {
        /// The group's address.
        #[command(flatten)]
        group: GroupArgs,
    },
    /// Add a member that runs and belongs to no group
    Add {
        /// The member, as ID=URL
        #[arg(value_name = "ID=URL")]
        member: String,
        /// The group's address.
        #[command(flatten)]
        group: GroupArgs,
    },
    /// Remove a member for good
    Remove {
        /// Its number
        id: u64,
        /// The group's address.
        #[command(flatten)]
        group: GroupArgs,
    },
    /// Raise the generation of fencing tokens: after a restore of the database, and when a standby is
    /// promoted. The members take it up with their next leader: restart them one by one
    RaiseGeneration {
        /// The database, as oc_migrate
        #[arg(
            long,
            value_name = "URL",
            env = "OPENCODE_CLOUD_DATABASE_URL",
            hide_env_values = true
        )]
        database_url: String,
    },
    /// Give a drained node work again
    Undrain {
        /// The node's name
        node: String,
        /// The group's address.
        #[command(flatten)]
        group: GroupArgs,
    },
    /// Take a node out of work: its workers finish at the next boundary and give their Locations back
    Drain {
        /// The node's name
        node: String,
        /// The group's address.
        #[command(flatten)]
        group: GroupArgs,
    },
}

/// The group's address and secret.
#[derive(Debug, Clone, Args)]
pub struct GroupArgs {
    /// Internal URLs of the members, comma-separated
    #[arg(
        long,
        value_name = "URL,…",
        value_delimiter = ',',
        env = "OPENCODE_CLOUD_PLACEMENT_PEERS"
    )]
    pub placement_peers: Vec<String>,
    /// Secret that the internal listeners require
    #[arg(
        long,
        value_name = "SECRET",
        env = "OPENCODE_CLOUD_CLUSTER_SECRET",
        hide_env_values = true
    )]
    pub cluster_secret: Option<String>,
}

impl GroupArgs {
    fn admin(&self) -> PlacementAdmin {
        PlacementAdmin::new(self.placement_peers.clone(), self.cluster_secret.clone())
    }
}

/// Parses `ID=URL`.
fn member(text: &str) -> Result<Member, ServeError> {
    let parsed = text.split_once('=').and_then(|(id, url)| Some((id.parse().ok()?, url)));
    let Some((id, url)) = parsed else {
        return Err(ServeError::Usage(format!(
            "`{text}` is no member; write ID=URL, such as 1=http://10.0.0.1:4301"
        )));
    };
    Ok(Member { id, url: url.to_owned(), voter: true })
}

/// Returns whether one of the members belongs to a group. Each is asked by itself, because one with an empty folder must
/// not hide the group of the others.
///
/// # Errors
/// When none of those that answer does, and one does not answer.
async fn is_founded(members: &[Member], group: &GroupArgs) -> Result<bool, ServeError> {
    let mut silent = None;
    for member in members {
        let one = PlacementAdmin::new(vec![member.url.clone()], group.cluster_secret.clone());
        match one.status().await {
            Ok(status) if !status.members.is_empty() => return Ok(true),
            Ok(_) => {}
            Err(error) => {
                let who = format!("placement member {} at {}", member.id, member.url);
                silent = Some(ServeError::stopped(&who, &error));
            }
        }
    }
    silent.map_or(Ok(false), Err)
}

/// Runs the subcommand, except `serve`.
///
/// # Errors
/// [`ServeError`] when placement or the database refuses.
pub async fn execute(what: What, screen: &mut Screen) -> Result<u8, ServeError> {
    let failed = |error| ServeError::stopped("placement", &error);
    let done = match what {
        What::Serve(_) => return Err(ServeError::Usage("`placement serve` runs by itself".into())),
        What::Init { members, if_needed, database_url, mut group } => {
            let members: Vec<Member> =
                members.iter().map(|text| member(text)).collect::<Result<_, _>>()?;
            if if_needed && is_founded(&members, &group).await? {
                let line = "the group is founded already";
                screen
                    .out
                    .line(line)
                    .map_err(|error| ServeError::stopped("cannot print", &error))?;
                return Ok(0);
            }
            if group.placement_peers.is_empty() {
                group.placement_peers = members.iter().map(|member| member.url.clone()).collect();
            }
            let admin = group.admin();
            let known = admin.status().await.map_err(failed)?;
            if !known.members.is_empty() {
                return Err(ServeError::Usage(
                    "the first of these members belongs to a group already; use `placement add` for others".into(),
                ));
            }
            // The group's first leader reads it, so that its tokens outrank those of earlier groups.
            let generation = Store::raise_generation(&database_url).await?;
            admin.init(&members).await.map_err(failed)?;
            format!("the group is founded in generation {}", generation.0)
        }
        What::Status { group } => {
            let status = group.admin().status().await.map_err(failed)?;
            serde_json::to_string_pretty(&status)
                .map_err(|error| ServeError::stopped("the status cannot be shown", &error))?
        }
        What::Add { member: text, group } => {
            let member = member(&text)?;
            group.admin().add_member(member.id, &member.url).await.map_err(failed)?;
            format!("member {} is added", member.id)
        }
        What::Remove { id, group } => {
            group.admin().remove_member(id).await.map_err(failed)?;
            format!("member {id} is removed")
        }
        What::RaiseGeneration { database_url } => {
            let generation = Store::raise_generation(&database_url).await?;
            format!("the generation is {} from the next leader on", generation.0)
        }
        What::Undrain { node, group } => {
            group.admin().undrain_node(&node).await.map_err(failed)?;
            format!("node {node} takes work again")
        }
        What::Drain { node, group } => {
            group.admin().drain_node(&node).await.map_err(failed)?;
            format!("node {node} drains")
        }
    };
    screen.out.say(&done).map_err(|error| ServeError::stopped("cannot print", &error))?;
    Ok(0)
}
