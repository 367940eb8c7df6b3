//! A gateway, assembled for both `up` and `opencode-cloud gateway`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::{
    ApiParts, ApiSettings, DefaultModel, ModelList, Origins, PublicUrl, Site, SpoolSettings,
};
use blobs::Blobs;
use checkouts::Checkouts;
use credentials::Credentials;
use domain::{Clock, OrgId};
use gateway::{Gateway, GatewayOptions, Tls, TrustedProxies};
use placement_api::Placement;
use signals::Signals;
use store::{Store, StoreError};
use tasks::TaskGroup;
use tokio::net::TcpListener;

use super::ServeError;
use super::args::ListenArgs;

/// How long a request waits for its Revert: less than proxies usually allow a silent request.
const HOLD: Duration = Duration::from_secs(30);

/// The parts of a gateway.
pub(crate) struct GatewaySetup {
    pub(crate) listener: TcpListener,
    /// The service's certificate, where clients use https.
    pub(crate) tls: Option<Tls>,
    pub(crate) store: Store,
    pub(crate) signals: Arc<dyn Signals>,
    pub(crate) placement: Arc<dyn Placement>,
    /// The workers' blobs, if this process can read them.
    pub(crate) blobs: Option<Blobs>,
    /// The directories of this machine, if sessions run in them and a worker of this process does.
    pub(crate) checkouts: Option<Checkouts>,
    pub(crate) credentials: Credentials,
    pub(crate) models: ModelList,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) allow_local_paths: bool,
    pub(crate) default_directory: Option<PathBuf>,
    pub(crate) origins: Origins,
    pub(crate) site: Site,
    pub(crate) proxies: TrustedProxies,
    pub(crate) default_model: DefaultModel,
    /// Where uploads wait.
    pub(crate) spools: SpoolSettings,
    /// The most bytes of an organisation's uploads in storage.
    pub(crate) upload_quota: u64,
}

/// Starts to serve in the role's group.
pub(crate) fn start(setup: GatewaySetup, role: &TaskGroup) -> Result<Gateway, ServeError> {
    let simulated = setup.default_model.get().provider == "simulated";
    let settings = ApiSettings {
        allow_local_paths: setup.allow_local_paths,
        default_directory: setup.default_directory,
        origins: setup.origins,
        site: setup.site,
        default_model: setup.default_model,
        default_agent: "build".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        simulated,
        hold: HOLD,
        upload_quota: setup.upload_quota,
    };
    let parts = ApiParts {
        store: setup.store,
        signals: setup.signals,
        placement: setup.placement,
        blobs: setup.blobs,
        checkouts: setup.checkouts,
        credentials: setup.credentials,
        models: setup.models,
        clock: setup.clock,
        tasks: role.clone(),
        settings,
        spools: setup.spools,
    };
    let options = GatewayOptions { proxies: setup.proxies, ..GatewayOptions::default() };
    gateway::serve(setup.listener, setup.tls, options, parts)
        .map_err(|error| ServeError::stopped("the gateway cannot start", &error))
}

/// Returns how browsers know the service: by --public-url, or by the address of its listener.
pub(crate) async fn site(
    store: &Store,
    listen: &ListenArgs,
    bound: Option<SocketAddr>,
) -> Result<Site, ServeError> {
    let public = match &listen.public_url {
        Some(url) => url.clone(),
        None => {
            let bound = bound.unwrap_or_else(|| SocketAddr::new(listen.bind, listen.port));
            url_of(bound, listen.tls.tls_cert.is_some())?
        }
    };
    // A database of its own has an organisation of its own.
    let made = match store.organisation(OrgId::FIRST).await {
        Ok(organisation) => organisation.created_ms,
        Err(StoreError::NotFound) => 0,
        Err(error) => return Err(error.into()),
    };
    Ok(Site::new(public, listen.allowed_host.clone(), &made.to_string()))
}

/// Returns the URL of a listener for browsers of this machine.
pub(crate) fn url_of(mut bound: SocketAddr, has_tls: bool) -> Result<PublicUrl, ServeError> {
    if bound.ip().is_unspecified() {
        bound.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let scheme = if has_tls { "https" } else { "http" };
    let url = format!("{scheme}://{bound}").parse();
    url.map_err(|error: api::PublicUrlError| ServeError::Usage(format!("--public-url: {error}")))
}

/// Refuses local paths unless only this machine can reach the service.
pub(crate) fn check_local_paths(allowed: bool, address: SocketAddr) -> Result<(), ServeError> {
    if allowed && !address.ip().is_loopback() {
        return Err(ServeError::Usage(format!(
            "--allow-local-paths lets every client read and write this machine's files, so it needs a loopback \
             --bind, not {}; leave it out, or bind 127.0.0.1",
            address.ip()
        )));
    }
    Ok(())
}
