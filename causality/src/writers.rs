//! The writers of log records: host, process and thread as records state them, and their places
//! among the threads of all files.

use std::collections::HashMap;

use astracer_recording::Recording;
use astracer_recording::intern::Symbol;
use astracer_recording::recording::LogView;
use astracer_recording::stem::stem;
use rapidhash::fast::RandomState;

use crate::placing::Known;
use crate::points::{LOCAL, Points};
use crate::threads::Threads;

/// The writers of all records, each once a file.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    pub(crate) all: Vec<Writer>,
    numbers: HashMap<Key, u32, RandomState>,
}

/// File, host, process, service and thread, as the record states them.
type Key = (u32, Symbol, Symbol, Option<Symbol>, Symbol);

/// One thread that wrote to a file. A part that its records do not state is empty.
#[derive(Debug)]
pub(crate) struct Writer {
    host: Box<str>,
    service: Box<str>,
    /// The service as the record states it, which counts as a process of its own.
    stated: Box<str>,
    process: Box<str>,
    thread: Box<str>,
}

/// The thread of a writer's records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The thread in whose order they are.
    pub(crate) chain: u32,
    /// The thread on whose line they are drawn: a traced one that may not have written them in this
    /// order.
    pub(crate) drawn: u32,
}

impl Writers {
    /// The number of the writer of a record.
    pub(crate) fn number(&mut self, recording: &Recording, file: u32, log: LogView<'_>) -> u32 {
        let origin = log.origin();
        let stated = log.stated_service();
        let key = (file, origin.host, origin.process, stated, log.thread_symbol());
        *self.numbers.entry(key).or_insert_with(|| {
            self.all.push(Writer {
                host: recording.hosts().name(origin.host).into(),
                service: log.service().into(),
                stated: stated.map_or("", |stated| recording.services().name(stated)).into(),
                process: recording.processes().name(origin.process).into(),
                thread: log.thread().into(),
            });
            self.all.len() as u32 - 1
        })
    }
}

impl Writer {
    /// The place of the records that this writer wrote to a set of files.
    pub(crate) fn place(
        &self,
        events: &mut Points,
        threads: &mut Threads,
        known: &Known,
        set: &str,
    ) -> Place {
        let stem = stem(set);
        let host = if self.host.is_empty() { LOCAL } else { &*self.host };
        // A strace of the same name is of the same process; else the service's name is better.
        let traced = threads.find_host(host).and_then(|host| known.process(host, stem));
        let is_number = self.process.bytes().all(|byte| byte.is_ascii_digit());
        let process = match traced {
            Some(_) => stem,
            // A container has a name, a process only a number.
            None if self.stated.is_empty() && !is_number => &*self.process,
            None if self.service.is_empty() => stem,
            None => &*self.service,
        };
        // Processes have threads of their own, and one that states none is one thread.
        let own = if self.stated.is_empty() { stem } else { &*self.stated };
        let name = match &*self.thread {
            "" if self.process.is_empty() => own.to_owned(),
            "" if is_number => {
                format!("{own}[{}]", self.process)
            }
            "" => self.process.to_string(),
            thread => thread.to_owned(),
        };
        let group = format!("{set}\0{}\0{}", self.stated, self.process);
        let chain = threads.thread(events, &format!("{name}@{host}"), process, host, &group);
        events.threads[chain as usize].is_log |= self.thread.is_empty();
        let of_chain = events.threads[chain as usize].process;
        let host = events.processes[of_chain as usize].host;
        let drawn = known.thread(events, host, Some(of_chain), &self.thread).unwrap_or(chain);
        Place { chain, drawn }
    }
}
