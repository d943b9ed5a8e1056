//! A small model API on loopback, for the real CLIs: Anthropic Messages, OpenAI Responses and Gemini.
//!
//! It plays a script: each request that offers tools takes the next [`Turn`]; requests without tools (titles,
//! summaries) get a short text. A turn asks for a file or a command, and the server calls whichever tool the
//! client offers for that. Faults cut, stall or refuse.

mod anthropic;
mod gemini;
mod http;
mod openai;
mod tools;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use http::{Reply, Request, Wire};

/// What the model does in answer to one request.
#[derive(Debug, Clone, Default)]
pub struct Turn {
    /// What it says.
    pub text: String,
    /// What it does.
    pub calls: Vec<Call>,
    /// What it used.
    pub usage: Usage,
    /// What goes wrong.
    pub fault: Option<Fault>,
}

/// A tool call, apart from any client's tool names.
#[derive(Debug, Clone)]
pub enum Call {
    /// Write a file.
    Write {
        /// Its path; clients differ in whether it may be relative.
        path: String,
        /// Its whole text.
        content: String,
    },
    /// Run a shell command.
    Shell(String),
}

/// Tokens of one turn.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// Input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Input tokens read from the cache.
    pub cached: u64,
}

/// What goes wrong with an answer.
#[derive(Debug, Clone)]
pub enum Fault {
    /// An HTTP status with a message in the protocol's own error shape, and more headers.
    Status(u16, &'static str, Vec<(&'static str, String)>),
    /// An HTTP status with this body.
    Body(u16, Value),
    /// The answer ends in order after this many events, though it is not complete.
    Truncate(usize),
    /// Nothing is said at all.
    Empty,
    /// The connection closes after this many events.
    Cut(usize),
    /// Silence after this many events, until the client goes.
    Stall(usize),
    /// The connection closes before any answer.
    Drop,
}

/// A request that came in.
#[derive(Debug, Clone)]
pub struct Seen {
    /// `METHOD /path`.
    pub line: String,
    /// Its body; null when it is not JSON.
    pub body: Value,
    /// Which turn it took; none for a request without tools.
    pub turn: Option<usize>,
}

/// The server. It ends with the process.
#[derive(Debug)]
pub struct FakeApi {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    turns: Vec<Turn>,
    seen: Mutex<Vec<Seen>>,
    /// What goes wrong with every answer for now.
    broken: Mutex<Option<Fault>>,
}

/// One wire protocol: the events of a streamed answer, and the whole answer.
struct Answer {
    events: Vec<(String, Value)>,
    whole: Value,
}

#[derive(Clone, Copy, PartialEq)]
enum Protocol {
    Anthropic,
    OpenAi,
    Gemini,
}

// === impl Turn ===

impl Turn {
    /// Says `text` and nothing else.
    pub fn says(text: &str) -> Turn {
        Turn { text: text.into(), ..Turn::default() }
    }

    /// Writes a file.
    pub fn writes(path: &str, content: &str) -> Turn {
        Turn { calls: vec![Call::Write { path: path.into(), content: content.into() }], ..Turn::default() }
    }

    /// Runs a shell command.
    pub fn runs(command: &str) -> Turn {
        Turn { calls: vec![Call::Shell(command.into())], ..Turn::default() }
    }

    /// Fails.
    pub fn fails(fault: Fault) -> Turn {
        Turn { text: "This answer is going to be interrupted.".into(), fault: Some(fault), ..Turn::default() }
    }
}

impl Default for Usage {
    fn default() -> Self {
        Usage { input: 1200, output: 34, cached: 0 }
    }
}

// === impl FakeApi ===

impl FakeApi {
    /// Listens on a free port. Past its last turn the model says "done".
    pub fn start(turns: Vec<Turn>) -> FakeApi {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let address = listener.local_addr().expect("a bound port has an address");
        let state = Arc::new(State { turns, seen: Mutex::new(Vec::new()), broken: Mutex::new(None) });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || state.serve(stream));
            }
        });
        FakeApi { address, state }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every answer of the model goes wrong in this way, until it is mended.
    pub fn breaks(&self, fault: Fault) {
        *self.state.broken() = Some(fault);
    }

    /// Answers come as the script says.
    pub fn is_mended(&self) {
        *self.state.broken() = None;
    }

    /// Every request so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.state.seen().clone()
    }
}

// === impl State ===

impl State {
    fn seen(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn broken(&self) -> MutexGuard<'_, Option<Fault>> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: TcpStream) {
        let Ok(mut wire) = Wire::new(stream) else { return };
        // A client that goes away ends its connection and nothing else.
        while let Ok(Some(request)) = wire.read() {
            if !matches!(self.answer(&mut wire, &request), Ok(true)) {
                return;
            }
        }
    }

