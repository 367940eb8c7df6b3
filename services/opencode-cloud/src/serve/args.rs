//! Flags that several servers share. Each is also an environment variable, `OPENCODE_CLOUD_…`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use api::{Origin, PublicUrl};
use clap::Args;
use gateway::{ProxyHeader, ProxyNetwork, TrustedProxies};
use jiff::tz::TimeZone;
use llm_protocol::{Generation, Protocol};
use sandbox::Tier;
use session::{DrainSettings, ModelFacts, Prices};
use tools::Limits;

use super::ServeError;
use super::blobs::BlobArgs;
use super::disk::DiskArgs;
use super::hidden::HiddenArgs;
use super::network::NetworkArgs;
use super::period::{Period, period};
use super::tls::TlsArgs;
use super::worker_role::Folders;

/// The address of the service.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Listening")]
pub struct ListenArgs {
    /// Port to listen on
    #[arg(long, value_name = "N", default_value_t = 4096, env = "OPENCODE_CLOUD_PORT")]
    pub port: u16,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), env = "OPENCODE_CLOUD_BIND")]
    pub bind: IpAddr,
    /// Let sessions work in any directory of this machine. Only on loopback, where it is the default of `up`
    #[arg(long, env = "OPENCODE_CLOUD_ALLOW_LOCAL_PATHS")]
    pub allow_local_paths: bool,
    /// Origin of a web client that may call the service, such as `https://code.example.com`; repeat it for more. The
    /// released desktop apps may in any case
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',', env = "OPENCODE_CLOUD_CORS_ORIGIN")]
    pub cors_origin: Vec<Origin>,
    /// URL at which browsers reach the service, such as `https://code.example.com`: login links and cookies are for it
    /// [default: the address that it listens on]
    #[arg(long, value_name = "URL", env = "OPENCODE_CLOUD_PUBLIC_URL")]
    pub public_url: Option<PublicUrl>,
    /// Another host by which browsers may call the service, such as `build.lan`; repeat it for more
    #[arg(long, value_name = "HOST", value_delimiter = ',', env = "OPENCODE_CLOUD_ALLOWED_HOST")]
    pub allowed_host: Vec<String>,
    /// Address or network of a proxy in front of the service, such as `10.0.0.0/8`, whose word about a client's address
    /// counts; repeat it for more [default: none, and whoever connects is the client]
    #[arg(
        long,
        value_name = "NETWORK",
        value_delimiter = ',',
        env = "OPENCODE_CLOUD_TRUSTED_PROXY"
    )]
    pub trusted_proxy: Vec<ProxyNetwork>,
    /// Header in which trusted proxies name their clients: x-forwarded-for or forwarded. They must replace it or append
    /// to it
    #[arg(
        long,
        value_name = "HEADER",
        default_value_t = ProxyHeader::XForwardedFor,
        env = "OPENCODE_CLOUD_PROXY_HEADER"
    )]
    pub proxy_header: ProxyHeader,
    /// TLS for clients.
    #[command(flatten)]
    pub tls: TlsArgs,
}

impl ListenArgs {
    /// Returns the proxies that are believed.
    pub(crate) fn proxies(&self) -> TrustedProxies {
        TrustedProxies::new(self.trusted_proxy.clone(), self.proxy_header)
    }
}

/// The model that answers.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// Base URL of a model server, such as http://127.0.0.1:11434/v1
    #[arg(long, value_name = "URL", env = "OPENCODE_CLOUD_MODEL_URL")]
    pub model_url: Option<String>,
    /// Protocol of the server at --model-url: openai-chat, openai-responses, anthropic-messages, gemini or
    /// bedrock-converse
    #[arg(
        long,
        value_name = "PROTOCOL",
        default_value = "openai-chat",
        value_parser = protocol,
        env = "OPENCODE_CLOUD_MODEL_PROTOCOL"
    )]
    pub model_protocol: Protocol,
    /// Model of sessions that choose none [default: the first that the server at --model-url lists, if it speaks one
    /// of OpenAI's protocols]
    #[arg(long, value_name = "NAME", env = "OPENCODE_CLOUD_MODEL")]
    pub model: Option<String>,
    /// Name of the provider at --model-url, as in `provider/model`
    #[arg(
        long,
        value_name = "NAME",
        default_value = "custom",
        env = "OPENCODE_CLOUD_MODEL_PROVIDER"
    )]
    pub model_provider: String,
    /// Key for --model-url
    #[arg(long, value_name = "KEY", env = "OPENCODE_CLOUD_MODEL_KEY", hide_env_values = true)]
    pub model_key: Option<String>,
    /// Tokens that a request to the configured model and its answer may have together. Conversations are compacted
    /// before they reach it [default: unknown; compacted when the model refuses a request]
    #[arg(long, value_name = "N", env = "OPENCODE_CLOUD_MODEL_CONTEXT_LIMIT")]
    pub model_context_limit: Option<u64>,
    /// Tokens that fit into a request of the configured model, where that is fewer than its context has
    #[arg(long, value_name = "N", env = "OPENCODE_CLOUD_MODEL_INPUT_LIMIT")]
    pub model_input_limit: Option<u64>,
    /// Tokens that an answer of the configured model may have; sent in all protocols but openai-chat
    #[arg(long, value_name = "N", env = "OPENCODE_CLOUD_MODEL_OUTPUT_LIMIT")]
    pub model_output_limit: Option<u64>,
    /// Prices of the configured model in USD per 1M tokens [default: free]
    #[arg(
        long,
        value_name = "IN,OUT,CACHE_READ,CACHE_WRITE",
        value_parser = super::price::parse,
        env = "OPENCODE_CLOUD_MODEL_PRICE"
    )]
    pub model_price: Option<Prices>,
    /// Key of OpenAI; used when there is no --model-url
    #[arg(long, value_name = "KEY", env = "OPENAI_API_KEY", hide_env_values = true)]
    pub openai_api_key: Option<String>,
}

