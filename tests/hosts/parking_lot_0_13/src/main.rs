#[path = "../../threads.rs"]
mod threads;

fn main() {
    threads::main();
}
