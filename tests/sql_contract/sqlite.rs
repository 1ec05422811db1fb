//! A host on SQLite that trusts no schema, and whose conflict clauses and foreign keys are its own.

use stationmaster::NewTask;
use stationmaster::store::sqlite::rusqlite::types::{Value as Sql, ValueRef};
use stationmaster::store::sqlite::rusqlite::{self, Connection, Row, StatementStatus, ffi};
use stationmaster::store::sqlite::{Prefix, SqliteOptions, migrate};
use stationmaster::store::{Durability, SqliteStore};

use crate::contract::statement;
use crate::world::{Answer, Host, NOW, Refusal, Value, World, good, key, now, values};

pub struct SqliteHost(Connection);

pub fn world() -> World {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.db");
    let host = Connection::open(&path).unwrap();
    host.execute_batch(
        "PRAGMA trusted_schema = OFF; PRAGMA foreign_keys = ON; PRAGMA recursive_triggers = ON;
         CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL)",
    )
    .unwrap();
    let store = SqliteStore::open(&path, SqliteOptions::new().durability(Durability::Process)).unwrap();
    World::new(Box::new(SqliteHost(host)), Box::new(store), Box::new(dir))
}

fn bound(value: &Value) -> Sql {
    match value {
        Value::Null => Sql::Null,
        Value::Int(value) => Sql::Integer(*value),
        Value::Text(value) => Sql::Text(value.clone()),
        #[cfg(feature = "postgres")]
        Value::Ints(_) | Value::Texts(_) => panic!("SQLite has no arrays"),
    }
}

fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Value> {
    Ok(match row.get_ref(at)? {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Int(value),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into()),
        other => panic!("{other:?}"),
    })
}

fn ask(host: &Connection, sql: &str, values: impl IntoIterator<Item = Sql>) -> Answer {
    let all = || {
        let mut statement = host.prepare(sql)?;
        let columns = statement.column_count();
        let row = |row: &Row<'_>| (0..columns).map(|at| read(row, at)).collect();
        statement.query_map(rusqlite::params_from_iter(values), row)?.collect()
    };
    let all: rusqlite::Result<Vec<Vec<Value>>> = all();
    all.map_err(|error| Refusal {
        code: error.sqlite_error().map_or_else(String::new, |error| error.extended_code.to_string()),
        text: error.to_string(),
    })
}

impl Host for SqliteHost {
    fn database(&self) -> &'static str {
        "SQLite"
    }

    fn begin(&self) -> &'static str {
        "BEGIN IMMEDIATE"
    }

    fn ask(&self, sql: &str, values: &[Value]) -> Answer {
        ask(&self.0, sql, values.iter().map(bound))
    }

    fn batch(&self, sql: &str) {
        self.0.execute_batch(sql).unwrap();
    }

    fn rows(&self) -> Vec<String> {
        let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'sm\\_%' ESCAPE '\\' \
                      AND name <> 'sm_migration'";
        let tables = self.ask(tables, &[]).unwrap();
        let rows = |table: &Vec<Value>| {
            let rows = self.ask(&format!("SELECT * FROM {}", table[0].text()), &[]).unwrap();
            rows.into_iter().map(move |row| format!("{} {row:?}", table[0].text())).collect::<Vec<_>>()
        };
        let mut rows: Vec<String> = tables.iter().flat_map(rows).collect();
        rows.sort();
        rows
    }
}

fn plain() -> (SqliteStore, Connection, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.db");
    let store = SqliteStore::open(&path, SqliteOptions::new().durability(Durability::Process)).unwrap();
    (store, Connection::open(path).unwrap(), dir)
}

