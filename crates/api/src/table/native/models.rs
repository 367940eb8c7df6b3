//! Models, their providers, and credentials for them.

use access::Need::{ProviderManage, SessionRead};

use super::{delete, get, patch, post, put};
use crate::surface::native::{credentials, models, oauth, providers};
use crate::table::policy::Policy::Needs;
use crate::table::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        get(
            "/platform/model",
            Needs(SessionRead),
            "model.list",
            "List the models that may be used, with limits and prices",
            models::list,
        ),
        get(
            "/platform/provider",
            Needs(ProviderManage),
            "provider.list",
            "List the settings of model providers",
            providers::list,
        ),
        get(
            "/platform/provider/{provider}",
            Needs(ProviderManage),
            "provider.get",
            "Show the settings of a model provider",
            providers::show,
        ),
        put(
            "/platform/provider/{provider}",
            Needs(ProviderManage),
            "provider.set",
            "Set a model provider up; `*` stands for all",
            providers::set,
        ),
        delete(
            "/platform/provider/{provider}",
            Needs(ProviderManage),
            "provider.delete",
            "Forget the settings of a model provider",
            providers::remove,
        ),
        get(
            "/platform/credential",
            Needs(ProviderManage),
            "credential.list",
            "List credentials, without their secrets",
            credentials::list,
        ),
        post(
            "/platform/credential",
            Needs(ProviderManage),
            "credential.create",
            "Keep a credential for a model provider",
            credentials::add,
        ),
        patch(
            "/platform/credential/{credential}",
            Needs(ProviderManage),
            "credential.change",
            "Change a credential",
            credentials::change,
        ),
        delete(
            "/platform/credential/{credential}",
            Needs(ProviderManage),
            "credential.delete",
            "Forget a credential",
            credentials::remove,
        ),
        post(
            "/platform/oauth/{provider}",
            Needs(ProviderManage),
            "oauth.begin",
            "Begin a sign-in at a model provider",
            oauth::begin,
        ),
        get(
            "/platform/oauth/{provider}/{attempt}",
            Needs(ProviderManage),
            "oauth.get",
            "Show how far a sign-in is",
            oauth::show,
        ),
        delete(
            "/platform/oauth/{provider}/{attempt}",
            Needs(ProviderManage),
            "oauth.delete",
            "Give a sign-in up",
            oauth::remove,
        ),
        post(
            "/platform/oauth/{provider}/{attempt}/complete",
            Needs(ProviderManage),
            "oauth.complete",
            "Complete a sign-in with what the browser came back with",
            oauth::complete,
        ),
    ]
}
