//! The output during a run: a progress bar on a terminal, plain lines elsewhere.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

use crate::run::Progress;

#[derive(Debug)]
pub(crate) struct Screen {
    bar: Option<ProgressBar>,
    began: Instant,
    /// Why tasks wait, as last printed.
    waits: Mutex<String>,
}

impl Screen {
    pub(crate) fn new(tasks: usize) -> Self {
        let bar = std::io::stdout().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(tasks as u64), ProgressDrawTarget::stdout());
            let style = ProgressStyle::with_template("{elapsed:>4} {wide_bar} {pos}/{len} tasks\n     {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        Self { bar, began: Instant::now(), waits: Mutex::default() }
    }

    /// Prints that one thing happened.
    pub(crate) fn line(&self, what: &str, text: impl Display) {
        let line = format!("{:7.1} s  {what:<8} {text}", self.began.elapsed().as_secs_f64());
        match &self.bar {
            Some(bar) => bar.println(line),
            None => say(line),
        }
    }

    pub(crate) fn progress(&self, progress: &Progress, refused: String) {
        let Some(bar) = &self.bar else { return };
        let mut waits = self.waits.lock();
        if !refused.is_empty() || progress.waiting == 0 {
            *waits = refused;
        }
        bar.set_position(progress.ended as u64);
        bar.set_message(format!("{} running, {} sensing{waits}", progress.running, progress.sensing));
    }

    pub(crate) fn close(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Prints a line. A closed output, as with `| head`, does not stop a run.
pub(crate) fn say(line: impl Display) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
