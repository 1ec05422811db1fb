//! How the columns of a table share the width of a terminal.

use comfy_table::Table;

/// A place where a key may be broken. It takes no column. Texts of tasks do not contain it, because it is escaped.
pub const SOFT: char = '\u{200b}';

/// The empty columns after each column.
pub const GAP: u16 = 2;

/// Where a text may be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breaks {
    /// Between words.
    Words,
    /// Within a key: between its names, or if they are too long, at separators in them.
    Key,
    /// Between words, or if they are too long, within them like keys.
    Keys,
}

impl Breaks {
    /// Returns the characters after which it may be broken at this step. Later steps are for tables that need more room.
    fn separators(self, step: usize) -> &'static [char] {
        match (self, step) {
            (Self::Words, _) | (Self::Keys, 0) => &[' '],
            (Self::Key | Self::Keys, 0 | 1) => &['/', ' '],
            (Self::Key | Self::Keys, _) => &['/', ' ', '-', '_', '.', ':'],
        }
    }
}

const STEPS: usize = 3;

/// Longer words of messages are broken rather than that other columns are wrapped more.
const WORD: usize = 24;

/// Where keys are broken, and how wide each column is.
#[derive(Debug)]
pub struct Layout {
    step: usize,
    pub widths: Vec<u16>,
}

impl Layout {
    /// Returns a layout that breaks no word of these columns, or if they do not fit, only the longest words.
    pub fn new(width: u16, columns: &[Vec<(&str, Breaks)>]) -> Self {
        let gaps = columns.len() * usize::from(GAP);
        let open = usize::from(width).saturating_sub(gaps);
        let max = |widths: &mut dyn Iterator<Item = usize>| widths.max().unwrap_or(0);
        let full = |texts: &Vec<(&str, Breaks)>| max(&mut texts.iter().map(|(text, _)| columns_of(text)));
        let mut full: Vec<usize> = columns.iter().map(full).collect();
        let mut layout = Self { step: 0, widths: Vec::new() };
        let mut least = Vec::new();
        for step in 0..STEPS {
            layout.step = step;
            let part = |text: &(&str, Breaks)| {
                let longest = max(&mut layout.parts(text.0, text.1).into_iter());
                if text.1 == Breaks::Words { longest.min(WORD) } else { longest }
            };
            least = columns.iter().map(|texts| max(&mut texts.iter().map(part))).collect();
            // A list of keys leaves half of the room to the others, if it can be broken more.
            let most = if step == 0 { open / 2 } else { open };
            if least.iter().sum::<usize>() <= open && least.iter().all(|least| *least <= most) {
                break;
            }
        }
        loop {
            let widths = shared(open, &least, &full);
            let mut is_final = true;
            for (at, texts) in columns.iter().enumerate() {
                let used = |text: &(&str, Breaks)| layout.used(text.0, text.1, widths[at]);
                // What a column does not need after it is wrapped is left to the others.
                let used = max(&mut texts.iter().map(used));
                if used < widths[at] {
                    (full[at], is_final) = (used, false);
                    least[at] = least[at].min(used);
                }
            }
            if is_final {
                layout.widths =
                    widths.iter().map(|width| u16::try_from(*width).unwrap_or(u16::MAX)).collect();
                return layout;
            }
        }
    }

    /// Returns the text with each place where it may be broken, if these are not spaces.
    pub fn soft(&self, text: &str, breaks: Breaks) -> String {
        let separators = breaks.separators(self.step);
        let mut soft = String::with_capacity(text.len());
        for char in text.chars() {
            soft.push(char);
            if separators.contains(&char) {
                soft.push(SOFT);
            }
        }
        soft
    }

    /// Returns the widths of the parts that are not broken.
    fn parts(&self, text: &str, breaks: Breaks) -> Vec<usize> {
        match breaks {
            Breaks::Words => text.split(' ').map(columns_of).collect(),
            _ => self.soft(text, breaks).split(SOFT).map(columns_of).collect(),
        }
    }

    /// Returns how many columns of a width the text takes.
    fn used(&self, text: &str, breaks: Breaks, width: usize) -> usize {
        let all = columns_of(text);
        if all <= width {
            return all;
        }
        let (mut longest, mut line) = (0, 0);
        for part in self.parts(text, breaks) {
            // comfy_table counts a column between parts, even where none is shown.
            line = if line > 0 && line + 1 + part <= width { line + 1 + part } else { part };
            longest = longest.max(line);
        }
        longest.min(width)
    }
}

/// Shares the open columns: as evenly as possible, but each between its least and its full width. If even the least
/// widths are too many, the largest of them are reduced.
fn shared(open: usize, least: &[usize], full: &[usize]) -> Vec<usize> {
    let fits = |widths: &Vec<usize>| widths.iter().sum::<usize>() <= open;
    let zip = || least.iter().zip(full);
    let level = |most: usize| zip().map(|(least, full)| most.max(*least).min(*full)).collect::<Vec<_>>();
    let reduced = |most: usize| zip().map(|(least, full)| most.min(*least).min(*full)).collect::<Vec<_>>();
    let most = open.min(full.iter().copied().max().unwrap_or(0));
    let mut widths = (1..=most).rev().map(level).find(fits);
    widths = widths.or_else(|| (1..=most).rev().map(reduced).find(fits));
    widths.unwrap_or_else(|| vec![1; full.len()])
}

/// Returns how many columns a text takes.
fn columns_of(text: &str) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    let mut table = Table::new();
    table.add_row([text]);
    table.column_max_content_widths().first().map_or(0, |width| usize::from(*width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_broken_only_if_they_must_be() {
        let columns = [vec![("prod/nightly-long/r1", Breaks::Key)], vec![("a word or two", Breaks::Words)]];
        let full = Layout::new(40, &columns);
        assert_eq!(full.widths, [20, 13]);
        let wide = Layout::new(30, &columns);
        assert_eq!((&*wide.widths, &*wide.soft("a/b-c", Breaks::Key)), (&[13, 13][..], "a/\u{200b}b-c"));
        let narrow = Layout::new(18, &columns);
        assert_eq!((&*narrow.widths, &*narrow.soft("b-c", Breaks::Key)), (&[8, 6][..], "b-\u{200b}c"));
        assert_eq!(Layout::new(13, &columns).widths, [5, 4]);
        assert_eq!(Layout::new(1, &columns).widths, [1, 1]);
        let keys = [vec![("a/b, c/d", Breaks::Keys)]];
        assert_eq!(Layout::new(12, &keys).soft("a/b, c/d", Breaks::Keys), "a/b, \u{200b}c/d");
        let long = "x".repeat(60);
        let word = [vec![(&*long, Breaks::Words)], vec![("one two", Breaks::Words)]];
        assert_eq!(Layout::new(40, &word).widths, [29, 7], "a word gives way");
        assert_eq!(Layout::new(6, &keys).soft("a/b, c/d", Breaks::Keys), "a/\u{200b}b, \u{200b}c/\u{200b}d");
    }
}