impl ModelArgs {
    /// Returns the known facts about the configured model.
    pub(crate) fn facts(&self) -> ModelFacts {
        ModelFacts {
            context_limit: self.model_context_limit,
            input_limit: self.model_input_limit,
            output_limit: self.model_output_limit,
            prices: self.model_price.clone(),
            generation: Generation {
                // Servers of chat completions allow longer answers by themselves, or have no such bound.
                max_tokens: self
                    .model_output_limit
                    .filter(|_| self.model_protocol != Protocol::OpenAiChat),
                ..Generation::default()
            },
            ..ModelFacts::default()
        }
    }
}

/// Parses a tier's name.
fn tier(name: &str) -> Result<Tier, String> {
    let known = Tier::named(name).filter(|tier| *tier != Tier::None);
    known.ok_or_else(|| {
        format!("there is no tier `{name}`; there are A, B and C, and --trust-tools for no sandbox")
    })
}

/// The user ids of commands, unless a flag names others: the first and how many.
pub(crate) const UIDS: (u32, u32) = (200_000, 8192);

/// Parses a range of user ids: two for each of at least one cell, above those of people.
fn uids(text: &str) -> Result<(u32, u32), String> {
    let wrong = || {
        format!(
            "`{text}` is no range of user ids; give the first, at least 1000, and how many, as in 200000:8192"
        )
    };
    let (first, count) = text.split_once(':').ok_or_else(wrong)?;
    let first: u32 = first.parse().map_err(|_| wrong())?;
    let count: u32 = count.parse().map_err(|_| wrong())?;
    let fits = first >= 1000 && count >= 2 && first.checked_add(count).is_some();
    if fits { Ok((first, count)) } else { Err(wrong()) }
}

/// Parses a protocol's id.
fn protocol(id: &str) -> Result<Protocol, String> {
    let all = || Protocol::ALL.iter().map(|protocol| protocol.id()).collect::<Vec<_>>().join(", ");
    Protocol::from_id(id).ok_or_else(|| format!("there is no protocol `{id}`; there are {}", all()))
}

/// The folders for data.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Data")]
pub struct DataArgs {
    /// Folder for all data: Postgres, blobs, workspaces [default: below the user's data folder; the start prints it]
    #[arg(long, value_name = "DIR", env = "OPENCODE_CLOUD_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Folder for managed workspaces [default: in the data folder]
    #[arg(long, value_name = "DIR", env = "OPENCODE_CLOUD_WORKSPACE_DIR")]
    pub workspace_dir: Option<PathBuf>,
    /// Whether all workers see one --workspace-dir (shared), or each has its own and restores a workspace from its
    /// newest snapshot at --blob-url when it takes over (own)
    #[arg(
        long,
        value_name = "DISK",
        value_enum,
        default_value_t = Disk::Shared,
        env = "OPENCODE_CLOUD_WORKSPACE_DISK"
    )]
    pub workspace_disk: Disk,
    /// Folder for the locks of directories that sessions work in. Workers that see the same directories share it
    /// [default: in the data folder]
    #[arg(long, value_name = "DIR", env = "OPENCODE_CLOUD_LOCK_DIR")]
    pub lock_dir: Option<PathBuf>,
    /// Where tool outputs and snapshots are kept.
    #[command(flatten)]
    pub blobs: BlobArgs,
    /// How long to keep a blob that no row names, such as those of a deleted session. Choose more than the age of the
    /// oldest backup that you would restore: seconds, 12h or 30d; off keeps them for ever
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "30d",
        value_parser = period,
        env = "OPENCODE_CLOUD_BLOB_RETENTION"
    )]
    pub blob_retention: Period,
    /// Disk of a worker for its copies of repositories, in GiB. Those that no session has needed for the longest time go first;
    /// --blob-url has them all
    #[arg(
        long,
        value_name = "GIB",
        default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000),
        env = "OPENCODE_CLOUD_REPOSITORY_COPIES"
    )]
    pub repository_copies: u64,
}

