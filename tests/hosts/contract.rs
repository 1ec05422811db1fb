//! The statements of `docs/sql.md`, as they stand there.

const TEXT: &str = include_str!("../../docs/sql.md");

/// Every statement for this database, by the name in its first line.
pub fn statements(database: &str) -> Vec<(&'static str, &'static str)> {
    let blocks = TEXT.split("```sql\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().expect("a block has an end"));
    let title = format!("-- {database}: ");
    blocks.filter_map(|block| block.strip_prefix(&*title)?.split_once('\n')).collect()
}

/// The statement of this name for this database.
#[allow(dead_code)]
pub fn statement(database: &str, name: &str) -> &'static str {
    let found = statements(database).into_iter().find(|(found, _)| *found == name);
    found.unwrap_or_else(|| panic!("docs/sql.md has no statement {name} for {database}")).1
}
