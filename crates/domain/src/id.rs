//! Ids in the format of the stock OpenCode clients, which sort by them: a prefix, 12 hex digits of (milliseconds ×
//! 4096 + counter) modulo 2^48, and 14 base62 characters.
//!
//! The 48 bits wrap every 795 days, so ids only order events within that time; durable order always comes from the
//! sequence number. A session's id counts down, as the clients expect: newest first.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use rand::RngExt;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::TimestampMs;

const TIME_BITS: u32 = 48;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
const MAX_BODY: usize = 64;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The reason why a string is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The kind's prefix is missing.
    #[error("an id of this kind starts with `{0}_`")]
    Prefix(&'static str),
    /// Empty, longer than 64 characters after the prefix, or with other characters.
    #[error("an id is its prefix and 1 to 64 letters, digits, `-` or `_`")]
    Form,
}

/// A point of an [`IdMint`]'s counter: milliseconds × 4096 + counter, not wrapped.
///
/// `session_head.last_id` holds the highest one that a session has seen, so that the next mint, on any machine,
/// continues above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Stamp(pub i64);

impl Stamp {
    /// Returns the first stamp of a millisecond.
    #[must_use]
    pub fn at(now: TimestampMs) -> Self {
        Self(now.saturating_mul(4096))
    }

    /// Returns the millisecond of this stamp.
    #[must_use]
    pub fn millis(self) -> TimestampMs {
        self.0 / 4096
    }
}

/// A mint of ids above everything it has seen: `max(clock, last + 1)`.
#[derive(Debug, Clone)]
pub struct IdMint {
    last: Stamp,
    seed: Option<u64>,
}

impl IdMint {
    /// Continues after `last`, at `now` or later.
    #[must_use]
    pub fn after(last: Stamp, now: TimestampMs) -> Self {
        Self { last: Stamp(last.0.max(Stamp::at(now).0 - 1)), seed: None }
    }

    /// Like [`after`](Self::after), with ids that only depend on `seed` and their stamp: for simulations, where one
    /// seed must give one history. Two mints with one seed give the same ids.
    #[must_use]
    pub fn seeded(last: Stamp, now: TimestampMs, seed: u64) -> Self {
        Self { seed: Some(seed), ..Self::after(last, now) }
    }

    /// Returns the highest stamp handed out or started from.
    #[must_use]
    pub fn last(&self) -> Stamp {
        self.last
    }

    /// Continues after `last` too.
    pub fn raise(&mut self, last: Stamp) {
        self.last = self.last.max(last);
    }

    fn next(&mut self) -> u64 {
        self.last.0 += 1;
        u64::try_from(self.last.0).unwrap_or(0) & TIME_MASK
    }

    fn render(&self, prefix: &str, time: u64) -> String {
        let mut id = format!("{prefix}_{time:012x}");
        match self.seed {
            Some(seed) => {
                let mut state = mixed(seed ^ mixed(self.last.0.unsigned_abs()));
                for _ in 0..14 {
                    id.push(char::from(BASE62[usize::try_from(state % 62).unwrap_or(0)]));
                    state = mixed(state);
                }
            }
            None => {
                let mut rng = rand::rng();
                for _ in 0..14 {
                    id.push(char::from(BASE62[rng.random_range(0..BASE62.len())]));
                }
            }
        }
        id
    }
}

