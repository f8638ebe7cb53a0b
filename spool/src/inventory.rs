//! The files of a folder: segments of the two logs, and everything else, which is left alone.

use std::io;

use crate::damage::{Damage, Damages};
use crate::disk::Disk;
use crate::segment::{Segment, file_name};

/// Numbers from here on are not ours: counting by one does not reach them.
const NUMBER_MAX: u64 = 1 << 62;

#[derive(Debug, Default)]
pub(crate) struct Inventory {
    /// The segments of waiting records, by their numbers.
    pub(crate) live: Vec<Segment>,
    /// The segments of dead letters, by their numbers.
    pub(crate) dead: Vec<Segment>,
    pub(crate) damage: Damages,
}

impl Inventory {
    /// Lists a folder. Waiting records of segments before number `begin` are settled.
    pub(crate) fn take(disk: &dyn Disk, begin: u64) -> io::Result<Self> {
        let mut inventory = Inventory::default();
        let mut names = disk.list()?;
        names.sort_unstable();
        for name in names {
            if matches!(&*name, "lock" | "cursor") {
                continue;
            }
            match log_of(&name) {
                Some("live") => add(&mut inventory.live, &mut inventory.damage, disk, ("live", name), begin)?,
                Some(_) => add(&mut inventory.dead, &mut inventory.damage, disk, ("dead", name), 0)?,
                None => inventory.damage.push(foreign(disk, &name)),
            }
        }
        inventory.live.sort_by_key(|segment| segment.number);
        inventory.dead.sort_by_key(|segment| segment.number);
        Ok(inventory)
    }
}

fn log_of(name: &str) -> Option<&'static str> {
    let stem = name.strip_suffix(".seg")?;
    ["live", "dead"].into_iter().find(|log| stem.strip_prefix(log).is_some_and(|rest| rest.starts_with('-')))
}

/// Adds a segment of a log, or says why the file is left alone.
fn add(
    segments: &mut Vec<Segment>,
    damage: &mut Damages,
    disk: &dyn Disk,
    (log, name): (&str, String),
    begin: u64,
) -> io::Result<()> {
    let digits = name.get(log.len() + 1..name.len() - 4).unwrap_or_default();
    let number = digits.parse().ok().filter(|&number| number < NUMBER_MAX && file_name(log, number) == name);
    let segment = match Segment::open(disk, name.clone(), number) {
        Ok(segment) => segment,
        // Another kind of file, or one that another program made under a name like ours.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput || number.is_none() => {
            damage.push(foreign(disk, &name));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let whole = (0, segment.bytes);
    match segment.header {
        Some(header) if header.number >= NUMBER_MAX => damage.push(foreign(disk, &name)),
        Some(_) if number != Some(segment.number) => {
            // Somebody renamed it, or made a copy.
            let is_known = segments.iter().any(|known| known.number == segment.number)
                || disk.contains(&file_name(log, segment.number))
                || segment.number < begin;
            if is_known {
                let note = Damage::new(&name, whole, "another file has this segment's number; left alone");
                damage.push(Damage { spans: (segment.number < begin).then_some(0), ..note });
            } else {
                let note = Damage::new(&name, whole, "a segment under another name, which is read");
                damage.push(Damage { spans: Some(0), ..note });
                segments.push(segment);
            }
        }
        Some(_) => {
            if segment.is_recovered {
                let note = Damage::new(&name, (0, crate::frame::SEGMENT_START), "damaged segment header");
                damage.push(Damage { spans: Some(0), ..note });
            }
            segments.push(segment);
        }
        None if number.is_some() && segment.bytes == 0 => {
            damage.push(Damage { spans: Some(0), ..Damage::new(&name, whole, "empty segment") });
            segments.push(segment);
        }
        None if number.is_some() => {
            damage.push(Damage::new(
                &name,
                whole,
                "damaged segment header, and no frame that can be verified",
            ));
        }
        None => damage.push(foreign(disk, &name)),
    }
    Ok(())
}

fn foreign(disk: &dyn Disk, name: &str) -> Damage {
    let segment = Segment::open(disk, name.to_owned(), None).ok();
    let bytes = segment.as_ref().map_or(0, |segment| segment.bytes);
    if segment.is_some_and(|segment| segment.header.is_some()) {
        return Damage::new(
            name,
            (0, bytes),
            "a segment of a spool under a foreign name, which is left alone",
        );
    }
    Damage { spans: Some(0), ..Damage::new(name, (0, bytes), "not part of the spool, left alone") }
}
