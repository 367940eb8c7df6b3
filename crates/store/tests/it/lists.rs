//! Lists of sessions: each filter, pages, and how far a page looks.

use domain::{ProjectId, SessionId};
use store::{LOOKED_AT, SessionFilter, SessionPage, SessionsOf};

use crate::world::{World, organisation};

/// Makes `count` sessions: number `n` was created at `n` and changed at `2 * n`, has the title `Title n`, works in
/// `/code/<n % 3>`, and is a child of the first if it is one of `children`. Faster than by events, and no log.
async fn make(world: &World, count: i64, children: &[i64]) {
    sqlx::query(
        "INSERT INTO session_head (org_id, id, incarnation, claim, access_gen, location_id)
         SELECT $1, 'ses_' || n, 1000000 + n, 0, 0, $2 FROM generate_series(1, $3) AS n",
    )
    .bind(world.org.0)
    .bind(world.location.as_str())
    .bind(count)
    .execute(&world.root)
    .await
    .expect("heads");
    sqlx::query(
        "INSERT INTO session (org_id, id, project_id, location_id, directory, title, agent, created_ms, updated_ms,
             projector_version, incarnation, parent_id)
         SELECT $1, 'ses_' || n, $2, $3, '/code/' || n % 3, 'Title ' || n, 'build', n, 2 * n, 0, 1000000 + n,
             CASE WHEN n = ANY ($5) THEN 'ses_1' END
         FROM generate_series(1, $4) AS n",
    )
    .bind(world.org.0)
    .bind(world.project.as_str())
    .bind(world.location.as_str())
    .bind(count)
    .bind(children)
    .execute(&world.root)
    .await
    .expect("sessions");
}

async fn page(world: &World, filter: &SessionFilter, limit: i64) -> SessionPage {
    world.store.sessions(world.org, filter.clone(), limit).await.expect("a list")
}

/// The numbers of the sessions that a filter selects.
async fn numbers(world: &World, filter: SessionFilter) -> Vec<i64> {
    numbers_of(&page(world, &filter, 100).await)
}

fn numbers_of(page: &SessionPage) -> Vec<i64> {
    page.rows.iter().map(|row| row.created_ms).collect()
}

#[tokio::test]
async fn each_filter_leaves_out_what_is_not_like_it() {
    let world = World::new().await;
    make(&world, 12, &[4, 5]).await;
    sqlx::query("UPDATE session SET title = '100% of A_b' WHERE id = 'ses_7'")
        .execute(&world.root)
        .await
        .expect("a title");
    sqlx::query("UPDATE session SET archived_ms = 1 WHERE id IN ('ses_5', 'ses_6')")
        .execute(&world.root)
        .await
        .expect("archived");
    let none = SessionFilter::default;
    let titled = |text: &str| SessionFilter { title: Some(text.into()), ..none() };
    let directory = |directory: &str| SessionFilter::from(SessionsOf::Directory(directory.into()));
    let children = SessionFilter::from(SessionsOf::Parent("ses_1".parse().expect("an id")));
    let elsewhere: ProjectId = "prj_elsewhere".parse().expect("an id");
    let ours = SessionFilter::from(SessionsOf::Project(world.project.clone()));
    for (filter, expected) in [
        (none(), vec![12, 11, 10, 9, 8, 7, 4, 3, 2, 1]),
        (SessionFilter { with_archived: true, ..none() }, (1..=12).rev().collect()),
        (SessionFilter { only_roots: true, ..none() }, vec![12, 11, 10, 9, 8, 7, 3, 2, 1]),
        (SessionFilter { updated_from: Some(20), ..none() }, vec![12, 11, 10]),
        (SessionFilter { updated_before: Some(5), ..none() }, vec![2, 1]),
        (titled("TITLE 1"), vec![12, 11, 10, 1]),
        // No character of it has another meaning.
        (titled("% of a_B"), vec![7]),
        (titled("%"), vec![7]),
        (titled("_"), vec![7]),
        (titled("\\"), vec![]),
        (directory("/code/1"), vec![10, 7, 4, 1]),
        (directory("/code"), vec![]),
        (SessionFilter { below: Some("/code/2".into()), ..ours.clone() }, vec![11, 8, 2]),
        (
            SessionFilter { below: Some("/code".into()), only_roots: true, ..none() },
            vec![12, 11, 10, 9, 8, 7, 3, 2, 1],
        ),
        (SessionFilter { below: Some("/cod".into()), ..none() }, vec![]),
        (ours, vec![12, 11, 10, 9, 8, 7, 4, 3, 2, 1]),
        (SessionFilter { project: Some(elsewhere.clone()), ..directory("/code/1") }, vec![]),
        (SessionsOf::Project(elsewhere).into(), vec![]),
        (children.clone(), vec![4]),
        (SessionFilter { with_archived: true, ..children }, vec![5, 4]),
        (
            SessionFilter { with_archived: true, title: Some("5".into()), ..directory("/code/2") },
            vec![5],
        ),
    ] {
        assert_eq!(numbers(&world, filter.clone()).await, expected, "{filter:?}");
    }
    let (stranger, ..) = organisation(&world.store).await;
    let all = SessionFilter { with_archived: true, ..none() };
    let theirs = world.store.sessions(stranger, all, 100).await.expect("a list");
    assert_eq!(theirs, SessionPage::default());
}

#[tokio::test]
async fn pages_follow_one_another_without_a_gap() {
    let world = World::new().await;
    make(&world, 25, &[]).await;
    // Several of one time.
    sqlx::query("UPDATE session SET created_ms = 10 WHERE created_ms BETWEEN 8 AND 14")
        .execute(&world.root)
        .await
        .expect("times");
    for filter in [
        SessionFilter::default(),
        SessionFilter { title: Some("title".into()), ..SessionFilter::default() },
        SessionsOf::Project(world.project.clone()).into(),
    ] {
        let (mut filter, mut seen) = (filter, Vec::<SessionId>::new());
        loop {
            let page = page(&world, &filter, 4).await;
            seen.extend(page.rows.iter().map(|row| row.at.session.clone()));
            filter.after = page.next;
            if filter.after.is_none() {
                break;
            }
            assert_eq!(page.rows.len(), 4);
        }
        let count = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!((count, seen.len()), (25, 25));
    }
}

#[tokio::test]
async fn a_page_looks_at_so_many_sessions_and_the_next_goes_on() {
    let world = World::new().await;
    make(&world, LOOKED_AT + 7, &[]).await;
    sqlx::query("ANALYZE session, session_head").execute(&world.root).await.expect("statistics");
    let mut filter = SessionFilter { title: Some("title 3".into()), ..SessionFilter::default() };
    filter.updated_before = Some(7);
    let first = page(&world, &filter, 10).await;
    assert!(first.rows.is_empty());
    let last: SessionId = "ses_8".parse().expect("an id");
    assert_eq!(first.next, Some((8, last)));
    filter.after = first.next;
    let second = page(&world, &filter, 10).await;
    assert_eq!((numbers_of(&second), second.next), (vec![3], None));
    // Without a condition a page is full as long as there are sessions.
    let end = SessionFilter { after: filter.after, ..SessionFilter::default() };
    let end = page(&world, &end, 10).await;
    assert_eq!((numbers_of(&end), end.next), (vec![7, 6, 5, 4, 3, 2, 1], None));
}
