//! Measures stationmaster beside other job queues. `run.sh` calls it; README.md says what each case is.

mod bars;
mod cases;
mod programs;
mod running;
mod server;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bars::{Bar, HEAD, Sample};
use programs::{Program, Programs};
use server::Server;

pub type Outcome<T> = Result<T, Box<dyn Error>>;

/// Everything a case works with.
pub struct Bench {
    pub server: Server,
    pub programs: Programs,
    pub folder: PathBuf,
    /// The databases with tasks that wait, by their names.
    templates: Vec<String>,
    /// The caller asked for fewer rounds: what lasts for minutes is left out.
    pub short: bool,
}

/// What is measured in each round, and the bars that it is held against.
pub struct Scene {
    pub name: String,
    pub bars: Vec<Bar>,
    /// How many rounds, if not as many as all others.
    pub rounds: Option<usize>,
    /// Returns a sample for each bar.
    pub round: Round,
}

pub type Round = Box<dyn FnMut(&mut Bench) -> Outcome<Vec<Sample>>>;

/// The rounds' samples, by bar.
fn measure(bench: &mut Bench, scene: &mut Scene, rounds: usize) -> Outcome<Vec<Vec<Sample>>> {
    let mut samples = vec![Vec::new(); scene.bars.len()];
    for round in 1..=rounds {
        eprintln!("{}: round {round} of {rounds}", scene.name);
        let measured = (scene.round)(bench)?;
        assert_eq!(measured.len(), scene.bars.len(), "a sample for each bar");
        for (samples, sample) in samples.iter_mut().zip(measured) {
            samples.push(sample);
        }
    }
    Ok(samples)
}

/// Measures a scene, and once more with twice the rounds if it misses a bar, unless the caller only tries.
/// Returns whether all bars are met.
fn judge(bench: &mut Bench, mut scene: Scene, rounds: usize) -> Outcome<bool> {
    let rounds = scene.rounds.unwrap_or(rounds);
    for (attempt, rounds) in [("", rounds), (", once more", 2 * rounds)] {
        let samples = measure(bench, &mut scene, rounds)?;
        println!("\n### {}{attempt}\n\n{HEAD}", scene.name);
        let mut all_met = true;
        for (bar, samples) in scene.bars.iter().zip(&samples) {
            println!("{}", bar.row(samples));
            let values: Vec<f64> = samples.iter().map(|sample| sample.value()).collect();
            all_met &= bar.is_met(&values);
        }
        if all_met {
            return Ok(true);
        }
        if bench.short {
            break;
        }
    }
    Ok(false)
}

fn variable(name: &str) -> Outcome<PathBuf> {
    Ok(std::env::var_os(name).ok_or_else(|| format!("{name} is not set: call run.sh"))?.into())
}

fn run(names: &[String]) -> Outcome<bool> {
    let asked = std::env::var("STATIONMASTER_PEERS_ROUNDS").ok();
    let rounds: usize = asked.as_deref().map_or(Ok(5), str::parse)?;
    let folder = variable("STATIONMASTER_PEERS_FOLDER")?;
    let programs =
        Programs::new(variable("STATIONMASTER_PEERS_SOURCE")?, variable("STATIONMASTER_PEERS_BUILD")?);
    let server = Server::start(Path::new(&folder))?;
    let mut bench = Bench { server, programs, folder, templates: Vec::new(), short: rounds < 5 };
    let (mut all_met, mut failed) = (true, None);
    for name in names {
        let scenes = cases::scenes(name, &bench)?;
        println!("\n## {name}, {rounds} rounds\n\n{}", bench.server.describe()?);
        for scene in scenes {
            // A peer that cannot be run does not hide what the others show.
            match judge(&mut bench, scene, rounds) {
                Ok(met) => all_met &= met,
                Err(error) => {
                    println!("\nNot run to its end: {error}");
                    failed = Some(error);
                }
            }
        }
        println!("\nAfterwards: {}", bench.server.describe()?);
    }
    failed.map_or(Ok(all_met), Err)
}

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        eprintln!("run.sh CASE...: {}", cases::NAMES.join(", "));
        return ExitCode::from(2);
    }
    match run(&names) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            println!("\nA bar was missed.");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

impl Bench {
    /// Returns the name of a database of this program in which this many tasks wait. `slots` is what else its
    /// `setup` receives.
    pub fn template(&mut self, program: Program, waiting: usize, slots: &str) -> Outcome<String> {
        let name = format!("{}_{waiting}_{slots}", program.name());
        if self.templates.contains(&name) {
            return Ok(name);
        }
        self.programs.prepare(program)?;
        self.server.copy("made", "template0")?;
        let url = self.server.url("made");
        self.programs.call(program, &url, &words(&["setup", slots]))?;
        if waiting > 0 {
            self.programs.call(program, &url, &words(&["fill", &waiting.to_string()]))?;
            self.server.admin("made")?.batch_execute("VACUUM ANALYZE")?;
        }
        self.server.copy(&name, "made")?;
        self.templates.push(name.clone());
        Ok(name)
    }

    /// Returns the URL of a fresh copy of such a database.
    pub fn fresh(&mut self, program: Program, waiting: usize, slots: &str) -> Outcome<String> {
        let template = self.template(program, waiting, slots)?;
        self.server.copy("run", &template)?;
        Ok(self.server.url("run"))
    }
}

/// Returns arguments as programs take them.
pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
