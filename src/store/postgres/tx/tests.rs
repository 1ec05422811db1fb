//! The statements inside the functions that ticks and ends call, each with the plan that the server ran.

use std::collections::BTreeSet;
use std::future::poll_fn;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls};

use super::super::name::Schema;
use super::plans::{complaint, on, scans_whole_index, server, set};
use super::{insert, tick};

/// Connects, and forwards the server's notices.
async fn listening() -> (Client, UnboundedReceiver<String>) {
    let config: Config = server().parse().unwrap();
    let (client, mut connection) = config.connect(NoTls).await.unwrap();
    let (send, notes) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notice(note) = message
                && send.send(note.message().to_owned()).is_err()
            {
                break;
            }
        }
    });
    (client, notes)
}

/// Returns the steps of a plan in the form of its text.
fn steps(plan: &serde_json::Value, into: &mut Vec<String>) {
    let part = |name: &str| plan[name].as_str();
    let index = part("Index Name").map(|index| format!(" using {index}")).unwrap_or_default();
    let table = part("Relation Name").map(|table| format!(" on {table}")).unwrap_or_default();
    into.push(format!("->  {}{index}{table}", part("Node Type").unwrap()));
    for detail in ["Index Cond", "Filter", "Join Filter"] {
        into.extend(part(detail).map(|text| format!("      {detail}: {text}")));
    }
    plan["Plans"].as_array().into_iter().flatten().for_each(|step| steps(step, into));
}

/// Enqueues, folds, grants and ends two tasks of one lane, so that the lane is deleted. One end is announced,
/// one fold looks for what was open before, and one grant deletes a tick.
async fn course(client: &Client, schema: &Schema) {
    let prepare = format!(
        "PREPARE enqueue AS {}; PREPARE grant_few AS {}",
        schema.apply(insert::ENQUEUE_ONE),
        schema.apply(tick::few::GRANT_FEW)
    );
    client.batch_execute(&prepare).await.unwrap();
    for no in [1, 2] {
        let enqueue = format!(
            "EXECUTE enqueue(NULL, 0, {no}, -1, 0, NULL, 0, 1, 1, 'n', 'w', 'r', 't{no}', NULL, '', 'default_pool', 1,
               '[]', NULL, 0, 0)"
        );
        client.batch_execute(&enqueue).await.unwrap();
    }
    let fold = "SELECT * FROM sm._fold_few(false, NULL)";
    client.batch_execute(&schema.apply(fold)).await.unwrap();
    for no in [1, 2] {
        let grant = format!(
            "EXECUTE grant_few('{{{no}}}', '{{0}}', '{{{no}}}', '{{-1}}', ARRAY[sm._lane_digest('default_pool', 1, '[]', NULL)], 'h', 9, 9, 1);
             UPDATE sm.lease SET runs = 2;
             SELECT sm._take_few('{{{no}}}', (SELECT digest FROM sm.lane), '{{0,{no},-1,{no}}}', '{{}}', {no}, 'tick {no}',
               'tick {}', {no}, 64);
             SELECT * FROM sm._end_one({no}, 1, 6, 9, NULL, NULL, 0, false);
             UPDATE sm.tick SET seen = format('%1$s:%2$s:%1$s', txid_current() - 1, txid_current())::txid_snapshot;
             INSERT INTO sm.request VALUES ('old', 0, '{{}}', '{{}}'); {fold}",
            no - 1
        );
        client.batch_execute(&schema.apply(&grant)).await.unwrap();
    }
    // The same by a tick that is sent ahead. The holder has announced what it serves.
    let whole = "INSERT INTO sm.serving (holder, digest, queues, announced_at, lease, until)
          VALUES ('h', sm._lane_digest('', 1, '', NULL), 'null', 1, 90, 181);
        EXECUTE enqueue(NULL, 0, 3, -1, 0, NULL, 0, 1, 1, 'n', 'w', 'r', 't3', NULL, '', 'default_pool', 1, '[]', NULL, 0, 0);
        SELECT * FROM sm._tick_ahead('tick 3', 'tick 2', 'h', 90, 4, 3, 3, 64, 9, 1, '{}', '{}', '{}', '{}', '{}', '{}');
        SELECT * FROM sm._end_one(3, 1, 6, 9, NULL, NULL, 0, false); SELECT * FROM sm._fold_few(false, NULL)";
    client.batch_execute(&schema.apply(whole)).await.unwrap();
    client.batch_execute("SET auto_explain.log_min_duration = -1").await.unwrap();
    let left = "SELECT (SELECT count(*) FROM sm.lane) + (SELECT count(*) FROM sm.pool_use) + (SELECT count(*) FROM sm.delta)";
    assert_eq!(client.query_one(&schema.apply(left), &[]).await.unwrap().get::<_, i64>(0), 0);
}

#[test]
fn statements_inside_functions_use_an_index_and_sort_no_table() {
    on("inside", async |_, schema| {
        let (client, mut notes) = listening().await;
        set(&client, &schema).await;
        let explain = "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_level = 'notice';
            SET auto_explain.log_nested_statements = on; SET auto_explain.log_format = 'json'";
        client.batch_execute(explain).await.expect("the server's module auto_explain: it is in contrib");
        course(&client, &schema).await;
        drop(client);
        let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
        while let Some(note) = notes.recv().await {
            let Some((_, plan)) = note.split_once("plan:\n") else { continue };
            let plan: serde_json::Value = serde_json::from_str(plan).unwrap();
            let (text, mut lines) = (plan["Query Text"].as_str().unwrap(), Vec::new());
            // The test's own statements begin with other words, or are checked elsewhere.
            if text.contains(&format!("\"{schema}\"._"))
                || text.starts_with("PREPARE")
                || text.starts_with("EXECUTE")
            {
                continue;
            }
            steps(&plan["Plan"], &mut lines);
            let found =
                lines.iter().filter_map(|step| complaint("inside", step)).chain(scans_whole_index(&lines));
            wrong.extend(found.map(|step| format!("{step} in {text}")));
            seen.insert(text.to_owned());
        }
        assert_eq!(wrong, [""; 0]);
        assert!(seen.len() > 25, "{} statements: {seen:#?}", seen.len());
    });
}
