/** The configuration of a server: flags take precedence over the environment, and that over torpor.config.json. */
import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { LOCAL_NODE } from '@torpor/engine';
import type { CertificateFiles } from '@torpor/gateway';
import { isMissing } from '@torpor/host';
import { parseStoreAddress } from '@torpor/object-store';
import { pauseDurabilitySchema, RUNNERS, TorporError } from '@torpor/protocol';
import { z } from 'zod';
import { buildConfigFields, planChoice } from './builds/build-config.ts';
import { parseClusterSecrets } from './cluster/cluster-secrets.ts';
import { allowedHostsSchema } from './http/host-names.ts';
import { isLoopbackHost } from './http/loopback.ts';
import { parseConfiguredKey } from './keys/first-key.ts';
import { networksSchema } from './networks.ts';
import {
  type ConfiguredSettings,
  configureSettings,
  type GivenSetting,
  settingFromFlag,
  settingsFromEnvironment,
  settingsFromFile,
} from './settings/configured.ts';

const RUNTIME_CHOICES = ['auto', 'gvisor', 'process', 'e2b', 'kubernetes', 'agent-sandbox'] as const;
export type RuntimeChoice = (typeof RUNTIME_CHOICES)[number];

/** Names separated by commas, or a list in the file. The first is the runtime of sandboxes that name none. */
const runtimesSchema = z
  .preprocess(
    (given) => (typeof given === 'string' ? given.split(',').map((name) => name.trim()) : given),
    z.array(z.enum(RUNTIME_CHOICES)).min(1),
  )
  .refine((names) => new Set(names).size === names.length, 'a runtime is named twice')
  .refine(
    (names) => !names.includes('auto') || !(names.includes('gvisor') || names.includes('process')),
    '"auto" is gvisor or process already',
  );

const configSchema = z.strictObject({
  port: z.coerce.number().int().min(0).max(65_535).default(7676),
  host: z.string().min(1).max(253).default('127.0.0.1'),
  dataDir: z.string().min(1).optional(),
  runtime: runtimesSchema.default(['auto']),
  database: z.url({ protocol: /^postgres(ql)?$/ }).optional(),
  /** The store outside this machine: s3://bucket/prefix or file:///directory. */
  store: z.string().min(1).optional(),
  /** The file with the data keys of the store. Undefined: `data-key` in the data directory. */
  dataKeyFile: z.string().min(1).optional(),
  /** How durable a checkpoint is before a pause is answered, unless the request says otherwise. */
  durability: pauseDurabilitySchema.default('sealed'),
  /** The name of this node, when several servers with their own data directories share the database. */
  node: z
    .string()
    .regex(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/)
    .optional(),
  /** Where the other nodes reach this server. */
  advertise: z.url({ protocol: /^https?$/ }).optional(),
  /** The memory in MB that the sandboxes of this node may be allowed together. Undefined: the machine's. */
  nodeMemoryMb: z.coerce.number().int().min(1).optional(),
  /** Whether a stop of the server first moves its sandboxes to other nodes. */
  drainOnStop: z.stringbool().or(z.boolean()).default(false),
  /** May include a port. The default includes the port that the server listens on. */
  domain: z
    .string()
    .regex(/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d{1,5})?$/i)
    .optional(),
  tls: z.stringbool().or(z.boolean()).default(false),
  /** A certificate with its chain, and its key, as PEM. Both switch TLS on. */
  tlsCert: z.string().min(1).optional(),
  tlsKey: z.string().min(1).optional(),
  /** Further host names that the API accepts: separated by commas, or a list in the file. */
  allowedHosts: allowedHostsSchema.optional(),
  /** Private networks that webhooks may be sent to: separated by commas, or a list in the file. */
  webhookNetworks: networksSchema.optional(),
  /** Private networks that images may be fetched from: separated by commas, or a list in the file. */
  registryNetworks: networksSchema.optional(),
  /** Number of pre-created containers. Each takes some 25 MB of memory until it is used. */
  ahead: z.coerce.number().int().min(0).max(64).optional(),
  /** The runsc for new sandboxes. Undefined: the server searches for one. */
  runsc: z.string().min(1).optional(),
  /** Whether to build a newer runsc in the background when Go is installed and the current runsc is old. */
  buildRunsc: z.stringbool().or(z.boolean()).default(true),
  /** Memory images of a runsc older than this day are not restored; such sandboxes start from their files. */
  oldestRunsc: z.coerce.number().int().min(20_230_601).max(99_991_231).optional(),
  /** The root of the template `base`: `auto` makes one from Debian's packages, `host` shows the host's system directories. */
  base: z.enum(['auto', 'host']).default('auto'),
  /** The mirror of Debian for the root of `base`; sandboxes use it too. */
  baseMirror: z.url({ protocol: /^https?$/ }).optional(),
  /** The runner of builds that name none. */
  runner: z.enum(RUNNERS).default('starter'),
  /** The program of the runner `command`, and where it runs. */
  runnerCommand: z.string().min(1).optional(),
  runnerPlace: z.enum(['sandbox', 'host']).default('sandbox'),
  /** The endpoint of the runner `openai`. */
  openaiUrl: z.url({ protocol: /^https?$/ }).optional(),
  openaiModel: z.string().min(1).optional(),
  /** The limits of one build at the model: number of answers, and tokens of all answers together. */
  openaiSteps: z.coerce.number().int().min(1).max(10_000).default(60),
  openaiTokens: z.coerce.number().int().min(1).default(1_000_000),
  ...buildConfigFields,
  logLevel: z.enum(['debug', 'info', 'warn', 'error', 'silent']).default('info'),
});

