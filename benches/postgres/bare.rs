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
const CANDIDATES: &str = "SELECT ready.at FROM s.lane CROSS JOIN LATERAL (SELECT ctid::text AS at FROM s.ready
    WHERE ready.lane = lane.digest ORDER BY rank, logical_date, map_index, no LIMIT $1::bigint) ready LIMIT $2::bigint";
const GRANT: &str = "WITH gone AS (DELETE FROM s.ready WHERE ctid = ANY ($1::text[]::tid[]) RETURNING *),
    granted AS (INSERT INTO s.lease (no, epoch, lane, slots, expires_at, queued_at, attempt, ready_at, holder)
        SELECT gone.no, gone.epoch + 1, gone.lane, task.slots, $2::bigint, $2::bigint, gone.attempt + 1, gone.ready_at, 'bare'
        FROM gone CROSS JOIN LATERAL (SELECT slots FROM s.task WHERE task.no = gone.no OFFSET 0) task
        RETURNING no, epoch, lane, slots),
    sums AS (SELECT lane, count(*) AS tasks, sum(slots)::bigint AS slots FROM granted GROUP BY lane),
    less AS (UPDATE s.lane_use SET ready = ready - sums.tasks FROM sums WHERE lane_use.digest = sums.lane),
    pools AS (SELECT lane.pool, sum(sums.slots)::bigint AS slots FROM sums JOIN s.lane ON lane.digest = sums.lane GROUP BY lane.pool),
    was AS (DELETE FROM s.pool_use WHERE name = ANY (ARRAY(SELECT pool FROM pools)) RETURNING name, used),
    taken AS (INSERT INTO s.pool_use (name, version, used)
        SELECT pool, nextval('s.version'), coalesce(used, 0) + slots FROM pools LEFT JOIN was ON was.name = pool)
    SELECT no, epoch FROM granted";
const NOTE: &str = "INSERT INTO s.request (id, at, nos, epochs)
    SELECT gen_random_uuid()::text, $1::bigint, coalesce(array_agg(no), '{}'), coalesce(array_agg(no), '{}') FROM generate_series(1, $2::bigint) no";
/// What comes back is left to the next tick of a store.
const END: &str = "WITH gone AS (DELETE FROM s.lease WHERE no = ANY ($1::bigint[]) RETURNING *),
    ended AS (INSERT INTO s.idle (no, state, epoch, lane, ready_at, attempt, queued_at, ended_at)
        SELECT no, 6, epoch, lane, ready_at, attempt, queued_at, $2::bigint FROM gone)
    INSERT INTO s.delta (lane, ready, tasks, slots, leases, came)
    SELECT lane, 0, -count(*), sum(slots)::bigint, count(*), 0 FROM gone GROUP BY lane";

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
            self.runtime.block_on(
                self.client.prepare(
                    &sql.replace(" s.", &format!(" {}.", self.schema))
                        .replace("'s.", &format!("'{}.", self.schema)),
                ),
            )
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

    fn lock(&self) -> String {
        format!("BEGIN; LOCK TABLE {}.tick_lock IN EXCLUSIVE MODE", self.schema)
    }

    /// Admits up to this many tasks: three round trips.
    pub(crate) fn tick(&self, budget: usize) -> Vec<(i64, i64)> {
        let ready = self.ready.as_ref().expect("tables");
        let (each, most) = (budget.div_ceil(POOLS) as i64, budget as i64);
        let at = now().as_micros();
        let begin = self.lock();
        let client = &self.client;
        self.runtime.block_on(async {
            let asked: Params<'_> = &[&each, &most];
            let (begun, rows) =
                tokio::join!(client.batch_execute(&begin), client.query(&ready.candidates, asked));
            begun.expect("begun");
            let found: Vec<String> = rows.expect("rows").iter().map(|row| row.get(0)).collect();
            let (given, count): (Params<'_>, i64) = (&[&found, &at], found.len() as i64);
            let noted: Params<'_> = &[&at, &count];
            let (granted, noted) =
                tokio::join!(client.query(&ready.grant, given), client.execute(&ready.note, noted));
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
        let client = &self.client;
        self.runtime.block_on(async {
            let given: Params<'_> = &[&ids, &at];
            let (begun, ended) =
                tokio::join!(client.batch_execute("BEGIN"), client.execute(&ready.end, given));
            begun.expect("begun");
            ended.expect("ended");
            client.batch_execute("COMMIT").await.expect("committed");
        });
    }

    pub(crate) fn leases(&self, granted: &[(i64, i64)]) -> Vec<LeaseRef> {
        granted.iter().map(|(id, epoch)| LeaseRef::new(TaskId(*id), *epoch)).collect()
    }
}
