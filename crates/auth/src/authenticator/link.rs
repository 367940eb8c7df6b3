//! Logins that begin with a one-time link, behind the same bounds as unknown keys.

use std::net::IpAddr;

use domain::OrgId;
use store::{FollowedLink, LinkTaken, ShownSecret, StoreError};

use super::{Authenticator, PutOff};
use crate::Token;

/// The reason why a link begins no login.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// There is no such link.
    #[error("there is no such login link")]
    Unknown,
    /// It was followed before.
    #[error("the login link was followed before")]
    Used,
    /// It is too old.
    #[error("the login link is too old")]
    Expired,
    /// The key or login that made it has ended.
    #[error("what made the login link has ended")]
    MakerOver,
    /// The look-up failed. Retry.
    #[error("the login link could not be checked")]
    Unavailable(#[source] StoreError),
    /// It is not looked up now.
    #[error(transparent)]
    PutOff(#[from] PutOff),
}

impl Authenticator {
    /// Uses a login link up. Unknown ones count like unknown keys: those of an address that shows many are put off. Returns who
    /// logs in, and what their login is bound to.
    ///
    /// # Errors
    /// [`LinkError`]: the link is no good, or cannot be checked now.
    pub async fn follow(
        &self,
        text: &str,
        peer: Option<IpAddr>,
    ) -> Result<(OrgId, FollowedLink), LinkError> {
        let token = Token::read(text).ok_or(LinkError::Unknown)?;
        self.refuse_repeated(&token.hash())?;
        let (id, hash) = (token.id().to_owned(), token.hash().to_vec());
        let shown = ShownSecret::Link(token.org(), id.clone(), hash.clone());
        let Some(_place) = self.place(peer, shown).await? else {
            self.note_unknown(token.hash(), peer);
            return Err(LinkError::Unknown);
        };
        let (org, now) = (token.org(), self.clock.now_ms());
        let taken = self.store.take_login_link(org, id, hash, now).await;
        let taken = taken.map_err(LinkError::Unavailable)?;
        self.note_answer();
        let refused = match taken {
            LinkTaken::Good(link) => return Ok((org, link)),
            LinkTaken::Used => LinkError::Used,
            LinkTaken::Expired => LinkError::Expired,
            LinkTaken::MakerOver => LinkError::MakerOver,
            LinkTaken::Unknown => LinkError::Unknown,
        };
        self.note_unknown(token.hash(), peer);
        Err(refused)
    }
}
