//! A file imports its own layer and lower ones only, and the two lowest touch nothing outside.
//!
//! Source is read as tokens: comments, documentation and strings count for nothing, and neither does what is compiled
//! for tests only.
#![allow(clippy::panic, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

const LAYERS: [(&str, &[&str]); 7] = [
    ("vocabulary", &["base"]),
    ("pure core", &["core"]),
    ("storage", &["store"]),
    ("operations", &["ops"]),
    ("services", &["service", "tokio", "guide"]),
    ("dashboard", &["dashboard"]),
    ("test support", &["testing"]),
];

/// What the two lowest layers must not name.
const OUTSIDE: [&str; 18] = [
    "Utc::now",
    "Local::now",
    "SystemTime",
    "time::Instant",
    "Instant::now",
    "rand",
    "getrandom",
    "fastrand",
    "hash::RandomState",
    "std::thread",
    "std::fs",
    "std::net",
    "std::io",
    "std::process",
    "std::env",
    "rusqlite",
    "tokio",
    "tokio_postgres",
];

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|(_, modules)| modules.contains(&module))
}

/// A path, with the module that names it.
type Named = (Vec<String>, Vec<String>);

/// All paths in the tokens, with the groups of `use` spread out. Macros are read too.
fn paths(tokens: TokenStream, module: &[String], prefix: &[String], found: &mut BTreeSet<Named>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let punct = |at: usize, wanted: char| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == wanted);
    let colons = |at: usize| punct(at, ':') && punct(at + 1, ':');
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Punct(_) if punct(at - 1, '#') => {
                if matches!(tokens.get(at), Some(TokenTree::Group(group)) if for_tests(&group.stream())) {
                    at = end_of_item(&tokens, at + 1);
                }
            }
            TokenTree::Group(group) => paths(group.stream(), module, &[], found),
            TokenTree::Ident(word) if word == "as" => at += 1,
            TokenTree::Ident(word) if word == "mod" => {
                if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) =
                    (tokens.get(at), tokens.get(at + 1))
                {
                    let inner = [module, &[name.to_string()]].concat();
                    paths(body.stream(), &inner, &[], found);
                    at += 2;
                }
            }
            TokenTree::Ident(word) => {
                let mut path = [prefix, &[plain(word)]].concat();
                let mut whole = true;
                while whole && colons(at) {
                    at += 3;
                    match tokens.get(at - 1) {
                        Some(TokenTree::Ident(word)) => path.push(plain(word)),
                        Some(TokenTree::Group(group)) => {
                            paths(group.stream(), module, &path, found);
                            whole = false;
                        }
                        Some(TokenTree::Punct(star)) if star.as_char() == '*' => path.push("*".into()),
                        _ => break,
                    }
                }
                if whole {
                    found.insert((path, module.to_vec()));
                }
            }
            _ => {}
        }
    }
}

fn plain(word: &proc_macro2::Ident) -> String {
    word.to_string().trim_start_matches("r#").to_string()
}