export interface ServerConfig extends Omit<z.infer<typeof configSchema>, 'dataDir' | 'tlsCert' | 'tlsKey'> {
  readonly dataDir: string;
  /** Absent: the certificate of `tls` is signed by an authority of this machine. */
  readonly certificateFiles?: CertificateFiles;
  /** Delays, bounds and budgets of all packages. */
  readonly configured: ConfiguredSettings;
  /** The key that the operator configured. */
  readonly apiKey?: string;
  readonly openaiKey?: string;
  /** The secret by which nodes know each other. Only in the environment. */
  readonly clusterSecret?: string;
  /** The variables with which AWS programs find the endpoint, the region and the credentials of the store. */
  readonly awsEnvironment: Readonly<Record<string, string | undefined>>;
  /** The environment of the program of the runner `command`. */
  readonly runnerEnv?: Readonly<Record<string, string>>;
}

type Setting = keyof typeof configSchema.shape;

const FLAGS: Readonly<Record<Setting, string>> = {
  port: 'port',
  host: 'host',
  dataDir: 'data-dir',
  runtime: 'runtime',
  database: 'database',
  store: 'store',
  dataKeyFile: 'data-key-file',
  durability: 'durability',
  node: 'node',
  advertise: 'advertise',
  nodeMemoryMb: 'node-memory-mb',
  drainOnStop: 'drain-on-stop',
  domain: 'domain',
  tls: 'tls',
  tlsCert: 'tls-cert',
  tlsKey: 'tls-key',
  allowedHosts: 'allowed-hosts',
  webhookNetworks: 'webhook-networks',
  registryNetworks: 'registry-networks',
  ahead: 'ahead',
  runsc: 'runsc',
  buildRunsc: 'build-runsc',
  oldestRunsc: 'oldest-runsc',
  base: 'base',
  baseMirror: 'base-mirror',
  runner: 'runner',
  runnerCommand: 'runner-command',
  runnerPlace: 'runner-place',
  openaiUrl: 'openai-url',
  openaiModel: 'openai-model',
  openaiSteps: 'openai-steps',
  openaiTokens: 'openai-tokens',
  runnerSeconds: 'runner-seconds',
  buildWorkers: 'build-workers',
  buildWaiting: 'build-waiting',
  buildPlans: 'build-plans',
  buildPlan: 'build-plan',
  buildUsers: 'build-users',
  logLevel: 'log-level',
};

