//! The table of routes, the router that is built from it, and the middleware around every request.

mod browser;
pub(crate) mod contract;
mod document;
mod gate;
mod kept_document;
mod native;
mod openapi;
mod operations;
mod policy;
mod reference;
mod route;
mod scope;
mod stock;
mod stock_document;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::MethodRouter;
use http::Method;
use tower_http::catch_panic::CatchPanicLayer;

use self::policy::Policy;
use self::route::Route;
use self::scope::{authenticate, scope};
use crate::ApiState;
use crate::act::stop_revoked;
use crate::error::ApiError;
use crate::surface::{MAX_BODY_BYTES, ignored};

fn table() -> Vec<Route> {
    let mut routes = handled();
    routes.extend(operations::routes());
    routes
}

/// Routes with handlers of their own.
fn handled() -> Vec<Route> {
    let mut routes = native::routes();
    routes.extend(document::routes());
    routes.extend(stock::routes());
    routes
}

/// Returns every method and path, with path parameters in braces.
#[must_use]
pub fn route_table() -> Vec<(Method, &'static str)> {
    table().into_iter().map(|route| (route.method, route.path)).collect()
}

pub use self::openapi::openapi;
pub use self::stock_document::stock_openapi;

/// Returns the needs of all routes, by method and path, or why a route is open to everybody.
#[must_use]
pub fn policies() -> Vec<(Method, &'static str, Result<access::Need, &'static str>)> {
    let policy = |route: Route| {
        let wants = match route.policy {
            Policy::Needs(need) | Policy::NeedsRecent(need) => Ok(need),
            Policy::Open(why) | Policy::Visited(why) => Err(why),
        };
        (route.method, route.path, wants)
    };
    table().into_iter().map(policy).collect()
}

/// Returns the routes that want a recent login, by method and path.
#[must_use]
pub fn recent_routes() -> Vec<(Method, &'static str)> {
    let recent = table().into_iter().filter(|route| route.policy.wants_recent());
    recent.map(|route| (route.method, route.path)).collect()
}

/// The paths of open routes. Every other path wants a key or login, unknown ones too.
static OPEN: LazyLock<BTreeSet<&'static str>> = LazyLock::new(|| {
    let open = table().into_iter().filter(|route| route.policy.need().is_none());
    open.map(|route| route.path).collect()
});

/// The paths to which other sites may send a browser.
static VISITED: LazyLock<BTreeSet<&'static str>> = LazyLock::new(|| {
    let visited = table().into_iter().filter(|route| matches!(route.policy, Policy::Visited(_)));
    visited.map(|route| route.path).collect()
});

/// Builds the router, and begins to stop what revoked people have admitted. A body has at most 1 MiB. Every path needs a
/// key or login except those of open routes; that includes unknown paths.
pub fn router(state: ApiState) -> Router {
    stop_revoked(&state);
    let mut router = Router::new();
    for route in handled() {
        let handler = route.handler.layer(from_fn(ignored::tell));
        router = router.route(route.path, within_policy(handler, route.policy));
    }
    // They read nothing of what they are sent.
    for route in operations::routes() {
        router = router.route(route.path, within_policy(route.handler, route.policy));
    }
    router
        .fallback(async || ApiError::NotFound("this path was"))
        .method_not_allowed_fallback(async || ApiError::Method)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn_with_state(state.clone(), authenticate))
        .layer(CatchPanicLayer::custom(|panic: Box<dyn std::any::Any + Send>| {
            let message = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "a panic without a message".to_owned());
            ApiError::internal(format!("a handler panicked: {message}")).into_response()
        }))
        .layer(from_fn_with_state(state.clone(), scope))
        .layer(browser::compression())
        .layer(browser::cross_origin(state.settings().origins.clone()))
        .with_state(state)
}

/// Puts the decision about a route's policy around its handler.
fn within_policy(handler: MethodRouter<ApiState>, policy: Policy) -> MethodRouter<ApiState> {
    let recent = policy.wants_recent();
    match policy.need() {
        Some(need) => handler.layer(from_fn(move |request: Request, next: Next| {
            gate::gate(need, recent, request, next)
        })),
        None => handler,
    }
}
