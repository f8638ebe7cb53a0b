//! Namespaces, their slots and values, and the bytes that they take in a message.
//!
//! Each level knows its bytes in a message, so that a change costs a search in each of the three
//! maps and a bound is checked by one comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::wire::{FIRST, Fields, Reason, SECOND, WireError, field_bytes, put_field, put_head};

type Bytes = Box<[u8]>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    namespaces: BTreeMap<Arc<[u8]>, Arc<Slots>>,
    bytes: usize,
}

/// The slots of one namespace. None of them is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    slots: BTreeMap<Bytes, Slot>,
    /// Without the namespace's own name.
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Slot {
    values: BTreeSet<Bytes>,
    bytes: usize,
}

impl Contents {
    /// The bytes of the message.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.namespaces.is_empty()
    }

    pub(crate) fn names(&self) -> impl DoubleEndedIterator<Item = &Arc<[u8]>> {
        self.namespaces.keys()
    }

    pub(crate) fn slots(&self, name: &[u8]) -> Option<&Slots> {
        self.namespaces.get(name).map(|slots| &**slots)
    }

    /// The bytes of a namespace in the message.
    pub(crate) fn namespace_bytes(&self, name: &[u8]) -> usize {
        self.slots(name).map_or(0, |slots| namespace_bytes(name, slots))
    }

    pub(crate) fn add(&mut self, name: &[u8], key: &[u8], value: &[u8]) {
        self.change(name, |slots| slots.add(key, [value]));
    }

    pub(crate) fn remove(&mut self, name: &[u8], key: &[u8]) {
        self.change(name, |slots| slots.remove(key));
    }

    /// Removes the value of a namespace that is last in byte order. Returns whether there was one.
    pub(crate) fn remove_last(&mut self, name: &[u8]) -> bool {
        self.change(name, Slots::remove_last)
    }

    /// Removes the values for which `is_wanted`, which gets key and value, is false. Returns their
    /// number.
    pub(crate) fn retain(&mut self, name: &[u8], is_wanted: impl Fn(&[u8], &[u8]) -> bool) -> usize {
        let unwanted: Vec<(Bytes, Bytes)> = self
            .slots(name)
            .into_iter()
            .flat_map(Slots::iter)
            .flat_map(|(key, values)| values.map(move |value| (key, value)))
            .filter(|(key, value)| !is_wanted(key, value))
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        if !unwanted.is_empty() {
            self.change(name, |slots| {
                unwanted.iter().for_each(|(key, value)| slots.remove_value(key, value));
            });
        }
        unwanted.len()
    }

    pub(crate) fn take(&mut self, name: &[u8]) -> Option<Arc<Slots>> {
        let slots = self.namespaces.remove(name)?;
        self.bytes -= namespace_bytes(name, &slots);
        Some(slots)
    }

    pub(crate) fn put(&mut self, name: &[u8], slots: Arc<Slots>) {
        self.take(name);
        if !slots.slots.is_empty() {
            self.bytes += namespace_bytes(name, &slots);
            self.namespaces.insert(name.into(), slots);
        }
    }

    /// Unites this with another one, which shares what neither has changed.
    pub(crate) fn merge(&mut self, other: &Contents) {
        for (name, slots) in &other.namespaces {
            match self.namespaces.get(name) {
                None => {
                    self.bytes += namespace_bytes(name, slots);
                    self.namespaces.insert(name.clone(), slots.clone());
                }
                Some(known) if Arc::ptr_eq(known, slots) => {}
                Some(_) => self.change(name, |known| {
                    for (key, slot) in &slots.slots {
                        known.add(key, slot.values.iter().map(|value| &**value));
                    }
                }),
            }
        }
    }

    /// Removes what is in `before` but not in `after`, and adds what is in `after` but not in
    /// `before`.
    #[cfg(feature = "flows")]
    pub(crate) fn apply(&mut self, before: &Contents, after: &Contents) {
        for (name, old) in &before.namespaces {
            let new = after.namespaces.get(name);
            if new.is_some_and(|new| Arc::ptr_eq(old, new)) {
                continue;
            }
            for (key, values) in old.iter() {
                for value in values.filter(|value| !new.is_some_and(|new| new.has_value(key, value))) {
                    self.change(name, |slots| slots.remove_value(key, value));
                }
            }
        }
        for (name, new) in &after.namespaces {
            let old = before.namespaces.get(name);
            if old.is_some_and(|old| Arc::ptr_eq(old, new)) {
                continue;
            }
            for (key, values) in new.iter() {
                for value in values.filter(|value| !old.is_some_and(|old| old.has_value(key, value))) {
                    self.add(name, key, value);
                }
            }
        }
    }

    /// Changes the slots of a namespace, which begins to exist with its first slot and ends with
    /// its last.
    fn change<R>(&mut self, name: &[u8], f: impl FnOnce(&mut Slots) -> R) -> R {
        match self.namespaces.get_mut(name) {
            Some(slots) => {
                self.bytes -= namespace_bytes(name, slots);
                let result = f(Arc::make_mut(slots));
                if slots.slots.is_empty() {
                    self.namespaces.remove(name);
                } else {
                    self.bytes += namespace_bytes(name, slots);
                }
                result
            }
            None => {
                let mut slots = Slots::default();
                let result = f(&mut slots);
                self.put(name, Arc::new(slots));
                result
            }
        }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes);
        for (name, slots) in &self.namespaces {
            put_head(&mut out, FIRST, field_bytes(name.len()) + slots.bytes);
            put_field(&mut out, FIRST, name);
            for (key, slot) in &slots.slots {
                put_head(&mut out, SECOND, slot.bytes);
                put_field(&mut out, FIRST, key);
                for value in &slot.values {
                    put_field(&mut out, SECOND, value);
                }
            }
        }
        out
    }

    /// Reads a message. Repeated namespaces, slots and values are united.
    pub(crate) fn read(bytes: &[u8]) -> Result<Contents, WireError> {
        let mut contents = Contents::default();
        let mut fields = Fields(bytes);
        while let Some(field) = fields.next()? {
            if field.tag == FIRST {
                let name = key_of(field.content)?;
                contents.change(name, |slots| slots.read(field.content))?;
            }
        }
        Ok(contents)
    }
}

