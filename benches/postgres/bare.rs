//! The same state changes in hand-written SQL, in as few round trips: what PostgreSQL itself costs.

use stationmaster::store::Durability;
use stationmaster::store::postgres::tokio_postgres::types::ToSql;
use stationmaster::store::postgres::tokio_postgres::{Client as PgClient, NoTls, Statement, connect};
use stationmaster::{LeaseRef, TaskId};
use tokio::runtime::{Builder, Runtime};

use crate::backlog::{POOLS, Place, now};

type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

pub(crate) struct Client {
    runtime: Runtime,
    client: PgClient,
    schema: String,
    ready: Option<Ready>,
}

struct Ready {
    candidates: Statement,
    grant: Statement,
    note: Statement,
    end: Statement,
}

/// As many of each lane, in its order.
const CANDIDATES: &str =
    "SELECT task.no FROM s.lane CROSS JOIN LATERAL (SELECT no FROM s.task WHERE lane = lane.no AND state = 0
    ORDER BY rank, logical_date, map_index, no LIMIT $1::bigint) task WHERE ready > 0 LIMIT $2::bigint";
const GRANT: &str = "WITH granted AS (UPDATE s.task SET state = 1, epoch = epoch + 1, attempt = attempt + 1, held_slots = slots,
    holder = 'bare', expires_at = $2::bigint, queued_at = $2::bigint WHERE no = ANY ($1::bigint[]) AND state + 0 = 0
    RETURNING no, epoch, lane),
    less AS (UPDATE s.lane SET ready = ready - less.count FROM (SELECT lane, count(*) FROM granted GROUP BY lane) less
        WHERE lane.no = less.lane RETURNING lane.pool, lane.slots * less.count AS slots),
    taken AS (UPDATE s.pool SET used = used + more.slots FROM (SELECT pool, sum(slots)::bigint AS slots FROM less GROUP BY pool) more
        WHERE pool.name = more.pool)
    SELECT no, epoch FROM granted";
const NOTE: &str = "INSERT INTO s.request (id, at, nos, epochs) VALUES (gen_random_uuid()::text, $2::bigint, $1::bigint[], $1::bigint[])";
const END: &str = "WITH ended AS (UPDATE s.task SET state = 6, held_slots = 0, holder = NULL, expires_at = NULL,
    ended_at = $2::bigint WHERE no = ANY ($1::bigint[]) AND state IN (1, 2) RETURNING lane, slots),
    less AS (SELECT lane.pool, sum(ended.slots)::bigint AS slots FROM ended JOIN s.lane ON lane.no = ended.lane GROUP BY lane.pool)
    UPDATE s.pool SET used = used - less.slots FROM less WHERE pool.name = less.pool";

impl Client {
    pub(crate) fn connect(place: &Place) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = runtime.block_on(async {
            let (client, connection) = connect(&place.url, NoTls).await.expect("a connection");
            tokio::spawn(connection);
            if place.commit == Durability::Process {
                client.batch_execute("SET synchronous_commit = off").await.expect("set");
            }
            // As the store has it: the plan is made once.
            client
                .batch_execute("SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off")
                .await
                .expect("set");
            client
        });
        Self { runtime, client, schema: place.schema.clone(), ready: None }.prepared()
    }

    /// With its statements prepared, if the tables are there.
    fn prepared(mut self) -> Self {
        let prepare = |sql: &str| {
            self.runtime.block_on(self.client.prepare(&sql.replace(" s.", &format!(" {}.", self.schema))))
        };
        self.ready = (|| {
            Ok::<_, stationmaster::store::postgres::tokio_postgres::Error>(Ready {
                candidates: prepare(CANDIDATES)?,
                grant: prepare(GRANT)?,
                note: prepare(NOTE)?,
                end: prepare(END)?,
            })
        })()
        .ok();
        self
    }

    pub(crate) fn run(&self, sql: &str) {
        self.runtime.block_on(self.client.batch_execute(sql)).expect("run");
    }

    fn begin(&self) -> String {
        format!("BEGIN; LOCK TABLE {}.writer IN EXCLUSIVE MODE", self.schema)
    }

    /// Admits up to this many tasks: three round trips.
    pub(crate) fn tick(&self, budget: usize) -> Vec<(i64, i64)> {
        let ready = self.ready.as_ref().expect("tables");
        let (each, most) = (budget.div_ceil(POOLS) as i64, budget as i64);
        let at = now().as_micros();
        let begin = self.begin();
        let client = &self.client;
        self.runtime.block_on(async {
            let asked: Params<'_> = &[&each, &most];
            let (begun, rows) =
                tokio::join!(client.batch_execute(&begin), client.query(&ready.candidates, asked));
            begun.expect("begun");
            let ids: Vec<i64> = rows.expect("rows").iter().map(|row| row.get(0)).collect();
            let given: Params<'_> = &[&ids, &at];
            let (granted, noted) =
                tokio::join!(client.query(&ready.grant, given), client.execute(&ready.note, given));
            noted.expect("noted");
            client.batch_execute("COMMIT").await.expect("committed");
            granted.expect("granted").iter().map(|row| (row.get(0), row.get(1))).collect()
        })
    }

    /// Ends tasks: two round trips.
    pub(crate) fn end(&self, granted: &[(i64, i64)]) {
        let ready = self.ready.as_ref().expect("tables");
        let ids: Vec<i64> = granted.iter().map(|(id, _)| *id).collect();
        let at = now().as_micros();
        let begin = self.begin();
        let client = &self.client;
        self.runtime.block_on(async {
            let given: Params<'_> = &[&ids, &at];
            let (begun, ended) =
                tokio::join!(client.batch_execute(&begin), client.execute(&ready.end, given));
            begun.expect("begun");
            ended.expect("ended");
            client.batch_execute("COMMIT").await.expect("committed");
        });
    }

    pub(crate) fn leases(&self, granted: &[(i64, i64)]) -> Vec<LeaseRef> {
        granted.iter().map(|(id, epoch)| LeaseRef::new(TaskId(*id), *epoch)).collect()
    }
}
