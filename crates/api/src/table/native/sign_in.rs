//! Ways to sign in: links, keys, and connections to identity providers.

use access::Need::{MeManage, MeRead, SsoManage};

use super::{delete, get, patch, post};
use crate::surface::native::{login, sso, sso_visit};
use crate::table::policy::Policy::{self, Needs, Open, Visited};
use crate::table::route::Route;

/// Why nobody is proved where a login begins.
const LOGIN: Policy = Open("a login begins here, with a secret in the body");

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/platform/auth", LOGIN, "auth.ways", "List the ways to sign in", login::ways),
        post(
            "/platform/login/link",
            LOGIN,
            "login.link",
            "Begin a browser's login with a one-time link",
            login::by_link,
        ),
        post(
            "/platform/login/key",
            LOGIN,
            "login.key",
            "Begin a browser's login with a person's key",
            login::by_key,
        ),
        post(
            "/platform/login",
            Needs(MeManage),
            "login.create",
            "Make a one-time link that logs the caller in",
            login::link,
        ),
        post("/platform/logout", Needs(MeRead), "login.end", "End the login", login::logout),
        Route::get(
            "/auth/start/{idp}",
            Visited("a sign-in begins here; it gives nothing but a way to the provider"),
            sso_visit::start,
        ),
        Route::get(
            "/auth/callback/{idp}",
            Visited(
                "a browser comes back here with a state and a code, which work once and for it",
            ),
            sso_visit::back,
        ),
        get(
            "/platform/sso",
            Needs(SsoManage),
            "sso.list",
            "List the connections to identity providers",
            sso::list,
        ),
        post(
            "/platform/sso",
            Needs(SsoManage),
            "sso.create",
            "Make a connection to an identity provider",
            sso::create,
        ),
        get("/platform/sso/{idp}", Needs(SsoManage), "sso.get", "Show a connection", sso::show),
        patch(
            "/platform/sso/{idp}",
            Needs(SsoManage),
            "sso.change",
            "Change a connection; its issuer never changes",
            sso::change,
        ),
        delete(
            "/platform/sso/{idp}",
            Needs(SsoManage),
            "sso.delete",
            "Delete a connection; logins that began there end",
            sso::remove,
        ),
        post(
            "/platform/sso/{idp}/test",
            Needs(SsoManage),
            "sso.test",
            "Make the address of a test, which logs nobody in",
            sso::test,
        ),
        post(
            "/platform/sso/{idp}/activate",
            Needs(SsoManage),
            "sso.activate",
            "Let people sign in by a connection that was tested",
            sso::activate,
        ),
        post(
            "/platform/sso/{idp}/link",
            Needs(MeManage),
            "sso.link",
            "Make the provider's account one of whoever is logged in",
            sso::link,
        ),
    ]
}
