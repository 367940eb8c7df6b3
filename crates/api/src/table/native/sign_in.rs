//! Ways to sign in: links, keys, recovery codes, and connections to identity providers.

use access::Need::{MeManage, MeRead, OwnerManage, SsoManage};

use super::{delete, get, patch, post};
use crate::surface::native::{login, own_logins, recovery, sso, sso_visit};
use crate::table::policy::Policy::{self, Needs, NeedsRecent, Open, Visited};
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
            NeedsRecent(MeManage),
            "login.create",
            "Make a one-time link that logs the caller in",
            login::link,
        ),
        post(
            "/platform/login/recovery",
            LOGIN,
            "login.recovery",
            "Begin an owner's login with a recovery code, which works once",
            login::by_code,
        ),
        get(
            "/platform/login",
            Needs(MeRead),
            "login.list",
            "List the logins of whoever asks",
            own_logins::list,
        ),
        delete(
            "/platform/login",
            Needs(MeManage),
            "login.end_others",
            "End all logins of whoever asks but the one that asks",
            own_logins::end_others,
        ),
        delete(
            "/platform/login/{login}",
            Needs(MeManage),
            "login.end_one",
            "End a login of whoever asks",
            own_logins::end,
        ),
        get(
            "/platform/recovery",
            Needs(OwnerManage),
            "recovery.get",
            "Say how many recovery codes an owner has left",
            recovery::show,
        ),
        post(
            "/platform/recovery",
            NeedsRecent(OwnerManage),
            "recovery.create",
            "Make recovery codes, shown once, in place of those before",
            recovery::make,
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
            NeedsRecent(SsoManage),
            "sso.create",
            "Make a connection to an identity provider",
            sso::create,
        ),
        get("/platform/sso/{idp}", Needs(SsoManage), "sso.get", "Show a connection", sso::show),
        patch(
            "/platform/sso/{idp}",
            NeedsRecent(SsoManage),
            "sso.change",
            "Change a connection; its issuer never changes",
            sso::change,
        ),
        delete(
            "/platform/sso/{idp}",
            NeedsRecent(SsoManage),
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
            NeedsRecent(SsoManage),
            "sso.activate",
            "Let people sign in by a connection that was tested",
            sso::activate,
        ),
        post(
            "/platform/sso/{idp}/link",
            NeedsRecent(MeManage),
            "sso.link",
            "Make the provider's account one of whoever is logged in",
            sso::link,
        ),
    ]
}