/// Returns the output of splitmix64 for a state.
fn mixed(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the stamp in an id's body that is nearest to `now`; `None` for ids of another form.
fn stamp_near(body: &str, now: TimestampMs, descending: bool) -> Option<Stamp> {
    let hex = body.get(..12)?;
    if body.len() != 26 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut time = u64::from_str_radix(hex, 16).ok()?;
    if descending {
        time = !time & TIME_MASK;
    }
    let span = 1_i64 << TIME_BITS;
    let now = Stamp::at(now).0;
    let base = now - now.rem_euclid(span) + i64::try_from(time).ok()?;
    [base - span, base, base + span].into_iter().min_by_key(|at| (at - now).abs()).map(Stamp)
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, descending: $descending:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The prefix of ids of this kind, without the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// Mints an id above everything that `mint` has seen.
            #[must_use]
            pub fn mint(mint: &mut IdMint) -> Self {
                let time = mint.next();
                Self(mint.render($prefix, if $descending { !time & TIME_MASK } else { time }))
            }

            /// Returns the id's text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Returns the stamp in the id that is nearest to `now`; `None` if a client chose an id without one.
            #[must_use]
            pub fn stamp(&self, now: TimestampMs) -> Option<Stamp> {
                stamp_near(&self.0[$prefix.len() + 1..], now, $descending)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let body = text
                    .strip_prefix($prefix)
                    .and_then(|rest| rest.strip_prefix('_'))
                    .ok_or(IdError::Prefix($prefix))?;
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
                if body.is_empty() || body.len() > MAX_BODY || !body.bytes().all(plain) {
                    return Err(IdError::Form);
                }
                Ok(Self(text.to_owned()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": concat!("^", $prefix, "_") })
            }
        }
    };
}

text_id!(/// A project of one organisation, with its Locations and sessions.
    ProjectId, "prj", descending: false);
text_id!(/// A Location: one workspace, which sessions may share; leased as a whole.
    LocationId, "loc", descending: false);
text_id!(/// A session. Counts down: the newest sorts first.
    SessionId, "ses", descending: true);
text_id!(/// A message of a session; a prompt has its message's id from admission on.
    MessageId, "msg", descending: false);
text_id!(/// A part of a message.
    PartId, "prt", descending: false);
text_id!(/// A durable event.
    EventId, "evt", descending: false);
text_id!(/// A Provider Turn.
    TurnId, "trn", descending: false);
text_id!(/// A physical attempt: one wire request of a Provider Turn.
    AttemptId, "att", descending: false);
text_id!(/// A credential for a model provider.
    CredentialId, "crd", descending: false);
text_id!(/// A sign-in at a model provider.
    SignInId, "con", descending: false);
text_id!(/// A permission that is asked for, as clients name it.
    PermissionId, "per", descending: false);
text_id!(/// Questions of the model, as clients name them.
    QuestionId, "que", descending: false);
text_id!(/// A tool call, by our id; the model's own id for it may repeat.
    CallId, "call", descending: false);
text_id!(/// A repository that an organisation works on.
    RepositoryId, "rep", descending: false);
text_id!(/// A patch or a bundle of a session that somebody has asked for.
    OutId, "out", descending: false);
text_id!(/// A pack of git objects that somebody has sent.
    UploadId, "upl", descending: false);

text_id!(/// A person of one organisation.
    UserId, "usr", descending: false);
text_id!(/// A service account: something that works for an organisation and is no person.
    ServiceId, "svc", descending: false);
text_id!(/// A key of a person or a service account. Its secrets are not part of it.
    KeyId, "key", descending: false);
text_id!(/// A login of a person in a browser.
    LoginId, "lgn", descending: false);
text_id!(/// A connection of an organisation to an identity provider.
    IdpId, "idp", descending: false);
text_id!(/// An alert that every owner of an organisation has.
    AlertId, "alr", descending: false);

/// An organisation: the tenant that owns every other row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OrgId(pub Uuid);

impl OrgId {
    /// The organisation that a first boot creates.
    pub const FIRST: Self = Self(Uuid::from_u128(0x0000_0000_0000_4000_8000_0000_0000_0001));

    /// Returns a random organisation id.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for OrgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for OrgId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: TimestampMs = 1_795_293_590_662;

    #[test]
    fn ids_ascend_with_their_mint_and_sessions_descend() {
        let mut mint = IdMint::after(Stamp::default(), NOW);
        let first = MessageId::mint(&mut mint);
        let second = MessageId::mint(&mut mint);
        assert!(first < second, "{first} {second}");
        let older = SessionId::mint(&mut mint);
        let newer = SessionId::mint(&mut mint);
        assert!(newer < older, "{newer} {older}");
    }

    #[test]
    fn a_mint_never_goes_below_what_a_faster_clock_already_used() {
        let ahead = Stamp::at(NOW + 5_000);
        let mut mint = IdMint::after(ahead, NOW);
        let id = EventId::mint(&mut mint);
        assert!(id.stamp(NOW).expect("minted ids have a stamp") > ahead);
    }

    #[test]
    fn a_stock_clients_id_reads_back_as_its_time() {
        let id: MessageId = "msg_1ffd63486001bvo1nLaYQ4VT9z".parse().expect("a stock id");
        assert_eq!(id.stamp(NOW).expect("a stamp").millis(), NOW);
        let session: SessionId = "ses_e0029d003ffe5DjGKNpyrFZ3K2".parse().expect("a stock id");
        assert_eq!(session.stamp(NOW).expect("a stamp").millis(), 1_795_293_589_500);
    }

    #[test]
    fn a_seeded_mint_repeats_itself_and_another_seed_gives_other_ids() {
        let minted = |seed| {
            let mut mint = IdMint::seeded(Stamp::default(), NOW, seed);
            [MessageId::mint(&mut mint), MessageId::mint(&mut mint)]
        };
        assert_eq!(minted(7), minted(7));
        assert_ne!(minted(7)[0], minted(8)[0]);
        assert!(minted(7)[0].stamp(NOW).is_some());
    }

    #[test]
    fn ids_of_another_kind_or_form_are_refused() {
        assert_eq!("ses_x".parse::<MessageId>(), Err(IdError::Prefix("msg")));
        assert_eq!("msg_".parse::<MessageId>(), Err(IdError::Form));
        assert_eq!("msg_a b".parse::<MessageId>(), Err(IdError::Form));
        assert_eq!(format!("msg_{}", "a".repeat(65)).parse::<MessageId>(), Err(IdError::Form));
    }

    proptest::proptest! {
        #[test]
        fn a_stamp_survives_the_wrap_of_its_48_bits(ms in 1_000_000_000_000_i64..4_000_000_000_000) {
            let mut mint = IdMint::after(Stamp::default(), ms);
            let id = MessageId::mint(&mut mint);
            proptest::prop_assert_eq!(id.stamp(ms).map(Stamp::millis), Some(ms));
        }
    }
}
