//! The service's own routes: FEAT-0006's under `/project`, those of operators and our CLI under `/platform`, and the
//! two probes. Each file has the lines of one group.

mod conversation;
mod models;
mod operation;
mod organisation;
mod people;
mod project;
mod session;
mod sign_in;

use axum::handler::Handler;
use http::Method;

use super::contract::Typed;
use super::policy::Policy;
use super::route::Route;
use crate::ApiState;

pub(super) fn routes() -> Vec<Route> {
    let groups = [
        operation::routes(),
        sign_in::routes(),
        people::routes(),
        organisation::routes(),
        models::routes(),
        project::routes(),
        session::routes(),
        conversation::routes(),
    ];
    groups.into_iter().flatten().collect()
}

macro_rules! method {
    ($name:ident, $method:ident) => {
        fn $name<H, T, A>(
            path: &'static str,
            policy: Policy,
            id: &'static str,
            summary: &'static str,
            handler: H,
        ) -> Route
        where
            H: Handler<T, ApiState> + Typed<A>,
            T: 'static,
        {
            Route::told(Method::$method, path, policy, (id, summary), handler)
        }
    };
}

method!(get, GET);
method!(post, POST);
method!(put, PUT);
method!(patch, PATCH);
method!(delete, DELETE);

/// Makes the two lines of a session's route: below its project, and below `/platform`.
macro_rules! both {
    ($method:ident, $path:literal, $need:ident, $id:literal, $summary:literal, $handler:path $(,)?) => {
        [
            $method(
                concat!("/project/{project}/session/{session}", $path),
                $crate::table::policy::Policy::Needs($need),
                concat!("project.", $id),
                $summary,
                $handler,
            ),
            $method(
                concat!("/platform/session/{session}", $path),
                $crate::table::policy::Policy::Needs($need),
                $id,
                $summary,
                $handler,
            ),
        ]
    };
}
use both;
