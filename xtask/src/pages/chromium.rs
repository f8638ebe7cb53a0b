//! A headless Chromium, driven by the DevTools protocol over a pipe.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// A reply takes seconds on a busy machine.
const REPLY_MAX: Duration = Duration::from_secs(120);
/// Chromium reads the pipe from file 3 and writes to file 4.
const START: &str = "exec \"$0\" --headless --no-sandbox --disable-gpu --hide-scrollbars --no-first-run \
     --disable-background-networking --user-data-dir=\"$1\" --remote-debugging-pipe 3<&0 4>&1 </dev/null >/dev/null \
     2>/dev/null";

/// A browser with one page. Dropping it ends the browser.
#[derive(Debug)]
pub(super) struct Chromium {
    process: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    events: VecDeque<Value>,
    session: Option<String>,
    calls: u64,
}

impl Chromium {
    /// Starts the program, with its profile in a folder.
    ///
    /// # Errors
    ///
    /// A sentence about the step that failed.
    pub(super) fn start(program: &str, profile: &Path) -> Result<Self, String> {
        let mut process = Command::new("sh")
            .args(["-c", START, program])
            .arg(profile)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {program}: {error}"))?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("the pipes to chromium are missing".to_owned());
        };
        let (sender, messages) = channel();
        // Ends when the browser closes its pipe.
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut message = Vec::new();
            while matches!(output.read_until(0, &mut message), Ok(1..)) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { break };
                message.clear();
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        let mut own = Self { process, input, messages, events: VecDeque::new(), session: None, calls: 0 };
        let target = own.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attached =
            own.call("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }))?;
        own.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            own.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(own)
    }

    /// Calls a method and waits for its result. Events that arrive meanwhile are kept.
    ///
    /// # Errors
    ///
    /// The browser's error, or that it did not reply.
    pub(super) fn call(&mut self, method: &str, params: Value) -> Result<Value, String> {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let sent = self.input.write_all(format!("{message}\0").as_bytes()).and_then(|()| self.input.flush());
        sent.map_err(|error| format!("{method}: cannot write to chromium: {error}"))?;
        loop {
            let mut reply = self.next(method)?;
            if reply["id"] != self.calls {
                self.events.push_back(reply);
            } else if reply["error"].is_null() {
                return Ok(reply["result"].take());
            } else {
                return Err(format!("{method}: {}", reply["error"]));
            }
        }
    }

    /// The value of an expression, after its promise if it is one.
    ///
    /// # Errors
    ///
    /// See [`Self::call`]; an exception too.
    pub(super) fn value(&mut self, expression: &str) -> Result<Value, String> {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut reply = self.call("Runtime.evaluate", params)?;
        match reply["exceptionDetails"].is_null() {
            true => Ok(reply["result"]["value"].take()),
            false => Err(format!("exception: {}", reply["exceptionDetails"]["exception"]["description"])),
        }
    }

    /// Opens an address and waits until it is loaded. Returns the events since the one before.
    ///
    /// # Errors
    ///
    /// See [`Self::call`].
    pub(super) fn open(&mut self, url: &str) -> Result<(), String> {
        self.events.clear();
        self.call("Page.navigate", json!({ "url": url }))?;
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.next("load")?;
            self.events.push_back(event);
        }
        Ok(())
    }

    /// The events of one method since the page was opened, as their parameters.
    pub(super) fn events<'e>(&'e self, method: &'e str) -> impl Iterator<Item = &'e Value> {
        self.events.iter().filter(move |event| event["method"] == method).map(|event| &event["params"])
    }

    fn next(&self, waiting_for: &str) -> Result<Value, String> {
        self.messages.recv_timeout(REPLY_MAX).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("{waiting_for}: chromium does not reply"),
            RecvTimeoutError::Disconnected => format!("{waiting_for}: chromium has ended"),
        })
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        self.session = None;
        let _ = self.call("Browser.close", json!({}));
        let _ = self.process.wait();
    }
}
