//! The threads, processes and hosts of events while they are read.

use std::collections::HashMap;

use rapidhash::fast::RandomState;

use crate::points::{Events, Process, Thread};

type Map<K, V> = HashMap<K, V, RandomState>;

/// Numbers of names.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    threads: Map<(String, String), u32>,
    processes: Map<(u32, String), u32>,
    hosts: Map<String, u32>,
}

impl Threads {
    /// The thread of this name, in a process and on a host that may be unknown. Threads of one name
    /// in different groups are different.
    pub(crate) fn thread(
        &mut self,
        events: &mut Events,
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
        let host = self.host(events, host);
        let process = self.process(events, host, process);
        events.threads.push(Thread { name: name.to_owned(), process });
        let index = self.threads.len() as u32;
        self.threads.insert(key, index);
        index
    }

    /// The number of a process of a host.
    fn process(&mut self, events: &mut Events, host: u32, name: &str) -> u32 {
        let processes = &mut events.processes;
        *self.processes.entry((host, name.to_owned())).or_insert_with_key(|(_, name)| {
            processes.push(Process { name: name.clone(), host });
            processes.len() as u32 - 1
        })
    }

    /// The number of a host.
    pub(crate) fn host(&mut self, events: &mut Events, name: &str) -> u32 {
        if let Some(&found) = self.hosts.get(name) {
            return found;
        }
        events.hosts.push(name.to_owned());
        let index = self.hosts.len() as u32;
        self.hosts.insert(name.to_owned(), index);
        index
    }
}

/// Where the events of a file belong.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    /// The host, if the user names it.
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

/// The host of files that name none.
pub(crate) fn or_local(host: &str) -> &str {
    if host.is_empty() { "local" } else { host }
}
