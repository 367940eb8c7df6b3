use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::handler::Handler;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::Method;
use tower_http::catch_panic::CatchPanicLayer;

use crate::error::ApiError;
use crate::extract::MAX_BODY_BYTES;
use crate::scope::{authenticate, scope};
use crate::{ApiState, native, stock};

/// A line of the route table: the router is made of it, and the tests go through it.
pub(crate) struct Route {
    method: Method,
    path: &'static str,
    handler: MethodRouter<ApiState>,
}

macro_rules! method {
    ($name:ident, $method:ident) => {
        pub(crate) fn $name<H, T>(path: &'static str, handler: H) -> Self
        where
            H: Handler<T, ApiState>,
            T: 'static,
        {
            let handler = on(MethodFilter::$method, handler);
            Self { method: Method::$method, path, handler }
        }
    };
}

impl Route {
    method!(get, GET);
    method!(post, POST);
    method!(put, PUT);
    method!(patch, PATCH);
    method!(delete, DELETE);
}

fn table() -> Vec<Route> {
    let mut routes = native::routes();
    routes.extend(stock::routes());
    routes
}

/// Every method and path that is served, path parameters in braces.
#[must_use]
pub fn route_table() -> Vec<(Method, &'static str)> {
    table().into_iter().map(|route| (route.method, route.path)).collect()
}

/// The whole surface. A body has at most 1 MiB; every path wants a key but those of `exceptions.txt`,
/// unknown ones too.
pub fn router(state: ApiState) -> Router {
    let mut router = Router::new();
    for route in table() {
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
        .with_state(state)
}
