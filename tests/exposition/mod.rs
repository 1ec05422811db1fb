//! A strict reader of Prometheus' text format, for checks of what is exported.

use std::collections::{BTreeMap, BTreeSet};

/// What a page says.
#[derive(Debug, Default)]
pub struct Page {
    kinds: BTreeMap<String, String>,
    /// By `name{label="value",…}`, values still escaped, labels in order of their names.
    series: BTreeMap<String, f64>,
}

type Labels = Vec<(String, String)>;

impl Page {
    /// The value of a series.
    pub fn value(&self, series: &str) -> Option<f64> {
        self.series.get(series).copied()
    }

    /// The names of the metrics, with their kinds.
    #[allow(dead_code, reason = "not every user asks")]
    pub fn kinds(&self) -> &BTreeMap<String, String> {
        &self.kinds
    }

    /// The metric that a sample belongs to: its name without what histograms append.
    fn family<'a>(&'a self, name: &'a str) -> Option<(&'a str, &'a str)> {
        if let Some(kind) = self.kinds.get(name) {
            return Some((name, kind));
        }
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|tail| name.strip_suffix(tail))?;
        self.kinds.get(base).filter(|kind| *kind == "histogram").map(|kind| (base, kind.as_str()))
    }
}

/// Reads a page; refuses what the format does not allow, and histograms that do not add up.
pub fn parse(text: &str) -> Result<Page, String> {
    if !text.ends_with('\n') {
        return Err("the last line has no end".into());
    }
    let mut page = Page::default();
    let (mut helps, mut closed, mut current) = (BTreeSet::new(), BTreeSet::new(), String::new());
    let mut buckets: BTreeMap<(String, Labels), Vec<(f64, f64)>> = BTreeMap::new();
    for line in text.lines() {
        let wrong = |what: &str| format!("{what}: {line}");
        let mut family = |name: &str| {
            if name != current {
                closed.insert(std::mem::replace(&mut current, name.to_owned()));
            }
            if closed.contains(name) { Err(wrong("lines of one metric are apart")) } else { Ok(()) }
        };
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let name = rest.split(' ').next().unwrap_or_default();
            family(name)?;
            if !helps.insert(name.to_owned()) || !well_escaped(rest, false) {
                return Err(wrong("a second help, or one that is not escaped"));
            }
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or(wrong("no type"))?;
            family(name)?;
            if !["counter", "gauge", "histogram"].contains(&kind) {
                return Err(wrong("an unknown type"));
            }
            if page.kinds.insert(name.into(), kind.into()).is_some() {
                return Err(wrong("a second type"));
            }
        } else if !line.starts_with('#') {
            let (name, mut labels, value) = sample(line).ok_or(wrong("no sample"))?;
            let (base, kind) = page.family(&name).ok_or(wrong("no type before it"))?;
            let (base, kind) = (base.to_owned(), kind.to_owned());
            family(&base)?;
            if kind == "counter" && !(value >= 0.0 && name.ends_with("_total")) {
                return Err(wrong("no counter"));
            }
            labels.sort();
            let text: Vec<String> =
                labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
            let braces = if text.is_empty() { String::new() } else { format!("{{{}}}", text.join(",")) };
            if page.series.insert(format!("{name}{braces}"), value).is_some() {
                return Err(wrong("a second value"));
            }
            if kind == "histogram" {
                let le = labels.iter().position(|(label, _)| label == "le").map(|at| labels.remove(at).1);
                let bound = match (name.ends_with("_bucket"), le.as_deref()) {
                    (true, Some("+Inf")) => f64::INFINITY,
                    (true, Some(bound)) => bound.parse().map_err(|_| wrong("no bound"))?,
                    (false, None) => f64::NAN,
                    _ => return Err(wrong("a bound at the wrong place")),
                };
                let of_it = buckets.entry((base, labels)).or_default();
                if !bound.is_nan() {
                    of_it.push((bound, value));
                } else if name.ends_with("_count") && of_it.last() != Some(&(f64::INFINITY, value)) {
                    return Err(wrong("the last bucket is another one"));
                }
            }
        }
    }
    for ((name, labels), of_it) in &buckets {
        let rises = of_it.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        if !rises || of_it.last().is_none_or(|(bound, _)| *bound != f64::INFINITY) {
            return Err(format!("the buckets of {name} {labels:?} do not rise to infinity: {of_it:?}"));
        }
    }
    Ok(page)
}

/// `name{label="value",…} number`.
fn sample(line: &str) -> Option<(String, Labels, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"")?;
            let quote = closing_quote(after)?;
            if !is_name(label)
                || !well_escaped(&after[..quote], true)
                || labels.iter().any(|(l, _)| l == label)
            {
                return None;
            }
            labels.push((label.into(), after[..quote].into()));
            rest = &after[quote + 1..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        rest = &rest[1..];
    }
    let number = rest.strip_prefix(' ')?;
    let value: f64 = number.parse().ok()?;
    (is_name(name) && value.is_finite()).then_some((name.to_owned(), labels, value))
}

fn is_name(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    text.bytes().next().is_some_and(letter) && text.bytes().all(|byte| letter(byte) || byte.is_ascii_digit())
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let end = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        end.then_some(at)
    })
}

/// True if each backslash begins an escape that the format knows.
fn well_escaped(text: &str, quotes: bool) -> bool {
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let known = |c| matches!(c, '\\' | 'n') || quotes && c == '"';
        if c == '\\' && !chars.next().is_some_and(known) {
            return false;
        }
    }
    true
}
