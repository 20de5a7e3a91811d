/**
 * A private PostgreSQL in a temporary directory. It listens only on a socket in that directory, so it conflicts with
 * nothing and is not reachable for others. It is small, but as durable as in production: fsync stays on.
 */
import { type ChildProcessByStdio, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { findPostgres } from '../../scripts/setup/postgresql.mjs';

export interface PrivatePostgres {
  readonly url: string;
  stop(): Promise<void>;
}

/**
 * The shell that supervises the server as its child. It ends when its standard input closes, which happens at any end
 * of the test run, including kill -9.
 */
const KEEPER = `
  trap exit HUP INT PIPE TERM
  trap 'test -z "$server" || kill -QUIT $server; wait; rm -rf "$DIR"' EXIT
  "$BIN/initdb" --pgdata="$DIR/data" --username=torpor --auth=trust --encoding=UTF8 --locale=C --no-sync >&2 || exit
  "$BIN/postgres" -D "$DIR/data" -k "$DIR" -c listen_addresses= -c shared_buffers=32MB >"$DIR/log" 2>&1 &
  server=$!
  until "$BIN/pg_isready" --quiet --host="$DIR"; do
    kill -0 $server || { server=; cat "$DIR/log" >&2; exit; }
    sleep 0.05
  done
  echo ready
  cat >/dev/null
`;

/** Undefined when this machine has no PostgreSQL. */
export async function startPrivatePostgres(): Promise<PrivatePostgres | undefined> {
  const bin = findPostgres();
  if (bin === undefined) return undefined;
  const user = unprivilegedUser();
  const dir = mkdtempSync(join(tmpdir(), 'torpor-postgres-'));
  if (user !== undefined) chownSync(dir, user.uid, user.gid);
  const keeper = spawn('sh', ['-c', KEEPER], {
    // A separate process group: Ctrl-C goes to the test run, and the supervisor notices the closed input.
    detached: true,
    stdio: ['pipe', 'pipe', 'pipe'],
    cwd: dir,
    env: { PATH: process.env['PATH'], LC_ALL: 'C', BIN: bin, DIR: dir },
    ...user,
  });
  const ended = once(keeper, 'exit');
  await untilReady(keeper, ended);
  return {
    url: `postgresql://torpor@localhost/postgres?host=${encodeURIComponent(dir)}`,
    stop: async () => {
      keeper.stdin.end();
      await ended;
    },
  };
}

async function untilReady(
  keeper: ChildProcessByStdio<Writable, Readable, Readable>,
  ended: Promise<unknown>,
): Promise<void> {
  const complaints = text(keeper.stderr);
  const ready = once(keeper.stdout, 'data').then(() => true);
  if (!(await Promise.race([ready, ended.then(() => false)]))) {
    throw new Error(`PostgreSQL could not be started.\n${await complaints}`);
  }
}

/** PostgreSQL refuses to run as root. Undefined when we are not root. */
function unprivilegedUser(): { uid: number; gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined;
  for (const name of ['postgres', 'nobody']) {
    try {
      const id = (flag: string) => Number(execFileSync('id', [flag, name], { stdio: 'pipe' }));
      return { uid: id('-u'), gid: id('-g') };
    } catch {
      // This machine has no such user; try the next one.
    }
  }
  throw new Error('PostgreSQL refuses to run as root, and this machine has no user postgres or nobody.');
}
