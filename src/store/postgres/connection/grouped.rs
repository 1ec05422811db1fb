//! Sends the statements of a group: see [`super::super::group`].

use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::Error as PgError;
use tokio_postgres::error::SqlState;

use super::{Answer, Connection, Sent, heard};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::postgres::error::{Failure, commit_error, flush_error, is_of_standby, unsettled};
use crate::store::postgres::group::Leader;
use crate::store::postgres::liveness::Liveness;
use crate::store::postgres::options::PostgresOptions;
use crate::store::postgres::pipeline::Pipeline;
use crate::store::postgres::route::Route;
use crate::store::postgres::time::Timekeeper;
use crate::store::postgres::wire::{Statement, ask};

/// Returns whether a reset of `synchronous_commit` restores what is in force. It does not if a host's connector has set
/// it, or the store, because the server has turned it off.
const IS_RESTORED: &str = "SELECT source <> 'session' FROM pg_settings WHERE name = 'synchronous_commit'";

/// Sent before the statements. They write outside transactions and do not wait for a flush. One that needs what
/// another transaction holds fails after 2 ms, because those behind it do not need that.
const ENTER: &str = "SELECT set_config('default_transaction_read_only', 'off', false), \
  set_config('synchronous_commit', 'off', false), set_config('lock_timeout', '2', false)";

/// Sent behind the statements. Restores the settings, and commits a record with them. That flushes everything committed
/// before. After a reset, `synchronous_commit` follows the server's configuration when that is loaded again.
const LEAVE: &str = "SELECT pg_logical_emit_message(true, 'stationmaster', ''), \
  set_config('lock_timeout', $1, false), set_config('synchronous_commit', NULL, false)";

impl Connection {
    /// Prepares a group. Returns false if this connection cannot commit one: behind a pooler, others would get its
    /// settings.
    pub(in crate::store::postgres) async fn prepare_group(
        &mut self,
        options: &PostgresOptions,
        statements: &[Statement],
    ) -> Result<bool, Failure> {
        self.ended().await?;
        let may_group = match self.may_group {
            Some(known) => known,
            None => self.route == Route::Direct && self.is_restored().await.map_err(Failure::of_waiting)?,
        };
        self.may_group = Some(may_group);
        if may_group {
            let around = [ask!(ENTER), leave(options)];
            let all = statements.iter().map(|statement| (statement, true));
            let all = all.chain(around.iter().map(|statement| (statement, false)));
            self.prepare(options, all).await.map_err(Failure::of_waiting)?;
        }
        Ok(may_group)
    }

    async fn is_restored(&self) -> Result<bool, PgError> {
        let rows = self.client.query_typed(IS_RESTORED, &[]).await?;
        rows.first().map_or(Ok(false), |row| row.try_get(0))
    }

    /// Commits each of these prepared statements, and flushes them together. The next caller leads as soon as the server
    /// has responded to them. Returns what became of each. Also returns an error if the connection has to be given up, and
    /// with it those that were committed: whether they were flushed is unknown.
    pub(in crate::store::postgres) async fn run_group(
        &mut self,
        options: &PostgresOptions,
        liveness: &Liveness,
        stale: Option<&Timekeeper>,
        statements: &[Statement],
        leader: Leader,
    ) -> Result<(Vec<Member>, Option<StoreError>), Failure> {
        let (enter, leave) = (ask!(ENTER), leave(options));
        self.alone.may_write();
        let asked = Instant::now();
        let mut sent: Vec<Sent<'_, Option<Answer>>> = Vec::with_capacity(statements.len() + 3);
        sent.push(self.executes(options, &enter, false));
        sent.extend(statements.iter().map(|statement| self.executes(options, statement, true)));
        sent.push(self.executes(options, &leave, false));
        sent.extend(stale.map(|time| self.reads_clock(time)));
        let mut responses = Pipeline::send(heard(liveness, sent)).await;
        let entered = responses.next().await.transpose();
        let mut members = Vec::with_capacity(statements.len());
        while members.len() < statements.len()
            && let Some(response) = responses.next().await
        {
            members.push(Member::of(response, asked.elapsed(), options.statement_timeout));
        }
        // The next group runs while this one is flushed.
        drop(leader);
        let left = responses.next().await.transpose();
        // The server's clock may be read behind them.
        while responses.next().await.is_some() {}
        let lost = left.map_err(flush_error).and(entered.map_err(unsettled)).err();
        Ok((members, lost.map(StoreError::from)))
    }
}

/// What became of a statement of a group.
#[derive(Debug)]
pub(in crate::store::postgres) enum Member {
    Committed(Answer),
    /// It changed nothing. It needed what another transaction holds, or another connection.
    Refused,
    /// It changed nothing.
    Failed(StoreError),
    /// The connection was lost.
    Unknown(StoreError),
}

