//! HTTP/1.1 as far as the two CLIs speak it: keep-alive, chunked bodies both ways, server-sent events.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

/// One connection.
pub(super) struct Wire {
    input: BufReader<TcpStream>,
    output: TcpStream,
}

/// One request.
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    /// Its body; null when it is empty or not JSON.
    pub(super) body: Value,
}

/// An answer in one piece.
pub(super) struct Reply {
    pub(super) code: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Value,
}

impl Reply {
    pub(super) fn ok(body: Value) -> Reply {
        Reply { code: 200, headers: Vec::new(), body }
    }
}

// === impl Wire ===

impl Wire {
    pub(super) fn new(stream: TcpStream) -> io::Result<Wire> {
        stream.set_nodelay(true)?;
        Ok(Wire { input: BufReader::new(stream.try_clone()?), output: stream })
    }

    /// The next request; none when the client is gone.
    pub(super) fn read(&mut self) -> io::Result<Option<Request>> {
        let first = self.line()?;
        let mut words = first.split_whitespace();
        let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
        let (mut length, mut chunked) = (0, false);
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().map_err(io::Error::other)?,
                "transfer-encoding" => chunked = value.to_ascii_lowercase().contains("chunked"),
                _ => {}
            }
        }
        let mut body = Vec::new();
        if chunked {
            loop {
                let size = self.line()?;
                let size = size.split(';').next().unwrap_or_default().trim();
                let size = u64::from_str_radix(size, 16).map_err(io::Error::other)?;
                (&mut self.input).take(size).read_to_end(&mut body)?;
                self.line()?;
                if size == 0 {
                    break;
                }
            }
        } else {
            (&mut self.input).take(length).read_to_end(&mut body)?;
        }
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        Ok(Some(Request { method: method.to_owned(), path: path.to_owned(), body }))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.input.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    pub(super) fn reply(&mut self, request: &Request, reply: &Reply) -> io::Result<()> {
        let body = reply.body.to_string();
        let mut text = format!(
            "HTTP/1.1 {} Fake\r\ncontent-type: application/json\r\nrequest-id: req_fake\r\ncontent-length: {}\r\n",
            reply.code,
            body.len()
        );
        for (name, value) in &reply.headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += "\r\n";
        if request.method != "HEAD" {
            text += &body;
        }
        self.output.write_all(text.as_bytes())
    }

    pub(super) fn begin_stream(&mut self) -> io::Result<()> {
        self.output.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\nrequest-id: req_fake\r\ntransfer-encoding: chunked\r\n\r\n",
        )
    }

    pub(super) fn event(&mut self, name: &str, data: &Value) -> io::Result<()> {
        let name = if name.is_empty() { String::new() } else { format!("event: {name}\n") };
        let event = format!("{name}data: {data}\n\n");
        self.output.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())
    }

    pub(super) fn end_stream(&mut self) -> io::Result<()> {
        self.output.write_all(b"0\r\n\r\n")
    }

    /// Says nothing until the client goes.
    pub(super) fn hold(&mut self) -> io::Result<()> {
        io::copy(&mut self.input, &mut io::sink()).map(drop)
    }
}
