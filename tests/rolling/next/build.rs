//! Turns the steps of the next schema on.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(stationmaster_next_schema)");
    println!("cargo::rustc-cfg=stationmaster_next_schema");
}
