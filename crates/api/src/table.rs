//! The table of routes, the router that is built from it, and the middleware around every request.

mod browser;
pub(crate) mod contract;
mod document;
mod native;
mod openapi;
mod operations;
mod route;
mod scope;
mod stock;
mod wall;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::IntoResponse;
use http::Method;
use tower_http::catch_panic::CatchPanicLayer;

use self::route::Route;
use self::scope::{authenticate, scope};
use crate::ApiState;
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

/// Builds the router. A body has at most 1 MiB. Every path needs a key except those in `exceptions.txt`; that
/// includes unknown paths.
pub fn router(state: ApiState) -> Router {
    let mut router = Router::new();
    for route in handled() {
        router = router.route(route.path, route.handler.layer(from_fn(ignored::tell)));
    }
    // They read nothing of what they are sent.
    for route in operations::routes() {
        router = router.route(route.path, route.handler);
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
