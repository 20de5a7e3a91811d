/** Checks the server: whether it answers, accepts the key, and what its runtimes keep. */
import type { DiskLevel } from '@torpor/protocol';
import { type SettingView, Torpor, TorporError } from '@torpor/sdk';
import manifest from '../../package.json' with { type: 'json' };
import { type Connection, canConnect, portOf } from '../connection.ts';
import { bytes } from '../human-units.ts';
import type { Check } from './check.ts';
import { checkSettings, readSettings } from './settings.ts';

const KEPT = {
  memory: 'memory and files survive a pause',
  files: 'files survive a pause, processes do not',
  none: 'nothing survives a pause',
};

export interface ServerChecks {
  readonly checks: readonly Check[];
  /** The settings of the server. Empty when the server does not return them. */
  readonly settings: readonly SettingView[];
}

export async function checkServer(
  { url, apiKey, dataDir }: Connection,
  env: NodeJS.ProcessEnv,
): Promise<ServerChecks> {
  const { hostname } = new URL(url);
  if (!(await canConnect(hostname, portOf(url)))) {
    const todo = 'Start it with `npm start` or `torpor up`. If it runs elsewhere, set TORPOR_URL.';
    return only({ is: 'wrong', what: 'Server', detail: `no answer at ${url}`, todo });
  }
  const torpor = new Torpor({ url, apiKey, env, retries: 0 });
  const health = await torpor.health().catch((thrown: unknown) => thrown);
  if (!isHealth(health)) {
    const todo = 'Check its log, and whether it is Torpor that listens there.';
    return only({ is: 'wrong', what: 'Server', detail: `${url} is not healthy: ${reason(health)}`, todo });
  }
  const same = health.version === manifest.version;
  const server: Check = {
    is: same ? 'good' : 'note',
    what: 'Server',
    detail: `${url}, version ${health.version}, up ${Math.round(health.uptimeSeconds)} s`,
    ...(same
      ? {}
      : { todo: `This CLI is version ${manifest.version}. Use the CLI of the server's version.` }),
  };
  const { checks, settings } = await checkKey(torpor, apiKey, dataDir);
  return { checks: [server, checkDisk(health.disk), ...checks], settings };
}

/** A total map, so that a new level does not compile without an entry. */
const DISK: Readonly<Record<DiskLevel, Pick<Check, 'is' | 'detail'>>> = {
  ok: { is: 'good', detail: 'has room for checkpoints' },
  low: { is: 'note', detail: 'is filling up' },
  refusing: { is: 'wrong', detail: 'is nearly full; creates, forks and snapshots are refused' },
  full: { is: 'wrong', detail: 'is full; only kills, deletions and operations that need no space work' },
};

function checkDisk(level: DiskLevel): Check {
  const todo = 'Free space: kill sandboxes, delete checkpoints, or enlarge the disk of the data directory.';
  return { what: 'Disk', ...DISK[level], ...(level === 'ok' ? {} : { todo }) };
}

function only(check: Check): ServerChecks {
  return { checks: [check], settings: [] };
}

async function checkKey(torpor: Torpor, apiKey: string | undefined, dataDir: string): Promise<ServerChecks> {
  const what = 'API key';
  if (apiKey === undefined) {
    const todo = `Set TORPOR_API_KEY, or set --data-dir to the server's data directory (${dataDir} has no key).`;
    return only({ is: 'wrong', what, detail: 'not found', todo });
  }
  try {
    const runtimes = await torpor.runtimes();
    const settings = await readSettings(torpor);
    const rest = [
      ...runtimes.map(runtimeCheck),
      ...(await checkSessions(torpor)),
      ...(await checkNodes(torpor)),
      ...(await checkCache(torpor)),
      ...checkSettings(settings),
    ];
    return { checks: [{ is: 'good', what, detail: 'is accepted by the server' }, ...rest], settings };
  } catch (thrown) {
    const todo = thrown instanceof TorporError ? thrown.hint : 'Try again.';
    return only({ is: 'wrong', what, detail: reason(thrown), todo });
  }
}