const VARIABLES: Readonly<Record<Setting, string>> = {
  port: 'TORPOR_PORT',
  host: 'TORPOR_HOST',
  dataDir: 'TORPOR_DATA_DIR',
  runtime: 'TORPOR_RUNTIME',
  database: 'TORPOR_DATABASE_URL',
  store: 'TORPOR_STORE',
  dataKeyFile: 'TORPOR_DATA_KEY_FILE',
  durability: 'TORPOR_DURABILITY',
  node: 'TORPOR_NODE',
  advertise: 'TORPOR_ADVERTISE',
  nodeMemoryMb: 'TORPOR_NODE_MEMORY_MB',
  drainOnStop: 'TORPOR_DRAIN_ON_STOP',
  domain: 'TORPOR_DOMAIN',
  tls: 'TORPOR_TLS',
  tlsCert: 'TORPOR_TLS_CERT',
  tlsKey: 'TORPOR_TLS_KEY',
  allowedHosts: 'TORPOR_ALLOWED_HOSTS',
  webhookNetworks: 'TORPOR_WEBHOOK_NETWORKS',
  registryNetworks: 'TORPOR_REGISTRY_NETWORKS',
  ahead: 'TORPOR_AHEAD',
  runsc: 'TORPOR_RUNSC',
  buildRunsc: 'TORPOR_BUILD_RUNSC',
  oldestRunsc: 'TORPOR_OLDEST_RUNSC',
  base: 'TORPOR_BASE',
  baseMirror: 'TORPOR_BASE_MIRROR',
  runner: 'TORPOR_RUNNER',
  runnerCommand: 'TORPOR_RUNNER_COMMAND',
  runnerPlace: 'TORPOR_RUNNER_PLACE',
  openaiUrl: 'TORPOR_OPENAI_URL',
  openaiModel: 'TORPOR_OPENAI_MODEL',
  openaiSteps: 'TORPOR_OPENAI_STEPS',
  openaiTokens: 'TORPOR_OPENAI_TOKENS',
  runnerSeconds: 'TORPOR_RUNNER_SECONDS',
  buildWorkers: 'TORPOR_BUILD_WORKERS',
  buildWaiting: 'TORPOR_BUILD_WAITING',
  buildPlans: 'TORPOR_BUILD_PLANS',
  buildPlan: 'TORPOR_BUILD_PLAN',
  buildUsers: 'TORPOR_BUILD_USERS',
  logLevel: 'TORPOR_LOG_LEVEL',
};

/** Flags without a value. */
const SWITCHES: readonly string[] = ['tls', 'drain-on-stop'];

const FILE = 'torpor.config.json';

export async function readConfig(
  argv: readonly string[],
  env: NodeJS.ProcessEnv,
  directory = process.cwd(),
): Promise<ServerConfig> {
  const { settings: settingsInFile, ...inFile } = await readFileSettings(join(directory, FILE));
  const inEnvironment = fromEnvironment(env);
  const { values: inFlags, set } = fromFlags(argv);
  const settings = { ...inFile, ...inEnvironment, ...inFlags };
  const {
    dataDir = join(env['HOME'] || homedir(), '.torpor'),
    tlsCert,
    tlsKey,
    dataKeyFile,
    ...rest
  } = checked(settings);
  const apiKey = env['TORPOR_API_KEY'] || undefined;
  const openaiKey = env['TORPOR_OPENAI_API_KEY'] || undefined;
  const clusterSecret = env['TORPOR_CLUSTER_SECRET'] || undefined;
  const config = {
    ...rest,
    ...certificateChoice(directory, tlsCert, tlsKey),
    dataDir: resolve(directory, dataDir),
    ...(dataKeyFile === undefined ? {} : { dataKeyFile: resolve(directory, dataKeyFile) }),
    awsEnvironment: Object.fromEntries(Object.entries(env).filter(([name]) => name.startsWith('AWS_'))),
    configured: configureSettings([
      ...settingsFromFile(settingsInFile, FILE),
      ...fromDedicatedFlags(inFile, 'file'),
      ...settingsFromEnvironment(env),
      ...fromDedicatedFlags(inEnvironment, 'environment'),
      ...set.map(settingFromFlag),
      ...fromDedicatedFlags(inFlags, 'flag'),
    ]),
    ...(apiKey === undefined ? {} : { apiKey: parseConfiguredKey(apiKey) }),
    ...(openaiKey === undefined ? {} : { openaiKey }),
    ...(clusterSecret === undefined ? {} : { clusterSecret }),
    ...runnerEnvironment(env),
  };
  refusePublicHostWithoutKey(config);
  refuseUnknownPlans(config);
  refuseBadStore(config);
  refuseIncompleteNode(config);
  return config;
}