impl Slots {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], impl Iterator<Item = &[u8]>)> {
        self.slots.iter().map(|(key, slot)| (&**key, slot.values.iter().map(|value| &**value)))
    }

    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.slots.contains_key(key)
    }

    #[cfg(feature = "flows")]
    fn has_value(&self, key: &[u8], value: &[u8]) -> bool {
        self.slots.get(key).is_some_and(|slot| slot.values.contains(value))
    }

    pub(crate) fn values(&self, key: &[u8]) -> impl Iterator<Item = &[u8]> {
        self.slots.get(key).into_iter().flat_map(|slot| &slot.values).map(|value| &**value)
    }

    fn add<'v>(&mut self, key: &[u8], values: impl IntoIterator<Item = &'v [u8]>) {
        let mut values = values.into_iter().peekable();
        if values.peek().is_none() {
            return;
        }
        if !self.slots.contains_key(key) {
            let slot = Slot { values: BTreeSet::new(), bytes: field_bytes(key.len()) };
            self.bytes += field_bytes(slot.bytes);
            self.slots.insert(key.into(), slot);
        }
        let Some(slot) = self.slots.get_mut(key) else { return };
        self.bytes -= field_bytes(slot.bytes);
        for value in values {
            if !slot.values.contains(value) {
                slot.bytes += field_bytes(value.len());
                slot.values.insert(value.into());
            }
        }
        self.bytes += field_bytes(slot.bytes);
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(slot) = self.slots.remove(key) {
            self.bytes -= field_bytes(slot.bytes);
        }
    }

    fn remove_value(&mut self, key: &[u8], value: &[u8]) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        if slot.values.remove(value) {
            self.bytes -= field_bytes(slot.bytes);
            slot.bytes -= field_bytes(value.len());
            if slot.values.is_empty() {
                self.slots.remove(key);
            } else {
                self.bytes += field_bytes(slot.bytes);
            }
        }
    }

    fn remove_last(&mut self) -> bool {
        let Some((key, slot)) = self.slots.last_key_value() else { return false };
        let Some(value) = slot.values.last() else { return false };
        let (key, value) = (key.clone(), value.clone());
        self.remove_value(&key, &value);
        true
    }

    fn read(&mut self, namespace: &[u8]) -> Result<(), WireError> {
        let mut fields = Fields(namespace);
        while let Some(field) = fields.next()? {
            if field.tag != SECOND {
                continue;
            }
            let key = key_of(field.content)?;
            let mut values = Vec::new();
            let mut fields = Fields(field.content);
            while let Some(field) = fields.next()? {
                if field.tag == SECOND {
                    values.push(field.content);
                }
            }
            self.add(key, values);
        }
        Ok(())
    }
}

