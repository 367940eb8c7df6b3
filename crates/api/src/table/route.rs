use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::Method;

use super::contract::{Operation, Schemas, Typed};
use super::policy::Policy;
use crate::ApiState;

/// A line of the route table. The router is built from these lines, and tests walk through them.
pub(crate) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) policy: Policy,
    pub(super) handler: MethodRouter<ApiState>,
    /// Its description in the document of our own dialect.
    pub(super) told: Option<Told>,
}

/// How the document names an operation, and where it reads the rest.
#[derive(Clone, Copy)]
pub(super) struct Told {
    /// `session.create`. Each is one operation's.
    pub(super) id: &'static str,
    /// One line for people.
    pub(super) summary: &'static str,
    pub(super) describe: fn(&mut Schemas) -> Operation,
}

macro_rules! method {
    ($name:ident, $method:ident) => {
        pub(crate) fn $name<H, T>(path: &'static str, policy: Policy, handler: H) -> Self
        where
            H: Handler<T, ApiState>,
            T: 'static,
        {
            Self::new(Method::$method, path, policy, handler)
        }
    };
}

impl Route {
    pub(super) fn new<H, T>(method: Method, path: &'static str, policy: Policy, handler: H) -> Self
    where
        H: Handler<T, ApiState>,
        T: 'static,
    {
        let filter = MethodFilter::try_from(method.clone()).expect("a method that routes have");
        Self { method, path, policy, handler: on(filter, handler), told: None }
    }

    /// A line that the document of our own dialect has.
    pub(super) fn told<H, T, A>(
        method: Method,
        path: &'static str,
        policy: Policy,
        (id, summary): (&'static str, &'static str),
        handler: H,
    ) -> Self
    where
        H: Handler<T, ApiState> + Typed<A>,
        T: 'static,
    {
        let told = Told { id, summary, describe: <H as Typed<A>>::describe };
        Self { told: Some(told), ..Self::new(method, path, policy, handler) }
    }

    method!(get, GET);
    method!(post, POST);
    method!(put, PUT);
    method!(patch, PATCH);
    method!(delete, DELETE);
}