impl DataArgs {
    /// Returns the most bytes of a worker's copies of repositories.
    pub(crate) fn repository_copies(&self) -> u64 {
        self.repository_copies << 30
    }

    /// Returns the folders of a worker with this data folder.
    pub(crate) fn folders(&self, data: &Path) -> Folders {
        Folders::in_data(data, self.workspace_dir.as_ref(), self.lock_dir.as_ref())
    }
}

/// The disk on which workers see managed workspaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Disk {
    /// One folder that all workers share.
    Shared,
    /// Each worker's own folder.
    Own,
}

impl From<Disk> for worker::WorkspaceDisk {
    fn from(disk: Disk) -> Self {
        match disk {
            Disk::Shared => Self::Shared,
            Disk::Own => Self::Own,
        }
    }
}

/// The way sessions run.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sessions")]
pub struct DrainArgs {
    /// Sessions that run at once
    #[arg(long, value_name = "N", default_value_t = 256, env = "OPENCODE_CLOUD_SLOTS")]
    pub slots: usize,
    /// The least sandbox in which commands of models run: A (namespaces and users of their own, needs root), B (user
    /// namespaces), C (landlock and seccomp alone) [default: C in `up` on loopback, else A]. The best that this machine
    /// gives is taken in any case; with several organisations it has to be A
    #[arg(long, value_name = "TIER", value_parser = tier, env = "OPENCODE_CLOUD_SANDBOX_REQUIRE")]
    pub sandbox_require: Option<Tier>,
    /// User ids of this machine for commands in tier A, the first and how many; nobody else may have them
    #[arg(
        long,
        value_name = "FIRST:COUNT",
        default_value = "200000:8192",
        value_parser = uids,
        env = "OPENCODE_CLOUD_SANDBOX_UIDS"
    )]
    pub sandbox_uids: (u32, u32),
    /// Try no better sandbox than this: to see what a lesser one is like
    #[arg(long, value_name = "TIER", value_parser = tier, hide = true, env = "OPENCODE_CLOUD_SANDBOX_AT_MOST")]
    pub sandbox_at_most: Option<Tier>,
    /// Run the commands of models without any sandbox: whoever has a key can then run any command as the service's user,
    /// read its secrets and change its data; with one organisation only
    #[arg(long, env = "OPENCODE_CLOUD_TRUST_TOOLS", conflicts_with = "sandbox_require")]
    pub trust_tools: bool,
    /// In tier C, let commands change the .git of a checkout in which a session works, and make files beside it: git outside of the
    /// sandbox then runs what they put there, as you. Tiers A and B let commands commit without that
    #[arg(long, env = "OPENCODE_CLOUD_OPEN_GIT")]
    pub open_git: bool,
    /// The network of commands.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// The disks of commands.
    #[command(flatten)]
    pub disk: DiskArgs,
    /// The paths that sessions do not see.
    #[command(flatten)]
    pub hidden: HiddenArgs,
    /// Lines that a model sees of one tool result
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2_000,
        env = "OPENCODE_CLOUD_TOOL_OUTPUT_LINES"
    )]
    pub tool_output_lines: usize,
    /// Bytes that a model sees of one tool result
    #[arg(
        long,
        value_name = "N",
        default_value_t = 51_200,
        env = "OPENCODE_CLOUD_TOOL_OUTPUT_BYTES"
    )]
    pub tool_output_bytes: usize,
    /// Time zone of the dates that models see, such as Europe/Berlin [default: this machine's in `up`, UTC in a cluster]
    #[arg(long, value_name = "ZONE", env = "OPENCODE_CLOUD_TIME_ZONE")]
    pub time_zone: Option<String>,
    /// Ignore the project's own AGENTS.md files and skills; an organisation's instructions still apply
    #[arg(
        long,
        env = "OPENCODE_DISABLE_PROJECT_CONFIG",
        value_parser = clap::builder::FalseyValueParser::new()
    )]
    pub disable_project_config: bool,
}

