//! The way out of cells: a command reaches the proxy of its own cell, and nothing else in any way.

#![allow(clippy::print_stderr, reason = "a run says what it skipped, and why")]

mod world;

use std::fmt;
use std::io::Write as _;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sandbox::{
    Cell, Command, End, Exits, FoundTier, Limits, Network, Opening, Reach, Tier, find_tier,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{folder, options, run, script, until};

/// Answers each request with the name of the cell, but refuses those that name `refused`.
#[derive(Default)]
struct Greeting {
    open: Arc<AtomicUsize>,
}

impl fmt::Debug for Greeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Greeting")
    }
}

impl Exits for Greeting {
    fn serve(&self, opening: Opening) {
        let Opening { listener, reach, cell, refusals, closed } = opening;
        let open = self.open.clone();
        open.fetch_add(1, Ordering::SeqCst);
        let serving = async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = vec![0; 4096];
                let count = stream.read(&mut head).await.unwrap_or(0);
                if String::from_utf8_lossy(&head[..count]).contains("refused") {
                    refusals.push(format!("network: refused ({reach})"));
                }
                let body = format!("hello {cell}\n");
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                let _gone = stream.write_all((head + &body).as_bytes()).await;
            }
        };
        #[expect(clippy::disallowed_methods, reason = "a test's own server")]
        tokio::spawn(async move {
            tokio::select! {
                () = serving => {}
                () = closed => {}
            }
            open.fetch_sub(1, Ordering::SeqCst);
        });
    }

    fn certificates(&self) -> &[u8] {
        b"a certificate\n"
    }
}

/// The tiers with cells, each with proxies.
async fn with_exits(greeting: &Arc<Greeting>) -> Vec<FoundTier> {
    let mut found = Vec::new();
    for tier in [Tier::A, Tier::B] {
        let mut options = options(tier, Limits::of_this_machine());
        options.cells.exits = Some(greeting.clone());
        let best = find_tier(&options).await;
        if best.tier == tier {
            found.push(best);
        } else {
            world::skip(tier, &format!("{:?}", best.refused));
        }
    }
    found
}

fn reaching(reach: Reach, command: Command) -> Command {
    Command { cell: Cell { network: reach, ..command.cell.clone() }, ..command }
}

const CURL: &str = "curl -sS --max-time 20 http://registry.example.com/";

#[tokio::test]
async fn a_command_reaches_its_cells_proxy_and_nobody_else() {
    let greeting = Arc::new(Greeting::default());
    // A sentinel of the machine, which is there.
    let sentinel = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = sentinel.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for connection in sentinel.incoming().flatten() {
            let _gone = (&connection).write_all(b"reached");
        }
    });
    for found in with_exits(&greeting).await {
        let (_folder, place) = folder();
        let outcome = run(&found.sandbox, reaching(Reach::Open, script(CURL, &place, "a"))).await;
        assert_eq!(outcome.output.head, "hello a\n", "{}", found.tier);
        assert_eq!(outcome.network, Network::Through(Reach::Open));
        let raw = format!(
            "import socket\n\
             def attempt(kind, address, family=socket.AF_INET):\n\
             \x20   try:\n\
             \x20       with socket.socket(family, kind) as s:\n\
             \x20           s.settimeout(5); s.connect(address); s.send(b'x'); print(address, s.recv(9))\n\
             \x20   except OSError as error: print('none')\n\
             for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:\n\
             \x20   attempt(kind, ('127.0.0.1', {port}))\n\
             \x20   attempt(kind, ('1.1.1.1', 53))\n\
             \x20   attempt(kind, ('169.254.169.254', 80))\n\
             attempt(socket.SOCK_STREAM, ('::1', {port}), socket.AF_INET6)\n\
             try: print(socket.getaddrinfo('registry.example.com', 80))\n\
             except OSError: print('none')\n"
        );
        let raw = format!("/usr/bin/python3 -c \"{raw}\"; sort /proc/net/dev | grep -c :");
        let outcome = run(&found.sandbox, reaching(Reach::Open, script(&raw, &place, "a"))).await;
        assert_eq!(outcome.output.head, format!("{}1\n", "none\n".repeat(8)));
        let env = "env | grep -c 127.0.0.1:3128; cat $SSL_CERT_FILE; : >>$SSL_CERT_FILE";
        let outcome = run(&found.sandbox, reaching(Reach::Open, script(env, &place, "a"))).await;
        assert!(outcome.output.head.starts_with("11\na certificate\n"), "{outcome:?}");
        assert_ne!(outcome.end, End::Exited(0), "the certificates are read-only");
    }
}

#[tokio::test]
async fn a_cell_has_no_way_out_by_anothers_proxy() {
    let greeting = Arc::new(Greeting::default());
    for found in with_exits(&greeting).await {
        let (_folder, place) = folder();
        let (a, b) = (script(CURL, &place, "a"), script(CURL, &place, "b"));
        let own = async |command| run(&found.sandbox, reaching(Reach::Packages, command)).await;
        assert_eq!(own(a.clone()).await.output.head, "hello a\n");
        assert_eq!(own(b).await.output.head, "hello b\n");
        // The same name without a network is another cell.
        let through = "curl -sS --proxy http://127.0.0.1:3128 http://x/; env | grep -ci _proxy";
        let shut = run(&found.sandbox, script(through, &place, "a")).await;
        assert_eq!(shut.network, Network::Shut);
        assert!(!shut.output.head.contains("hello"), "{}", shut.output.head);
        assert!(shut.output.head.ends_with("\n0\n"), "{}", shut.output.head);
        assert_eq!(greeting.open.load(Ordering::SeqCst), 2);
        drop(found);
        until("the proxies end with their cells", || greeting.open.load(Ordering::SeqCst) == 0)
            .await;
    }
}

#[tokio::test]
async fn a_refusal_is_in_the_result_of_who_met_it() {
    let greeting = Arc::new(Greeting::default());
    for found in with_exits(&greeting).await {
        let (_folder, place) = folder();
        for (url, refused) in [("refused", 1), ("fine", 0), ("refused", 1)] {
            let line = format!("curl -s http://{url}.example.com/ http://{url}.example.com/");
            let command = reaching(Reach::Packages, script(&line, &place, "a"));
            let outcome = run(&found.sandbox, command).await;
            assert_eq!(outcome.refused.len(), refused, "{:?}", outcome.refused);
        }
    }
}

#[tokio::test]
async fn a_tier_without_cells_opens_no_network() {
    let found = find_tier(&options(Tier::C, Limits::of_this_machine())).await;
    if found.tier != Tier::C {
        return world::skip(Tier::C, &format!("{:?}", found.refused));
    }
    let (_folder, place) = folder();
    let mut command = script("env | grep -ci _proxy; curl -sS http://127.0.0.1:3128", &place, "a");
    command.cell.shown = None;
    let outcome = run(&found.sandbox, reaching(Reach::Open, command)).await;
    assert_eq!(outcome.network, Network::Unopened(Reach::Open));
    assert!(outcome.output.head.starts_with("0\n"), "{}", outcome.output.head);
    assert_ne!(outcome.end, End::Exited(0));
    // Nor do cells for which nobody serves a way out.
    for found in world::cells().await {
        let outcome = run(&found.sandbox, reaching(Reach::Open, script("true", &place, "a"))).await;
        assert_eq!(outcome.network, Network::Unopened(Reach::Open));
    }
}
