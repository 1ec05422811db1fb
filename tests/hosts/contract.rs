//! The statements of `docs/sql.md`, as they stand there.

const TEXT: &str = include_str!("../../docs/sql.md");

/// Every statement, by the name in its first line.
pub fn statements() -> Vec<(&'static str, &'static str)> {
    let blocks = TEXT.split("```sql\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().expect("a block has an end"));
    blocks
        .map(|block| block.strip_prefix("-- ").and_then(|block| block.split_once('\n')).expect("a name"))
        .collect()
}

/// The statement of this name.
#[allow(dead_code)]
pub fn statement(name: &str) -> &'static str {
    let found = statements().into_iter().find(|(found, _)| *found == name);
    found.unwrap_or_else(|| panic!("docs/sql.md has no statement {name}")).1
}
