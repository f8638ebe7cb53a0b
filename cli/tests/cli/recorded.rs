//! Servers that block and their clients, in Python and Java, which the tests record under strace.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command;

use crate::outputs::Folder;
use crate::{run, success};

/// Starts both under strace as docs/order.md says. The server waits 20 ms before each answer, so
/// that the client's receives block, and the server's receives and accepts do.
const PROGRAM: &str = r"
import socket, subprocess, sys
server = '''
import socket, sys, time
s = socket.socket(fileno=int(sys.argv[1]))
for _ in range(4):
    c, _ = s.accept()
    while True:
        b = c.recv(100)
        if not b: break
        time.sleep(0.02)
        c.sendall(b'answer ' + b)
    c.close()
'''
client = '''
import socket, sys
for k in range(4):
    c = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
    for i in range(3):
        c.sendall(b'ask %d %d' % (k, i)); c.recv(100)
    c.close()
'''
s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()
def traced(out, code, argument, **more):
    command = ['strace', '-f', '-ttt', '-T', '-yy', '-s', '512', '-o', out]
    return subprocess.Popen(command + [sys.executable, '-I', '-S', '-c', code, str(argument)], **more)
web = traced(sys.argv[1], server, s.fileno(), pass_fds=[s.fileno()])
cli = traced(sys.argv[2], client, s.getsockname()[1])
sys.exit(web.wait(60) or cli.wait(60))
";

/// The same in Java. The client waits for the file with the server's port.
const SERVER: &str = r#"
import java.net.*; import java.nio.file.*;
public class Server {
  public static void main(String[] args) throws Exception {
    try (ServerSocket s = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"))) {
      Path part = Path.of(args[0] + ".part");
      Files.writeString(part, "" + s.getLocalPort());
      Files.move(part, Path.of(args[0]), StandardCopyOption.ATOMIC_MOVE);
      for (int k = 0; k < 4; k++) try (Socket c = s.accept()) {
        byte[] b = new byte[100];
        for (int n; (n = c.getInputStream().read(b)) > 0;) {
          Thread.sleep(20);
          c.getOutputStream().write(("answer " + new String(b, 0, n)).getBytes());
        }
      }
    }
  }
}
"#;
const CLIENT: &str = r#"
import java.net.*; import java.nio.file.*;
public class Client {
  public static void main(String[] args) throws Exception {
    Path file = Path.of(args[0]);
    while (!Files.exists(file)) Thread.sleep(5);
    for (int k = 0; k < 4; k++) try (Socket c = new Socket("127.0.0.1", Integer.parseInt(Files.readString(file)))) {
      for (int i = 0; i < 3; i++) {
        c.getOutputStream().write(("ask " + k + " " + i).getBytes());
        c.getInputStream().read(new byte[100]);
      }
    }
  }
}
"#;

/// Recordings that are tried.
const RECORDINGS: usize = 3;

/// A strace with the times of lines from one on shifted by microseconds.
fn shifted(text: &str, from: usize, by: i64) -> String {
    let mut shifted = String::new();
    for (number, line) in text.lines().enumerate() {
        let mut words = line.splitn(3, ' ').filter(|word| !word.is_empty());
        let (pid, rest) =
            (words.next().unwrap_or_default(), line.split_once(' ').map_or("", |(_, rest)| rest));
        let (stamp, call) = rest.trim_start().split_once(' ').unwrap_or_default();
        let us: i64 = stamp.replace('.', "").parse().expect("a time");
        let us = if number >= from { us + by } else { us };
        let _ = writeln!(shifted, "{pid} {}.{:06} {call}", us / 1_000_000, us % 1_000_000);
    }
    shifted
}

