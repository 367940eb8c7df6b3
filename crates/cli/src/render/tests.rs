use serde_json::{Value, json};

use super::*;
use crate::output::Style;

const PIPE: Look = Look { style: Style::Plain, is_terminal: false, width: None };
const DUMB: Look = Look { style: Style::Plain, is_terminal: true, width: Some(80) };
const FANCY: Look = Look { style: Style::Fancy, is_terminal: true, width: Some(80) };

impl Printed {
    fn out(&self) -> String {
        let out =
            |piece: &Piece| if let Piece::Out(text) = piece { text.clone() } else { String::new() };
        self.pieces().iter().map(out).collect()
    }

    fn err(&self) -> String {
        let err =
            |piece: &Piece| if let Piece::Err(text) = piece { text.clone() } else { String::new() };
        self.pieces().iter().map(err).collect()
    }

    /// All of it, as one terminal shows it.
    fn all(&self) -> String {
        let text = |piece: &Piece| match piece {
            Piece::Out(text) | Piece::Err(text) => text.clone(),
        };
        self.pieces().iter().map(text).collect()
    }
}

fn event(kind: &str, data: &Value) -> SessionEvent {
    SessionEvent::read(kind, 1, &data.to_string()).expect("an event")
}

fn delta(part: &str, offset: u64, text: &str) -> Delta {
    Delta {
        message: "msg_a".parse().expect("an id"),
        part: part.parse().expect("an id"),
        kind: DeltaKind::Text,
        offset,
        text: text.into(),
    }
}

fn replied(parts: &Value) -> SessionEvent {
    let data = json!({"turn": "trn_1", "message": "msg_a", "parts": parts, "finish": "stop"});
    event("turn.replied", &data)
}

fn called(call: &str, path: &str) -> SessionEvent {
    let arguments = json!({"path": path}).to_string();
    let intent = json!({"call": call, "part": "prt_c", "provider_call": "1", "tool": "read",
                        "arguments": arguments});
    event(
        "tool.called",
        &json!({"turn": "trn_1", "message": "msg_a", "intent": intent, "class": "pure", "state": "started"}),
    )
}

fn settled(call: &str) -> SessionEvent {
    event(
        "tool.settled",
        &json!({"turn": "trn_1", "call": call, "outcome": "completed", "output": "", "title": "Read",
                "truncated": false, "started": 0, "ended": 1}),
    )
}

fn turn_settled(outcome: &str) -> SessionEvent {
    let usage = json!({"input": 0, "output": 0, "reasoning": 0, "cache_read": 0, "cache_write": 0});
    event(
        "turn.settled",
        &json!({"turn": "trn_1", "message": "msg_a", "outcome": outcome, "usage": usage}),
    )
}

fn shown(renderer: &mut Renderer, events: &[SessionEvent]) -> Printed {
    let mut all = Printed::default();
    for event in events {
        for piece in renderer.event(event).pieces() {
            match piece {
                Piece::Out(text) => all.add_out(text),
                Piece::Err(text) => all.add_err(text),
            }
        }
    }
    all
}

#[test]
fn text_streams_once_whether_it_comes_as_deltas_checkpoints_or_settled() {
    let mut renderer = Renderer::new(PIPE, PIPE);
    assert_eq!(renderer.delta(&delta("prt_1", 0, "hel")).out(), "hel");
    assert_eq!(renderer.delta(&delta("prt_1", 0, "hel")).out(), "");
    let data = json!({"turn": "trn_1", "part": "prt_1", "offset": 0, "text": "hello"});
    assert_eq!(renderer.event(&event("text.checkpointed", &data)).out(), "lo");
    let parts = json!([
        {"type": "text", "id": "prt_1", "text": "hello you"},
        {"type": "reasoning", "id": "prt_2", "text": "hm"},
        {"type": "text", "id": "prt_3", "text": "and more"},
    ]);
    assert_eq!(renderer.event(&replied(&parts)).out(), " you\nand more\n");
    assert_eq!(renderer.finish(), Printed::default());
}

