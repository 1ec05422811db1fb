#[path = "../../../sqlite_locks/scenes.rs"]
mod locks;
#[path = "../../transactions.rs"]
mod transactions;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The scenes start this program again as their other processes.
    if locks::part() {
        return Ok(());
    }
    transactions::main()?;
    locks::play("");
    println!("no commit and no lock was lost when a store was opened");
    Ok(())
}
