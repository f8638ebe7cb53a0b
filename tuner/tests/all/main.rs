//! Tests of whole analyses on recordings.

mod shuffled;
