//! What the functions run with: rights, path, planner.

use stationmaster::admission::limits::LimitSpec;
use stationmaster::admission::{IfExists, WaitingCap};
use stationmaster::store::postgres::tokio_postgres::Config;
use stationmaster::testing::planner_settings;
use stationmaster::{LeaseRef, TaskRecord};

use super::{PostgresHost, ask};
use crate::cancel::sensor;
use crate::scratch::{Scratch, query, rows, url};
use crate::world::{Answer, Host, NOW, Value, World, admit, finish, good, key, now, values};

/// The statements of the page's block, for a role.
fn grants(schema: &str, role: &str) -> Vec<String> {
    let block = include_str!("../../../docs/sql.md").split("<!-- grants -->").nth(1).expect("the grants");
    let lines = block.replace("```sql", "").replace("```", "").replace("stationmaster", schema);
    let lines = lines.replace(" shop;", &format!(" {role};"));
    lines.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Each verb in one transaction: on new tasks, and on some that were made ready for it.
fn verbs(world: &World, role: &PostgresHost) -> Answer {
    role.batch("BEGIN");
    let done = (|| {
        let mut later = good();
        (later[4], later[12]) = ("later".into(), (NOW + 9).into());
        ask(role, "enqueue", &good())?;
        ask(role, "enqueue", &later)?;
        let list = r#"[{"namespace":"n","workflow":"w","run":"r","task":"t"}]"#;
        ask(role, "enqueue_many", &values![NOW, list])?;
        let id = |name: &str| -> Result<i64, crate::world::Refusal> {
            let key = values!["prod", "nightly", "r1", name, None::<i64>];
            Ok(ask(role, "status", &key)?[0][0].int())
        };
        for name in ["t", "later", "sensor"] {
            ask(role, "cancel", &values![NOW, id(name)?, "skipped", "no"])?;
        }
        let held = world.store.read(|tx| tx.tasks(&[key("one"), key("two")])).unwrap();
        for (task, outcome) in held.iter().flatten().zip(["success", "given_back"]) {
            let lease = task.lease_ref();
            ask(role, "start", &values![NOW, lease.id.0, lease.epoch])?;
            ask(role, "finish", &finish(lease, NOW, outcome, None, None))?;
        }
        ask(role, "status_by_id", &values![1])?;
        ask(role, "sharing", &[])?;
        ask(role, "wake", &[])
    })();
    role.batch("ROLLBACK");
    done
}

/// A world with a role that owns nothing.
fn scene() -> (World, String, String) {
    let world = super::world();
    let schema = world.host.ask("SELECT current_schema()::text", &[]).unwrap()[0][0].text().to_owned();
    // Only who enqueues under a cap needs to read what waits, and to take turns.
    let cap = WaitingCap::new(99).unwrap().strict(true);
    let capped = LimitSpec::of("a".try_into().unwrap()).waiting(cap);
    world.store.write(|tx| tx.define([&capped], IfExists::Leave)).unwrap();
    let tasks = ["one", "two", "sensor"].map(|name| stationmaster::NewTask::new(key(name)));
    world.store.write(|tx| tx.enqueue(now(), &tasks)).unwrap();
    let leases: Vec<LeaseRef> = admit(&*world.store, NOW).iter().map(TaskRecord::lease_ref).collect();
    world
        .store
        .write(|tx| {
            tx.start(now(), &leases[2..])?;
            tx.register(now(), &[sensor(leases[2])])
        })
        .unwrap();
    let role = format!("{schema}_shop");
    query(&format!("CREATE ROLE {role} LOGIN; REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC"));
    (world, schema, role)
}

fn connect(schema: &str, role: &str) -> PostgresHost {
    let mut config: Config = url().parse().unwrap();
    PostgresHost::of(&stationmaster::store::postgres::Schema::new(schema).unwrap(), config.user(role))
}

/// The page's block is enough, and each right in it is needed.
#[test]
fn a_role_that_owns_nothing_can_call_everything_with_the_documented_grants() {
    let (world, schema, role) = scene();
    let grants = grants(&schema, &role);
    assert!(grants.len() > 5, "{grants:?}");
    query(&grants.join("\n"));
    let host = connect(&schema, &role);
    verbs(&world, &host).unwrap();
    for grant in &grants {
        let (rights, on) = grant.strip_prefix("GRANT ").unwrap().split_once(" ON ").unwrap();
        let (objects, _) = on.split_once(" TO ").unwrap();
        let (kind, objects) = match objects.split_once(' ') {
            Some((kind @ ("SEQUENCE" | "SCHEMA"), object)) => (kind, vec![object]),
            _ if objects.starts_with("ALL FUNCTIONS") => ("", vec![objects]),
            _ => ("TABLE", objects.split(", ").collect()),
        };
        for right in rights.split(", ") {
            for object in &objects {
                query(&format!("REVOKE {right} ON {kind} {object} FROM {role}"));
                let refused = verbs(&world, &host).expect_err(&format!("{right} on {object} is not needed"));
                assert_eq!(refused.code, "42501", "{right} on {object}: {}", refused.text);
                query(&format!("GRANT {right} ON {kind} {object} TO {role}"));
            }
        }
    }
    verbs(&world, &host).unwrap();
    drop(host);
    query(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

/// A host's path, and what it puts before the server's own functions, means nothing to them.
#[test]
fn the_functions_of_the_page_run_with_the_callers_rights_and_settings_of_their_own() {
    let scratch = Scratch::new();
    drop(scratch.open(|options| options));
    let functions = rows(&format!(
        "SELECT proname::text, prosecdef, proconfig FROM pg_proc WHERE pronamespace = '{}'::regnamespace
         AND proname::text NOT LIKE '\\_%' ORDER BY proname",
        scratch.0
    ));
    let mut expected: Vec<String> = vec!["search_path=pg_catalog, pg_temp".into()];
    expected.extend(planner_settings().iter().map(|setting| setting.replace(" = ", "=")));
    let named = |at: usize| functions[at].get::<_, String>(0);
    let names: Vec<String> = (0..functions.len()).map(named).collect();
    let all = ["cancel", "enqueue", "enqueue_many", "finish", "finish_many", "start", "start_many", "wake"];
    assert_eq!(names, all);
    for row in &functions {
        let (name, definer, mut settings): (String, bool, Vec<String>) = (row.get(0), row.get(1), row.get(2));
        assert!(!definer, "{name} has the rights of its owner");
        let mut expected = if name == "wake" { expected[..1].to_vec() } else { expected.clone() };
        settings.sort();
        expected.sort();
        assert_eq!(settings, expected, "{name}");
    }
}

#[test]
fn a_host_that_shadows_what_the_functions_use_changes_nothing() {
    let world = super::world();
    world.host.batch(
        "CREATE FUNCTION stationmaster.chr(INT) RETURNS TEXT LANGUAGE sql AS 'SELECT ''shadow''';
         CREATE FUNCTION stationmaster.cardinality(ANYARRAY) RETURNS INT LANGUAGE sql AS 'SELECT 0';
         CREATE TEMPORARY TABLE task (no INT); CREATE TEMPORARY TABLE pg_class (no INT);
         SET search_path = stationmaster, pg_temp, pg_catalog; SET plan_cache_mode = force_custom_plan;
         SET enable_seqscan = on",
    );
    let mut values = good();
    values[15] = "\u{1a}".into();
    world.run("enqueue", &values).unwrap();
    let task = world.store.read(|tx| tx.tasks(&[key("t")])).unwrap().remove(0).unwrap();
    assert_eq!(task.payload, "\u{1a}");
    let settings = "SELECT current_setting('plan_cache_mode') || current_setting('enable_seqscan')";
    let left = world.host.ask(settings, &[]).unwrap();
    assert_eq!(left, [[Value::from("force_custom_planon")]], "nothing of the host's is changed");
}

/// Whatever the size of the tables, and of a task that is mapped: by an index, as the page promises.
#[test]
fn status_searches_by_an_index() {
    let world = super::world();
    let task = |n: u32| {
        let mut task = stationmaster::NewTask::new(key("mapped"));
        task.key.map_index = Some(n);
        task
    };
    world.store.write(|tx| tx.enqueue(now(), &(0..3_000).map(task).collect::<Vec<_>>())).unwrap();
    world.host.batch("ANALYZE stationmaster.task; ANALYZE stationmaster.ready");
    let searches = [
        ("status_by_id", "5".to_owned(), "Index Cond: (no = "),
        ("status", "'prod', 'nightly', 'r1', 'mapped', 7".to_owned(), "(map_index = "),
    ];
    for (name, arguments, condition) in searches {
        let prepare = format!("PREPARE asked AS {}", crate::contract::statement("PostgreSQL", name));
        world.host.batch(&prepare);
        for mode in ["force_generic_plan", "force_custom_plan"] {
            world.host.batch(&format!("SET plan_cache_mode = {mode}"));
            let plan =
                world.host.ask(&format!("EXPLAIN (COSTS OFF) EXECUTE asked({arguments})"), &[]).unwrap();
            let plan: Vec<&str> = plan.iter().map(|row| row[0].text()).collect();
            let plan = plan.join("\n");
            assert!(!plan.contains("Seq Scan") && plan.contains(condition), "{name}: {plan}");
        }
        world.host.batch("DEALLOCATE asked");
    }
}