/** Settings that also have a flag of their own. */
const DEDICATED_FLAGS = {
  buildWorkers: { name: 'builds.workers', suffix: '' },
  buildWaiting: { name: 'builds.maxWaiting', suffix: '' },
  runnerSeconds: { name: 'builds.runnerMs', suffix: 's' },
} as const satisfies Partial<Record<Setting, unknown>>;

function fromDedicatedFlags(
  given: Readonly<Record<string, unknown>>,
  source: GivenSetting['source'],
): GivenSetting[] {
  return (Object.keys(DEDICATED_FLAGS) as (keyof typeof DEDICATED_FLAGS)[])
    .filter((setting) => given[setting] !== undefined)
    .map((setting) => {
      const { name, suffix } = DEDICATED_FLAGS[setting];
      return { name, value: `${given[setting]}${suffix}`, source, where: nameOf(setting) };
    });
}

/** The prefix is removed: the program sees `TORPOR_RUNNER_ENV_TOKEN` as `TOKEN`. */
const RUNNER_ENV = 'TORPOR_RUNNER_ENV_';

function runnerEnvironment(env: NodeJS.ProcessEnv): Pick<ServerConfig, 'runnerEnv'> {
  const given = Object.entries(env).filter(([name]) => name.startsWith(RUNNER_ENV));
  if (given.length === 0) return {};
  const pairs = given.map(([name, value]) => [name.slice(RUNNER_ENV.length), value ?? ''] as const);
  return { runnerEnv: Object.fromEntries(pairs) };
}

function refuseBadStore({ store, durability }: ServerConfig): void {
  if (store !== undefined) parseStoreAddress(store);
  else if (durability === 'replicated')
    throw new TorporError(
      'invalid_request',
      `${nameOf('durability')}: "replicated" needs ${nameOf('store')}.`,
    );
}

/** A node needs what it shares with the others: a database, a store, an address and a secret. */
function refuseIncompleteNode(config: ServerConfig): void {
  const { node, advertise, database, store, clusterSecret, drainOnStop } = config;
  if (node === undefined) {
    const given = ([advertise && 'advertise', drainOnStop && 'drainOnStop'] as const).find(Boolean);
    if (given) throw new TorporError('invalid_request', `${nameOf(given)} needs ${nameOf('node')}.`);
    return;
  }
  const missing = [
    ...(database === undefined ? [nameOf('database')] : []),
    ...(store === undefined ? [nameOf('store')] : []),
    ...(advertise === undefined ? [nameOf('advertise')] : []),
    ...(clusterSecret === undefined ? ['TORPOR_CLUSTER_SECRET'] : []),
  ];
  if (missing.length > 0) {
    throw new TorporError('invalid_request', `${nameOf('node')} needs ${missing.join(', ')}.`, {
      hint: 'docs/many-machines.md shows the settings of a node.',
    });
  }
  if (node === LOCAL_NODE)
    throw new TorporError(
      'invalid_request',
      `${nameOf('node')}: "${LOCAL_NODE}" is the name of a server that is alone.`,
    );
  if (clusterSecret !== undefined) parseClusterSecrets(clusterSecret);
}

/** Without this check an unknown plan would be noticed only when its user starts a build. */
function refuseUnknownPlans(config: ServerConfig): void {
  try {
    planChoice(config);
  } catch (thrown) {
    const { message, hint } = TorporError.from(thrown);
    const where = `${nameOf('buildPlan')}, ${nameOf('buildUsers')}`;
    throw new TorporError('invalid_request', `${where}: ${message}`, {
      ...(hint === undefined ? {} : { hint }),
    });
  }
}

