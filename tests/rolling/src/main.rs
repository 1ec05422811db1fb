//! A rolling upgrade, with two builds of the crate: `old` at version 1 of the schema, and `new`, which knows two more
//! steps, works at version 2 and refuses version 1 from 3 on. `docs/upgrading.md` says what must hold. Without arguments
//! the program plays all of it on SQLite and on the server that STATIONMASTER_TEST_POSTGRES names; with arguments it is
//! one of the processes.

mod child;
mod killed;
mod load;
mod place;
mod relay;
mod scenes;

use child::say;
use place::Place;

#[allow(dead_code, reason = "some of it is for the other build alone")]
mod old {
    use ::stationmaster as sm;
    include!("one_build.rs");
}
#[allow(dead_code, reason = "some of it is for the other build alone")]
mod new {
    use ::stationmaster_next as sm;
    include!("one_build.rs");
}

/// The text with which a schema refuses a process of version 1. It says what to do.
fn refused_text(text: &str) {
    let advice = "its schema has version 3, which needs a version of the crate that works at 2 or later, and this one \
                  works at 1: stop this process, and start one of a newer version";
    assert!(text.contains(advice), "{text}");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => {
            for kind in ["sqlite", "postgres"] {
                scenes::play(kind);
                load::upgrade_under_load(kind);
                killed::everywhere(kind);
            }
        }
        ["old", first, second, name] => old::work(&Place::of_arguments(first, second), name),
        ["new", first, second, name] => new::work(&Place::of_arguments(first, second), name),
        ["kill-at", path, statement] => killed::kill_at(path.as_ref(), statement.parse().unwrap()),
        ["finish-upgrade", first, second] => {
            new::upgrade(&Place::of_arguments(first, second), true).unwrap();
            say("ended");
        }
        _ => panic!("{arguments:?}"),
    }
}
