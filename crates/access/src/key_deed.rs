use crate::{Actor, Decision, Need, OrgRole, Standing, decide};

/// A deed on a key that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyDeed {
    /// Takes a new secret of it, and so acts as its owner.
    Rotate,
    /// Ends it.
    Revoke,
}

/// The answer of [`decide_key`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyDecision {
    /// It may be done.
    Yes,
    /// The key is another's, and whoever acts manages no keys: for them it is not there.
    Hidden,
    /// A secret of it would act as another person.
    AnotherPerson,
    /// Only an owner ends the key of an owner.
    OwnerOnly,
}

/// Decides whether `standing` may do `deed` to a key of `owner`, whose role is `role`. Nobody gets a secret that stands
/// for another person, and nobody below an owner shuts an owner out.
#[must_use]
pub fn decide_key(standing: &Standing, deed: KeyDeed, owner: &Actor, role: OrgRole) -> KeyDecision {
    if *owner == standing.actor {
        return KeyDecision::Yes;
    }
    if !standing.may(Need::KeyManage) {
        return KeyDecision::Hidden;
    }
    match (owner, deed) {
        (Actor::Service(_), KeyDeed::Rotate | KeyDeed::Revoke) => KeyDecision::Yes,
        (Actor::User(_), KeyDeed::Rotate) => KeyDecision::AnotherPerson,
        (Actor::User(_), KeyDeed::Revoke)
            if role == OrgRole::Owner && decide(standing, Need::OwnerManage) != Decision::Yes =>
        {
            KeyDecision::OwnerOnly
        }
        (Actor::User(_), KeyDeed::Revoke) => KeyDecision::Yes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scopes;

    // Finding security-3 C1: who acts was compared with the key's scopes, and never with its person.
    #[test]
    fn nobody_gets_a_secret_of_another_person() {
        use KeyDecision::{AnotherPerson, Hidden, OwnerOnly, Yes};
        let actor = |id: &str| id.parse::<Actor>().expect("an id");
        let expected = [
            (OrgRole::Viewer, [Hidden, Hidden], [Hidden, Hidden], [Hidden, Hidden]),
            (OrgRole::Member, [Hidden, Hidden], [Hidden, Hidden], [Hidden, Hidden]),
            (OrgRole::Admin, [AnotherPerson, Yes], [AnotherPerson, OwnerOnly], [Yes, Yes]),
            (OrgRole::Owner, [AnotherPerson, Yes], [AnotherPerson, Yes], [Yes, Yes]),
        ];
        for (role, others, owners, services) in expected {
            let standing = Standing { actor: actor("usr_a"), role, scopes: Scopes::all() };
            let both = |owner: &str, role| {
                [KeyDeed::Rotate, KeyDeed::Revoke]
                    .map(|deed| decide_key(&standing, deed, &actor(owner), role))
            };
            assert_eq!(both("usr_a", role), [Yes, Yes], "{role}'s own");
            assert_eq!(both("usr_b", OrgRole::Admin), others, "{role}, another's");
            assert_eq!(both("usr_o", OrgRole::Owner), owners, "{role}, an owner's");
            assert_eq!(both("svc_s", OrgRole::Owner), services, "{role}, a service's");
        }
        // A confined key of an owner is no owner, and the service account of an admin is no person.
        let scopes = Scopes::parse(["key.manage"]).expect("a scope");
        let confined = Standing { actor: actor("usr_a"), role: OrgRole::Owner, scopes };
        let of_owner = decide_key(&confined, KeyDeed::Revoke, &actor("usr_o"), OrgRole::Owner);
        assert_eq!(of_owner, OwnerOnly);
        let service =
            Standing { actor: actor("svc_s"), role: OrgRole::Owner, scopes: Scopes::all() };
        let of_owner = decide_key(&service, KeyDeed::Revoke, &actor("usr_o"), OrgRole::Owner);
        assert_eq!(of_owner, OwnerOnly);
    }
}
