//! The dashboard over real sockets, and in a real browser where there is one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod axe;
mod before;
mod browser;
mod bulk;
mod facts;
mod http;
mod in_browser;
mod layout;
mod next;
mod outage;
mod pages;
mod pictures;
mod runs;
mod sensor;
#[cfg(feature = "cli")]
mod serve;
mod stage;
mod ten_questions;
mod world;
