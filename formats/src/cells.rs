//! The cells of one CSV row.

use csv_core::ReadRecordResult;

/// The cells of one row, unquoted.
pub(super) struct Cells {
    reader: csv_core::Reader,
    text: Vec<u8>,
    ends: Vec<usize>,
    count: usize,
}

impl Default for Cells {
    fn default() -> Self {
        // `csv_core::Reader::default()` lacks the transition tables.
        Self { reader: csv_core::Reader::new(), text: Vec::new(), ends: Vec::new(), count: 0 }
    }
}

impl Cells {
    /// Splits a line, which has no line end.
    ///
    /// # Errors
    ///
    /// If the line is not UTF-8, or has an unclosed quote.
    pub(super) fn split(&mut self, line: &[u8]) -> Result<(), String> {
        self.count = 0;
        if std::str::from_utf8(line).is_err() {
            return Err("invalid UTF-8".to_owned());
        }
        // A row has at most as much text as its line, and at most one more cell than commas.
        self.text.resize(self.text.len().max(line.len()), 0);
        let cells = memchr::memchr_iter(b',', line).count() + 2;
        self.ends.resize(self.ends.len().max(cells), 0);
        self.reader.reset();
        let (first, consumed, written, ended) = self.reader.read_record(line, &mut self.text, &mut self.ends);
        if first != ReadRecordResult::InputEmpty || consumed < line.len() {
            return Err("line break inside a row".to_owned());
        }
        // Empty input tells the parser that the row is complete.
        let (last, _, _, ended_last) =
            self.reader.read_record(&[], &mut self.text[written..], &mut self.ends[ended..]);
        if last != ReadRecordResult::Record {
            return Err("unclosed quote".to_owned());
        }
        self.count = ended + ended_last;
        Ok(())
    }

    /// The number of cells.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The text of a cell; empty if the row has no such cell.
    pub(super) fn get(&self, index: usize) -> &str {
        if index >= self.count {
            return "";
        }
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        std::str::from_utf8(&self.text[start..self.ends[index]]).unwrap_or("")
    }
}
