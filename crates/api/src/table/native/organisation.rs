//! The organisation's instructions, settings, usage and limits of cost.

use access::Need::SettingsManage;

use super::{get, put};
use crate::surface::native::{instructions, settings, spending, usage};
use crate::table::policy::Policy::Needs;
use crate::table::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        get(
            "/platform/instructions",
            Needs(SettingsManage),
            "instructions.get",
            "Show the organisation's instructions",
            instructions::show,
        ),
        put(
            "/platform/instructions",
            Needs(SettingsManage),
            "instructions.set",
            "Set the organisation's instructions; an empty text removes them",
            instructions::set,
        ),
        get(
            "/platform/limit",
            Needs(SettingsManage),
            "limit.list",
            "Show the monthly limits of cost, and what is spent of them",
            spending::list,
        ),
        put(
            "/platform/limit",
            Needs(SettingsManage),
            "limit.set",
            "Set a monthly limit of cost, or remove it",
            spending::set,
        ),
        get(
            "/platform/usage",
            Needs(SettingsManage),
            "usage.get",
            "Show sums of usage: of a time, in steps and parts",
            usage::show,
        ),
        get(
            "/platform/settings",
            Needs(SettingsManage),
            "settings.get",
            "Show the organisation's settings, with remarks",
            settings::show,
        ),
        put(
            "/platform/settings",
            Needs(SettingsManage),
            "settings.set",
            "Set the organisation's settings; an empty text removes them",
            settings::set,
        ),
    ]
}
