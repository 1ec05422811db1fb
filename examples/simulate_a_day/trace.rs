//! The trace: a line for every event, and a hash of all lines. Two days are equal if their hashes are.

use std::fmt::Arguments;
use std::fs::File;
use std::hash::Hasher;
use std::io::{BufWriter, Write};
use std::path::Path;

use siphasher::sip::SipHasher24;

use crate::trouble::Trouble;
use stationmaster::Timestamp;

pub(crate) struct Trace {
    begin: Timestamp,
    hasher: SipHasher24,
    file: Option<BufWriter<File>>,
    line: Vec<u8>,
}

impl Trace {
    pub(crate) fn new(begin: Timestamp, file: Option<&Path>) -> Result<Self, Trouble> {
        let create = |file: &Path| {
            File::create(file)
                .map_err(|error| Trouble::Input(format!("cannot write {}: {error}", file.display())))
        };
        let file = file.map(create).transpose()?.map(BufWriter::new);
        Ok(Self { begin, hasher: SipHasher24::new(), file, line: Vec::new() })
    }

    /// Writes an event at an instant. The line begins with the seconds since the beginning.
    pub(crate) fn note(&mut self, now: Timestamp, what: Arguments<'_>) -> Result<(), Trouble> {
        let micros = now.as_micros() - self.begin.as_micros();
        self.line.clear();
        writeln!(self.line, "{}.{:06} {what}", micros / 1_000_000, micros % 1_000_000)?;
        self.hasher.write(&self.line);
        if let Some(file) = &mut self.file {
            file.write_all(&self.line)?;
        }
        Ok(())
    }

    /// Returns the hash of all lines.
    pub(crate) fn finish(mut self) -> Result<u64, Trouble> {
        if let Some(file) = &mut self.file {
            file.flush()?;
        }
        Ok(self.hasher.finish())
    }
}
