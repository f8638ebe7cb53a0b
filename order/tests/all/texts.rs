//! Reads texts as the tool reads files: by the format that is found in them.

use std::sync::Arc;

use astracer_causality::intake::Intake;
use astracer_formats::{Limits, detect, events, logs};
use astracer_model::sink::Sink as _;

/// Reads one text of a host under this file name.
pub(crate) fn read(intake: &mut Intake<'_>, host: &str, name: &str, text: &str) {
    intake.set_host(host);
    let (limits, options) = (Limits::default(), logs::Options::default());
    let (file, mut input) = (Arc::from(name), text.as_bytes());
    if let Some(format) = events::detect(text.as_bytes(), &options) {
        intake.file(&file, format.into());
        events::read(format, &mut input, &file, &limits, &options, intake);
    } else if let detect::Detection::Format(format) = detect::detect(text.as_bytes(), true) {
        intake.file(&file, format.into());
        astracer_formats::read(format, &mut input, &file, &limits, intake);
    } else {
        let format = logs::detect(text.as_bytes(), &options).expect("a format");
        intake.file(&file, format.into());
        logs::read(format, &mut input, &file, &limits, &options, intake);
    }
}