#[test]
fn reasoning_is_not_shown() {
    let mut renderer = Renderer::new(PIPE, PIPE);
    let reasoning = Delta { kind: DeltaKind::Reasoning, ..delta("prt_1", 0, "hm") };
    assert_eq!(renderer.delta(&reasoning), Printed::default());
}

// Finding trial-3 20: `A=$(opencode-cloud run …)` began with the lines of tools.
#[test]
fn standard_output_has_the_answer_alone() {
    let mut renderer = Renderer::new(PIPE, PIPE);
    assert_eq!(renderer.delta(&delta("prt_1", 0, "I read")).all(), "I read");
    let events = [called("call_1", "a"), settled("call_1")];
    let printed = shown(&mut renderer, &events);
    assert_eq!((printed.out().as_str(), printed.err().as_str()), ("", "[ok] read a\n"));
    assert_eq!(renderer.pause(), Printed::default(), "no message breaks a line of the answer");
    let retry =
        json!({"turn": "trn_1", "ordinal": 2, "at": 1, "error": {"code": "c", "message": "m"}});
    let printed = renderer.event(&event("retry.scheduled", &retry));
    assert!(printed.out().is_empty() && !printed.err().is_empty(), "{printed:?}");
    assert_eq!(renderer.delta(&delta("prt_1", 6, " it\n")).all(), " it\n");
}

#[test]
fn a_line_of_a_tool_waits_for_the_line_of_text() {
    let mut renderer = Renderer::new(DUMB, DUMB);
    assert_eq!(renderer.delta(&delta("prt_1", 0, "I read")).all(), "I read");
    let events = [called("call_1", "a"), called("call_2", "b"), settled("call_2")];
    assert_eq!(shown(&mut renderer, &events).all(), "");
    assert_eq!(renderer.delta(&delta("prt_1", 6, " it\n")).all(), " it\n[ok] read b\n");
    assert_eq!(shown(&mut renderer, &[settled("call_1")]).all(), "[ok] read a\n");
}

// Finding trial-3 19: markdown was shown raw, and nothing moved before the first word.
#[test]
fn a_terminal_shows_markdown_as_blocks_and_says_what_it_does() {
    let mut renderer = Renderer::new(FANCY, FANCY);
    let reasoning = Delta { kind: DeltaKind::Reasoning, ..delta("prt_0", 0, "hm") };
    assert_eq!(
        (renderer.delta(&reasoning).all().as_str(), renderer.describe_work().as_str()),
        ("", "thinking")
    );
    assert_eq!(renderer.delta(&delta("prt_1", 0, "a **b**\n\n- c")).all(), "");
    assert_eq!(renderer.describe_work(), "- c");
    assert_eq!(renderer.delta(&delta("prt_1", 12, "\n")).all(), "a \u{1b}[1mb\u{1b}[0m\n");
    let parts = json!([{"type": "text", "id": "prt_1", "text": "a **b**\n\n- c\nd"}]);
    assert_eq!(renderer.event(&replied(&parts)).all(), "\n• c d\n");
    shown(&mut renderer, &[called("call_1", "a.txt")]);
    assert_eq!(renderer.describe_work(), "read a.txt");
    let lines = shown(&mut renderer, &[settled("call_1")]).all();
    assert!(lines.contains("✓") && lines.contains("read a.txt"), "{lines}");
    assert_eq!((renderer.describe_work(), renderer.finish()), (String::new(), Printed::default()));
}

