//! The facts of a verified token.

use domain::TimestampMs;
use serde_json::{Map, Value};

use crate::Issuer;

const MAX_SUBJECT_BYTES: usize = 255;
const MAX_SHOWN_CHARS: usize = 200;
const MAX_GROUPS: usize = 1_000;
/// Claims that say nothing of a person, or that nobody needs to see.
const OF_THE_TOKEN: [&str; 9] =
    ["at_hash", "c_hash", "nonce", "sid", "s_hash", "jti", "uti", "rh", "aio"];

/// Claims that only the token makes: its signature proves them.
const OF_THE_PROOF: [&str; 10] =
    ["iss", "sub", "aud", "exp", "iat", "nonce", "oid", "tid", "auth_time", "azp"];
const EMAIL: &str = "email";
const EMAIL_VERIFIED: &str = "email_verified";

/// The claims of a token whose signature, issuer, audience, time and nonce were proved.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Claims(Map<String, Value>);

/// A person as a provider describes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The provider's name for the person, which with the connection identifies them.
    pub subject: String,
    /// The name, for display.
    pub name: Option<String>,
    /// The e-mail address, for display. It identifies nobody.
    pub email: Option<String>,
}

/// The groups of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Groups {
    /// All groups. Empty: the claim is there and names none.
    Known(Vec<String>),
    /// The person is in more groups than the provider or we can tell, for this reason.
    TooMany(String),
    /// The claim has no groups, for this reason.
    Unknown(String),
    /// The claim is not there.
    Absent,
}

impl Claims {
    pub(crate) fn new(claims: Map<String, Value>) -> Self {
        Self(claims)
    }

    /// Returns a claim that is text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty())
    }

    /// Returns whether a claim is there, by its name or a path to it.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        find(&self.0, name).is_some()
    }

    /// Returns when the person last proved who they are to the provider, in milliseconds, if it says so (`auth_time`).
    #[must_use]
    pub fn auth_ms(&self) -> Option<TimestampMs> {
        self.0.get("auth_time").and_then(seconds)?.checked_mul(1_000)
    }

    /// Adds claims that the provider's user information has and the token has not. Who the person is and when they proved
    /// it is the token's to say. The address and its proof come from one source: that one of them is verified says nothing
    /// about an address of the other's.
    pub(crate) fn add(&mut self, mut more: Map<String, Value>) {
        more.retain(|name, _| !OF_THE_PROOF.contains(&name.as_str()));
        if !self.0.contains_key(EMAIL) {
            self.0.remove(EMAIL_VERIFIED);
        } else if more.get(EMAIL) != self.0.get(EMAIL) {
            more.remove(EMAIL_VERIFIED);
        }
        for (name, value) in more {
            self.0.entry(name).or_insert(value);
        }
    }

    /// Returns the claims for a person to read, without those that only protect the token.
    #[must_use]
    pub fn shown(&self) -> Map<String, Value> {
        let shown = self.0.iter().filter(|(name, _)| !OF_THE_TOKEN.contains(&name.as_str()));
        shown.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Returns the person. `None`: the token names no subject.
    #[must_use]
    pub fn person(&self, issuer: &Issuer) -> Option<Person> {
        let claim = if issuer.is_entra() { "oid" } else { "sub" };
        let is_storable = |it: &&str| it.len() <= MAX_SUBJECT_BYTES && !it.contains('\0');
        let subject = self.text(claim).filter(is_storable)?;
        let shown = |text: &str| -> String {
            text.chars().filter(|c| !c.is_control()).take(MAX_SHOWN_CHARS).collect()
        };
        let whole = || {
            let parts = [self.text("given_name")?, self.text("family_name")?];
            Some(parts.join(" "))
        };
        let name = self.text("name").map(str::to_owned).or_else(whole);
        let name = name.or_else(|| self.text("preferred_username").map(str::to_owned));
        Some(Person {
            subject: subject.to_owned(),
            name: name.as_deref().map(shown),
            email: self.text("email").filter(|email| email.contains('@')).map(shown),
        })
    }

    /// Returns the groups by the claim that has them: its name, or else a path with dots to a claim within others
    /// (`realm_access.roles`).
    ///
    /// A provider that has too many groups for a token leaves the claim out and says so: Microsoft Entra in
    /// `_claim_names` (or `hasgroups` with tokens in addresses).
    #[must_use]
    pub fn groups(&self, claim: &str) -> Groups {
        let elsewhere = self.0.get("_claim_names").and_then(|names| names.get(claim)).is_some();
        if elsewhere || self.0.get("hasgroups").is_some_and(|has| has != &Value::Bool(false)) {
            let why = "the person has more groups than the provider puts into a token";
            return Groups::TooMany(why.to_owned());
        }
        let Some(value) = find(&self.0, claim) else { return Groups::Absent };
        let groups: Option<Vec<String>> = match value {
            Value::String(one) => Some(vec![one.clone()]),
            Value::Array(many) => many.iter().map(|one| one.as_str().map(str::to_owned)).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
        };
        match groups {
            Some(groups) if groups.len() <= MAX_GROUPS => Groups::Known(groups),
            Some(_) => Groups::TooMany(format!("the token has more than {MAX_GROUPS} groups")),
            None => Groups::Unknown(format!("the claim `{claim}` is no list of texts")),
        }
    }

    /// Returns the domain of the e-mail address, if the provider says that the address is the person's.
    #[must_use]
    pub fn verified_domain(&self) -> Option<String> {
        let is_verified = match self.0.get(EMAIL_VERIFIED)? {
            Value::Bool(verified) => *verified,
            Value::String(text) => text == "true",
            Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => false,
        };
        let domain = self.text(EMAIL)?.rsplit_once('@')?.1.to_ascii_lowercase();
        is_verified.then_some(domain)
    }
}

