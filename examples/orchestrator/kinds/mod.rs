//! Kinds of sensors of our own: a command exits with 0, a port accepts connections.
//!
//! A `command_succeeds` sensor runs what its context says, as the user of the poker's process: only for those
//! whose sensors may do that.

mod command;
mod orphans;
mod process;
mod tcp;

use stationmaster::Result;
use stationmaster::service::Poker;
use stationmaster::service::kinds::Condition;

pub(crate) use command::CommandSucceeds;
pub(crate) use tcp::TcpAccepts;

/// Teaches a poker the kinds of this module, under their names.
pub(crate) fn teach(poker: Poker) -> Result<Poker> {
    Ok(poker
        .kind(CommandSucceeds::kind()?, command::command_succeeds)
        .kind(TcpAccepts::kind()?, tcp::tcp_accepts))
}