#[test]
fn a_command_shows_its_end_in_a_terminal_and_nowhere_else() {
    let arguments = json!({"command": "ls"}).to_string();
    let intent = json!({"call": "call_1", "part": "prt_c", "provider_call": "1", "tool": "shell", "arguments": arguments});
    let called = event(
        "tool.called",
        &json!({"turn": "trn_1", "message": "msg_a", "intent": intent, "class": "unsafe", "state": "started"}),
    );
    let settled = event(
        "tool.settled",
        &json!({"turn": "trn_1", "call": "call_1", "outcome": "completed", "output": "a.txt\n(exit code 0)", "title": "ls",
        "structured": "{\"exit_code\":0}", "truncated": false, "started": 0, "ended": 1}),
    );
    for (out, err, expected) in [
        (PIPE, PIPE, "[ok] shell ls\n"),
        (DUMB, PIPE, "[ok] shell ls\n"),
        (PIPE, DUMB, "[ok] shell ls\n  a.txt\n"),
        (DUMB, DUMB, "[ok] shell ls\n  a.txt\n"),
    ] {
        let mut renderer = Renderer::new(out, err);
        assert_eq!(shown(&mut renderer, &[called.clone(), settled.clone()]).err(), expected);
    }
}

#[test]
fn a_terminal_is_never_steered_by_a_model_but_a_pipe_gets_every_byte() {
    let hostile = delta("prt_1", 0, "a\u{1b}[2Jb\n\nc");
    assert_eq!(Renderer::new(DUMB, DUMB).delta(&hostile).out(), "a[2Jb\n\nc");
    let mut fancy = Renderer::new(FANCY, FANCY);
    assert_eq!(fancy.delta(&hostile).out() + &fancy.finish().out(), "a[2Jb\n\nc\n");
    assert_eq!(Renderer::new(PIPE, PIPE).delta(&hostile).out(), "a\u{1b}[2Jb\n\nc");
}

#[test]
fn a_lost_turn_is_told_and_its_successor_has_lines_of_its_own() {
    let mut renderer = Renderer::new(PIPE, PIPE);
    assert_eq!(renderer.delta(&delta("prt_1", 0, "half")).out(), "half");
    let lost = shown(&mut renderer, &[turn_settled("lost")]);
    assert_eq!(lost.out(), "\n");
    assert!(lost.err().contains("starts again"), "{}", lost.err());
    assert_eq!(renderer.delta(&delta("prt_2", 0, "half again")).out(), "half again");
}

#[test]
fn the_model_is_named_once_and_a_simulated_one_is_labelled() {
    let started = |model: &str| {
        let model = json!({"provider": "p", "model": model});
        event(
            "turn.started",
            &json!({"turn": "trn_1", "message": "msg_a", "parent": "msg_1", "agent": "build",
                    "model": model, "epoch": 1, "step": 1}),
        )
    };
    let mut renderer = Renderer::new(PIPE, PIPE);
    let events = [started("m"), started("m"), started("simulated")];
    let shown = shown(&mut renderer, &events);
    assert_eq!(shown.err(), "model p/m\nmodel p/simulated (simulated: not a language model)\n");
}

#[test]
fn an_error_is_one_line_with_its_code() {
    let mut renderer = Renderer::new(PIPE, PIPE);
    let error = json!({"code": "provider.auth", "message": "set a key"});
    let ended = event("drain.ended", &json!({"outcome": "failed", "error": error}));
    assert_eq!(renderer.event(&ended).err(), "error: set a key (provider.auth)\n");
}

#[test]
fn an_answer_that_met_the_limit_says_so() {
    let mut renderer = Renderer::new(PIPE, PIPE);
    let parts = json!([{"type": "text", "id": "prt_1", "text": "Once upon"}]);
    let data = json!({"turn": "trn_1", "message": "msg_a", "parts": parts, "finish": "length"});
    let printed = renderer.event(&event("turn.replied", &data));
    assert_eq!(printed.out(), "Once upon\n");
    assert!(printed.err().starts_with("the answer is not complete"), "{printed:?}");
}