#[test]
fn what_is_refused_is_refused_whatever_the_conflict_clause_and_type() {
    let (_store, host, _dir) = plain();
    ask(&host, statement("SQLite", "enqueue"), good().iter().map(bound)).unwrap();
    let lease = |epoch| vec![Sql::Integer(NOW), Sql::Integer(1), Sql::Integer(epoch)];
    let mut bad: Vec<(&str, Vec<Sql>)> = Vec::new();
    let mut wrong = |at: usize, values: &[Sql]| {
        for value in values {
            let mut all: Vec<Sql> = good().iter().map(bound).collect();
            all[4] = Sql::Text("other".into());
            all[at] = value.clone();
            bad.push(("enqueue", all));
        }
    };
    let text = |text: &str| Sql::Text(text.into());
    for name in 1..=4 {
        wrong(name, &[text("a\0b"), Sql::Integer(1), Sql::Blob(vec![1])]);
    }
    for number in [0, 5, 7, 9, 10, 11, 12, 14] {
        wrong(number, &[text("1"), Sql::Real(1.5)]);
    }
    // Another database sorts these itself.
    let arrays = [r#"["b","a"]"#, r#"["a","a"]"#, r#"["a", "b"]"#, r#"["\u00e9"]"#, r#"["\n"]"#];
    wrong(8, &arrays.map(text));
    wrong(13, &[Sql::Integer(1)]);
    wrong(15, &[Sql::Integer(1)]);
    bad.push(("start", lease(0)));
    bad.push(("start", vec![text("x"), Sql::Integer(1), Sql::Integer(0)]));
    bad.push(("finish", [lease(0), vec![text("success"), Sql::Null, Sql::Null, Sql::Null]].concat()));
    for values in
        [[text("1"), text("skipped"), text("")], [Sql::Integer(1), text("skipped"), Sql::Blob(vec![])]]
    {
        let [at, outcome, message] = values;
        bad.push(("cancel", vec![at, Sql::Integer(1), outcome, message]));
    }
    for clause in ["INSERT", "INSERT OR IGNORE", "INSERT OR REPLACE", "INSERT OR FAIL", "INSERT OR ROLLBACK"]
    {
        for (name, values) in &bad {
            let sql = statement("SQLite", name).replacen("INSERT", clause, 1);
            let refused =
                ask(&host, &sql, values.clone()).expect_err(&format!("{clause}: {name} {values:?}"));
            assert_eq!(refused.code, ffi::SQLITE_CONSTRAINT_TRIGGER.to_string(), "{}", refused.text);
        }
    }
    assert_eq!(ask(&host, "SELECT id FROM sm_status", []).unwrap().len(), 1, "nothing was changed");
}

#[test]
fn a_statement_costs_the_same_however_many_tasks_there_are() {
    let (store, host, _dir) = plain();
    let steps = |name: &str, values: &[Value]| {
        let mut statement = host.prepare(statement("SQLite", name)).unwrap();
        let values = rusqlite::params_from_iter(values.iter().map(bound));
        let mut rows = statement.query(values).unwrap();
        while rows.next().unwrap().is_some() {}
        drop(rows);
        statement.get_status(StatementStatus::VmStep)
    };
    let round = |n: i64| {
        let task = format!("t{n}");
        let mut arguments = good();
        arguments[4] = Value::from(&*task);
        let enqueued = steps("enqueue", &arguments);
        let status = steps("status", &values!["prod", "nightly", "r1", task, None::<i64>]);
        let mapped = steps("status", &values!["prod", "nightly", "r1", "more", 5]);
        let lease = crate::world::admit(&store, NOW + n)[0].lease_ref();
        let by_id = steps("status_by_id", &values![lease.id.0]);
        let started = steps("start", &values![NOW, lease.id.0, lease.epoch]);
        let back = crate::world::finish(lease, NOW, "given_back", None, None);
        let finished = steps("finish", &back);
        let cancelled = steps("cancel", &values![NOW, lease.id.0, "skipped", "no"]);
        [enqueued, status, mapped, by_id, started, finished, cancelled]
    };
    round(0);
    let few = round(1);
    let mapped = |n| {
        let mut task = NewTask::new(key("more")).pool("db".try_into().unwrap());
        task.key.map_index = Some(n);
        task
    };
    let more: Vec<NewTask> = (0..2_000).map(mapped).collect();
    store.write(|tx| tx.enqueue(now(), &more)).unwrap();
    let many = round(2);
    for (few, many) in few.into_iter().zip(many) {
        assert!(few > 0 && many < few + 60, "{few} steps became {many}");
    }
}

#[test]
fn other_prefixes_have_a_contract_of_their_own() {
    let host = Connection::open_in_memory().unwrap();
    migrate(&host, &Prefix::new("jobs_").unwrap()).unwrap();
    for (name, values) in [("enqueue", &good()[..]), ("cancel", &values![NOW, 1, "skipped", ""])] {
        ask(&host, &statement("SQLite", name).replace("sm_", "jobs_"), values.iter().map(bound)).unwrap();
    }
    assert_eq!(ask(&host, "SELECT state FROM jobs_status", []).unwrap(), [[Value::from("skipped")]]);
}
