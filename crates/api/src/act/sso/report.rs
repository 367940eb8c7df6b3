//! The report of a test.

use access::OrgRole;
use oidc::Rules;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Says what a real sign-in would do.
pub(super) fn outcome(
    rules: &Rules,
    admission: &oidc::Admission,
    known: Option<&store::KnownPerson>,
) -> String {
    let (role, why) = (admission.role, &admission.why);
    match known {
        None => format!("the person would join as {role}: {why}"),
        Some(known) if known.role == OrgRole::Owner => {
            format!(
                "the person is {} and stays an owner: a connection changes no owner",
                known.user
            )
        }
        Some(known) if admission.keeps_role() => {
            format!("the person is {} and stays {}: {why}", known.user, known.role)
        }
        Some(known) if rules.maps_groups() => {
            format!("the person is {} and would be {role}: {why}", known.user)
        }
        Some(known) => format!("the person is {} and stays {}", known.user, known.role),
    }
}

/// The report of a test.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub(crate) struct Report {
    /// When it was.
    pub(crate) at: i64,
    /// Whether the provider signed somebody in, and its token was believed.
    pub(crate) is_good: bool,
    /// The effect of a real sign-in, or the fault.
    pub(crate) message: String,
    /// The provider's name for the person.
    pub(crate) subject: Option<String>,
    /// The person's name.
    pub(crate) name: Option<String>,
    /// The person's e-mail address. It identifies nobody.
    pub(crate) email: Option<String>,
    /// The algorithm that signed the token.
    pub(crate) algorithm: Option<String>,
    /// The provider's clock minus ours, in milliseconds.
    pub(crate) clock_ms: Option<i64>,
    /// All claims.
    pub(crate) claims: Map<String, Value>,
}
