//! The PostgreSQL store: at every isolation level.

use stationmaster::conformance::{self, Capabilities, Readers};
use stationmaster::store::Store;
use stationmaster::store::postgres::Isolation;

use crate::scratch::Scratch;

/// Makes stores at this level, one after the other in one schema.
fn at(isolation: Isolation) -> impl Fn() -> Box<dyn Store> {
    let scratch = Scratch::new();
    drop(scratch.open(|options| options));
    move || {
        scratch.empty();
        Box::new(scratch.open(|options| options.isolation(isolation)))
    }
}

fn conforms(make: &dyn Fn() -> Box<dyn Store>) {
    conformance::run_with(Capabilities::new().readers(Readers::GoOn), make);
}

#[test]
fn postgres_at_read_committed() {
    conforms(&at(Isolation::ReadCommitted));
}

#[test]
fn postgres_at_repeatable_read() {
    conforms(&at(Isolation::RepeatableRead));
}

#[test]
fn postgres_at_serializable() {
    conforms(&at(Isolation::Serializable));
}