/** A server that can be reached from outside needs a key that the operator chose. */
/** A certificate needs its key, and both are of no use without TLS. */
function certificateChoice(
  directory: string,
  cert: string | undefined,
  key: string | undefined,
): Pick<ServerConfig, 'tls' | 'certificateFiles'> | undefined {
  if (cert === undefined && key === undefined) return undefined;
  if (cert === undefined || key === undefined)
    throw new TorporError('invalid_request', 'Give both --tls-cert and --tls-key, or neither.');
  return { tls: true, certificateFiles: { cert: resolve(directory, cert), key: resolve(directory, key) } };
}

function refusePublicHostWithoutKey({ host, apiKey }: ServerConfig): void {
  if (isLoopbackHost(host) || apiKey !== undefined) return;
  throw new TorporError(
    'invalid_request',
    `The host ${host} can be reached from other machines, and no API key is set.`,
    {
      hint: 'Set TORPOR_API_KEY (openssl rand -hex 32), or listen on 127.0.0.1.',
    },
  );
}

function checked(settings: Readonly<Record<string, unknown>>): z.infer<typeof configSchema> {
  const parsed = configSchema.safeParse(settings);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const setting = String(issue?.path[0] ?? (issue?.code === 'unrecognized_keys' ? issue.keys[0] : ''));
  const within = (issue?.path ?? []).slice(1).map((part) => `${String(part)}: `);
  const name = setting in FLAGS ? nameOf(setting as Setting) : `${FILE}: "${setting}"`;
  throw new TorporError('invalid_request', `${name}: ${within.join('')}${issue?.message}.`, {
    hint: 'docs/operations.md lists every setting.',
  });
}

function nameOf(setting: Setting): string {
  return `--${FLAGS[setting]} (${VARIABLES[setting]})`;
}

interface Flags {
  readonly values: Partial<Record<Setting, unknown>>;
  /** The values of all `--set` flags. */
  readonly set: readonly string[];
}

function fromFlags(argv: readonly string[]): Flags {
  const options = Object.fromEntries(
    Object.values(FLAGS).map((flag) => [
      flag,
      { type: SWITCHES.includes(flag) ? ('boolean' as const) : ('string' as const) },
    ]),
  );
  try {
    const { values } = parseArgs({
      args: [...argv],
      options: { ...options, set: { type: 'string', multiple: true } },
      allowPositionals: false,
    });
    const { set = [] } = values as { readonly set?: readonly string[] };
    return { values: pick((setting) => (values as Record<string, unknown>)[FLAGS[setting]]), set };
  } catch (cause) {
    throw new TorporError('invalid_request', cause instanceof Error ? cause.message : String(cause), {
      hint: `Known flags: ${[...Object.values(FLAGS), 'set'].map((flag) => `--${flag}`).join(' ')}`,
      cause,
    });
  }
}

/** An empty variable counts as not set. */
function fromEnvironment(env: NodeJS.ProcessEnv): Partial<Record<Setting, unknown>> {
  return pick((setting) => env[VARIABLES[setting]] || undefined);
}

function pick(read: (setting: Setting) => unknown): Partial<Record<Setting, unknown>> {
  const settings = Object.keys(FLAGS) as Setting[];
  return Object.fromEntries(
    settings.map((setting) => [setting, read(setting)]).filter(([, value]) => value !== undefined),
  );
}

async function readFileSettings(path: string): Promise<Readonly<Record<string, unknown>>> {
  const text = await readFile(path, 'utf8').catch((thrown: unknown) => {
    if (isMissing(thrown)) return '{}';
    throw new TorporError('invalid_request', `${path} cannot be read.`, { cause: thrown });
  });
  const { $schema: _, ...settings } = parseObject(text, path);
  return settings;
}

const objectSchema = z.record(z.string(), z.unknown());

function parseObject(text: string, path: string): Record<string, unknown> {
  try {
    return objectSchema.parse(JSON.parse(text));
  } catch (cause) {
    const what = cause instanceof z.ZodError ? 'a JSON object' : 'JSON';
    throw new TorporError('invalid_request', `${path} is not ${what}.`, { cause });
  }
}
