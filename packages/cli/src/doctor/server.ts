/** The server: whether it is there, lets us in, and what its runtime keeps. */
import type { DiskLevel } from '@torpor/protocol';
import { type SettingView, Torpor, TorporError } from '@torpor/sdk';
import manifest from '../../package.json' with { type: 'json' };
import { type Connection, canConnect, portOf } from '../connection.ts';
import type { Check } from './check.ts';
import { checkSettings, readSettings } from './settings.ts';

const KEPT = {
  memory: 'memory and files survive a pause',
  files: 'files survive a pause, processes do not',
  none: 'nothing survives a pause',
};

export interface ServerChecks {
  readonly checks: readonly Check[];
  /** What the server runs with; empty when it cannot be asked. */
  readonly settings: readonly SettingView[];
}

export async function checkServer(
  { url, apiKey, dataDir }: Connection,
  env: NodeJS.ProcessEnv,
): Promise<ServerChecks> {
  const { hostname } = new URL(url);
  if (!(await canConnect(hostname, portOf(url)))) {
    const todo = 'Start it with `npm start` or `torpor up`; if it runs elsewhere, set TORPOR_URL.';
    return only({ is: 'wrong', what: 'Server', detail: `nobody answers at ${url}`, todo });
  }
  const torpor = new Torpor({ url, apiKey, env, retries: 0 });
  const health = await torpor.health().catch((thrown: unknown) => thrown);
  if (!isHealth(health)) {
    const todo = 'Look into its log; is it Torpor that listens there?';
    return only({ is: 'wrong', what: 'Server', detail: `${url} is not well: ${reason(health)}`, todo });
  }
  const same = health.version === manifest.version;
  const server: Check = {
    is: same ? 'good' : 'note',
    what: 'Server',
    detail: `${url}, version ${health.version}, up ${Math.round(health.uptimeSeconds)} s`,
    ...(same ? {} : { todo: `This command is ${manifest.version}: use the one that came with the server.` }),
  };
  const { checks, settings } = await checkKey(torpor, apiKey, dataDir);
  return { checks: [server, checkDisk(health.disk), ...checks], settings };
}

/** Total, so that a level without advice does not compile. */
const DISK: Readonly<Record<DiskLevel, Pick<Check, 'is' | 'detail'>>> = {
  ok: { is: 'good', detail: 'has room for checkpoints' },
  low: { is: 'note', detail: 'is filling up' },
  refusing: { is: 'wrong', detail: 'is nearly full: creates, forks and snapshots are refused' },
  full: { is: 'wrong', detail: 'is full: only kills, deletions and what needs no room still work' },
};

function checkDisk(level: DiskLevel): Check {
  const todo =
    'Make room: kill sandboxes, delete checkpoints, or make the disk of the data directory larger.';
  return { what: 'Disk', ...DISK[level], ...(level === 'ok' ? {} : { todo }) };
}

function only(check: Check): ServerChecks {
  return { checks: [check], settings: [] };
}

async function checkKey(torpor: Torpor, apiKey: string | undefined, dataDir: string): Promise<ServerChecks> {
  const what = 'API key';
  if (apiKey === undefined) {
    const todo = `Set TORPOR_API_KEY, or --data-dir to where the server keeps its key (${dataDir} has none).`;
    return only({ is: 'wrong', what, detail: 'there is none', todo });
  }
  try {
    const runtimes = await torpor.runtimes();
    const settings = await readSettings(torpor);
    const rest = [
      ...runtimes.map(runtimeCheck),
      ...(await checkSessions(torpor)),
      ...checkSettings(settings),
    ];
    return { checks: [{ is: 'good', what, detail: 'opens the server' }, ...rest], settings };
  } catch (thrown) {
    const todo = thrown instanceof TorporError ? thrown.hint : 'Try again.';
    return only({ is: 'wrong', what, detail: reason(thrown), todo });
  }
}

/** Sessions whose sandbox died: how many are being healed, and how long that takes. */
async function checkSessions(torpor: Torpor): Promise<Check[]> {
  // The key of a user may not look at the whole server; then there is nothing to say.
  const healing = await torpor.sessions.healing().catch(() => undefined);
  if (healing === undefined) return [];
  const { due, leftovers, perRound, everyMs } = healing;
  const what = 'Sessions';
  if (due === 0 && leftovers === 0) return [{ is: 'good', what, detail: 'none is bound to a dead sandbox' }];
  const seconds = Math.ceil((Math.ceil(due / perRound) * everyMs) / 1_000);
  const parts = [
    ...(due === 0 ? [] : [`${due} bound to a dead sandbox are being healed, within about ${seconds} s`]),
    ...(leftovers === 0 ? [] : [`${leftovers} replaced sandboxes are still to be ended`]),
  ];
  return [{ is: 'note', what, detail: parts.join('; ') }];
}

function runtimeCheck({ name, capabilities: can }: Awaited<ReturnType<Torpor['runtimes']>>[number]): Check {
  const what = `Runtime ${name}`;
  const isolation = can.isolated ? 'isolated' : 'not isolated from this machine';
  const detail = `${KEPT[can.pause]}; ${isolation}`;
  if (can.isolated && can.pause === 'memory') return { is: 'good', what, detail };
  if (can.isolated) return { is: 'note', what, detail };
  return { is: 'note', what, detail, todo: 'Run only what you trust in it.' };
}

function isHealth(value: unknown): value is Awaited<ReturnType<Torpor['health']>> {
  return typeof value === 'object' && value !== null && 'uptimeSeconds' in value;
}

function reason(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
