//! Child processes of this program, with a line protocol over their pipes, and the memory and
//! processor time of a process.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

pub(crate) struct Child {
    child: std::process::Child,
    /// `None` only during the drop.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Child {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let own = std::env::current_exe().expect("this program");
        let mut child = Command::new(own)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("piped"));
        Child { child, input, output: BufReader::new(output) }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).expect("readable") > 0, "the process ended");
        line.trim_end().to_owned()
    }

    pub(crate) fn say(&mut self, word: &str) {
        let input = self.input.as_mut().expect("piped");
        writeln!(input, "{word}").and_then(|()| input.flush()).expect("it listens");
    }
}

impl Drop for Child {
    /// Closes the child's input, at which sinks and receivers remove their folders and exit. Kills
    /// the child if it still runs after two seconds.
    fn drop(&mut self) {
        drop(self.input.take());
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Resident bytes of a process (`self` or a number).
pub(crate) fn resident(process: &str) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{process}/statm")).expect("Linux");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}

/// Processor time of all threads of a process, in steps of 10 ms.
pub(crate) fn processor_time(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("Linux");
    let fields: Vec<&str> = stat.rsplit_once(") ").expect("a name").1.split(' ').collect();
    // utime and stime, fields 14 and 15 of proc_pid_stat(5); the first here is field 3.
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum();
    Duration::from_millis(ticks * 10)
}

pub(crate) fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
