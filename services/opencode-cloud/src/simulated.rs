//! `opencode-cloud simulated-model`: the deterministic replacement for a model, as its own process.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use cli::output::Screen;
use simulated_model::{ALL_MODELS, Options, SimulatedModel, TokenLimits};
use tokio::signal::unix::{SignalKind, signal};

use cli::CliError;

/// Arguments of `simulated-model`.
#[derive(Debug, clap::Args)]
pub struct SimulatedArgs {
    /// Port to listen on; 0 takes a free one and prints it
    #[arg(long, value_name = "N", default_value_t = 4401)]
    pub port: u16,
    /// Address to listen on; it has no authentication
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub bind: IpAddr,
    /// Tokens that fit into a request and its answer; larger requests are refused as a provider would [default: any]
    #[arg(long, value_name = "N")]
    pub context_limit: Option<u64>,
    /// Tokens that fit into a request [default: as many as the context has]
    #[arg(long, value_name = "N")]
    pub input_limit: Option<u64>,
}

/// Serves until SIGINT or SIGTERM, and returns the exit code.
///
/// # Errors
/// [`CliError`] when the port is taken.
pub(crate) fn execute(args: &SimulatedArgs, screen: &mut Screen) -> Result<u8, CliError> {
    // One thread is enough for these answers, and leaves the cores to the measured service.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| CliError::Io { doing: "cannot start", source })?;
    runtime.block_on(serve(args, screen))
}

async fn serve(args: &SimulatedArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let listen = |source| CliError::Io { doing: "cannot listen for signals", source };
    let mut interrupt = signal(SignalKind::interrupt()).map_err(listen)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(listen)?;
    let bind = SocketAddr::new(args.bind, args.port);
    let limits = TokenLimits { input: args.input_limit, context: args.context_limit };
    let limits = [(ALL_MODELS.to_owned(), limits)].into();
    let options = Options { bind, limits, ..Options::default() };
    let running = SimulatedModel::start(options).await.map_err(|error| {
        let why = client::cause_text(&error);
        CliError::Usage(format!("cannot listen on {bind}: {why}; choose another --port"))
    })?;
    screen.out.say(&format!(
        "simulated model (not a language model) at {url}; use it with: opencode-cloud up --model-url {url}",
        url = running.url()
    ))?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    running.shutdown().await;
    Ok(0)
}
