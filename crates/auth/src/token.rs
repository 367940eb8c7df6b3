//! Cookies of logins, and tokens of login links: they name their organisation and row, so that no look-up goes across
//! organisations.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::{LoginId, OrgId, TimestampMs, UserId};
use store::{BeganBy, LinkMaker, NewLogin, NewLoginLink};
use uuid::Uuid;

use crate::hash;
use crate::key::random;

/// 62^20 > 2^119.
const ID_CHARS: usize = 20;
/// 62^40 > 2^238.
const SECRET_CHARS: usize = 40;
/// How long a login lives at most.
pub const LOGIN_LIFE: TimestampMs = 7 * 24 * 60 * 60 * 1000;
/// How long a login link works.
pub const LINK_LIFE: TimestampMs = 60 * 60 * 1000;

/// A cookie or link token: `ORGANISATION.ID.SECRET`. Nothing shows its text but [`Token::text`].
#[derive(Clone)]
pub struct Token {
    org: OrgId,
    id: String,
    text: String,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token")
            .field("org", &self.org)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Token {
    fn make(org: OrgId, id: String) -> Self {
        let named = URL_SAFE_NO_PAD.encode(org.0.as_bytes());
        let text = format!("{named}.{id}.{}", random(SECRET_CHARS));
        Self { org, id, text }
    }

    /// Reads a text; `None` if it cannot be one.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let (org, id, secret) = (parts.next()?, parts.next()?, parts.next()?);
        let plain = |text: &str, count| {
            text.len() == count && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        if parts.next().is_some() || !plain(id, ID_CHARS) || !plain(secret, SECRET_CHARS) {
            return None;
        }
        let org = URL_SAFE_NO_PAD.decode(org).ok()?;
        let org = OrgId(Uuid::from_slice(&org).ok()?);
        Some(Self { org, id: id.to_owned(), text: text.to_owned() })
    }

    /// Generates the cookie of a new login, and the row to store.
    #[must_use]
    pub fn login(org: OrgId, user: UserId, by: BeganBy, now: TimestampMs) -> (Self, NewLogin) {
        let token = Self::make(org, random(ID_CHARS));
        let row = NewLogin {
            id: token.login_id(),
            user,
            hash: token.hash().to_vec(),
            expires_ms: now + LOGIN_LIFE,
            key: None,
            parent: None,
            auth_ms: None,
            by,
            address: None,
            agent: None,
        };
        (token, row)
    }

    /// Generates the next cookie of the same login.
    #[must_use]
    pub fn next(&self) -> Self {
        Self::make(self.org, self.id.clone())
    }

    /// Generates the token of a login link, and the row to store.
    #[must_use]
    pub fn link(
        org: OrgId,
        user: UserId,
        maker: LinkMaker,
        now: TimestampMs,
    ) -> (Self, NewLoginLink) {
        let token = Self::make(org, random(ID_CHARS));
        let (id, hash) = (token.id.clone(), token.hash().to_vec());
        (token, NewLoginLink { id, user, hash, expires_ms: now + LINK_LIFE, maker })
    }

    /// Returns the organisation that it names.
    #[must_use]
    pub fn org(&self) -> OrgId {
        self.org
    }

    /// Returns the id of the row that it names.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the id of the login that it names, if it is a cookie.
    #[must_use]
    pub fn login_id(&self) -> LoginId {
        format!("lgn_{}", self.id).parse().expect("letters and digits")
    }

    /// Returns what is stored of it.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        hash(&self.text)
    }

    /// Returns the secret text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_row_and_reads_back() {
        let user: UserId = "usr_a".parse().expect("an id");
        let (cookie, row) = Token::login(OrgId::FIRST, user.clone(), BeganBy::Link, 5);
        let read = Token::read(cookie.text()).expect("a cookie");
        assert_eq!(
            (read.org(), read.login_id(), read.hash()),
            (OrgId::FIRST, row.id, cookie.hash())
        );
        assert_eq!(row.expires_ms, 5 + LOGIN_LIFE);
        let next = cookie.next();
        assert!(next.id() == cookie.id() && next.text() != cookie.text());
        let (link, _) = Token::link(OrgId::FIRST, user, LinkMaker::Operator, 5);
        assert!(!format!("{link:?}").contains(link.text().rsplit('.').next().expect("a secret")));
    }

    #[test]
    fn what_cannot_be_a_token_is_refused_without_a_look() {
        let user: UserId = "usr_a".parse().expect("an id");
        let text = Token::link(OrgId::FIRST, user, LinkMaker::Operator, 5).0.text().to_owned();
        for wrong in ["", "a.b.c", &text[1..], &text[..text.len() - 1], &format!("{text}.x")] {
            assert!(Token::read(wrong).is_none(), "{wrong}");
        }
    }
}
