//! Who may use which route: the whole table, compared with a committed snapshot, so that a change of access is a line in
//! a diff.

use std::fmt::Write as _;

use access::OrgRole;
use anyhow::Result;
use api::{policies, recent_routes};
use http::{Method, StatusCode};

use crate::logins::{Browser, person};
use crate::world::{World, request, send};

/// Fills the parameters of a path with ids that nothing has.
pub(crate) fn filled(path: &str) -> String {
    let one = |step: &str| match step {
        "{project}" => "prj_none".to_owned(),
        "{session}" => "ses_none".to_owned(),
        "{message}" => "msg_none".to_owned(),
        "{api_key}" => "key_none".to_owned(),
        "{user}" => "usr_none".to_owned(),
        "{idp}" => "idp_none".to_owned(),
        step => step.trim_matches(['{', '}', '*']).to_owned(),
    };
    path.split('/').map(one).collect::<Vec<_>>().join("/")
}

/// Says in a few letters how far a request came.
fn seen(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "401",
        StatusCode::FORBIDDEN => "403",
        status if status.is_server_error() => "5xx",
        _ => "in",
    }
}

#[test]
fn every_open_route_has_its_reason() {
    let open = policies().into_iter().filter_map(|(method, path, policy)| {
        let why = policy.err()?;
        Some(format!("{method} {path}: {why}\n"))
    });
    insta::assert_snapshot!("open", open.collect::<String>());
}

// Attack 19 of identity, and requirement 1 of the security review.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_route_lets_in_whom_the_snapshot_says() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let mut people = Vec::new();
    for role in [OrgRole::Owner, OrgRole::Admin, OrgRole::Member, OrgRole::Viewer] {
        let person = person(&world, role.as_str(), role).await?;
        let browser = Browser::by_key(&gateway, &person.key).await?;
        people.push((role, person, browser));
    }
    let mut lines = Vec::new();
    let recent = recent_routes();
    for (method, path, policy) in policies() {
        let target = filled(path);
        let need = policy.map_or("open", access::Need::as_str);
        let lately = if recent.contains(&(method.clone(), path)) { ", proved lately" } else { "" };
        let mut line = format!("{method} {path}: {need}{lately}:");
        for (role, person, browser) in &mut people {
            let by_key = send(&gateway, request(method.as_str(), &target, &person.key, None)).await;
            if (&method, path) == (&Method::DELETE, "/platform/login") {
                *browser = Browser::by_key(&gateway, &person.key).await?; // the key has ended all logins
            }
            let by_cookie = send(&gateway, browser.request(method.as_str(), &target, None)).await;
            if path == "/platform/logout" {
                *browser = Browser::by_key(&gateway, &person.key).await?;
            }
            write!(line, " {role} {} {};", seen(by_key.status()), seen(by_cookie.status()))?;
        }
        let nobody = send(&gateway, request(method.as_str(), &target, "", None)).await;
        writeln!(line, " none {}", seen(nobody.status()))?;
        lines.push((path, line));
        assert!(method != Method::HEAD, "the table has no such line");
    }
    // By path: a line that moves within the table changes nobody's access.
    lines.sort();
    let mut matrix = String::from("route: need: role by key, by cookie\n");
    matrix.extend(lines.into_iter().map(|(_, line)| line));
    assert!(!matrix.contains("5xx"), "{matrix}");
    insta::assert_snapshot!("matrix", matrix);
    Ok(())
}
