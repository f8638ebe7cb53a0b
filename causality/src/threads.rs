//! The threads, processes and hosts of events while they are read.

use std::collections::HashMap;

use rapidhash::fast::RandomState;

use crate::points::{Points, Process, Thread};

type Map<K, V> = HashMap<K, V, RandomState>;

/// Numbers of names.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    threads: Map<(String, String), u32>,
    processes: Map<(u32, String), u32>,
    hosts: Map<String, u32>,
    /// The first host with each clock.
    clocks: Map<String, u32>,
}

impl Threads {
    /// The thread of this name, in a process and on a host that may be unknown. Threads of one name
    /// in different groups are different.
    pub(crate) fn thread(
        &mut self,
        events: &mut Points,
        name: &str,
        process: &str,
        host: &str,
        group: &str,
    ) -> u32 {
        let key = (name.to_owned(), group.to_owned());
        if let Some(&found) = self.threads.get(&key) {
            // A fork names its child before the child's own events name its process.
            let known = events.threads[found as usize].process;
            let own = &events.processes[known as usize];
            if !process.is_empty() && own.name.is_empty() {
                let host = own.host;
                events.threads[found as usize].process = self.process(events, host, process);
            }
            return found;
        }
        let host = if host.is_empty() { name.rsplit_once('@').map_or("", |(_, host)| host) } else { host };
        let host = self.host(events, host, host);
        let process = self.process(events, host, process);
        events.threads.push(Thread { name: name.to_owned(), process, is_log: false });
        let index = events.threads.len() as u32 - 1;
        self.threads.insert(key, index);
        index
    }

    /// The number of a process of a host.
    fn process(&mut self, events: &mut Points, host: u32, name: &str) -> u32 {
        let processes = &mut events.processes;
        *self.processes.entry((host, name.to_owned())).or_insert_with_key(|(_, name)| {
            processes.push(Process { name: name.clone(), host });
            processes.len() as u32 - 1
        })
    }

    /// The number of a host; `clock` names the machine whose clock it shares with others.
    pub(crate) fn host(&mut self, events: &mut Points, name: &str, clock: &str) -> u32 {
        if let Some(&found) = self.hosts.get(name) {
            return found;
        }
        let index = events.hosts.len() as u32;
        events.hosts.push(name.to_owned());
        self.hosts.insert(name.to_owned(), index);
        let clock = *self.clocks.entry(clock.to_owned()).or_insert(index);
        events.clocks.push(clock);
        index
    }

    /// The number of a host that is known already.
    pub(crate) fn find_host(&self, name: &str) -> Option<u32> {
        self.hosts.get(name).copied()
    }

    /// Gives hosts other names. Hosts that have one name then are one, and so are their processes.
    pub(crate) fn rename_hosts(&mut self, events: &mut Points, renamed: impl Fn(&str) -> Option<String>) {
        let hosts: Vec<String> = std::mem::take(&mut events.hosts);
        if !hosts.iter().any(|host| renamed(host).is_some()) {
            events.hosts = hosts;
            return;
        }
        let (processes, threads) = (std::mem::take(&mut events.processes), std::mem::take(&mut self.threads));
        events.clocks.clear();
        *self = Self::default();
        let names: Vec<String> =
            hosts.iter().map(|host| renamed(host).unwrap_or_else(|| host.clone())).collect();
        let numbers: Vec<u32> = names.iter().map(|name| self.host(events, name, name)).collect();
        let of_processes: Vec<u32> = processes
            .iter()
            .map(|process| self.process(events, numbers[process.host as usize], &process.name))
            .collect();
        for thread in &mut events.threads {
            let host = processes[thread.process as usize].host as usize;
            if let Some(bare) = thread.name.strip_suffix(&*hosts[host]) {
                thread.name = format!("{bare}{}", names[host]);
            }
            thread.process = of_processes[thread.process as usize];
        }
        for ((_, group), index) in threads {
            self.threads.insert((events.threads[index as usize].name.clone(), group), index);
        }
    }
}

/// Where the events of a file belong.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    /// The host that the user names, or a provisional name.
    pub(crate) host: String,
    /// The file's name without folder and endings.
    pub(crate) process: String,
    /// Files of one process, of which each may hold one thread: folder and process.
    pub(crate) group: String,
    /// True if the order of lines is the order of events.
    pub(crate) is_ordered: bool,
    /// True if vector clocks are the order of events.
    pub(crate) has_clocks: bool,
}

/// The host of a file that names none, until all files are known: `group` is its folder and
/// process.
pub(crate) fn provisional(group: &str) -> String {
    format!("\0{group}")
}

/// The group of a host that [`provisional`] made.
pub(crate) fn group_of(host: &str) -> Option<&str> {
    host.strip_prefix('\0')
}
