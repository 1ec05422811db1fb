//! The program `stationmaster`: shows what is in a store, and changes it. `docs/operating.md` lists which command
//! answers which question.

mod args;
mod ask;
mod edit;
mod failure;
mod key;
mod layout;
mod open;
mod screen;
#[cfg(feature = "dashboard")]
mod serve;
mod show;
mod text;
mod times;
mod watch;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use failure::{Failure, NOT_ALL};
use open::{Access, Opened};
use screen::{Screen, Style};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NOT_ALL),
        Err(failure) => {
            if let Some(text) = failure.text() {
                // If this cannot be written, the exit code still reports the failure.
                let _ = writeln!(io::stderr(), "stationmaster: {text}");
            }
            ExitCode::from(failure.code())
        }
    }
}

/// Runs the command. Returns false if it found nothing, or did not do everything.
fn run(cli: &Cli) -> Result<bool, Failure> {
    #[cfg(feature = "dashboard")]
    if let Command::Serve(serve) = &cli.command {
        return serve::run(serve, &cli.options);
    }
    let style = Style::new(&cli.options);
    let edits = matches!(
        cli.command,
        Command::Cancel { .. }
            | Command::Pause { .. }
            | Command::Resume { .. }
            | Command::Retry { .. }
            | Command::Change { .. }
            | Command::Delete { .. }
    );
    let access = match cli.command {
        Command::Audit => Access::ReadsAll,
        _ if edits => Access::Changes,
        _ => Access::Reads,
    };
    if edits {
        if cli.options.watch.is_some() {
            return Err(Failure::Usage(
                "what changes something is not shown again: leave out --watch".into(),
            ));
        }
        let opened = open::open(&cli.options, access)?;
        return edit::run(&cli.command, &opened, style);
    }
    let mut view = show::View::new(&cli.command)?;
    let opened = open::open(&cli.options, access)?;
    loop {
        let found = round(&mut view, &opened, style, cli.options.watch.is_some())?;
        match cli.options.watch {
            Some(interval) if watch::wait(interval) => {}
            _ => return Ok(found),
        }
    }
}

/// Shows the output once. In watch mode, a store whose failure may pass is queried again.
fn round(view: &mut show::View<'_>, opened: &Opened, style: Style, watches: bool) -> Result<bool, Failure> {
    let mut screen = Screen::new(style, opened.now());
    let found = match view.show(opened.store.as_ref(), &mut screen) {
        Err(show::Stop::Store(error)) if watches && error.is_retryable() => {
            let mut err = io::stderr();
            writeln!(err, "stationmaster: {}", text::visible(&error))?;
            return Ok(false);
        }
        Err(stop) => return Err(stop.into()),
        Ok(found) => found,
    };
    if watches && !screen.is_json() && io::stdout().is_terminal() {
        watch::clear(&mut io::stdout())?;
    }
    screen.write()?;
    Ok(found)
}
