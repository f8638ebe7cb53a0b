//! A running server: starts it, polls whether it is up, and stops it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::kind::Kind;

/// Zipkin takes six seconds on an idle machine.
const START_MAX: Duration = Duration::from_secs(120);
const STOP_MAX: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(100);

/// A server that is up. It keeps running when this program ends.
#[derive(Debug)]
pub(crate) struct Running {
    kind: Kind,
    folder: PathBuf,
    addresses: Vec<(&'static str, SocketAddr)>,
    /// The file that the collector writes.
    file: Option<PathBuf>,
}

impl Running {
    /// The environment variables that pass the server's addresses to tests.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let prefix = format!("ASTRACER_E2E_{}", self.kind.name().to_uppercase());
        let addresses =
            self.addresses.iter().map(|(name, address)| (format!("{prefix}_{name}"), address.to_string()));
        let file = self.file.iter().map(|file| (format!("{prefix}_FILE"), file.display().to_string()));
        addresses.chain(file).collect()
    }

    /// The server's addresses as text.
    pub(crate) fn describe(&self) -> String {
        let mut text = String::from("running");
        for (name, address) in &self.addresses {
            text.push_str(&format!("\n  {:<10} {address}", name.to_lowercase().replace('_', " ")));
        }
        if let Some(file) = &self.file {
            text.push_str(&format!("\n  {:<10} {}", "file", file.display()));
        }
        text
    }

    /// Stops the server.
    ///
    /// # Errors
    ///
    /// A sentence, if it cannot be stopped.
    pub(crate) fn stop(&self) -> Result<String, String> {
        stop_recorded(&self.folder, self.kind)
    }
}

pub(super) fn start(root: &Path, folder: &Path, kind: Kind, program: &Path) -> Result<Running, String> {
    stop_recorded(folder, kind)?;
    let addresses = free_addresses(kind)?;
    let log_path = folder.join(format!("{}.log", kind.name()));
    let log = File::create(&log_path).map_err(|error| format!("{}: {error}", log_path.display()))?;
    let errors = log.try_clone().map_err(|error| format!("{}: {error}", log_path.display()))?;
    let file = (kind == Kind::Collector).then(|| folder.join("collector.jsonl"));
    let mut command = command(root, kind, program, &addresses);
    if let Some(file) = &file {
        command.env("FILE", file);
    }
    // A separate process group, so that Ctrl-C in this terminal does not reach the server.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    fs::write(pid_file(folder, kind), format!("{} {}", child.id(), program.display()))
        .map_err(|error| format!("cannot write the process id: {error}"))?;
    let running = Running { kind, folder: folder.to_owned(), addresses, file };
    if let Err(reason) = wait(&mut child, &running) {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("{reason}; see its log, {}:\n{}", log_path.display(), tail(&log_path)));
    }
    Ok(running)
}

fn command(root: &Path, kind: Kind, program: &Path, addresses: &[(&'static str, SocketAddr)]) -> Command {
    if kind == Kind::Zipkin {
        let address = addresses[0].1;
        let mut command = Command::new("java");
        // Without the address it would listen on all interfaces.
        command
            .args(["-Xms64m", "-Xmx1g"])
            .arg(format!("-Darmeria.ports[0].ip={}", address.ip()))
            .arg(format!("-Darmeria.ports[0].port={}", address.port()))
            .args(["-Darmeria.ports[0].protocols[0]=http", "-jar"])
            .arg(program)
            .envs([("STORAGE_TYPE", "mem"), ("MEM_MAX_SPANS", "1000000"), ("SELF_TRACING_ENABLED", "false")])
            .env("QUERY_PORT", address.port().to_string());
        return command;
    }
    let mut command = Command::new(program);
    command.arg("--config").arg(root.join(format!("xtask/servers/{}.yaml", kind.name())));
    command.envs(addresses.iter().map(|(name, address)| (name, address.to_string())));
    command
}

/// Free ports for everything the server listens on. Another program could take one before the
/// server starts. That is rare, and the server's log then reports it.
fn free_addresses(kind: Kind) -> Result<Vec<(&'static str, SocketAddr)>, String> {
    let listen = || TcpListener::bind(("127.0.0.1", 0)).and_then(|port| Ok((port.local_addr()?, port)));
    let ports: Result<Vec<_>, _> = kind.ports().iter().map(|&name| Ok((name, listen()?))).collect();
    let ports = ports.map_err(|error: std::io::Error| format!("no free port: {error}"))?;
    Ok(ports.iter().map(|(name, (address, _))| (*name, *address)).collect())
}

fn wait(child: &mut Child, running: &Running) -> Result<(), String> {
    let start = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("it exited before it was up: {status}"));
        }
        if answers(running.addresses[0].1, running.kind.health(), running.kind.is_strict()) {
            return Ok(());
        }
        if start.elapsed() > START_MAX {
            return Err(format!("it was not up within {} s", START_MAX.as_secs()));
        }
        std::thread::sleep(POLL);
    }
}