impl DrainArgs {
    /// Returns the settings of drains. `zone` applies without --time-zone.
    pub(crate) fn settings(&self, zone: TimeZone) -> Result<DrainSettings, ServeError> {
        let zone = match &self.time_zone {
            Some(name) => TimeZone::get(name).map_err(|_| {
                ServeError::Usage(format!(
                    "--time-zone: there is no zone `{name}`; use a name such as Europe/Berlin or UTC"
                ))
            })?,
            None => zone,
        };
        let output = Limits::new(self.tool_output_lines, self.tool_output_bytes);
        let project_instructions = !self.disable_project_config;
        let network = self.network.network;
        let settings = DrainSettings::default();
        Ok(DrainSettings { zone, output, project_instructions, network, ..settings })
    }
}

/// The other processes of the cluster.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// The cluster's Postgres, provisioned by `opencode-cloud migrate`
    #[arg(long, value_name = "URL", env = "OPENCODE_CLOUD_DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// The cluster's NATS
    #[arg(long, value_name = "URL", env = "OPENCODE_CLOUD_NATS_URL", hide_env_values = true)]
    pub nats_url: String,
    /// Name of the cluster in NATS subjects
    #[arg(long, value_name = "NAME", default_value = "main", env = "OPENCODE_CLOUD_CLUSTER")]
    pub cluster: String,
    /// Internal URLs of the placement members, comma-separated
    #[arg(
        long,
        value_name = "URL,…",
        value_delimiter = ',',
        env = "OPENCODE_CLOUD_PLACEMENT_PEERS"
    )]
    pub placement_peers: Vec<String>,
    /// Secret that the roles of a cluster share; required by placement, and to bind another internal listener beyond loopback
    #[arg(
        long,
        value_name = "SECRET",
        env = "OPENCODE_CLOUD_CLUSTER_SECRET",
        hide_env_values = true
    )]
    pub cluster_secret: Option<String>,
    /// Drop this share of all signals, 0 to 1: to show that nothing depends on them
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.0,
        env = "OPENCODE_CLOUD_DROP_SIGNALS",
        hide = true
    )]
    pub drop_signals: f64,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Probe {
        #[command(flatten)]
        drains: DrainArgs,
    }

    #[derive(Parser)]
    struct ModelProbe {
        #[command(flatten)]
        model: ModelArgs,
    }

    #[test]
    fn a_server_is_spoken_to_in_any_protocol_and_in_chat_unless_it_is_said() {
        let read = |arguments: &[&str]| {
            ModelProbe::try_parse_from([&["probe", "--model-output-limit=9"], arguments].concat())
        };
        let chat = read(&[]).expect("flags").model;
        assert_eq!(
            (chat.model_protocol, chat.facts().generation.max_tokens),
            (Protocol::OpenAiChat, None)
        );
        for protocol in Protocol::ALL.iter().filter(|protocol| **protocol != Protocol::OpenAiChat) {
            let flag = format!("--model-protocol={}", protocol.id());
            let other = read(&[&flag]).expect("a protocol").model;
            assert_eq!(
                (other.model_protocol, other.facts().generation.max_tokens),
                (*protocol, Some(9))
            );
        }
        let error = read(&["--model-protocol=soap"]).err().expect("no protocol").to_string();
        assert!(error.contains("there is no protocol `soap`; there are openai-chat, "), "{error}");
    }

    #[test]
    fn a_sandbox_is_required_by_name_and_ids_by_range() {
        let read = |flags: &[&str]| {
            Probe::try_parse_from([&["probe"], flags].concat()).map(|it| it.drains)
        };
        let drains = read(&["--sandbox-require=b", "--sandbox-uids=70000:2"]).expect("flags");
        assert_eq!((drains.sandbox_require, drains.sandbox_uids), (Some(Tier::B), (70_000, 2)));
        assert_eq!(read(&[]).expect("no flags").sandbox_uids, UIDS);
        for wrong in ["--sandbox-require=none", "--sandbox-uids=0:8", "--sandbox-uids=4294967295:2"]
        {
            assert!(read(&[wrong]).is_err(), "{wrong}");
        }
        assert!(read(&["--sandbox-require=C", "--trust-tools"]).is_err());
    }

    #[test]
    fn instructions_of_the_project_are_told_unless_the_flag_is_given() {
        let told = |arguments: &[&str]| {
            let probe = Probe::try_parse_from([&["probe"], arguments].concat()).expect("flags");
            probe.drains.settings(TimeZone::UTC).expect("settings").project_instructions
        };
        assert!(told(&[]));
        assert!(!told(&["--disable-project-config"]));
    }
}
