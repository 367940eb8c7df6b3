//! Rebuilds a request to a model from rows alone, and proves it by its hash.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use domain::{ModelRef, SessionEvent, TurnId};
use history::Components;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ApiState;
use crate::act::{Explained, explain};
use crate::error::ApiError;
use crate::surface::extract::{CanAdminister, Params};
use crate::surface::paged::JsonText;
use crate::view::Usd;

const MAX_ID_CHARS: usize = 80;

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ExplainQuery {
    body: Option<bool>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExplainView {
    attempt: String,
    turn: String,
    session: String,
    ordinal: i32,
    /// `provider/model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// The model's variant, if one was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    body_hash: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rebuilt_hash: Option<String>,
    r#match: bool,
    /// The reason why the request cannot be rebuilt.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    wire_version: i32,
    epoch: i32,
    through: i64,
    components: BTreeMap<String, String>,
    /// The price, for a model with prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    price: Option<PriceView>,
}

/// The price of a request.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PriceView {
    /// The version of the price table at the time of the request.
    version: String,
    /// The highest expected cost, estimated before the request.
    estimate: Usd,
    /// The actual cost, once the provider has reported usage.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<Usd>,
}

/// Explains an attempt, or the last attempt of a turn. With `body=true` it returns the exact bytes that were sent, or
/// 409 if the hash does not prove them.
pub(crate) async fn show(
    access: CanAdminister,
    State(state): State<ApiState>,
    Path(id): Path<String>,
    Params(query): Params<ExplainQuery>,
) -> Result<JsonText<ExplainView>, ApiError> {
    if id.len() > MAX_ID_CHARS {
        return Err(ApiError::invalid("explain takes the id of a turn or of an attempt"));
    }
    let attempt = state.store().attempt(access.org, id).await?;
    let Explained { names, components, events, rebuilt, hash, matches } =
        explain(state.store(), access.org, &attempt).await?;
    let model = Components::read(&components).ok().map(|read| read.model);
    let variant = events.iter().rev().find_map(|recorded| chosen(&recorded.event, &attempt.turn));
    if query.body.unwrap_or(false) {
        return match rebuilt {
            Ok(body) if matches => Ok(JsonText::new(body)),
            Ok(_) => Err(ApiError::Conflict(
                "the rebuilt body has another hash than the one that was sent".to_owned(),
            )),
            Err(error) => Err(ApiError::Conflict(error.to_string())),
        };
    }
    let view = ExplainView {
        attempt: attempt.id.into(),
        turn: attempt.turn.into(),
        session: attempt.session.into(),
        ordinal: attempt.ordinal,
        model: model.map(|model| format!("{}/{}", model.provider, model.id)),
        variant: variant.and_then(|model| model.variant.clone()),
        outcome: attempt.outcome,
        body_hash: attempt.body_hash,
        rebuilt_hash: hash,
        r#match: matches,
        problem: rebuilt.err().map(|error| error.to_string()),
        wire_version: attempt.wire_version,
        epoch: attempt.epoch,
        through: attempt.through.0,
        components: names,
        price: attempt.estimate.map(|(version, nanos)| PriceView {
            version,
            estimate: Usd(nanos),
            cost: attempt.cost.map(Usd),
        }),
    };
    JsonText::of(&view).map_err(ApiError::internal)
}

/// Returns the model of the turn, Compaction or title that this event begins, if its id is `of`.
fn chosen<'a>(event: &'a SessionEvent, of: &TurnId) -> Option<&'a ModelRef> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only these begin requests")]
    let (turn, model) = match event {
        SessionEvent::TurnStarted(started) => (&started.turn, &started.model),
        SessionEvent::CompactionStarted(started) => (&started.turn, &started.model),
        SessionEvent::TitleStarted(started) => (&started.turn, &started.model),
        _ => return None,
    };
    (turn == of).then_some(model)
}
