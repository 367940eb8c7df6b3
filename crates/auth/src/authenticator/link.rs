//! Logins that begin with a one-time link, behind the same bounds as unknown keys.

use std::net::IpAddr;

use domain::{OrgId, UserId};
use store::{LinkTaken, StoreError};

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
    /// The look-up failed. Retry.
    #[error("the login link could not be checked")]
    Unavailable(#[source] StoreError),
    /// It is not looked up now.
    #[error(transparent)]
    PutOff(#[from] PutOff),
}

impl Authenticator {
    /// Uses a login link up. Unknown ones count like unknown keys: an address that shows many is put off before anything
    /// is looked up. Returns who logs in.
    ///
    /// # Errors
    /// [`LinkError`]: the link is no good, or cannot be checked now.
    pub async fn follow(
        &self,
        text: &str,
        peer: Option<IpAddr>,
    ) -> Result<(OrgId, UserId), LinkError> {
        let token = Token::read(text).ok_or(LinkError::Unknown)?;
        let _place = self.place(peer).await?;
        let (org, now) = (token.org(), self.clock.now_ms());
        let (id, hash) = (token.id().to_owned(), token.hash().to_vec());
        let taken = self.store.take_login_link(org, id, hash, now).await;
        match taken.map_err(LinkError::Unavailable)? {
            LinkTaken::Good(user) => Ok((org, user)),
            LinkTaken::Used => Err(LinkError::Used),
            LinkTaken::Expired => Err(LinkError::Expired),
            LinkTaken::Unknown => {
                self.misses().note(peer, self.clock.monotonic());
                Err(LinkError::Unknown)
            }
        }
    }
}
