//! The client against a service that replays a scripted log: its parts first, then the executable.

use cli::output::{Output, Screen};
mod executable;
mod following;
mod llm;
mod service;
mod widths;

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use service::Step;

/// The output of a command.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl Printed {
    fn text(&self) -> String {
        let bytes = self.0.lock().expect("no writer panics").clone();
        String::from_utf8(bytes).expect("text")
    }
}

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no writer panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn screen() -> (Screen, Printed, Printed) {
    let (out, err) = (Printed::default(), Printed::default());
    let output = |to: &Printed| Output::new(Box::new(to.clone()), false);
    (Screen { out: output(&out), err: output(&err) }, out, err)
}

fn model() -> Value {
    json!({"provider": "sim", "model": "simulated"})
}

fn created() -> Step {
    let data = json!({"project": "prj_1", "location": "loc_1", "directory": "/srv", "title": "t",
                      "agent": "build"});
    Step::Event(1, "session.created", data)
}

fn admitted(seq: i64) -> Step {
    let parts = json!([{"type": "text", "id": "prt_u", "text": "hello"}]);
    let data = json!({"message": "$MSG", "delivery": "steer", "parts": parts, "wake": true, "digest": "d"});
    Step::Event(seq, "prompt.admitted", data)
}

fn promoted(seq: i64) -> Step {
    let parts = json!([{"type": "text", "id": "prt_u", "text": "hello"}]);
    let data = json!({"message": "$MSG", "parts": parts, "agent": "build", "model": model(), "admitted": 1});
    Step::Event(seq, "prompt.promoted", data)
}

fn turn(seq: i64, turn: &str) -> Step {
    let data = json!({"turn": turn, "message": "msg_a", "parent": "$MSG", "agent": "build",
                      "model": model(), "epoch": 1, "step": 1});
    Step::Event(seq, "turn.started", data)
}

fn replied(seq: i64, text: &str) -> Step {
    let parts = json!([{"type": "text", "id": "prt_1", "text": text}]);
    let data = json!({"turn": "trn_1", "message": "msg_a", "parts": parts, "finish": "stop"});
    Step::Event(seq, "turn.replied", data)
}

fn ended(seq: i64, outcome: &str) -> Step {
    Step::Event(seq, "drain.ended", json!({"outcome": outcome}))
}

/// Returns a whole run: one turn that says `hello you`.
fn whole() -> Vec<Step> {
    vec![
        created(),
        Step::Prompt,
        admitted(2),
        promoted(3),
        turn(4, "trn_1"),
        Step::Delta(0, "hello"),
        replied(5, "hello you"),
        ended(6, "completed"),
    ]
}
