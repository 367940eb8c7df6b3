//! The caller and their alerts, the people of the organisation, and keys.

use access::Need::{MeManage, MeRead, PeopleManage, PeopleRead};

use super::{delete, get, patch, post};
use crate::surface::native::{alerts, keys, me, people};
use crate::table::policy::Policy::Needs;
use crate::table::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        get(
            "/platform/me",
            Needs(MeRead),
            "me.get",
            "Say who one is, and what one may do",
            me::show,
        ),
        patch("/platform/me", Needs(MeManage), "me.change", "Give oneself a name", me::change),
        get(
            "/platform/alert",
            Needs(MeRead),
            "alert.list",
            "List what the caller was told of as an owner",
            alerts::list,
        ),
        post(
            "/platform/alert/{alert}/read",
            Needs(MeManage),
            "alert.read",
            "Note that the caller has read an alert",
            alerts::read,
        ),
        get(
            "/platform/user",
            Needs(PeopleRead),
            "user.list",
            "List the people of the organisation",
            people::list,
        ),
        patch(
            "/platform/user/{user}",
            Needs(PeopleManage),
            "user.change",
            "Change a person's role, or disable them",
            people::change,
        ),
        get(
            "/platform/key",
            Needs(MeRead),
            "key.list",
            "List keys, without their secrets",
            keys::list,
        ),
        post("/platform/key", Needs(MeManage), "key.create", "Make a key", keys::create),
        post(
            "/platform/key/{api_key}/rotate",
            Needs(MeManage),
            "key.rotate",
            "Give a key a second secret; the first works for a while",
            keys::rotate,
        ),
        delete(
            "/platform/key/{api_key}",
            Needs(MeManage),
            "key.revoke",
            "Revoke a key",
            keys::revoke,
        ),
    ]
}
