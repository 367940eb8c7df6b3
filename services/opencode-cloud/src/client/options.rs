use std::fmt;

/// Which service, and who we are to it. Every client subcommand takes these.
#[derive(Clone, clap::Args)]
pub struct ClientOptions {
    /// URL of the service
    #[arg(
        long,
        global = true,
        env = "OPENCODE_CLOUD_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:4096"
    )]
    pub url: String,
    /// API key; `./dev up` prints one at its first start
    #[arg(
        long,
        global = true,
        env = "OPENCODE_CLOUD_KEY",
        value_name = "KEY",
        hide_env_values = true
    )]
    pub key: Option<String>,
}

impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = if self.key.is_some() { "hidden" } else { "none" };
        f.debug_struct("ClientOptions").field("url", &self.url).field("key", &key).finish()
    }
}