impl Member {
    fn of(response: Result<Option<Answer>, PgError>, took: Duration, limit: Duration) -> Self {
        let error = match response {
            Ok(answer) => return Self::Committed(answer.unwrap_or_default()),
            Err(error) => error,
        };
        if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) {
            return Self::Refused;
        }
        match commit_error(error, took, limit) {
            Failure::Refused(error) if error.kind() == StoreErrorKind::Schema || is_of_standby(&error) => {
                Self::Refused
            }
            Failure::Refused(error) => Self::Failed(error),
            Failure::Lost(error) | Failure::Silent(error) => Self::Unknown(error),
        }
    }
}

fn leave(options: &PostgresOptions) -> Statement {
    ask!(LEAVE, options.lock_timeout_in_millis().to_string())
}

#[cfg(test)]
mod tests {
    use std::thread::scope;

    use tokio::runtime::Runtime;
    use tokio_postgres::{Client, Config, NoTls};

    use super::*;
    use crate::store::postgres::connect::Connector;
    use crate::store::postgres::group::{Fate, Outcome, Turn};
    use crate::store::postgres::name::Schema;
    use crate::store::postgres::places::Purpose;
    use crate::store::postgres::pool::Lease;
    use crate::store::postgres::seat::runtime_of_one_thread;
    use crate::store::postgres::sessions::transact;
    use crate::store::postgres::tx::plans::server;
    use crate::store::postgres::wake::Wake;
    use crate::store::postgres::wire::Touch;
    use crate::store::{PostgresStore, TxMode};

    /// A store with one connection and a table of distinct numbers, and a client beside it.
    struct Beside {
        store: PostgresStore,
        schema: Schema,
        client: Client,
        runtime: Runtime,
    }

    impl Beside {
        /// The host's connector runs `first`.
        fn open(name: &str, first: &str) -> Self {
            let first = first.to_owned();
            let schema = Schema::new(format!("sm_group_{name}")).unwrap();
            let runtime = runtime_of_one_thread().unwrap();
            let config: Config = server().parse().unwrap();
            let connect = |config: Config, first: String| async move {
                let (client, mut connection) = config.connect(NoTls).await?;
                tokio::select! {
                    ran = client.batch_execute(&first) => ran?,
                    ended = &mut connection => ended?,
                }
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>((client, connection))
            };
            let (client, connection) = runtime.block_on(connect(config.clone(), String::new())).unwrap();
            runtime.spawn(connection);
            let drop = format!("DROP SCHEMA IF EXISTS \"{schema}\" CASCADE");
            runtime.block_on(client.batch_execute(&drop)).unwrap();
            let connector = Connector::new(move || connect(config.clone(), first.clone()));
            let options = PostgresOptions::new().schema(schema.clone()).connections(1).wake(Wake::Never);
            // Without a limit of the group's own, only the statement timeout would end a wait.
            let options = options.lock_timeout(Duration::ZERO);
            let store = PostgresStore::open(connector, options).unwrap();
            let beside = Self { store, schema, client, runtime };
            beside.run("CREATE TABLE sm.number (n bigint PRIMARY KEY)");
            beside
        }

        fn run(&self, sql: &str) {
            let sql = self.schema.apply(sql);
            self.runtime.block_on(self.client.batch_execute(&sql)).unwrap();
        }

        fn numbers(&self) -> Vec<i64> {
            let sql = self.schema.apply("SELECT n FROM sm.number ORDER BY n");
            let rows = self.runtime.block_on(self.client.query(&sql, &[])).unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        }

        fn leads(&self) -> (Lease, Leader) {
            let lease = self.store.pool.lease(Purpose::Ordinary, Duration::from_secs(9)).unwrap();
            let Turn::Now(Ok((leader, ..))) = self.store.pool.groups.enter(insert(0)) else {
                panic!("no other caller leads")
            };
            (lease, leader)
        }

        fn group(&self, statements: Vec<Statement>) -> Outcome {
            let (lease, leader) = self.leads();
            lease.session().commit_group(statements, leader)
        }

        fn commit(&self, statements: Vec<Statement>) -> Vec<Fate> {
            match self.group(statements) {
                Outcome::Ran(fates) => fates,
                Outcome::Unable(_) => panic!("this connection commits groups"),
            }
        }

        /// Returns the settings of the store's connection in a transaction that writes.
        fn settings(&self) -> Vec<String> {
            const SETTINGS: &str = "SELECT ARRAY[current_setting('synchronous_commit'), \
              current_setting('lock_timeout'), current_setting('default_transaction_read_only'), \
              (SELECT source FROM pg_settings WHERE name = 'synchronous_commit')]";
            let mut settings = Vec::new();
            transact(&self.store.pool, &self.store.options, TxMode::Write, |mut wire| {
                settings = wire.send(vec![ask!(SETTINGS)], Touch::Writes)?.remove(0).remove(0).get(0);
                Ok::<bool, StoreError>(false)
            })
            .unwrap();
            settings
        }
    }

    impl Drop for Beside {
        fn drop(&mut self) {
            let drop = format!("DROP SCHEMA IF EXISTS \"{}\" CASCADE", self.schema);
            let _ = self.runtime.block_on(self.client.batch_execute(&drop));
        }
    }

