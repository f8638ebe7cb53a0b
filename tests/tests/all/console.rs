//! README's program as a process of its own: what its console says, line by line, and which spans
//! arrive. The tables of docs/variables.md have the same rows.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use astracer_testing::{Answer, Server, wait_until};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;

/// Set in the other process.
const VARIABLE: &str = "ASTRACER_TEST_CONSOLE";

fn program() -> Result<(), astracer::SetupError> {
    let _guard = astracer::init()?;
    work();
    Ok(())
}

/// The faults of a service's first day.
fn unbound() -> Result<(), astracer::SetupError> {
    let _ = astracer::init()?;
    work();
    work();
    Ok(())
}

#[cfg(not(unix))]
fn stopped() -> Result<(), astracer::SetupError> {
    Ok(())
}

/// A service that ends on the first Ctrl-C, and an export that takes longer than anyone waits.
#[cfg(unix)]
fn stopped() -> Result<(), astracer::SetupError> {
    use tokio::signal::unix::{SignalKind, signal};
    let _guard =
        astracer::configure().with_shutdown_timeout(std::time::Duration::from_secs(3_600)).install()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut stop = signal(SignalKind::interrupt()).unwrap();
        tracing::info_span!(target: "shop", "work").in_scope(|| tracing::info!(target: "shop", "ready"));
        stop.recv().await.unwrap();
    });
    Ok(())
}

fn work() {
    tracing::info_span!(target: "shop", "work").in_scope(|| {
        tracing::error!(target: "shop", "an error");
        tracing::warn!(target: "shop", "a warning");
        tracing::info!(target: "shop", "news");
        tracing::debug!(target: "shop", "a detail");
        tracing::debug_span!(target: "shop::db", "query").in_scope(|| ());
        tracing::info_span!(target: "other", "other").in_scope(|| ());
    });
    // The other process says when to end.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// The other process's part. Does nothing in an ordinary run.
#[test]
fn process() {
    let ended = match std::env::var(VARIABLE).as_deref() {
        Ok("program") => program(),
        Ok("unbound") => unbound(),
        Ok("stopped") => stopped(),
        _ => return,
    };
    // As the runtime ends a `main` that returns a result.
    std::process::exit(ended.map_or_else(
        |error| {
            eprintln!("Error: {error:?}");
            1
        },
        |()| 0,
    ));
}

/// A process, and what it has printed on standard error.
struct Process {
    child: std::process::Child,
    printed: Arc<Mutex<String>>,
    reader: thread::JoinHandle<()>,
}

impl Process {
    fn start(name: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "console::process", "--nocapture"]).env(VARIABLE, name);
        let is_read = |name: &str| name.starts_with("OTEL_") || name.starts_with("ASTRACER_SPAN");
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_read(&name.to_string_lossy())) {
            command.env_remove(name);
        }
        command.env_remove("RUST_LOG").envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let printed = Arc::new(Mutex::new(String::new()));
        let (lines, shared) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&printed));
        let reader = thread::spawn(move || {
            for line in lines.lines() {
                let mut printed = shared.lock().unwrap();
                printed.push_str(&line.unwrap());
                printed.push('\n');
            }
        });
        Process { child, printed, reader }
    }

    fn printed(&self) -> String {
        self.printed.lock().unwrap().clone()
    }

    fn waits_for(&self, text: &str) {
        wait_until(text, || self.printed().contains(text));
    }

    /// Lets the process end. Returns its lines without dates, and without what the system and the
    /// server said, which depends on the version and on the moment.
    fn end(mut self) -> Vec<String> {
        drop(self.child.stdin.take());
        let status = self.child.wait().unwrap();
        self.reader.join().unwrap();
        let printed = self.printed.lock().unwrap().clone();
        assert_eq!(status.code(), Some(0), "{printed}");
        printed.lines().map(plain).collect()
    }
}

/// `2026-11-29T02:10:00.000000Z  WARN astracer: a: b (c); d` without the date and `(c)`.
fn plain(line: &str) -> String {
    let line = line.split_once(' ').map_or(line, |(_, rest)| rest).trim_start();
    match (line.find(" ("), line.find(");")) {
        (Some(open), Some(close)) if line.contains("://") && open < close => {
            format!("{}{}", &line[..open], &line[close + 1..])
        }
        _ => line.to_owned(),
    }
}

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const ALWAYS: (&str, &str) = ("OTEL_TRACES_SAMPLER", "always_on");

/// `RUST_LOG` ("" if it is not set), the most detailed level of the service's lines ("" if there
/// are none), and the most detailed level of astracer's own.
const FORMS: [(&str, &str, &str); 10] = [
    ("", "INFO", "INFO"),
    ("info", "INFO", "INFO"),
    ("warn", "WARN", "WARN"),
    ("error", "ERROR", "WARN"),
    ("off", "", "WARN"),
    ("debug", "DEBUG", "INFO"),
    ("shop=debug", "DEBUG", "WARN"),
    ("warn,shop=info", "INFO", "WARN"),
    ("info,astracer=off", "INFO", ""),
    ("off,astracer=info", "", "INFO"),
];

