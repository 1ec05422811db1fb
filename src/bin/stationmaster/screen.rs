//! The output of a command: tables for people, or JSON lines for programs.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, Width, presets,
};
use serde::Serialize;
use serde_json::Value;
use stationmaster::{TaskState, Timestamp};

use crate::args::{Options, When};
use crate::layout::{Breaks, GAP, Layout, SOFT};
use crate::text::{visible, visible_json};
use crate::times::when;

/// Fields of the crate's types that hold a host's own data.
const HIDDEN: [&str; 4] = ["payload", "value", "context", "attributes"];

/// How output is formatted.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    json: bool,
    colour: bool,
    width: Option<u16>,
    payload: bool,
}

impl Style {
    pub fn new(options: &Options) -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_terminal = io::stdout().is_terminal();
        let colour = match options.color {
            When::Always => true,
            When::Never => false,
            When::Auto => {
                is_terminal
                    && !is_set("NO_COLOR")
                    && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
        };
        let terminal = || if is_terminal { Table::new().width() } else { None };
        Self { json: options.json, colour, width: options.width.or_else(terminal), payload: options.payload }
    }
}

/// A cell of a table. Its text is already escaped.
#[derive(Debug, Clone)]
pub struct Field {
    text: String,
    tint: Option<Color>,
    is_number: bool,
    breaks: Breaks,
}

impl Field {
    pub fn tint(mut self, tint: Option<Color>) -> Self {
        self.tint = tint;
        self
    }
}

/// Returns a cell of this text.
pub fn field(text: impl Display) -> Field {
    Field { text: visible(text), tint: None, is_number: false, breaks: Breaks::Words }
}

/// Returns a cell of this text, or an empty one.
pub fn maybe(text: Option<impl Display>) -> Field {
    text.map_or_else(|| field(""), field)
}

/// Returns a cell of JSON, which can still be typed.
pub fn json(json: &str) -> Field {
    Field { text: visible_json(json), tint: None, is_number: false, breaks: Breaks::Words }
}

/// Returns a cell of a number.
pub fn number(number: impl Display) -> Field {
    Field { is_number: true, ..field(number) }
}

/// Returns a cell of a state.
pub fn state(state: TaskState) -> Field {
    field(state).tint(match state {
        TaskState::Failed => Some(Color::Red),
        TaskState::Success => Some(Color::Green),
        TaskState::Queued | TaskState::Running => Some(Color::Cyan),
        TaskState::UpForRetry | TaskState::Cancelled => Some(Color::Yellow),
        _ => None,
    })
}

/// The output of one round of a command, until it is written.
#[derive(Debug)]
pub struct Screen {
    style: Style,
    pub now: Timestamp,
    text: String,
}

impl Screen {
    pub fn new(style: Style, now: Timestamp) -> Self {
        Self { style, now, text: String::new() }
    }

    /// Returns true if the output is for programs.
    pub fn is_json(&self) -> bool {
        self.style.json
    }

    /// Returns true if the host's own data is shown.
    pub fn shows_payloads(&self) -> bool {
        self.style.payload
    }

    /// Returns a record as JSON, without hidden fields.
    pub fn record(&self, record: &impl Serialize) -> Result<Value, io::Error> {
        let mut value = serde_json::to_value(record).map_err(io::Error::other)?;
        if let (false, Value::Object(fields)) = (self.style.payload, &mut value) {
            HIDDEN.iter().for_each(|name| drop(fields.remove(*name)));
        }
        Ok(value)
    }

    /// Adds a line for programs.
    pub fn line(&mut self, value: &Value) {
        self.text.push_str(&visible_json(&value.to_string()));
        self.text.push('\n');
    }

    /// Adds a table for people. Columns without any text are omitted, which leaves more room for the others. A table
    /// without rows adds nothing.
    pub fn table(&mut self, heads: &[&str], rows: impl IntoIterator<Item = Vec<Field>>) {
        let mut rows: Vec<Vec<Field>> = rows.into_iter().collect();
        let has_text =
            |at: &usize| rows.iter().any(|row| row.get(*at).is_some_and(|field| !field.text.is_empty()));
        let columns: Vec<usize> = (0..heads.len()).filter(has_text).collect();
        let head: Vec<String> = columns.iter().map(|at| heads[*at].to_uppercase()).collect();
        for row in &mut rows {
            *row = columns.iter().filter_map(|at| row.get(*at).cloned()).collect();
        }
        self.add(&head, &rows);
    }

