//! Filters of lists of sessions, in both dialects.

use anyhow::Result;
use axum::Router;
use http::StatusCode;
use serde_json::{Value, json};

use crate::world::{World, call, json as json_of, ok, request, send};

/// A page of the platform's list: the sessions' ids, and the next page's cursor.
async fn page(world: &World, gateway: &Router, query: &str) -> (Vec<String>, Option<String>) {
    let path = format!("/platform/session?{query}");
    let answer = send(gateway, request("GET", &path, &world.key, None)).await;
    assert_eq!(answer.status(), StatusCode::OK, "{path}");
    let next = answer.headers().get("x-next-cursor");
    let next = next.map(|next| next.to_str().expect("visible").to_owned());
    (ids(&json_of(answer).await), next)
}

fn ids(list: &Value) -> Vec<String> {
    let list = list.get("data").unwrap_or(list).as_array().expect("a list");
    list.iter().map(|session| session["id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_both_dialects_are_filtered_where_the_sessions_are() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let below = format!("{}/sub", world.path());
    std::fs::create_dir(&below)?;
    let mut made = Vec::new();
    for (id, title, directory, parent) in [
        ("ses_a", "Fix the Parser", world.path(), None),
        ("ses_b", "100% done", world.path(), None),
        ("ses_c", "Child", world.path(), Some("ses_a")),
        ("ses_d", "Another parser", below.clone(), None),
    ] {
        let path = format!("/session?directory={directory}");
        let mut body = json!({ "id": id, "title": title });
        if let Some(parent) = parent {
            body["parentID"] = parent.into();
        }
        made.push(ok(&gateway, "POST", &path, &world.key, Some(body)).await);
        tokio::time::sleep(std::time::Duration::from_millis(2)).await; // the next is newer
    }
    let project = made[0]["projectID"].as_str().unwrap_or_default().to_owned();
    let since = made[3]["time"]["created"].clone();
    let root = world.path();
    for (query, expected) in [
        ("search=PARSER".to_owned(), "ses_d ses_a"),
        ("search=0%25+d".to_owned(), "ses_b"),
        (format!("since={since}"), "ses_d"),
        (format!("project={project}"), "ses_c ses_b ses_a"),
        (format!("directory={root}"), "ses_c ses_b ses_a"),
        (format!("directory={below}/"), "ses_d"),
        ("directory=/not/there".to_owned(), ""),
        (format!("directory={below}&project={project}"), ""),
        (format!("directory={root}&roots=true"), "ses_b ses_a"),
        ("parent=ses_a".to_owned(), "ses_c"),
        ("parent=ses_nobody".to_owned(), ""),
    ] {
        let (ids, next) = page(&world, &gateway, &query).await;
        assert_eq!((ids.join(" ").as_str(), next), (expected, None), "{query}");
    }
    let within = format!("/project/{project}/session?search=p&roots=true");
    assert_eq!(ids(&ok(&gateway, "GET", &within, &world.key, None).await), ["ses_a"]);
    for (path, expected) in [
        (format!("/session?directory={root}&search=parser"), "ses_a"),
        (format!("/session?directory={root}&scope=project&roots=true"), "ses_b ses_a"),
        (format!("/session?directory={root}&path=sub"), ""),
        (format!("/session?start={since}"), "ses_d"),
        ("/experimental/session?roots=true&search=parser&limit=1".to_owned(), "ses_d"),
        (format!("/api/session?project={project}&search=child"), "ses_c"),
        (format!("/api/session?project={project}&directory={root}"), "ses_c ses_b ses_a"),
        (format!("/api/session?project={project}&subpath=sub"), ""),
    ] {
        let answer = ok(&gateway, "GET", &path, &world.key, None).await;
        assert_eq!(ids(&answer).join(" "), expected, "{path}");
    }
    // Page by page.
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let (ids, next) = page(&world, &gateway, &format!("limit=3{cursor}")).await;
        seen.extend(ids);
        match next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen.join(" "), "ses_d ses_c ses_b ses_a");
    for (query, named) in [
        ("cursor=x".to_owned(), "cursor"),
        (format!("search={}", "x".repeat(201)), "search"),
        (format!("parent=ses_a&directory={root}"), "parent"),
        ("project=ses_a".to_owned(), "ses_a"),
        ("limit=many".to_owned(), "limit"),
    ] {
        let path = format!("/platform/session?{query}");
        let (status, answer) = call(&gateway, "GET", &path, &world.key, None).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{query}: {answer}");
        assert!(answer.to_string().contains(named), "{query}: {answer}");
    }
    Ok(())
}