#[test]
fn every_kind_of_event_has_a_summary_of_one_line() {
    let events = [
        called("call_1", "a\nb"),
        settled("call_1"),
        replied(&json!([{"type": "text", "id": "prt_1", "text": "two\nlines"}])),
        turn_settled("cut"),
    ];
    let lines: Vec<String> = events.iter().map(summary).collect();
    assert_eq!(
        lines,
        [
            r#"call_1 started: read {"path":"a\nb"}"#,
            "call_1 completed: Read",
            "trn_1 stop, 0 calls: two lines",
            "trn_1 cut, goes on",
        ]
    );
}

#[test]
fn what_is_to_be_known_of_a_model_is_told_and_what_its_provider_ran_is_shown_in_its_place() {
    let started = event(
        "turn.started",
        &json!({"turn": "trn_1", "message": "msg_a", "parent": "msg_u", "agent": "build", "epoch": 1, "step": 1,
                "model": {"provider": "p", "model": "m", "variant": "high"}, "notice": "m is deprecated"}),
    );
    assert_eq!(summary(&started), "trn_1 step 1, p/m (high): m is deprecated");
    let reply = replied(&json!([
        {"type": "text", "id": "prt_1", "text": "Looking."},
        {"type": "hosted-call", "id": "prt_2", "call": "s", "name": "web_search", "input": "{\"query\":\"x\"}"},
        {"type": "hosted-result", "id": "prt_3", "call": "s", "name": "web_search", "output": "found"},
        {"type": "text", "id": "prt_4", "text": "So."},
    ]));
    assert_eq!(summary(&reply), "trn_1 stop, 0 calls, web_search by the provider: Looking.");
    let mut renderer = Renderer::new(PIPE, PIPE);
    let printed = shown(&mut renderer, &[started, reply]);
    assert_eq!(
        printed.all(),
        "model p/m (high)\nnotice: m is deprecated\nLooking.\n[ok] web_search x (by the provider)\nSo.\n"
    );
    assert_eq!(printed.out(), "Looking.\nSo.\n");
}

// Finding trial 7: nothing was shown until a tool had ended.
#[test]
fn a_tool_that_takes_long_is_announced_once() {
    let mut renderer = Renderer::new(PIPE, PIPE);
    assert_eq!(shown(&mut renderer, &[called("call_1", "a.txt")]), Printed::default());
    assert_eq!(renderer.announce(), Printed::default(), "it may end at once");
    assert_eq!(renderer.announce().err(), "[running] read a.txt\n");
    assert_eq!(renderer.announce(), Printed::default(), "once");
    assert_eq!(shown(&mut renderer, &[settled("call_1")]).err(), "[ok] read a.txt\n");
    shown(&mut renderer, &[called("call_2", "b.txt"), settled("call_2")]);
    renderer.announce();
    assert_eq!(renderer.announce(), Printed::default(), "a quick one is told by its result");
}

// Finding trial 7: "trying again" had neither a number nor a delay.
#[test]
fn a_retry_tells_its_number_and_its_delay() {
    let mut renderer = Renderer::new(PIPE, PIPE);
    renderer.at(1_000);
    let error = json!({"code": "provider.rate_limit", "message": "too many requests"});
    let retry = json!({"turn": "trn_1", "ordinal": 2, "at": 4_250, "error": error});
    let told = renderer.event(&event("retry.scheduled", &retry)).err();
    assert_eq!(told, "attempt 2 in 3.2 s: too many requests (provider.rate_limit)\n");
}

// Finding trial 21: "interrupted" came before the line of the tool that it stopped.
#[test]
fn an_interrupt_is_told_after_what_it_stopped() {
    let mut renderer = Renderer::new(PIPE, PIPE);
    let asked = event("interrupt.requested", &json!({"target": {"type": "drain"}}));
    let ended = event("drain.ended", &json!({"outcome": "interrupted"}));
    assert_eq!(renderer.event(&asked), Printed::default());
    assert_eq!(renderer.event(&ended).err(), "interrupted\n");
}