fn for_tests(attribute: &TokenStream) -> bool {
    let text = attribute.to_string().replace(' ', "");
    text == "test" || text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// Behind the semicolon or the braces that end the item.
fn end_of_item(tokens: &[TokenTree], from: usize) -> usize {
    let ends = |token: &TokenTree| match token {
        TokenTree::Punct(punct) => punct.as_char() == ';',
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        _ => false,
    };
    from + tokens[from..].iter().position(ends).map_or(tokens.len() - from, |end| end + 1)
}

/// The top-level module that a path leads to, if it leads into the crate.
fn target(path: &[String], module: &[String], reexports: &BTreeMap<String, String>) -> Option<String> {
    // The scope in `pub(crate)` and `pub(super)`.
    if path.len() < 2 {
        return None;
    }
    let (mut base, mut rest) = match path.first()?.as_str() {
        "crate" => (&[][..], &path[1..]),
        "super" => (module, path),
        _ => return None,
    };
    while let Some("super") = rest.first().map(String::as_str) {
        base = &base[..base.len().saturating_sub(1)];
        rest = &rest[1..];
    }
    if let Some(top) = base.first() {
        return Some(top.clone());
    }
    let mut top = rest.first().map_or("*", String::as_str);
    // The root may export a name of a module that it exports itself.
    while let Some(from) = reexports.get(top).filter(|from| *from != top) {
        top = from;
    }
    Some(top.to_string())
}

fn names(path: &[String], wanted: &str) -> bool {
    let wanted: Vec<&str> = wanted.split("::").collect();
    if let [one] = wanted[..]
        && one.starts_with(char::is_lowercase)
    {
        return path.len() > 1 && path[0] == one;
    }
    path.windows(wanted.len()).any(|part| part == wanted)
}

/// What is wrong with a file, by its path below `src`.
fn problems(file: &str, source: &str, reexports: &BTreeMap<String, String>) -> Vec<String> {
    let mut module: Vec<String> = file.trim_end_matches(".rs").split('/').map(String::from).collect();
    if module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    let Some(own) = layer(&module[0]) else {
        return vec![format!("{file}: module {} has no layer", module[0])];
    };
    let tokens: TokenStream = source.parse().unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut found = BTreeSet::new();
    paths(tokens, &module, &[], &mut found);
    let mut problems = Vec::new();
    for (path, module) in found {
        if let Some(top) = target(&path, &module, reexports) {
            match layer(&top) {
                None => {
                    problems.push(format!("{file}: {} leads to {top}, which has no layer", path.join("::")))
                }
                Some(other) if other > own => {
                    let (own, other) = (LAYERS[own].0, LAYERS[other].0);
                    problems.push(format!(
                        "{file}: {} is of the {own}, {} of the {other}",
                        module[0],
                        path.join("::")
                    ));
                }
                Some(_) => {}
            }
        }
        let allowed = |wanted: &str| {
            file == "base/clock.rs" && ["Utc::now", "time::Instant", "Instant::now"].contains(&wanted)
        };
        for wanted in OUTSIDE.into_iter().filter(|wanted| own < 2 && names(&path, wanted) && !allowed(wanted))
        {
            problems.push(format!("{file}: the {} must not touch {wanted}", LAYERS[own].0));
        }
    }
    problems
}

/// What is in `lib.rs` besides modules and re-exports; and what it re-exports, by the module it comes from.
fn root(source: &str) -> (Vec<String>, BTreeMap<String, String>) {
    let tokens: Vec<TokenTree> = source.parse::<TokenStream>().expect("lib.rs").into_iter().collect();
    let (mut problems, mut reexports) = (Vec::new(), BTreeMap::new());
    let is = |token: &TokenTree, wanted: char| matches!(token, TokenTree::Punct(p) if p.as_char() == wanted);
    let bracket =
        |token: &TokenTree| matches!(token, TokenTree::Group(g) if g.delimiter() == Delimiter::Bracket);
    // A module without content carries documentation, and needs no semicolon.
    let empty = |token: &TokenTree| matches!(token, TokenTree::Group(g) if g.delimiter() == Delimiter::Brace && g.stream().is_empty());
    for item in tokens.split(|token| is(token, ';') || empty(token)) {
        let start = item.iter().position(|token| !is(token, '#') && !is(token, '!') && !bracket(token));
        let item: Vec<TokenTree> = item[start.unwrap_or(item.len())..].to_vec();
        let words: Vec<String> = item.iter().map(ToString::to_string).filter(|word| word != "pub").collect();
        match words.first().map(String::as_str) {
            None => {}
            Some("mod") if words.len() == 2 => {}
            Some("use") => {
                let mut found = BTreeSet::new();
                let at = item.iter().position(|token| token.to_string() == "use").unwrap_or(0);
                paths(item[at + 1..].iter().cloned().collect(), &[], &[], &mut found);
                for (path, _) in found.iter().filter(|(path, _)| path.len() > 1) {
                    let path: Vec<&String> =
                        path.iter().filter(|word| !["crate", "self"].contains(&word.as_str())).collect();
                    reexports.insert(path[path.len() - 1].clone(), path[0].clone());
                }
            }
            Some(_) => {
                problems.push(format!("lib.rs: has more than modules and re-exports: {}", words.join(" ")))
            }
        }
    }
    (problems, reexports)
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_file_keeps_to_its_layer() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    files(&src, &mut all);
    let (mut found, reexports) = root(&std::fs::read_to_string(src.join("lib.rs")).unwrap());
    for path in &all {
        let file = path.strip_prefix(&src).unwrap().to_str().unwrap().replace('\\', "/");
        // The files of a module that is compiled for tests only, and the program, which is a host like any other.
        if file.starts_with("bin/")
            || file == "lib.rs"
            || file.ends_with("/tests.rs")
            || file.contains("/tests/")
        {
            continue;
        }
        found.extend(problems(&file, &std::fs::read_to_string(path).unwrap(), &reexports));
    }
    assert!(all.len() > 20, "{} files were read", all.len());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// What the root exports, and two names more.
fn reexports() -> BTreeMap<String, String> {
    let (_, mut found) = root(include_str!("../src/lib.rs"));
    found.extend([("TaskKey".to_string(), "id".to_string()), ("run_all".into(), "service".into())]);
    found
}

fn refused(file: &str, source: &str) -> bool {
    !problems(file, source, &reexports()).is_empty()
}

#[test]
fn higher_layers_are_refused_however_they_are_named() {
    for source in [
        "use crate::store::Store;",
        "use crate::{id::TaskKey, service};",
        "use crate::{id::{TaskKey, Namespace}, store::{self as s, Store}};",
        "use super::super::super::store::Store;",
        "pub(crate) use crate::store::*;",
        "fn f() -> crate::store::StoreInfo { todo!() }",
        "fn f() { g!(crate::service::Poker) }",
        "fn f() { let a = vec![crate::store::MemoryStore::new()]; }",
        "use crate::run_all;",
        "use crate::*;",
        "use crate::surprise::A;",
        "mod inner { use super::super::super::super::store::Store; }",
        "macro_rules! m { () => { $crate::store::Store } }",
        "#[cfg(test)] mod tests { } use crate::store::Store;",
        "#[cfg(feature = \"sqlite\")] use crate::store::Store;",
    ] {
        assert!(refused("core/admission/planner.rs", source), "{source}");
    }
    assert!(refused("base/id.rs", "use crate::task::TaskState;"), "the vocabulary knows no task");
    assert!(refused("store/mod.rs", "use crate::service::Admitter;"));
    assert!(refused("service/mod.rs", "use crate::conformance;"));
    assert!(refused("helpers.rs", ""), "every module has a layer");
}

#[test]
fn the_outside_is_refused_in_the_two_lowest_layers() {
    for source in [
        "fn f() { let now = chrono::Utc::now(); }",
        "use chrono::Utc; fn f() { Utc::now(); }",
        "use std::time::{Duration, SystemTime};",
        "use std::time::Instant;",
        "fn f() { std::time::Instant::now(); }",
        "use rand::Rng;",
        "fn f() { std::thread::sleep(d) }",
        "use std::{fs, fmt};",
        "use std::net::TcpStream;",
        "use std::io::{self, Read};",
        "use std::process::Command;",
        "fn f() { std::env::var(\"A\"); }",
        "use rusqlite::Connection;",
        "use tokio_postgres::Client;",
        "use std::hash::RandomState;",
    ] {
        assert!(refused("core/admission/planner.rs", source), "{source}");
        assert!(refused("base/id.rs", source), "{source}");
        assert!(!refused("store/sqlite/conn.rs", source), "{source}");
    }
    assert!(!refused("base/clock.rs", "fn f() { Utc::now(); }"));
    assert!(refused("base/clock.rs", "use std::fs;"));
}

#[test]
fn text_tests_and_lower_layers_are_let_through() {
    for source in [
        "use crate::id::TaskKey; use crate::{TaskKey as Key, time};",
        "use super::lane::Lane; use super::super::error::Invalid;",
        "//! See [`crate::service`].\n/// And `std::fs`.\n// use crate::store::Store;\nfn f() {}",
        "/* use crate::store::Store; /* std::fs */ */ fn f() {}",
        "fn f() -> &'static str { \"use crate::store::Store; Utc::now()\" }",
        "fn f() -> &'static str { r#\"crate::store::Store\"# }",
        "#[cfg(test)] mod tests { use crate::store::MemoryStore; fn f() { std::fs::read(p); } }",
        "#[cfg(test)] use crate::store::Store; fn f() {}",
        "#[cfg(test)] mod tests; fn f() {}",
        "fn f() { use std::collections::HashMap; let store = 1; self.store.run(); }",
        "mod inner { use super::Lane; use super::super::lane::Lane; }",
    ] {
        let found = problems("core/admission/planner.rs", source, &reexports());
        assert!(found.is_empty(), "{source}: {found:?}");
    }
}

#[test]
fn the_root_has_no_logic() {
    let (found, reexports) = root(
        "//! Docs.\n#![allow(x)]\npub mod id;\n#[cfg(a)] mod b;\npub use id::{A, B as C};\npub use b::D;",
    );
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(reexports.get("A").map(String::as_str), Some("id"));
    assert_eq!(reexports.get("D").map(String::as_str), Some("b"));
    assert!(root("#[cfg(doc)]\n#[doc = \"a\"]\npub mod _a {}\n#[cfg(doc)]\nmod _b {}").0.is_empty());
    for source in ["fn f() {}", "pub const A: u8 = 1;", "mod a { fn f() {} }", "pub mod id; struct A;"] {
        assert!(!root(source).0.is_empty(), "{source}");
    }
}
