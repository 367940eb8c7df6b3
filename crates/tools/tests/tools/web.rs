//! `webfetch` against a server on this machine.

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::Redirect;
use axum::routing::get;
use serde_json::json;

use super::*;

const EQUIV: &str =
    "<META http-equiv='Content-Type' content='text/html; charset=x-sjis' /><title>T</title>";

/// Returns a page in Shift_JIS with this in its head.
fn japanese(head: &str) -> Vec<u8> {
    let page = format!("<html><head>{head}</head><body>\u{30C6}\u{30B9}\u{30C8}</body></html>");
    encoding_rs::SHIFT_JIS.encode(&page).0.into_owned()
}

/// Returns XML that says that it is in Windows-1251, and is.
fn russian() -> Vec<u8> {
    let xml = "<?xml version=\"1.0\" encoding=\"windows-1251\"?>\n<a>\u{43C}\u{438}\u{440}</a>";
    encoding_rs::WINDOWS_1251.encode(xml).0.into_owned()
}

/// Starts the server and returns its host.
async fn server() -> String {
    let typed = |mime: &'static str, body: Vec<u8>| {
        get(move || async move { ([(CONTENT_TYPE, mime)], body) })
    };
    let page = "<html><head><title>T</title></head><body><h1>One</h1><p>two <b>three</b></p></body></html>";
    let app = Router::new()
        .route("/page", typed("text/html; charset=utf-8", page.into()))
        .route("/plain", typed("text/plain", "a\n<b>".into()))
        .route("/latin", typed("text/plain; charset=iso-8859-1", vec![b'g', 0xfc, b'n']))
        .route("/meta", typed("text/html", japanese("<meta charset=\"Shift_JIS\">")))
        .route("/equiv", typed("text/html", japanese(EQUIV)))
        .route("/header", typed("text/html; charset=Shift_JIS", japanese("<meta charset=utf-8>")))
        .route("/xml", typed("application/xml", russian()))
        .route("/about", typed("text/plain", "<meta charset=\"Shift_JIS\">gr\u{FC}n".into()))
        .route("/json", typed("application/json", "{\"a\":1}".into()))
        .route("/image", typed("image/png", vec![0x89, b'P', b'N', b'G']))
        .route("/pdf", typed("application/pdf", "%PDF".into()))
        .route("/liar", typed("text/plain", vec![0, 1, 2]))
        .route("/empty", typed("text/html", "<script>x</script>".into()))
        .route("/deep", typed("text/html", "<div>".repeat(2_000).into()))
        .route("/large", typed("text/plain", vec![b'x'; 5 * 1024 * 1024 + 1]))
        .route("/long", typed("text/plain", "line\n".repeat(20_000).into()))
        .route("/away", get(|| async { Redirect::temporary("/page") }))
        .route("/inside", get(|| async { Redirect::temporary("http://169.254.169.254/latest") }))
        .route("/round", get(|| async { Redirect::temporary("/round") }))
        .route("/never", get(std::future::pending::<String>));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let host = listener.local_addr().expect("an address").to_string();
    #[expect(clippy::disallowed_methods, reason = "a test's own server")]
    tokio::spawn(async move { axum::serve(listener, app).await });
    host
}

#[tokio::test]
async fn a_page_is_shown_as_markdown_text_or_itself() {
    let host = server().await;
    let place = Place::with_web(&[&host]);
    let fetch = async |path: &str, format: &str| {
        place.ok("webfetch", json!({"url": format!("http://{host}{path}"), "format": format})).await
    };
    assert_eq!(fetch("/page", "markdown").await, "# One\n\ntwo **three**");
    assert_eq!(fetch("/page", "text").await, "One\ntwo three");
    assert!(fetch("/page", "html").await.starts_with("<html>"));
    assert_eq!(fetch("/plain", "markdown").await, "a\n<b>");
    assert_eq!(fetch("/latin", "text").await, "gün");
    assert_eq!(fetch("/json", "markdown").await, "{\"a\":1}");
    assert!(fetch("/empty", "markdown").await.contains("has no text"));
    assert!(fetch("/deep", "markdown").await.contains("nested too deeply"));
    let led = fetch("/away", "markdown").await;
    assert!(led.ends_with(&format!("(it led to http://{host}/page)")), "{led}");
    let long = place.settled("webfetch", json!({"url": format!("http://{host}/long")})).await;
    assert!(long.truncated && long.managed_path.is_some() && long.output.len() <= 51_200);
    assert_eq!(long.touched, Touched::Nothing);
}

// Finding: report 30-b17 (anomalyco/opencode#45902): a page that names its encoding itself was not readable.
#[tokio::test]
async fn a_page_is_read_in_the_encoding_that_it_declares() {
    let host = server().await;
    let place = Place::with_web(&[&host]);
    for (path, text) in [
        ("/meta", "\u{30C6}\u{30B9}\u{30C8}"),
        ("/equiv", "\u{30C6}\u{30B9}\u{30C8}"),
        ("/header", "\u{30C6}\u{30B9}\u{30C8}"),
        ("/xml", "<a>\u{43C}\u{438}\u{440}</a>"),
        ("/about", "gr\u{FC}n"),
    ] {
        let page = place.ok("webfetch", json!({"url": format!("http://{host}{path}")})).await;
        assert!(page.contains(text), "{path}: {page}");
    }
}