const LEVELS: [&str; 4] = ["ERROR", "WARN", "INFO", "DEBUG"];

fn shows(most: &str, level: &str) -> bool {
    let place = |name: &str| LEVELS.iter().position(|level| *level == name);
    place(most).is_some_and(|most| place(level).is_some_and(|level| level <= most))
}

/// The service's own lines.
fn service(most: &str) -> Vec<String> {
    let lines = [("ERROR", "an error"), ("WARN", "a warning"), ("INFO", "news"), ("DEBUG", "a detail")];
    // The line names its span if the console's filter shows spans of that level.
    let span = if shows(most, "INFO") { "work: " } else { "" };
    let shown = lines.into_iter().filter(|(level, _)| shows(most, level));
    shown.map(|(level, text)| format!("{level} {span}shop: {text}")).collect()
}

#[derive(Clone, Copy, Debug)]
enum Collector {
    Right,
    Absent,
    /// A gRPC port, to which the service speaks HTTP.
    ForGrpc,
    /// An HTTP port, to which the service speaks gRPC.
    ForHttp,
    Unauthenticated,
}

const NOTHING_LISTENS: &str = "no server listens on this port; start the server, or correct host and port (usually 4317 \
                               for OTLP/gRPC, 4318 for OTLP/HTTP, 9411 for Zipkin); OTEL_SDK_DISABLED=true switches \
                               tracing off";
const GRPC_PORT: &str = "an HTTP request was sent to a gRPC port; use the protocol `grpc`, or the server's HTTP port \
                         (usually 4318)";
const HTTP_PORT: &str = "a gRPC request was sent to a port that does not speak gRPC; use the protocol `http/protobuf`, \
                         or the server's gRPC port (usually 4317)";
const NO_TOKEN: &str = "the server requires authentication; set the header that it expects \
                        (OTEL_EXPORTER_OTLP_HEADERS for OTLP)";

impl Collector {
    /// The reason why exports fail.
    fn reason(self) -> Option<&'static str> {
        match self {
            Collector::Right => None,
            Collector::Absent => Some(NOTHING_LISTENS),
            Collector::ForGrpc => Some(GRPC_PORT),
            Collector::ForHttp => Some(HTTP_PORT),
            Collector::Unauthenticated => Some(NO_TOKEN),
        }
    }
}

/// A server that begins each connection as a gRPC server does, with HTTP/2's settings (RFC 9113,
/// 6.5), and closes it after the first bytes.
fn grpc_server() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut stream = stream;
                let settings = b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00";
                let _ = stream.write_all(settings).and_then(|()| stream.read(&mut [0; 65_536]));
            });
        }
    });
    address
}

/// The lines of one run.
fn lines((form, most, own): (&str, &str, &str), collector: Collector) -> (Vec<String>, Vec<String>) {
    let server = Server::new([]);
    let (mut url, mut target) = (server.url("http"), "/v1/traces");
    let mut variables = vec![ALWAYS];
    match collector {
        Collector::Right => {}
        Collector::Absent => url = "http://127.0.0.1:1".to_owned(),
        Collector::ForGrpc => url = format!("http://{}", grpc_server()),
        Collector::ForHttp => {
            variables.push(("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"));
            target = "/";
        }
        Collector::Unauthenticated => server.answers(Answer::status(401)),
    }
    variables.push((ENDPOINT, &url));
    variables.extend((!form.is_empty()).then_some(("RUST_LOG", form)));
    let process = Process::start("program", &variables);
    let mut expected = service(most);
    match collector.reason() {
        None => drop(server.request(0)),
        Some(reason) if shows(own, "WARN") => {
            process.waits_for("exports wait");
            let reason = format!("{url}{target}: {reason}");
            expected.push(format!("WARN astracer: exports wait, with 2 spans: {reason}"));
            match collector {
                Collector::Absent if !shows(own, "INFO") => {}
                Collector::Absent => expected.push("INFO astracer: 2 spans were lost".to_owned()),
                _ => expected
                    .push(format!("WARN astracer: gave up after 5 s at the end: 2 spans lost; {reason}")),
            }
        }
        Some(_) => {}
    }
    let mut printed = process.end();
    // gRPC's connection has DEBUG lines of its own.
    printed.retain(|line| line.contains("shop: ") || line.contains(" astracer: "));
    (printed, expected)
}

/// Some seconds: the guard waits for servers that answer, and that might accept the spans yet.
#[test]
fn the_console_says_what_its_row_says() {
    let collectors = [
        Collector::Right,
        Collector::Absent,
        Collector::ForGrpc,
        Collector::ForHttp,
        Collector::Unauthenticated,
    ];
    thread::scope(|scope| {
        let run = |form, collector| (scope.spawn(move || lines(form, collector)), form, collector);
        let runs = FORMS.iter().flat_map(|form| collectors.map(|collector| run(*form, collector)));
        for (run, form, collector) in runs.collect::<Vec<_>>() {
            let (printed, expected) = run.join().unwrap();
            assert_eq!(printed, expected, "RUST_LOG={}, {collector:?}", form.0);
        }
    });
}