/** Sessions whose sandbox died: how many are being healed, and how long that takes. */
async function checkSessions(torpor: Torpor): Promise<Check[]> {
  // The key of a user may not read this; then the check is left out.
  const healing = await torpor.sessions.healing().catch(() => undefined);
  if (healing === undefined) return [];
  const { due, leftovers, perRound, everyMs } = healing;
  const what = 'Sessions';
  if (due === 0 && leftovers === 0) return [{ is: 'good', what, detail: 'no session has a dead sandbox' }];
  const seconds = Math.ceil((Math.ceil(due / perRound) * everyMs) / 1_000);
  const parts = [
    ...(due === 0 ? [] : [`${due} with a dead sandbox get a new one within about ${seconds} s`]),
    ...(leftovers === 0 ? [] : [`${leftovers} replaced sandboxes are not killed yet`]),
  ];
  return [{ is: 'note', what, detail: parts.join('; ') }];
}

/** One line for each node; none for a server that is alone, or with the key of a user. */
async function checkNodes(torpor: Torpor): Promise<Check[]> {
  const nodes = await torpor.nodes.list().catch(() => []);
  return nodes.map(
    ({ name, address, state, cordoned, draining, leaseUntil, used, capacity, version }): Check => {
      const what = `Node ${name}`;
      if (state === 'away') {
        const since = new Date(leaseUntil).toISOString();
        const detail = `${address} has not answered since ${since}; it has ${used.running} running sandboxes`;
        const todo = `Start it again. If the machine is gone for good: torpor node forget ${name}`;
        return { is: 'wrong', what, detail, todo };
      }
      const other = version === manifest.version ? '' : `, version ${version}`;
      const detail = `${address}, ${used.running} running, ${used.memoryMb} of ${capacity.memoryMb} MB${other}`;
      if (!cordoned && !draining) return { is: other === '' ? 'good' : 'note', what, detail };
      const todo = `torpor node uncordon ${name} gives it new sandboxes again.`;
      return { is: 'note', what, detail: `${detail}; ${draining ? 'drained' : 'cordoned'}`, todo };
    },
  );
}

/** What the checkpoints take on the disk of the server that answers; no line without a store, or with the key of a user. */
async function checkCache(torpor: Torpor): Promise<Check[]> {
  const cache = (await torpor.disk().catch(() => undefined))?.cache;
  if (cache === undefined || cache === null) return [];
  const what = 'Checkpoints on the disk';
  const { bytes: used, limitBytes: limit } = cache;
  if (limit === null) return [{ is: 'good', what, detail: `${bytes(used)}, without a bound` }];
  const detail = `${bytes(used)} of ${bytes(limit)}`;
  if (used <= limit) return [{ is: 'good', what, detail }];
  const todo =
    'What is left is in use or not in the store yet. See whether the store takes checkpoints, or raise store.cachePercent.';
  return [{ is: 'note', what, detail: `${detail}, and nothing more can be evicted now`, todo }];
}

function runtimeCheck({ name, capabilities: can }: Awaited<ReturnType<Torpor['runtimes']>>[number]): Check {
  const what = `Runtime ${name}`;
  const isolation = can.isolated ? 'isolated' : 'not isolated from this machine';
  const detail = `${KEPT[can.pause]}; ${isolation}`;
  if (can.isolated && can.pause === 'memory') return { is: 'good', what, detail };
  if (can.isolated) return { is: 'note', what, detail };
  return { is: 'note', what, detail, todo: 'Run only trusted code in it.' };
}

function isHealth(value: unknown): value is Awaited<ReturnType<Torpor['health']>> {
  return typeof value === 'object' && value !== null && 'uptimeSeconds' in value;
}

function reason(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
