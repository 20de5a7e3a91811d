/**
 * Times of a program that uses the `e2b` package with Torpor and gVisor sandboxes.
 *
 *   npm run bench:e2b            as root; a few minutes
 *   npm run bench:e2b -- quick   fewer rounds
 */
import { loadavg } from 'node:os';
import { Sandbox } from 'e2b';
import { e2bServer, optionsOf } from '../tests/e2b/e2b-server.ts';
import { row, type Times, time } from './measure.ts';

const ROUNDS = process.argv.includes('quick') ? 5 : 20;

const lines: [what: string, times: Times][] = [];
const measure = async (what: string, work: (i: number) => Promise<unknown>) => {
  lines.push([what, await time(ROUNDS, work)]);
};
const load = () => loadavg()[0]?.toFixed(1);

const world = await e2bServer('http', 'gvisor');
const before = load();
try {
  const options = { ...optionsOf(world), timeoutMs: 3_600_000 };
  const made: Sandbox[] = [];
  // The first sandbox is slower than all others and is not measured.
  await (await Sandbox.create(options)).kill();
  await measure('create → first command', async () => {
    const sandbox = await Sandbox.create(options);
    await sandbox.commands.run('true');
    made.push(sandbox);
  });
  const at = (i: number) => made[i] as Sandbox;
  await measure('command', (i) => at(i).commands.run('true'));
  await measure('write and read a file', async (i) => {
    await at(i).files.write('a', 'x'.repeat(10_000));
    await at(i).files.read('a');
  });
  await measure('pause', (i) => at(i).pause());
  await measure('connect → first command', async (i) => {
    const sandbox = await Sandbox.connect(at(i).sandboxId, options);
    await sandbox.commands.run('true');
  });
  await measure('pause without memory', (i) => at(i).pause({ keepMemory: false }));
  await measure('connect → first command', async (i) => {
    const sandbox = await Sandbox.connect(at(i).sandboxId, options);
    await sandbox.commands.run('true');
  });
  await measure('fork', async (i) => {
    for (const child of await at(i).fork()) if (child instanceof Sandbox) await child.kill();
  });
  await measure('kill', (i) => at(i).kill());
} finally {
  await world.dispose();
}
console.log(row(['milliseconds', 'p50', 'p95']));
for (const [what, { p50, p95 }] of lines) console.log(row([what, p50, p95]));
console.log(`${ROUNDS} rounds each; load ${before} before, ${load()} after`);