/// `ASTRACER_SPAN_FILTER` ("" if it is not set), its meaning, and the spans of [`work`] that
/// arrive. `RUST_LOG` turns the console off meanwhile.
const SPANS: [(&str, &str, &[&str]); 5] = [
    ("", "INFO and above, and the spans of tower-http's `TraceLayer`", &["other", "work"]),
    ("debug", "DEBUG and above", &["other", "query", "work"]),
    ("shop::db=debug", "INFO and above, and DEBUG below `shop::db`", &["other", "query", "work"]),
    ("off,shop=info", "INFO and above below `shop`, and those of `TraceLayer`", &["work"]),
    ("shop=loud", "ignored with a warning", &["other", "work"]),
];

#[test]
fn spans_have_a_filter_of_their_own() {
    for (filter, _, expected) in SPANS {
        let server = Server::new([]);
        let url = server.url("http");
        let mut variables = vec![ALWAYS, (ENDPOINT, &*url), ("RUST_LOG", "off")];
        variables.extend((!filter.is_empty()).then_some(("ASTRACER_SPAN_FILTER", filter)));
        let printed = Process::start("program", &variables).end();
        let requests = server.requests();
        let requests = requests.iter().map(|request| ExportTraceServiceRequest::decode(&*request.body));
        let spans = requests.flat_map(|request| request.unwrap().resource_spans);
        let spans = spans.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans);
        let mut names: Vec<String> = spans.map(|span| span.name).collect();
        names.sort();
        assert_eq!(names, expected, "{filter}");
        assert_eq!(printed.len(), usize::from(filter == "shop=loud"), "{printed:?}");
        let is_warning =
            |line: &String| line.starts_with("WARN astracer: ASTRACER_SPAN_FILTER: `shop=loud`: ");
        assert!(printed.iter().all(is_warning), "{printed:?}");
    }
}

/// The tables of docs/variables.md.
#[test]
fn the_document_has_these_rows() {
    let document = include_str!("../../../docs/variables.md");
    let level = |level: &str, none: &str| match level {
        "" => none.to_owned(),
        level => format!("{level} and above"),
    };
    for (form, most, own) in FORMS {
        let form = if form.is_empty() { "not set".to_owned() } else { format!("`{form}`") };
        let row = format!("| {form} | {} | {} |\n", level(most, "none"), level(own, "none"));
        assert!(document.contains(&row), "{row}");
    }
    for (filter, meaning, _) in SPANS {
        let filter = if filter.is_empty() { "not set".to_owned() } else { format!("`{filter}`") };
        let row = format!("| {filter} | {meaning} |\n");
        assert!(document.contains(&row), "{row}");
    }
}

/// `let _ = astracer::init()?` shuts down at once.
#[test]
fn spans_after_the_shutdown_are_one_warning() {
    let server = Server::new([]);
    let url = server.url("http");
    let printed = Process::start("unbound", &[ALWAYS, (ENDPOINT, &*url)]).end();
    let own: Vec<_> = printed.iter().filter(|line| line.contains("astracer: ")).collect();
    let expected = "WARN astracer: a span began after the shutdown and is not exported; if the shutdown came too \
                    early, bind the guard to a name: `let _guard = astracer::init()?` (`let _ =` drops it at once)";
    assert_eq!(own, [expected], "{printed:?}");
    assert!(server.requests().is_empty());
}

/// A text beside a success is printed once, however often the server sends it.
#[test]
fn a_server_s_text_is_a_note() {
    // `partial_success` (field 1) with an `error_message` (field 2).
    let warning = Answer::status(200).with_header("content-type", "application/x-protobuf");
    let server = Server::new([]).then(warning.with_body(b"\x0a\x0d\x12\x0buse v2 soon".to_vec()));
    let url = server.url("http");
    let process = Process::start("program", &[ALWAYS, (ENDPOINT, &*url), ("RUST_LOG", "astracer=info")]);
    process.waits_for("use v2 soon");
    let note = "INFO astracer: the destination accepted the spans, but replied: use v2 soon";
    assert_eq!(process.end(), [note]);
}

#[test]
fn colours_are_for_terminals() {
    let printed = Process::start("program", &[("OTEL_TRACES_EXPORTER", "none")]).end();
    assert!(!printed.is_empty() && printed.iter().all(|line| !line.contains('\u{1b}')), "{printed:?}");
}

/// The first Ctrl-C stops the service, and the second one the wait for a server that is silent.
#[cfg(unix)]
#[test]
fn a_second_ctrl_c_ends_the_process() {
    use std::os::unix::process::ExitStatusExt as _;

    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut process = Process::start("stopped", &[ALWAYS, (ENDPOINT, &*url)]);
    process.waits_for("ready");
    let id = process.child.id().to_string();
    // The moment at which the guard begins to wait is not visible from here.
    let mut ended = None;
    wait_until("the end", || {
        assert!(Command::new("kill").args(["-INT", &id]).status().is_ok());
        ended = process.child.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().signal(), Some(2), "{}", process.printed());
}
