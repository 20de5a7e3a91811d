/** A server for the tests of the guard: it starts a marked process, and moves the deadline until it is told to stop. */
import { spawn } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { Guard } from './guard.ts';

const [directory = '', leaseText = '', startsSandbox = ''] = process.argv.slice(2);
const leaseMs = Number(leaseText);
const sandboxes = join(directory, 'sandboxes');
const name = basename(directory);
mkdirSync(join(sandboxes, name), { recursive: true });
const guard = await Guard.start({
  directory,
  targets: {
    cgroups: [],
    commands: [],
    marked: [{ variable: 'TORPOR_GUARD_TEST', directory: sandboxes }],
  },
  report: (what) => process.stderr.write(`${what}\n`),
  endServer: () => process.exit(1),
});
await guard.extend(guard.now() + leaseMs);
// The child of a shell that ends: it has no relation to this process but its environment.
const script = 'setsid sleep 1000 >/dev/null 2>&1 & echo $!';
const env = { ...process.env, TORPOR_GUARD_TEST: name };
const sandbox =
  startsSandbox === 'yes'
    ? Number(
        await new Promise<string>((resolve) =>
          spawn('sh', ['-c', script], { env, detached: true }).stdout.once('data', resolve),
        ),
      )
    : 0;
process.stdout.write(`${JSON.stringify({ guard: guard.pid, sandbox })}\n`);
const renewals = setInterval(() => void guard.extend(guard.now() + leaseMs), leaseMs / 6);
process.once('SIGTERM', () => {
  clearInterval(renewals);
  guard.release();
});
