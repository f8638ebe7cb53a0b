//! As much HTTP as the benchmarks' servers need: requests with a content length, and an empty
//! response.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;

/// The response to every request.
pub const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// A buffered reader whose buffer holds a whole request.
pub fn reader(stream: TcpStream) -> BufReader<TcpStream> {
    BufReader::with_capacity(1 << 18, stream)
}

/// Reads the next request and leaves its body in `body`. Returns `None` at the end of the
/// connection, or if the bytes are not HTTP.
pub fn read_body(stream: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> Option<()> {
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().ok()?;
            }
            None if line == "\r\n" => break,
            _ => {}
        }
    }
    body.resize(length, 0);
    stream.read_exact(body).ok()
}
