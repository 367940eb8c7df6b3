//! The operations of the released contract, and the routes of those that need no handler: each answers a constant, or
//! refuses with a sentence.
//!
//! `contract/operations.tsv` has all operations of the contract. A constant is true for this service and harmless to a
//! client; everything else that we do not do is refused, so that nobody waits for it.

use std::sync::LazyLock;

use access::Need;
use axum::Json;
use http::{Method, StatusCode};
use serde_json::Value;

use super::policy::Policy::Needs;
use super::route::Route;
use crate::surface::CanRead;
use crate::surface::stock::refusal::refuse;

const TABLE: &str = include_str!("../../contract/operations.tsv");

/// The end of an answer that has no body.
const NO_BODY: &str = "-";

/// An operation of the contract, and what this service does with it.
pub(super) struct Contracted {
    pub(super) method: &'static str,
    /// The path as the contract has it.
    pub(super) path: &'static str,
    pub(super) operation: &'static str,
    pub(super) state: State,
    /// The path as the router has it.
    routed: String,
}

/// The state of an operation here.
pub(super) enum State {
    /// A handler answers it.
    Served,
    Nothing,
    Constant(Value),
    Refused(&'static str),
}

impl Contracted {
    /// Reads a row.
    ///
    /// # Panics
    /// With a row of another form. Tests read them all.
    fn read(line: &'static str) -> Self {
        let columns: Vec<&'static str> = line.split('\t').collect();
        let state = match columns[3..] {
            ["served"] => State::Served,
            ["constant", NO_BODY] => State::Nothing,
            ["constant", answer] => {
                State::Constant(serde_json::from_str(answer).expect("a constant is JSON"))
            }
            ["refused", why] => State::Refused(why),
            _ => panic!("a row of operations.tsv has another form: {line}"),
        };
        let [method, path, operation, ..] = columns[..] else {
            panic!("a row of operations.tsv has another form: {line}")
        };
        Self { method, path, operation, state, routed: routed(path) }
    }
}

/// Returns every operation of the contract, in its order.
pub(super) fn contracted() -> &'static [Contracted] {
    static ROWS: LazyLock<Vec<Contracted>> = LazyLock::new(|| {
        TABLE.lines().filter(|line| !line.starts_with('#')).map(Contracted::read).collect()
    });
    &ROWS
}

/// Returns the routes that need no handler.
pub(super) fn routes() -> Vec<Route> {
    contracted().iter().filter_map(route).collect()
}

/// Returns the route of an operation; `None` for one that has a handler.
fn route(row: &'static Contracted) -> Option<Route> {
    let method: Method = row.method.parse().expect("a method");
    let (path, policy) = (row.routed.as_str(), Needs(Need::SessionRead));
    let route = match &row.state {
        State::Served => return None,
        State::Nothing => {
            Route::new(method, path, policy, async |_: CanRead| StatusCode::NO_CONTENT)
        }
        State::Constant(answer) => {
            Route::new(method, path, policy, async move |_: CanRead| Json(answer))
        }
        State::Refused(why) => {
            let refusal = async move |access, state, headers, params, uri| {
                refuse(access, state, headers, params, uri, why).await
            };
            Route::new(method, path, policy, refusal)
        }
    };
    Some(route)
}

/// Returns a path of the contract under the router's names of parameters: `{session}` for `{sessionID}`.
fn routed(path: &str) -> String {
    path.replace("ID}", "}").replace("/*", "/{*path}")
}
