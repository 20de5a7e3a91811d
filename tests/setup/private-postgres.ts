/**
 * A PostgreSQL of one's own: it lives in a temporary directory and listens only on a socket in there, so
 * that it can collide with nothing and nobody else can reach it. It is small but as durable as in
 * earnest: fsync stays on.
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
 * The shell that keeps the server, as its own child so that somebody collects it. It ends with its
 * standard input, which closes when the test run ends in whatever way, kill -9 included.
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
    // Of its own group: Ctrl-C is for the test run, and the keeper learns of it by its input.
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
      // This machine has no such user; the next one will do.
    }
  }
  throw new Error('PostgreSQL does not run as root, and there is no user postgres or nobody to run it as.');
}
