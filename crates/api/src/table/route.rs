use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::Method;

use crate::ApiState;

/// A line of the route table. The router is built from these lines, and tests walk through them.
pub(crate) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) handler: MethodRouter<ApiState>,
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
    pub(super) fn new<H, T>(method: Method, path: &'static str, handler: H) -> Self
    where
        H: Handler<T, ApiState>,
        T: 'static,
    {
        let filter = MethodFilter::try_from(method.clone()).expect("a method that routes have");
        Self { method, path, handler: on(filter, handler) }
    }

    method!(get, GET);
    method!(post, POST);
    method!(put, PUT);
    method!(patch, PATCH);
    method!(delete, DELETE);
}
