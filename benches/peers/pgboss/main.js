// pg-boss: what each command does is in ../README.md.
const PgBoss = require('pg-boss');

const [command, ...args] = process.argv.slice(2);

// One connection each, without its supervision and schedules.
const connect = () => new PgBoss({ connectionString: process.env.PEERS_URL, max: 1, supervise: false, schedule: false }).start();

const enqueue = async (connections, count) => {
  const senders = [];
  for (let at = 0; at < connections; at++) {
    const sender = await connect();
    await sender.send('nothing', { n: 0 });
    senders.push(sender);
  }
  const began = performance.now();
  await Promise.all(senders.map(async (sender, at) => {
    for (let n = at; n < count; n += connections) await sender.send('nothing', { n });
  }));
  console.log(`rate ${count / ((performance.now() - began) / 1000)}`);
};

const main = async () => {
  if (command === 'setup') await (await connect()).createQueue('nothing');
  else if (command === 'enqueue') await enqueue(Number(args[0]), Number(args[1]));
  else throw new Error(`no command ${command}`);
  process.exit(0);
};

main().catch((error) => { console.error(error); process.exit(1); });