    /// Answers one request; false when the connection is to be closed.
    fn answer(&self, wire: &mut Wire, request: &Request) -> io::Result<bool> {
        let path = request.path.split('?').next().unwrap_or_default();
        let protocol = match path.rsplit('/').next() {
            Some("messages") if request.method == "POST" => Protocol::Anthropic,
            Some("responses") if request.method == "POST" => Protocol::OpenAi,
            Some(name) if name.ends_with(":streamGenerateContent") || name.ends_with(":generateContent") => {
                Protocol::Gemini
            }
            _ => {
                self.note(request, None);
                return wire.reply(request, &other(&request.method, path)).map(|()| true);
            }
        };
        let streams = match protocol {
            Protocol::Gemini => path.ends_with(":streamGenerateContent"),
            _ => request.body["stream"] == json!(true),
        };
        let main = !tools::names(&request.body).is_empty() && (streams || protocol != Protocol::Gemini);
        let (number, turn) = self.take_turn(request, main);
        match &turn.fault {
            Some(Fault::Drop) => return Ok(false),
            Some(Fault::Status(code, message, headers)) => {
                let reply =
                    Reply { code: *code, headers: headers.clone(), body: error(protocol, *code, message) };
                return wire.reply(request, &reply).map(|()| true);
            }
            Some(Fault::Body(code, body)) => {
                let reply = Reply { code: *code, headers: Vec::new(), body: body.clone() };
                return wire.reply(request, &reply).map(|()| true);
            }
            _ => {}
        }
        let answer = match protocol {
            Protocol::Anthropic => anthropic::answer(&turn, &request.body, number),
            Protocol::OpenAi => openai::answer(&turn, &request.body, number),
            Protocol::Gemini => gemini::answer(&turn, &request.body, number),
        };
        if !streams {
            return match turn.fault {
                None | Some(Fault::Empty) => wire.reply(request, &Reply::ok(answer.whole)).map(|()| true),
                Some(Fault::Stall(_)) => wire.hold().map(|()| false),
                Some(_) => Ok(false),
            };
        }
        wire.begin_stream()?;
        let limit = match turn.fault {
            Some(Fault::Cut(after) | Fault::Stall(after) | Fault::Truncate(after)) => after,
            _ => usize::MAX,
        };
        for (name, data) in answer.events.iter().take(limit) {
            wire.event(name, data)?;
        }
        match turn.fault {
            None | Some(Fault::Truncate(_) | Fault::Empty) => wire.end_stream().map(|()| true),
            Some(Fault::Stall(_)) => wire.hold().map(|()| false),
            Some(_) => Ok(false),
        }
    }

    /// Notes the request, and gives its number and its turn.
    fn take_turn(&self, request: &Request, main: bool) -> (usize, Turn) {
        if !main {
            return (self.note(request, None), Turn::says("Scripted session"));
        }
        let turn = self.seen().iter().filter(|s| s.turn.is_some()).count();
        let number = self.note(request, Some(turn));
        if let Some(fault) = self.broken().clone() {
            let turn = match fault {
                Fault::Empty => Turn { fault: Some(fault), ..Turn::default() },
                fault => Turn::fails(fault),
            };
            return (number, turn);
        }
        (number, self.turns.get(turn).cloned().unwrap_or_else(|| Turn::says("done")))
    }

    fn note(&self, request: &Request, turn: Option<usize>) -> usize {
        let line = format!("{} {}", request.method, request.path);
        let mut seen = self.seen();
        seen.push(Seen { line, body: request.body.clone(), turn });
        seen.len()
    }
}

/// Everything beside the model itself.
fn other(method: &str, path: &str) -> Reply {
    if path.ends_with("/count_tokens") {
        return Reply::ok(json!({"input_tokens": 1234}));
    }
    if path.ends_with("/models") && method == "GET" {
        let model = json!({"id": "fake-model", "type": "model", "object": "model", "display_name": "fake-model",
            "created_at": "2026-01-01T00:00:00Z"});
        return Reply::ok(json!({"object": "list", "data": [model], "models": [], "has_more": false}));
    }
    if method == "HEAD"
        || ["event_logging", "telemetry", "metrics", "/hello", "/api/event"].iter().any(|p| path.contains(p))
    {
        return Reply::ok(json!({}));
    }
    Reply { code: 404, headers: Vec::new(), body: error(Protocol::Anthropic, 404, "not found") }
}

/// An error in the protocol's own shape.
fn error(protocol: Protocol, code: u16, message: &str) -> Value {
    if protocol == Protocol::Anthropic {
        let kind = match code {
            400 => "invalid_request_error",
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            _ => "api_error",
        };
        return json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_fake"});
    }
    if protocol == Protocol::Gemini {
        let status = match code {
            400 => "INVALID_ARGUMENT",
            401 => "UNAUTHENTICATED",
            403 => "PERMISSION_DENIED",
            404 => "NOT_FOUND",
            429 => "RESOURCE_EXHAUSTED",
            500 => "INTERNAL",
            _ => "UNAVAILABLE",
        };
        return json!({"error": {"code": code, "message": message, "status": status}});
    }
    let (kind, reason) = match code {
        401 => ("invalid_request_error", json!("invalid_api_key")),
        429 => ("rate_limit_exceeded", json!("rate_limit_exceeded")),
        _ => ("server_error", Value::Null),
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": reason}})
}