    /// Adds one record for people: a name and a value on each line. Empty values are omitted.
    pub fn sheet(&mut self, lines: impl IntoIterator<Item = (&'static str, Field)>) {
        let lines = lines.into_iter().filter(|(_, value)| !value.text.is_empty());
        let rows: Vec<Vec<Field>> = lines.map(|(name, value)| vec![field(name), value]).collect();
        self.add(&[], &rows);
    }

    /// Adds a sentence for people, which is not in the output for programs. Its text must be visible.
    pub fn say(&mut self, sentence: &str) {
        if !self.style.json {
            self.text.push_str(sentence);
            self.text.push('\n');
        }
    }

    /// Returns an instant, absolute and relative.
    pub fn when(&self, at: Timestamp) -> Field {
        field(when(at, self.now))
    }

    pub fn maybe_when(&self, at: Option<Timestamp>) -> Field {
        at.map_or_else(|| field(""), |at| self.when(at))
    }

    /// Writes everything at once, so that a repeated screen does not flicker.
    pub fn write(self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(self.text.as_bytes())?;
        out.flush()
    }

    fn plain(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        if self.style.colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        match self.style.width {
            Some(width) => {
                table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
            }
            None => {
                table.set_content_arrangement(ContentArrangement::Disabled);
            }
        }
        table
    }

    /// Adds rows with a head, or with a name at the beginning of each.
    fn add(&mut self, head: &[String], rows: &[Vec<Field>]) {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        if columns == 0 {
            return;
        }
        let texts = |at: usize| {
            let head = head.get(at).map(|head| (head.as_str(), Breaks::Words));
            let texts = rows.iter().filter_map(|row| row.get(at));
            head.into_iter().chain(texts.map(|field| (field.text.as_str(), field.breaks))).collect()
        };
        let layout = self.style.width.map(|width| {
            let texts: Vec<Vec<(&str, Breaks)>> = (0..columns).map(texts).collect();
            Layout::new(width, &texts)
        });
        let mut table = self.plain();
        let bold = |cell: Cell| cell.add_attribute(Attribute::Bold);
        if !head.is_empty() {
            table.set_header(head.iter().map(|head| bold(Cell::new(head))));
        }
        for row in rows {
            let is_name = |at: usize| head.is_empty() && at == 0;
            let cells = row.iter().map(|field| cell(field, layout.as_ref())).enumerate();
            table.add_row(cells.map(|(at, cell)| if is_name(at) { bold(cell) } else { cell }));
        }
        for (at, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, GAP));
            if let Some(width) = layout.as_ref().and_then(|layout| layout.widths.get(at)) {
                let width = Width::Fixed(width.saturating_add(GAP));
                column.set_constraint(ColumnConstraint::Absolute(width));
            }
        }
        for line in table.lines() {
            self.text.push_str(&line.trim_end().replace(SOFT, ""));
            self.text.push('\n');
        }
    }
}

fn cell(field: &Field, layout: Option<&Layout>) -> Cell {
    let mut cell = match layout.filter(|_| field.breaks != Breaks::Words) {
        Some(layout) => Cell::new(layout.soft(&field.text, field.breaks)).set_delimiter(SOFT),
        None => Cell::new(&field.text),
    };
    if let Some(tint) = field.tint {
        cell = cell.fg(tint);
    }
    if field.is_number {
        cell = cell.set_alignment(CellAlignment::Right);
    }
    cell
}

/// Returns a key, which is broken only at its separators.
pub fn key(key: impl Display) -> Field {
    Field { breaks: Breaks::Key, ..field(key) }
}

/// Returns a text that names keys. A key in it is broken only if it is too long, and then at its separators.
pub fn keys(text: impl Display) -> Field {
    Field { breaks: Breaks::Keys, ..field(text) }
}
