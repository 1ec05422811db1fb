//! Asks before something is changed.

use std::io::{self, IsTerminal, Write};

use crate::failure::Failure;

/// Returns true if the user agrees. `--yes` agrees in advance. Without a terminal, no user can be asked.
pub fn is_sure(yes: bool, question: &str) -> Result<bool, Failure> {
    let mut err = io::stderr();
    if yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() || !err.is_terminal() {
        let text = format!(
            "{question} There is no terminal to ask on: say --yes if you mean it. Nothing was changed."
        );
        return Err(Failure::Usage(text));
    }
    write!(err, "{question} [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
