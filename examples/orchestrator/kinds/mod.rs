//! Our own kinds of sensors: a command exits with 0, a port accepts connections.
//!
//! A `command_succeeds` sensor runs the command in its context as the user of the poker's process. Use it
//! only if everyone who creates sensors may do that.

mod command;
mod orphans;
mod process;
mod tcp;

use stationmaster::Result;
use stationmaster::service::Poker;
use stationmaster::service::kinds::Condition;

pub(crate) use command::CommandSucceeds;
pub(crate) use tcp::TcpAccepts;

/// Registers the kinds of this module with a poker, under their names.
pub(crate) fn teach(poker: Poker) -> Result<Poker> {
    Ok(poker
        .kind(CommandSucceeds::kind()?, command::command_succeeds)
        .kind(TcpAccepts::kind()?, tcp::tcp_accepts))
}
