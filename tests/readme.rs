//! The README shows the tables of the documentation as they are: neither GitHub nor crates.io can include a file.

#[test]
fn its_tables_are_those_of_the_documentation() {
    let readme = include_str!("../README.md");
    for table in [include_str!("../docs/features.md"), include_str!("../docs/guarantees.md")] {
        assert!(readme.contains(table), "the README has another version of this table:\n{table}");
    }
}
