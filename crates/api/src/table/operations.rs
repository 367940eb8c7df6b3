//! The operations of the released contract that need no handler: each answers a constant, or refuses with a sentence.
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

/// The rows that need no handler.
static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(Row::read).collect()
});

/// A row of the table.
struct Row {
    method: Method,
    /// The path as the router has it.
    path: String,
    answer: Answer,
}

/// The answer of an operation that needs no handler.
enum Answer {
    Nothing,
    Constant(Value),
    Refusal(&'static str),
}

impl Row {
    /// Reads a row; `None` for one that has a handler.
    ///
    /// # Panics
    /// With a row of another form. Tests read them all.
    fn read(line: &'static str) -> Option<Self> {
        let columns: Vec<&'static str> = line.split('\t').collect();
        let answer = match columns[3..] {
            ["served"] => return None,
            ["constant", NO_BODY] => Answer::Nothing,
            ["constant", answer] => {
                Answer::Constant(serde_json::from_str(answer).expect("a constant is JSON"))
            }
            ["refused", why] => Answer::Refusal(why),
            _ => panic!("a row of operations.tsv has another form: {line}"),
        };
        let method = columns[0].parse().expect("a method");
        Some(Self { method, path: routed(columns[1]), answer })
    }
}

/// Returns the routes that need no handler.
pub(super) fn routes() -> Vec<Route> {
    ROWS.iter().map(route).collect()
}

fn route(row: &'static Row) -> Route {
    let (method, policy) = (row.method.clone(), Needs(Need::SessionRead));
    match &row.answer {
        Answer::Nothing => {
            Route::new(method, &row.path, policy, async |_: CanRead| StatusCode::NO_CONTENT)
        }
        Answer::Constant(answer) => {
            Route::new(method, &row.path, policy, async move |_: CanRead| Json(answer))
        }
        Answer::Refusal(why) => {
            let refusal = async move |access, state, headers, params, uri| {
                refuse(access, state, headers, params, uri, why).await
            };
            Route::new(method, &row.path, policy, refusal)
        }
    }
}

/// Returns a path of the contract under the router's names of parameters: `{session}` for `{sessionID}`.
fn routed(path: &str) -> String {
    path.replace("ID}", "}").replace("/*", "/{*path}")
}
