//! The catalog: the available models, their options, limits and prices.
//!
//! ```text
//! models.dev ─ingest→ Catalog ─┐
//! shipped snapshot ──┘         ├─ resolve(provider, model, variant) → Resolved ─route→ llm_client::Route
//! an organisation's Overrides ─┘                                        └ domains, limits, prices, notice
//! ```
//!
//! The options of a model are in three domains ([`Domains`]): Model Request Options, which its provider's
//! models understand; Generation Controls, which all have; and compatibility body fields, which are sent
//! unchanged. One adapter, [`partition`], sorts options in any spelling into the three.
//!
//! Invariant: a catalog is immutable, and its version identifies its content, so prices can be stored by
//! version.
//! Absent on purpose: credentials, storage, the wire. The only I/O is `refresh`.

mod destination;
mod domains;
mod env;
mod ingest;
mod model;
mod ours;
mod overrides;
mod partition;
mod patch;
mod prices;
mod reasoning;
mod refresh;
mod resolve;
mod settings;
mod snapshot;
mod view;

pub use destination::{Destination, destination_urls, origin, route_origins, route_urls};
pub use domains::{Domains, is_key_name};
pub use env::may_read;
pub use ingest::{IngestError, MAX_BYTES, Skipped, ingest};
pub use model::{
    Catalog, CatalogModel, Limits, Modalities, Modality, ModelStatus, ProviderEntry,
    ReasoningOption,
};
pub use overrides::{Overrides, ProviderOverride, RateLimits};
pub use partition::partition;
pub use patch::{Experimental, Mode, ModelPatch, ModelProvider};
pub use prices::{Prices, Rates};
pub use refresh::{Feed, Fetched, Freshness, MODELS_DEV, Refresh, RefreshError};
pub use resolve::{Access, ResolveError, Resolved, find_nearest, is_set_up, resolve};
pub use settings::{ALL_PROVIDERS, OrgSettings};
pub use snapshot::{pack, shipped, unpack};
pub use view::{list, whole};
