//! Properties of the policy: they hold for every role, need and set of scopes.

use access::{
    Actor, Bundle, Decision, Missing, Need, OrgRole, POLICY, Scopes, Standing, decide, policy_table,
};
use proptest::prelude::*;

fn standing(actor: &str, role: OrgRole, scopes: Scopes) -> Standing {
    Standing { actor: actor.parse().expect("an actor"), role, scopes }
}

fn any_role() -> impl Strategy<Value = OrgRole> {
    prop::sample::select(OrgRole::ALL.to_vec())
}

fn any_scopes() -> impl Strategy<Value = Vec<&'static str>> {
    let mut names: Vec<&str> = Need::ALL.iter().map(|need| need.as_str()).collect();
    names.extend(["*", "read", "prompt", "administer", "of.a.newer.build"]);
    prop::collection::vec(prop::sample::select(names), 0..4)
}

#[test]
fn every_need_has_one_row() {
    let rows: Vec<Need> = POLICY.iter().map(|(need, _)| *need).collect();
    assert_eq!(rows, Need::ALL);
}

proptest! {
    #[test]
    fn a_lower_role_never_may_more(one in any_role(), other in any_role(), scopes in any_scopes()) {
        let (low, high) = (one.min(other), one.max(other));
        let scopes = Scopes::read(scopes);
        for need in Need::ALL {
            let may = |role| standing("usr_a", role, scopes).may(need);
            prop_assert!(!may(low) || may(high), "{need}");
        }
    }

    #[test]
    fn a_key_never_may_more_than_its_owner(role in any_role(), scopes in any_scopes()) {
        let key = Scopes::read(scopes);
        for need in Need::ALL {
            let owner = standing("usr_a", role, Scopes::all()).may(need);
            prop_assert!(!standing("usr_a", role, key).may(need) || owner, "{need}");
        }
    }

    #[test]
    fn a_service_never_may_more_than_an_admin(role in any_role(), scopes in any_scopes()) {
        let scopes = Scopes::read(scopes);
        for need in Need::ALL {
            let admin = standing("usr_a", OrgRole::Admin, scopes).may(need);
            prop_assert!(!standing("svc_a", role, scopes).may(need) || admin, "{need}");
        }
    }

    #[test]
    fn more_scopes_never_take_anything_away(role in any_role(), one in any_scopes(), two in any_scopes()) {
        let (few, more) = (Scopes::read(one.clone()), Scopes::read(one.into_iter().chain(two)));
        prop_assert!(more.contains(few));
        for need in Need::ALL {
            prop_assert!(!standing("usr_a", role, few).may(need) || standing("usr_a", role, more).may(need));
        }
    }
}

#[test]
fn a_refusal_says_which_of_role_and_scope_is_missing() {
    let viewer = standing("usr_a", OrgRole::Viewer, Scopes::all());
    let missing = Missing::Role { has: OrgRole::Viewer, wants: OrgRole::Member };
    assert_eq!(
        decide(&viewer, Need::SessionPrompt),
        Decision::Forbidden(Need::SessionPrompt, missing)
    );
    let reader = standing("usr_a", OrgRole::Owner, Scopes::read(["read"]));
    let refused = Decision::Forbidden(Need::SessionPrompt, Missing::Scope);
    assert_eq!(decide(&reader, Need::SessionPrompt), refused);
    assert!(reader.may(Need::SessionRead) && !reader.may(Need::SsoManage));
    assert!(!standing("svc_a", OrgRole::Owner, Scopes::all()).may(Need::SsoManage));
    assert!("org_a".parse::<Actor>().is_err());
}

#[test]
fn the_bundles_of_old_keys_mean_what_they_meant() {
    for (name, bundle) in
        [("read", Bundle::Read), ("prompt", Bundle::Prompt), ("administer", Bundle::Administer)]
    {
        let scopes = Scopes::read([name]);
        assert!(Need::ALL.into_iter().all(|need| scopes.has(need) == (need.bundle() == bundle)));
    }
    assert_eq!(Scopes::read(["*"]), Scopes::all());
    assert_eq!(Scopes::read(["reader"]), Scopes::default());
    let error = Scopes::parse(["read", "reader"]).expect_err("no scope").to_string();
    assert!(error.contains("`reader`") && error.contains("session.prompt"), "{error}");
}

#[test]
fn the_policy_in_the_docs_is_the_policy() -> std::io::Result<()> {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let text = std::fs::read_to_string(file)?;
    assert!(
        text.contains(&policy_table()),
        "write this into docs/security.md:\n{}",
        policy_table()
    );
    Ok(())
}
