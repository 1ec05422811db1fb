#[path = "../../transactions.rs"]
mod transactions;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    transactions::main()
}