#[tokio::test]
async fn what_is_no_text_or_too_much_is_refused() {
    let host = server().await;
    let place = Place::with_web(&[&host]);
    for (path, said) in [
        ("/image", "is an image (image/png)"),
        ("/pdf", "is a binary file (application/pdf)"),
        ("/liar", "is a binary file although"),
        ("/large", "more than 5242880 bytes"),
        ("/missing", "answered 404 Not Found"),
        ("/round", "redirects more than 5 times"),
    ] {
        let message = place.fails("webfetch", json!({"url": format!("http://{host}{path}")})).await;
        assert!(message.contains(said), "{message}");
    }
    let slow = json!({"url": format!("http://{host}/never"), "timeout_s": 1});
    assert!(
        place.fails("webfetch", slow).await.contains("longer than 1 s; give a larger timeout_s")
    );
}

#[tokio::test]
async fn an_address_inside_is_refused_and_so_is_a_redirect() {
    let host = server().await;
    let place = Place::with_web(&[]);
    for url in [
        format!("http://{host}/page"),
        format!("https://{host}/page"),
        "https://10.0.0.1/".to_owned(),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://[::1]/".to_owned(),
        "http://localhost/".to_owned(),
    ] {
        let message = place.fails("webfetch", json!({ "url": url })).await;
        assert!(
            message.contains("private network") && message.contains("another source"),
            "{message}"
        );
    }
    let allowed = Place::with_web(&[&host]);
    let message = allowed.fails("webfetch", json!({"url": format!("http://{host}/inside")})).await;
    assert!(
        message.contains("169.254.169.254") && message.contains("private network"),
        "{message}"
    );
    for (url, said) in [
        ("file:///etc/passwd", "http and https only"),
        ("example.com", "is no address"),
        ("https://user:key@example.com/", "user name or password"),
    ] {
        let message = place.fails("webfetch", json!({ "url": url })).await;
        assert!(message.contains(said), "{message}");
    }
}

// Finding: report 30-b5 (prime-vector/open-agent-spec#114).
#[tokio::test]
async fn a_redirect_is_judged_by_the_rules_about_pages() {
    let host = server().await;
    let mut place = Place::with_web(&[&host]);
    let away = json!({"url": format!("http://{host}/away")});
    for (action, said) in [
        (domain::RuleAction::Deny, "which a rule refuses".to_owned()),
        (domain::RuleAction::Ask, format!("fetch http://{host}/page itself")),
    ] {
        place.context.reads = ReadRules::default().with_pages(move |address| {
            if address.ends_with("/page") { action } else { domain::RuleAction::Allow }
        });
        let told = place.fails("webfetch", away.clone()).await;
        assert!(told.contains(&format!("redirects to http://{host}/page")), "{told}");
        assert!(told.contains(&said), "{told}");
    }
    place.context.reads = ReadRules::default().with_pages(|_| domain::RuleAction::Allow);
    place.ok("webfetch", away).await;
}

#[tokio::test]
async fn a_fetch_ends_with_its_call() {
    let host = server().await;
    let place = Place::with_web(&[&host]);
    let cancel = place.context.cancel.clone();
    let call = call("webfetch", &json!({"url": format!("http://{host}/never")}));
    let running = place.registry.run(&call, &place.context);
    let (outcome, ()) = tokio::join!(running, async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        cancel.cancel();
    });
    assert_eq!(outcome.kind, ToolOutcomeKind::Interrupted);
}

// Finding security-3 H5: a page is a way out that a shut network did not close.
#[tokio::test]
async fn a_shut_network_is_shut_for_pages_and_their_redirects() {
    let host = server().await;
    let allowed = vec![host.parse().expect("a host")];
    let page = json!({"url": format!("http://{host}/page")});
    let shut = egress::Rules {
        hosts: egress::Hosts::none(),
        allowed: allowed.clone(),
        ..egress::Rules::default()
    };
    let told = Place::with_rules(shut).fails("webfetch", page.clone()).await;
    assert!(
        told.contains("the network of this service does not include the host `127.0.0.1`"),
        "{told}"
    );
    assert!(told.contains("whoever runs the service can open it with --network"), "{told}");

    let hosts = egress::Hosts::Listed(allowed.clone());
    let place = Place::with_rules(egress::Rules { hosts, allowed, ..egress::Rules::default() });
    place.ok("webfetch", page).await;
    let led = json!({"url": format!("http://{host}/inside")});
    let told = place.fails("webfetch", led).await;
    assert!(
        told.contains("`169.254.169.254` is on this machine or in a private network"),
        "{told}"
    );
}
