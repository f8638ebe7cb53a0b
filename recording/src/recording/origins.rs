//! The origins of a recording's spans and log records, each stored once.

use std::collections::HashMap;
use std::sync::Arc;

use rapidhash::fast::RandomState;

use crate::intern::{Interner, Symbol};
use crate::origin::{self, Written};
use astracer_model::span::Resource;

/// An origin. Names that are unknown are symbols of the empty text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The host, in [`super::Recording::hosts`].
    pub host: Symbol,
    /// The machine whose clock writes the host's times, among the same names.
    pub clock: Symbol,
    /// The process, in [`super::Recording::processes`].
    pub process: Symbol,
}

impl Origin {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { host: Symbol(0), clock: Symbol(0), process: Symbol(0) };
}

/// The distinct origins, numbered in order of first use.
#[derive(Debug)]
pub(super) struct Origins {
    pub(super) hosts: Interner,
    pub(super) processes: Interner,
    /// Each origin, and its file if only that may state the host.
    rows: Vec<(Origin, Option<u32>)>,
    numbers: HashMap<(Origin, Option<u32>), u32, RandomState>,
    files: Vec<(Arc<str>, Written)>,
    /// The hosts that the places of files state.
    pub(super) of_files: HashMap<Arc<str>, String>,
    /// The host that the user gives to the files that follow; empty if none.
    pub(super) given: String,
    /// The last resource with its file, and their origin.
    last: Option<(Arc<Resource>, Arc<str>, u32)>,
}

impl Default for Origins {
    fn default() -> Self {
        let mut names = [Interner::default(), Interner::default()];
        // The symbol of an unknown name is 0.
        for names in &mut names {
            names.intern("");
        }
        let [hosts, processes] = names;
        let (rows, numbers, files) = (Vec::new(), HashMap::default(), Vec::new());
        let (of_files, given) = (HashMap::new(), String::new());
        Self { hosts, processes, rows, numbers, files, of_files, given, last: None }
    }
}

impl Origins {
    /// The number of the origin that a resource in a file has.
    pub(super) fn of(&mut self, resource: &Arc<Resource>, file: &Arc<str>, written: Written) -> u32 {
        if let Some((last, of_file, number)) = &self.last
            && Arc::ptr_eq(last, resource)
            && Arc::ptr_eq(of_file, file)
        {
            return *number;
        }
        let stated = origin::stated(resource);
        let process = self.processes.intern(&stated.process);
        let (host, clock) = match &*self.given {
            "" => (&*stated.host, &*stated.clock),
            given => (given, given),
        };
        let (host, clock) = (self.hosts.intern(host), self.hosts.intern(clock));
        let file_number = (host == Symbol(0)).then(|| self.file(file, written));
        let row = (Origin { host, clock, process }, file_number);
        let next = self.rows.len() as u32;
        let number = *self.numbers.entry(row).or_insert(next);
        if number == next {
            self.rows.push(row);
        }
        self.last = Some((Arc::clone(resource), Arc::clone(file), number));
        number
    }

    /// The number of a file whose name may state a host.
    pub(super) fn file(&mut self, file: &Arc<str>, written: Written) -> u32 {
        if self.files.last().is_none_or(|(last, _)| last != file) {
            self.files.push((Arc::clone(file), written));
        }
        self.files.len() as u32 - 1
    }

    /// Gives origins without a host the host of their file, once all files are known.
    pub(super) fn finish(&mut self) {
        self.of_files = origin::hosts_of_files(&self.files);
        for (origin, file) in &mut self.rows {
            let name = file.and_then(|file| self.of_files.get(&self.files[file as usize].0));
            if let Some(name) = name {
                (origin.host, origin.clock) = (self.hosts.intern(name), self.hosts.intern(name));
            }
        }
        self.last = None;
    }

    /// The origin with this number.
    pub(super) fn get(&self, number: u32) -> Origin {
        self.rows[number as usize].0
    }
}
