//! The roles on which a change was allowed. The transaction that makes the change compares them again: between the
//! decision and the write, somebody else may have changed them.

use access::{Actor, OrgRole};
use domain::OrgId;

use crate::StoreError;
use crate::pool::Tx;
use crate::principal::read_role;

/// The roles that a decision saw. A change that names them is refused if they do not hold any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenRoles {
    /// Who makes the change.
    pub maker: Actor,
    /// The role of who makes it. A lower one refuses the change; a higher one may all that this one may.
    pub maker_role: OrgRole,
    /// The role of the person to whom it is done; `None` if the decision does not depend on it.
    pub target_role: Option<OrgRole>,
}

impl SeenRoles {
    /// Proves that the maker is enabled and has its role still.
    ///
    /// # Errors
    /// [`StoreError::RolesChanged`].
    pub(crate) async fn prove_maker(&self, tx: &mut Tx, org: OrgId) -> Result<(), StoreError> {
        let row = sqlx::query!(
            "SELECT role, disabled_ms FROM principal WHERE org_id = $1 AND id = $2",
            org.0,
            self.maker.id(),
        )
        .fetch_optional(&mut **tx)
        .await?;
        let role = match row {
            Some(row) if row.disabled_ms.is_none() => read_role(&row.role)?,
            // The first service account may have no row: it administers.
            None if self.maker.id() == Actor::FIRST_SERVICE => OrgRole::Admin,
            Some(_) | None => return Err(StoreError::RolesChanged),
        };
        if role < self.maker_role { Err(StoreError::RolesChanged) } else { Ok(()) }
    }

    /// Locks the target's row and proves that it has its role still. Passes if the decision does not depend on that.
    ///
    /// # Errors
    /// [`StoreError::RolesChanged`]; [`StoreError::NotFound`] when there is no such person.
    pub(crate) async fn prove_target(
        &self,
        tx: &mut Tx,
        org: OrgId,
        target: &Actor,
    ) -> Result<(), StoreError> {
        let Some(seen) = self.target_role else { return Ok(()) };
        if lock_role(tx, org, target).await? == seen {
            Ok(())
        } else {
            Err(StoreError::RolesChanged)
        }
    }
}

/// Locks the row of a person or service account until the transaction ends, and returns the role.
///
/// # Errors
/// [`StoreError::NotFound`] when there is none.
pub(crate) async fn lock_role(
    tx: &mut Tx,
    org: OrgId,
    actor: &Actor,
) -> Result<OrgRole, StoreError> {
    let role = sqlx::query_scalar!(
        "SELECT role FROM principal WHERE org_id = $1 AND id = $2 FOR NO KEY UPDATE",
        org.0,
        actor.id(),
    );
    read_role(&role.fetch_optional(&mut **tx).await?.ok_or(StoreError::NotFound)?)
}