/// A strace without the durations of `-T`.
fn without_durations(text: &str) -> String {
    let cut = |line: &str| match line.rsplit_once(" <0.").or_else(|| line.rsplit_once(" <1.")) {
        Some((line, rest)) if rest.ends_with('>') => format!("{line}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(cut).collect()
}

/// Names a test that does not run here, because a program is missing or tracing is forbidden.
fn skip(name: &str, why: &dyn std::fmt::Debug) {
    let says = format!("skipped {name}: its programs do not run under strace here: {why:?}\n");
    let _ = std::io::stderr().write_all(says.as_bytes());
}

#[test]
fn clocks_of_a_blocking_server_in_python_are_true() {
    let folder = Folder::new("recorded-python");
    let (web, cli) = (folder.join("web.strace"), folder.join("cli.strace"));
    for _ in 0..RECORDINGS {
        let recorded = Command::new("python3").args(["-c", PROGRAM, &web, &cli]).output();
        match [&web, &cli].map(std::fs::read_to_string) {
            [Ok(web), Ok(cli)] if recorded.as_ref().is_ok_and(|output| output.status.success()) => {
                if is_true(&folder, &web, &cli) {
                    return;
                }
            }
            _ => return skip("clocks_of_a_blocking_server_in_python_are_true", &recorded),
        }
    }
    panic!("messages contradict one clock in each of {RECORDINGS} recordings");
}

#[test]
fn clocks_of_a_blocking_server_in_java_are_true() {
    let folder = Folder::new("recorded-java");
    let sources = [folder.file("Server.java", SERVER), folder.file("Client.java", CLIENT)];
    let compiled = Command::new("javac").args(&sources).output();
    let (web, cli, port) = (folder.join("web.strace"), folder.join("cli.strace"), folder.join("port"));
    let traced = |out: &str, class: &str| {
        let strace = ["-f", "-ttt", "-T", "-yy", "-s", "512", "-o", out];
        let java =
            ["java", "-Xint", "-XX:+UseSerialGC", "-cp", &folder.join(""), class, &port].map(str::to_owned);
        Command::new("strace").args(strace).args(java).spawn()
    };
    if !compiled.as_ref().is_ok_and(|output| output.status.success()) {
        return skip("clocks_of_a_blocking_server_in_java_are_true", &compiled);
    }
    let is_recorded = |child: &mut std::io::Result<std::process::Child>| {
        child.as_mut().is_ok_and(|child| child.wait().is_ok_and(|status| status.success()))
    };
    for _ in 0..RECORDINGS {
        let _ = std::fs::remove_file(&port);
        let mut both = [traced(&web, "Server"), traced(&cli, "Client")];
        match (both.iter_mut().all(is_recorded), [&web, &cli].map(std::fs::read_to_string)) {
            (true, [Ok(web), Ok(cli)]) => {
                if is_true(&folder, &web, &cli) {
                    return;
                }
            }
            _ => return skip("clocks_of_a_blocking_server_in_java_are_true", &both),
        }
    }
    panic!("messages contradict one clock in each of {RECORDINGS} recordings");
}

/// On one clock, the hosts' clocks differ by nothing that is more than the stated error, and no
/// event is moved; a clock that is shifted is found within its error, and one that was set, too,
/// with and without the durations of calls. False if messages contradict one clock: the machine's
/// own was set meanwhile.
fn is_true(folder: &Folder, web_text: &str, cli_text: &str) -> bool {
    let order = |web_text: &str, cli_text: &str| -> serde_json::Value {
        let web = folder.file("web.strace", web_text);
        let cli = folder.file("cli.strace", cli_text);
        let args = ["order", &format!("web={web}"), &format!("cli={cli}"), "--json"];
        serde_json::from_str(&success(&run(&args))).expect("JSON")
    };
    // The clock that is not the reference: its host, offset and error, and the pieces' offsets.
    let compared = |report: &serde_json::Value| {
        let clocks = report["clocks"].as_array().expect("a list");
        let clock = clocks.iter().find(|clock| clock["evidence"] != "reference").expect("two hosts");
        let sign = if clock["host"] == "web" { 1 } else { -1 };
        let pieces = clock["pieces"].as_array().cloned().unwrap_or_default();
        let offsets: Vec<i64> = match &pieces[..] {
            [] => vec![clock["ahead_ns"].as_i64().expect("a number")],
            pieces => pieces.iter().filter_map(|piece| piece["ahead_ns"].as_i64()).collect(),
        };
        (
            offsets.into_iter().map(|ahead| sign * ahead).collect::<Vec<_>>(),
            clock["within_ns"].as_i64().expect("bounded"),
        )
    };
    let middle = web_text.lines().position(|line| line.contains("ask 2 0")).expect("a request") - 1;
    for (from, by) in [(0, 0), (0, 500_000), (0, -300_000), (middle, 500_000), (middle, -500_000)] {
        let shifted = shifted(web_text, from, by);
        let untimed = (without_durations(&shifted), without_durations(cli_text));
        for (web_text, cli_text) in [(&*shifted, cli_text), (&untimed.0, &untimed.1)] {
            let report = order(web_text, cli_text);
            let clocks = report["clocks"].as_array().expect("a list");
            if by == 0 && clocks.iter().any(|clock| clock["messages_against"] != 0) {
                return false;
            }
            let (offsets, within) = compared(&report);
            let expected: &[i64] = if from == 0 { &[by] } else { &[0, by] };
            assert_eq!(offsets.len(), expected.len(), "{from} {by}: {}", report["clocks"]);
            for (found, expected) in offsets.iter().zip(expected) {
                let off = (found - expected * 1_000).abs();
                assert!(off <= within, "{from} {by}: {}", report["clocks"]);
            }
            // Where a clock was set, the errors of both lines meet, and the few calls between two
            // messages may be on either side.
            let most = if from == 0 { 0 } else { 2 * within };
            let moved = &report["moved"];
            let is_small = moved["largest_ns"].as_i64().is_some_and(|moved| moved <= most);
            let are_few = from > 0 && moved["events"].as_u64().is_some_and(|events| events <= 3);
            assert!(is_small || are_few, "{from} {by}: {} {}", report["moved"], report["clocks"]);
            let counts = &report["constraints"];
            assert_eq!((&counts["CA"], &counts["SR"]), (&4.into(), &24.into()), "{report}");
        }
    }
    true
}