/// Returns the claim of this name, or else the one that a path with dots leads to. Names within may have dots too.
fn find<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    claims.get(path).or_else(|| {
        path.match_indices('.').find_map(|(at, _)| {
            let Some(Value::Object(within)) = claims.get(&path[..at]) else { return None };
            find(within, &path[at + 1..])
        })
    })
}

/// Reads a time in seconds: a number, or a number as text.
pub(crate) fn seconds(value: &Value) -> Option<TimestampMs> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn claims(value: Value) -> Claims {
        let Value::Object(claims) = value else { panic!("an object") };
        Claims::new(claims)
    }

    #[test]
    fn a_subject_that_postgres_cannot_keep_is_none() {
        let issuer = Issuer::parse("https://id.example.com").expect("an issuer");
        let subject = |sub: &str| claims(json!({ "sub": sub })).person(&issuer).is_some();
        assert!(subject("ada"));
        assert!(!subject("nul\0sub"));
        assert!(!subject(&"x".repeat(MAX_SUBJECT_BYTES + 1)));
    }

    // Attack 5.
    #[test]
    fn groups_that_a_provider_left_out_are_unknown() {
        let overage = claims(json!({ "_claim_names": { "groups": "src1" }, "groups": ["admins"] }));
        assert!(matches!(overage.groups("groups"), Groups::TooMany(_)));
        assert!(matches!(
            claims(json!({ "hasgroups": true })).groups("groups"),
            Groups::TooMany(_)
        ));
        assert!(matches!(
            claims(json!({ "hasgroups": "true" })).groups("groups"),
            Groups::TooMany(_)
        ));
        assert!(matches!(claims(json!({ "groups": [1, 2] })).groups("groups"), Groups::Unknown(_)));
        let many: Vec<String> = (0..=MAX_GROUPS).map(|n| n.to_string()).collect();
        assert!(matches!(claims(json!({ "groups": many })).groups("groups"), Groups::TooMany(_)));
        assert_eq!(claims(json!({})).groups("groups"), Groups::Absent);
        let none = claims(json!({ "groups": [], "hasgroups": false }));
        assert_eq!(none.groups("groups"), Groups::Known(Vec::new()));
        assert_eq!(
            claims(json!({ "roles": "a" })).groups("roles"),
            Groups::Known(vec!["a".into()])
        );
    }

    #[test]
    fn a_person_is_known_by_the_subject_alone() {
        let issuer = Issuer::parse("https://id.example.com").expect("an issuer");
        let entra = Issuer::parse("https://login.microsoftonline.com/t-1/v2.0").expect("a tenant");
        let whole = claims(
            json!({ "sub": "s", "oid": "o", "given_name": "Ada", "family_name": "L\u{7}", "email": "a@x" }),
        );
        let person = whole.person(&issuer).expect("a person");
        assert_eq!((person.subject.as_str(), person.name.as_deref()), ("s", Some("Ada L")));
        assert_eq!(whole.person(&entra).expect("a person").subject, "o");
        assert_eq!(claims(json!({ "email": "a@x" })).person(&issuer), None);
        assert_eq!(claims(json!({ "sub": "s" })).person(&entra), None, "no `oid`");
        assert_eq!(claims(json!({ "sub": "x".repeat(256) })).person(&issuer), None);
    }

    #[test]
    fn a_domain_counts_only_if_it_was_verified() {
        let of =
            |verified: Value| claims(json!({ "email": "a@X.example", "email_verified": verified }));
        assert_eq!(of(json!(true)).verified_domain().as_deref(), Some("x.example"));
        assert_eq!(of(json!("true")).verified_domain().as_deref(), Some("x.example"));
        assert_eq!(of(json!(false)).verified_domain(), None);
        assert_eq!(claims(json!({ "email": "a@x.example" })).verified_domain(), None);
    }

    // Finding security-3 M6: an address of the token counted as verified by the user information, and the other way round.
    #[test]
    fn an_address_is_verified_by_its_own_source() {
        let joined = |token: Value, more: Value| {
            let Value::Object(more) = more else { panic!("an object") };
            let mut all = claims(token);
            all.add(more);
            all.verified_domain()
        };
        let typed = json!({ "email": "eve@ours.example" });
        let proved = json!({ "email": "eve@evil.example", "email_verified": true });
        assert_eq!(joined(typed.clone(), proved.clone()), None);
        assert_eq!(joined(typed.clone(), json!({ "email_verified": true })), None);
        assert_eq!(joined(json!({ "email_verified": true }), typed.clone()), None);
        let known = Some("evil.example".to_owned());
        assert_eq!(joined(proved.clone(), typed), known);
        assert_eq!(joined(json!({}), proved.clone()), known);
        assert_eq!(joined(json!({ "email_verified": true }), proved.clone()), known);
        assert_eq!(joined(json!({ "email": "eve@evil.example" }), proved), known);
    }

    // A brother of M6: the user information is not signed, so it names nobody and moves no time.
    #[test]
    fn the_user_information_says_nothing_of_the_proof() {
        let mut token = claims(json!({ "sub": "s" }));
        let more = json!({ "oid": "o", "auth_time": 1, "sub": "t", "name": "Ada" });
        let Value::Object(more) = more else { panic!("an object") };
        token.add(more);
        assert_eq!(
            (token.text("oid"), token.auth_ms(), token.text("sub")),
            (None, None, Some("s"))
        );
        assert_eq!(token.text("name"), Some("Ada"));
    }

    // Finding reports 26: Keycloak's own place of roles gave nothing.
    #[test]
    fn groups_within_other_claims_are_found_by_a_path() {
        let known = |list: &[&str]| Groups::Known(list.iter().map(|&one| one.to_owned()).collect());
        let nested = claims(json!({
            "realm_access": { "roles": ["it"] },
            "resource_access": { "my.client": { "roles": ["eng"] } },
            "https://example.com/groups": ["url"],
            "a.b": ["plain"],
            "a": { "b": ["nested"] },
        }));
        let cases = [
            ("realm_access.roles", "it"),
            ("resource_access.my.client.roles", "eng"),
            ("https://example.com/groups", "url"),
            ("a.b", "plain"),
        ];
        for (path, group) in cases {
            assert_eq!(nested.groups(path), known(&[group]), "{path}");
            assert!(nested.has(path), "{path}");
        }
        for path in ["realm_access.groups", "realm_access.roles.0", "roles", ".", "a.", "..", ""] {
            assert_eq!(nested.groups(path), Groups::Absent, "{path}");
        }
        assert!(matches!(nested.groups("realm_access"), Groups::Unknown(_)));
    }
}