/// Whether a server responds to a GET, with status 200 if `strict`.
fn answers(address: SocketAddr, path: &str, strict: bool) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).map(|()| head)
    };
    let wanted: &[u8] = if strict { b"HTTP/1.1 200" } else { b"HTTP/1.1 " };
    ask().is_ok_and(|head: [u8; 12]| head.starts_with(wanted))
}

/// Stops the server that was last started from this clone, if it still runs.
///
/// # Errors
///
/// A sentence, if it does not exit.
pub(super) fn stop_recorded(folder: &Path, kind: Kind) -> Result<String, String> {
    let note = pid_file(folder, kind);
    let Ok(text) = fs::read_to_string(&note) else { return Ok("not running".to_owned()) };
    let (pid, program) = text.split_once(' ').unwrap_or((&text, ""));
    let start = Instant::now();
    let mut signal = "-TERM";
    // Another process may have the same id by now, so the program is compared too.
    while is_running(pid, program) {
        if start.elapsed() > 2 * STOP_MAX {
            return Err(format!("process {pid} does not exit: stop it yourself"));
        }
        if start.elapsed() > STOP_MAX {
            signal = "-KILL";
        }
        let _ = Command::new("kill").args([signal, pid]).stderr(Stdio::null()).status();
        std::thread::sleep(POLL);
    }
    let _ = fs::remove_file(&note);
    Ok("stopped".to_owned())
}

fn is_running(pid: &str, program: &str) -> bool {
    let output = Command::new("ps").args(["-ww", "-o", "stat=,command=", "-p", pid]).output();
    output.is_ok_and(|output| {
        let line = String::from_utf8_lossy(&output.stdout);
        // A process that has exited remains as a zombie until its parent, this program, waits for
        // it.
        !line.trim_start().starts_with('Z') && line.contains(program)
    })
}

fn pid_file(folder: &Path, kind: Kind) -> PathBuf {
    folder.join(format!("{}.pid", kind.name()))
}

fn tail(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_is_another_one() {
        let addresses = free_addresses(Kind::Jaeger).unwrap();
        let mut ports: Vec<_> = addresses.iter().map(|(_, address)| address.port()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 5);
        assert!(addresses.iter().all(|(_, address)| address.ip().is_loopback()));
    }

    #[test]
    fn nothing_is_stopped_but_what_was_started() {
        let ours = std::process::id().to_string();
        assert!(!is_running(&ours, "/no/such/program"));
        let own = std::env::current_exe().unwrap();
        assert!(is_running(&ours, &own.file_name().unwrap().to_string_lossy()));
    }

    #[test]
    fn tests_find_servers_by_variables() {
        let address: SocketAddr = "127.0.0.1:7".parse().unwrap();
        let running = Running {
            kind: Kind::Collector,
            folder: PathBuf::new(),
            addresses: vec![("OTLP_GRPC", address)],
            file: Some("x.jsonl".into()),
        };
        let expected =
            [("ASTRACER_E2E_COLLECTOR_OTLP_GRPC", "127.0.0.1:7"), ("ASTRACER_E2E_COLLECTOR_FILE", "x.jsonl")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(running.environment(), expected);
    }
}
