//! The command line.

use std::path::PathBuf;

use clap::Parser;
use stationmaster::id::PoolName;
use stationmaster::pool::{PoolSpec, Slots};

use crate::plan::Goal;
use crate::trouble::Trouble;
use crate::workload::Workload;

/// Simulates a day of workflows in seconds, and plans the sizes of pools for it.
#[derive(Debug, Parser)]
#[command(name = "simulate_a_day", after_help = AFTER_HELP)]
pub(crate) struct Cli {
    /// The workload [default: one of 200 workflows, made from the seed]
    #[arg(long, value_name = "FILE")]
    pub(crate) workload: Option<PathBuf>,
    /// Writes the workload to this file, and ends
    #[arg(long, value_name = "FILE")]
    pub(crate) write_workload: Option<PathBuf>,
    /// Durations, failures and landings follow from it
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// For how many hours runs begin; the simulation goes on until all have ended
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=8_784))]
    pub(crate) hours: u32,
    /// Gives a pool another size; "unlimited" is one
    #[arg(long = "pool", value_name = "NAME=SLOTS", value_parser = pool)]
    pools: Vec<(PoolName, Slots)>,
    /// How long tasks may wait for slots: 90s, 5m, 1h
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = length)]
    target_wait: f64,
    /// Of how many in a hundred attempts that is asked
    #[arg(long, value_name = "P", default_value_t = 99.0, value_parser = percentile)]
    percentile: f64,
    /// Simulates the day, and plans nothing
    #[arg(long)]
    pub(crate) no_plan: bool,
    /// Writes a line for everything that happens to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Prints the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const AFTER_HELP: &str = "\
The workload's format stands in examples/simulate_a_day/workload.rs; examples/workloads/night.json shows all of it, and
--write-workload writes the default one.

Exit codes:
  0  the day was simulated, and everything that must hold held
  1  something did not hold, or broke
  2  bad input";

impl Cli {
    pub(crate) fn goal(&self) -> Goal {
        Goal { wait_s: self.target_wait, percentile: self.percentile }
    }

    /// Sets the sizes that were given.
    pub(crate) fn resize(&self, workload: &mut Workload) -> Result<(), Trouble> {
        for (name, slots) in &self.pools {
            let spec = PoolSpec::new(name, *slots)?;
            match workload.pools.iter_mut().find(|pool| pool.name == *name) {
                Some(pool) => pool.slots = spec.slots,
                None => return Err(Trouble::Input(format!("--pool: the workload has no pool {name:?}"))),
            }
        }
        Ok(())
    }
}

fn pool(text: &str) -> Result<(PoolName, Slots), String> {
    let (name, slots) = text.rsplit_once('=').ok_or("give NAME=SLOTS, such as db=4")?;
    let name = PoolName::new(name).map_err(|error| error.to_string())?;
    let slots = match slots {
        "unlimited" => Slots::Unlimited,
        number => Slots::Limited(number.parse().map_err(|_| format!("{number:?} is no number of slots"))?),
    };
    Ok((name, slots))
}

fn length(text: &str) -> Result<f64, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3_600.0)];
    let (number, unit) =
        units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit))).unwrap_or((text, 1.0));
    let number = number.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    number.map(|number| number * unit).ok_or_else(|| format!("{text:?} is no time: give 90s, 5m or 1h"))
}

fn percentile(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number > 0.0 && *number <= 100.0);
    number.ok_or_else(|| format!("{text:?} is no percentile: give more than 0, at most 100"))
}
