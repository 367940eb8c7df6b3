//! Logins that begin with a recovery code, behind the same bounds as unknown keys.

use std::net::IpAddr;

use domain::{OrgId, UserId};
use store::{CodeTaken, ShownSecret, StoreError};

use super::{Authenticator, PutOff};
use crate::RecoveryCode;

/// The reason why a recovery code begins no login.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    /// It cannot be a code.
    #[error("the recovery code is mistyped")]
    Form,
    /// It was used before.
    #[error("the recovery code was used before")]
    Used,
    /// Its person is disabled, or no owner any more.
    #[error("the recovery code is of somebody who is no owner any more")]
    NoOwner,
    /// There is no such code.
    #[error("there is no such recovery code")]
    Unknown,
    /// The look-up failed. Retry.
    #[error("the recovery code could not be checked")]
    Unavailable(#[source] StoreError),
    /// It is not looked up now.
    #[error(transparent)]
    PutOff(#[from] PutOff),
}

/// The owner who got in with a recovery code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The organisation.
    pub org: OrgId,
    /// The owner.
    pub user: UserId,
    /// How many codes they have left.
    pub left: i64,
}

impl Authenticator {
    /// Uses a recovery code up. Unknown ones count like unknown keys: those of an address that shows many are put off.
    /// `about` writes the alert to the owners from the number of codes that are left.
    ///
    /// # Errors
    /// [`CodeError`]: the code is no good, or cannot be checked now.
    pub async fn recover(
        &self,
        text: &str,
        peer: Option<IpAddr>,
        about: impl FnOnce(i64) -> String + Send + 'static,
    ) -> Result<Recovered, CodeError> {
        let code = RecoveryCode::read(text).ok_or(CodeError::Form)?;
        let hash = code.hash().to_vec();
        self.refuse_repeated(&code.hash())?;
        let missed = |error| {
            self.note_unknown(code.hash(), peer);
            Err(error)
        };
        let Some(_place) = self.place(peer, ShownSecret::Code(hash.clone())).await? else {
            return missed(CodeError::Unknown);
        };
        let asked = self.clock.monotonic();
        let org = match self.store.organisation_of_code(hash.clone()).await {
            Ok(org) => org,
            Err(StoreError::NotFound) => return missed(CodeError::Unknown),
            Err(error) if error.is_crowded() => return Err(self.why_late(asked).into()),
            Err(error) => return Err(CodeError::Unavailable(error)),
        };
        self.note_answer();
        let taken = self.store.take_recovery_code(org, hash, about, self.clock.now_ms()).await;
        match taken.map_err(CodeError::Unavailable)? {
            CodeTaken::Good { user, left } => Ok(Recovered { org, user, left }),
            CodeTaken::Used => missed(CodeError::Used),
            CodeTaken::NoOwner => missed(CodeError::NoOwner),
            CodeTaken::Unknown => missed(CodeError::Unknown),
        }
    }
}