fn namespace_bytes(name: &[u8], slots: &Slots) -> usize {
    field_bytes(field_bytes(name.len()) + slots.bytes)
}

/// The required first field of a namespace or of a slot; the last one, if it is repeated.
fn key_of(message: &[u8]) -> Result<&[u8], WireError> {
    let mut key = None;
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        if field.tag == FIRST {
            key = Some(field.content);
        }
    }
    key.ok_or(WireError(Reason::NoKey))
}

/// The bytes of a message with one value.
pub(crate) fn bytes_alone(name: &[u8], key: &[u8], value: &[u8]) -> usize {
    let slot = field_bytes(key.len()) + field_bytes(value.len());
    field_bytes(field_bytes(name.len()) + field_bytes(slot))
}

/// A message that was checked without being taken apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked {
    pub(crate) is_empty: bool,
    /// Whether the bytes are those that [`Contents::write`] gives for what they hold.
    pub(crate) is_canonical: bool,
}

/// The names of the namespaces of a message that was checked. Does not take it apart.
pub(crate) fn names(message: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut fields = Fields(message);
    std::iter::from_fn(move || fields.next().ok().flatten())
        .filter(|field| field.tag == FIRST)
        .filter_map(|field| key_of(field.content).ok())
}

/// Checks a message as [`Contents::read`] does, without allocating.
pub(crate) fn check(message: &[u8]) -> Result<Checked, WireError> {
    let mut checked = Checked { is_empty: true, is_canonical: true };
    let mut last = None;
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        checked.is_canonical &= field.is_canonical && field.tag == FIRST;
        if field.tag == FIRST {
            let name = key_of(field.content)?;
            let namespace = check_parts(field.content, check_slot)?;
            checked.is_empty &= namespace.is_empty;
            checked.is_canonical &= namespace.is_canonical && last < Some(name);
            last = Some(name);
        }
    }
    Ok(checked)
}

fn check_slot(slot: &[u8]) -> Result<(Checked, &[u8]), WireError> {
    let key = key_of(slot)?;
    let checked = check_parts(slot, |value| Ok((Checked { is_empty: false, is_canonical: true }, value)))?;
    Ok((checked, key))
}

/// Checks the parts of a namespace or of a slot, of which `check_one` also returns the name.
fn check_parts<'a>(
    message: &'a [u8],
    check_one: impl Fn(&'a [u8]) -> Result<(Checked, &'a [u8]), WireError>,
) -> Result<Checked, WireError> {
    let mut whole = Checked { is_empty: true, is_canonical: true };
    let mut last = None;
    let mut fields = Fields(message);
    let mut index = 0;
    while let Some(field) = fields.next()? {
        let expected = if index == 0 { FIRST } else { SECOND };
        whole.is_canonical &= field.is_canonical && field.tag == expected;
        index += 1;
        if field.tag == SECOND {
            let (part, name) = check_one(field.content)?;
            whole.is_empty &= part.is_empty;
            whole.is_canonical &= part.is_canonical && last < Some(name);
            last = Some(name);
        }
    }
    whole.is_canonical &= !whole.is_empty;
    Ok(whole)
}
