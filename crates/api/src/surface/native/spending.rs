//! Monthly limits of cost.

use std::collections::BTreeMap;

use access::Actor;
use axum::Json;
use axum::extract::State;
use domain::{OrgId, TimestampMs};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{EACH_PERSON, ORGANISATION, Spent, StoreError};

use crate::ApiState;
use crate::error::ApiError;
use crate::surface::extract::{Body, CanAdminister};
use crate::text::shown;

/// The words of whose a limit is, besides ids of people.
const OF_ALL: &str = "organisation";
const OF_EACH: &str = "each";
/// The highest limit, in dollars.
const MOST_USD: f64 = 1_000_000.0;
/// The longest id of a person.
const MAX_ID: usize = 100;

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct LimitRequest {
    /// `organisation` for all together, `each` for each person without a limit of their own, or the id of a person as
    /// `/platform/usage?by=person` shows it.
    whose: String,
    /// Dollars in a calendar month of UTC; `null` removes the limit.
    #[serde(deserialize_with = "Option::deserialize")]
    monthly_usd: Option<f64>,
}

/// The limits, and how much of them is spent.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LimitsView {
    /// The beginning of the month.
    from: TimestampMs,
    /// Its end, when what is spent begins at 0 again.
    to: TimestampMs,
    limits: Vec<LimitView>,
    running: RunningView,
}

/// A limit. Amounts are in billionths of a dollar.
#[derive(Debug, Serialize, JsonSchema)]
struct LimitView {
    whose: String,
    /// The name of the person, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    monthly_nanos: i64,
    /// Absent of `each`: the people who have spent most are in `/platform/usage?by=person`.
    #[serde(skip_serializing_if = "Option::is_none")]
    spent_nanos: Option<i64>,
    /// Whether no further turn begins.
    reached: bool,
}

/// The requests to providers that run now: by as much as they cost, a limit may be exceeded.
#[derive(Debug, Serialize, JsonSchema)]
struct RunningView {
    requests: i64,
    /// The most that they cost together, in billionths of a dollar.
    most_nanos: i64,
}

impl LimitsView {
    fn of(spent: &Spent, names: &BTreeMap<String, String>, running: (i64, i64)) -> Self {
        let limit = |(whose, monthly): (&String, &i64)| {
            let used = (whose != EACH_PERSON).then(|| spent.of(whose));
            LimitView {
                whose: match whose.as_str() {
                    ORGANISATION => OF_ALL.to_owned(),
                    EACH_PERSON => OF_EACH.to_owned(),
                    person => person.to_owned(),
                },
                name: names.get(whose).cloned(),
                monthly_nanos: *monthly,
                spent_nanos: used,
                reached: used.is_some_and(|used| used >= *monthly),
            }
        };
        Self {
            from: spent.month.from,
            to: spent.month.to,
            limits: spent.limits.iter().map(limit).collect(),
            running: RunningView { requests: running.1, most_nanos: running.0 },
        }
    }
}

pub(crate) async fn list(
    access: CanAdminister,
    State(state): State<ApiState>,
) -> Result<Json<LimitsView>, ApiError> {
    let store = state.store();
    let spent = store.spent(access.org, state.clock().now_ms()).await?;
    let names = store.usage_names(access.org, spent.limits.keys().cloned().collect(), Vec::new());
    let running = store.running_costs(access.org);
    Ok(Json(LimitsView::of(&spent, &names.await?.0, running.await?)))
}

pub(crate) async fn set(
    access: CanAdminister,
    State(state): State<ApiState>,
    Body(request): Body<LimitRequest>,
) -> Result<Json<LimitsView>, ApiError> {
    let whose = match request.whose.as_str() {
        OF_ALL => ORGANISATION.to_owned(),
        OF_EACH => EACH_PERSON.to_owned(),
        person if is_id(person) => person.to_owned(),
        other => {
            return Err(ApiError::Invalid(format!(
                "`whose` is `{OF_ALL}`, `{OF_EACH}` or the id of a person, not `{}`",
                shown(other)
            )));
        }
    };
    let monthly = request.monthly_usd.map(nanos).transpose()?;
    if monthly.is_some() {
        check_person(&state, access.org, &whose).await?;
    }
    let now = state.clock().now_ms();
    state.store().set_spending_limit(access.org, whose, monthly, now).await?;
    list(access, State(state)).await
}

/// Refuses the id of a person or service account whom the organisation does not have. Ids of another kind, such as
/// those of keys, are taken as they are: usage names them too.
async fn check_person(state: &ApiState, org: OrgId, whose: &str) -> Result<(), ApiError> {
    if !whose.starts_with("usr_") && !whose.starts_with("svc_") {
        return Ok(());
    }
    if let Ok(actor) = whose.parse::<Actor>() {
        match state.store().principal(org, actor).await {
            Ok(_) => return Ok(()),
            Err(StoreError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(ApiError::Invalid(format!(
        "there is no person `{}` in the organisation: `opencode-cloud user list` lists them, with `--services` the service accounts",
        shown(whose)
    )))
}

fn is_id(text: &str) -> bool {
    let has_only_word_chars = text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    !text.is_empty() && text.len() <= MAX_ID && text.contains('_') && has_only_word_chars
}

/// Reads dollars as billionths, in whole cents.
fn nanos(usd: f64) -> Result<i64, ApiError> {
    if !(0.0..=MOST_USD).contains(&usd) {
        return Err(ApiError::Invalid(format!(
            "`monthly_usd` is between 0 and {MOST_USD}, or null for no limit"
        )));
    }
    // At most a hundred million cents.
    let cents = (usd * 100.0).round() as i64;
    Ok(cents * 10_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_are_whole_cents() {
        assert_eq!(nanos(0.0).expect("an amount"), 0);
        assert_eq!(nanos(19.999).expect("an amount"), 20_000_000_000);
        assert_eq!(nanos(0.1 + 0.2).expect("an amount"), 300_000_000);
        for wrong in [-1.0, f64::NAN, f64::INFINITY, 1_000_001.0] {
            assert!(nanos(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_person_is_an_id_and_no_word() {
        assert!(is_id("key_0123abc") && is_id("usr_1"));
        assert!(!is_id("alice") && !is_id("") && !is_id("*") && !is_id("a_b c"));
    }
}