    fn insert(number: i64) -> Statement {
        ask!("INSERT INTO sm.number VALUES ($1) RETURNING n", number)
    }

    /// `.` was committed, `-` failed, `a` has to run apart, and `?` is unknown.
    fn marks(fates: &[Fate]) -> String {
        let mark = |fate: &Fate| match fate {
            Fate::Done(Ok(answers)) => {
                assert_eq!(answers.iter().map(Vec::len).collect::<Vec<_>>(), [1]);
                '.'
            }
            Fate::Apart(_) => 'a',
            Fate::Done(Err(Failure::Refused(_))) => '-',
            Fate::Done(Err(Failure::Lost(error))) if error.kind() == StoreErrorKind::Indeterminate => '?',
            Fate::Done(Err(failure)) => panic!("{failure:?}"),
        };
        fates.iter().map(mark).collect()
    }

    #[test]
    fn one_that_is_refused_or_blocked_changes_nothing_and_holds_up_no_other() {
        let beside = Beside::open("refused", "");
        let before = beside.settings();
        beside.run("BEGIN; INSERT INTO sm.number VALUES (2)");
        let fates = beside.commit([1, 2, 3, 1, 4].map(insert).into());
        assert_eq!(marks(&fates), ".a.-.");
        beside.run("COMMIT");
        assert_eq!(beside.numbers(), [1, 2, 3, 4]);
        assert_eq!(beside.settings(), before);
        assert_eq!(before[..3], ["on", "0", "on"]);
        assert_ne!(before[3], "session", "it follows the server's configuration when that is loaded again");
        let Fate::Apart(Statement { sql, params }) = &fates[1] else { panic!("{fates:?}") };
        assert_eq!((*sql, params.len()), (insert(2).sql, 1), "it comes back as it was");
    }

    #[test]
    fn a_group_is_flushed_when_its_fates_are_known() {
        const WRITTEN: &str = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, $1";
        const FLUSHED: &str = "SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint";
        let beside = Beside::open("flush", "");
        let fates = beside.commit(vec![insert(1), insert(2), ask!(WRITTEN, 0)]);
        let flushed: i64 = beside.runtime.block_on(beside.client.query_one(FLUSHED, &[])).unwrap().get(0);
        let Fate::Done(Ok(answers)) = &fates[2] else { panic!("{fates:?}") };
        let written: i64 = answers[0][0].get(0);
        assert!(flushed > written, "{flushed} of {written}");
    }

    /// The flush takes 0.1 s if the server flushes at all (`fsync`). That is mostly long enough to see it.
    #[test]
    fn the_next_caller_leads_while_a_group_is_flushed() {
        const ACTIVE: &str = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND state = 'active' \
          AND query LIKE '%pg_logical_emit_message%'";
        let beside = Beside::open("hand_over", "SET commit_siblings = 0; SET commit_delay = 100000");
        let Fate::Done(Ok(answers)) = beside.commit(vec![ask!("SELECT pg_backend_pid(), $1", 0)]).remove(0)
        else {
            panic!("it was not committed")
        };
        let pid: i32 = answers[0][0].get(0);
        let is_seen = (1..=20).any(|number| {
            let (lease, leader) = beside.leads();
            scope(|scope| {
                scope.spawn(|| lease.session().commit_group(vec![insert(number)], leader));
                let _leader = match beside.store.pool.groups.enter(insert(0)) {
                    Turn::Now(lead) => lead,
                    Turn::Wait(queued) => {
                        drop(queued.wait_with(|_| Err::<Option<()>, ()>(())));
                        return false;
                    }
                };
                let row = beside.runtime.block_on(beside.client.query_one(ACTIVE, &[&pid]));
                row.unwrap().get::<_, i64>(0) == 1
            })
        });
        assert!(is_seen, "the next caller leads after the flush");
    }

    #[test]
    fn after_a_lost_connection_all_are_unknown_and_the_next_group_has_a_new_one() {
        let beside = Beside::open("lost", "");
        let ended = ask!("SELECT pg_terminate_backend(pg_backend_pid()), $1", 0);
        let fates = beside.commit(vec![insert(1), insert(1), ended, insert(2)]);
        assert_eq!(marks(&fates), "?-??");
        assert_eq!(beside.numbers(), [1]);
        assert_eq!(marks(&beside.commit(vec![insert(2), insert(3)])), "..");
        assert_eq!(beside.numbers(), [1, 2, 3]);
    }

    #[test]
    fn a_connection_whose_settings_would_not_be_restored_commits_no_group() {
        for value in ["remote_apply", "on"] {
            let beside = Beside::open("settings", &format!("SET synchronous_commit = {value}"));
            let before = beside.settings();
            let Outcome::Unable(statements) = beside.group([1, 2].map(insert).into()) else {
                panic!("{value} would be reset")
            };
            assert_eq!((statements.len(), beside.numbers().len()), (2, 0), "nothing was sent");
            assert_eq!(beside.settings(), before);
            assert_eq!(before[0], value);
        }
    }
}
