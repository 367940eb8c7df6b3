// A model provider on loopback, so that the README's examples run anywhere. It speaks just enough OpenAI
// chat: with tools it calls the first one with `n` = 21 and reports the result; without tools it says hello.

/// Starts the server and returns its base URL. It lives as long as the process.
fn stand_in() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            answer(socket?)?;
        }
        Ok::<(), std::io::Error>(())
    });
    url
}

fn answer(mut socket: std::net::TcpStream) -> std::io::Result<()> {
    use std::io::{BufRead, BufReader, Read, Write};
    let mut reader = BufReader::new(socket.try_clone()?);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line)? > 2 {
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body: serde_json::Value = serde_json::from_slice(&body).expect("a request is JSON");
    let last = body["messages"].as_array().and_then(|all| all.last()).expect("a message");
    let tool = &body["tools"][0]["function"]["name"];
    let delta = match (last["role"].as_str(), tool.as_str()) {
        (Some("tool"), _) => serde_json::json!({ "content": format!("It is {}.", last["content"].as_str().unwrap_or("")) }),
        (_, Some(name)) => serde_json::json!({ "tool_calls": [{"index": 0, "id": "call_1", "function": {"name": name, "arguments": "{\"n\":21}"}}] }),
        (_, None) => serde_json::json!({ "content": "Hello!" }),
    };
    let frame = serde_json::json!({ "choices": [{"delta": delta, "finish_reason": "stop"}] });
    let events = format!("data: {frame}\n\ndata: [DONE]\n\n");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ncontent-length:";
    write!(socket, "{head} {}\r\n\r\n{events}", events.len())
}
