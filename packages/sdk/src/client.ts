/**
 * The client of the native API.
 *
 * ```ts
 * const torpor = new Torpor({ url: 'http://127.0.0.1:7676', apiKey });
 * const sandbox = await torpor.sandboxes.create();
 * const { stdout } = await torpor.sandboxes.exec(sandbox.id, 'uname -a');
 * await torpor.sandboxes.pause(sandbox.id);
 * ```
 */
import {
  type AuditEntry,
  type AwakeSandbox,
  auditEntrySchema,
  awakeSandboxSchema,
  type DiskView,
  type DoctorReport,
  diskViewSchema,
  doctorReportSchema,
  type EventView,
  eventViewSchema,
  type FsckReport,
  fsckReportSchema,
  type Health,
  healthSchema,
  type IdentityView,
  identityViewSchema,
  type MachineView,
  machineViewSchema,
  type PutToSleepReply,
  pageSchema,
  putToSleepReplySchema,
  type RuntimeView,
  runtimeViewSchema,
  type SandboxId,
  type SettingView,
  settingViewSchema,
  type UsageView,
  usageViewSchema,
} from '@torpor/protocol';
import { Builds } from './builds.ts';
import { Checkpoints } from './checkpoints.ts';
import { type FollowOptions, followEvents } from './event-stream.ts';
import { Jobs } from './jobs.ts';
import { JsonCalls, type MutationOptions, type ReadOptions } from './json-calls.ts';
import { Keys } from './keys.ts';
import { Nodes } from './nodes.ts';
import { Operations } from './operations.ts';
import { Orgs } from './orgs.ts';
import { PageSessions } from './page-sessions.ts';
import { everyItem, type Page, type PageOptions } from './pages.ts';
import { Sandboxes } from './sandboxes.ts';
import { Secrets } from './secrets.ts';
import { Sessions } from './sessions.ts';
import { Templates } from './templates.ts';
import { Transport, type TransportOptions } from './transport.ts';
import { Webhooks } from './webhooks.ts';

export interface EventPageOptions extends PageOptions {
  readonly sandboxId?: SandboxId | undefined;
  /** Which event comes first; default: the oldest. */
  readonly order?: 'oldest' | 'newest' | undefined;
}

export interface AuditOptions extends ReadOptions {
  /** The organisation, for operator keys; default: the caller's own. */
  readonly orgId?: string | undefined;
  /** Only entries after this position. */
  readonly after?: number | undefined;
}

export interface UsageOptions extends ReadOptions {
  /** The organisation, for operator keys; default: the caller's own. */
  readonly orgId?: string | undefined;
  /** Milliseconds since 1970, a date, or ISO 8601; default: the beginning of the month. */
  readonly from?: number | string | Date | undefined;
  /** Default: now. */
  readonly to?: number | string | Date | undefined;
}

const auditPage = pageSchema(auditEntrySchema);
const awakePage = pageSchema(awakeSandboxSchema);
const runtimePage = pageSchema(runtimeViewSchema);
const settingPage = pageSchema(settingViewSchema);
const eventPage = pageSchema(eventViewSchema);

export class Torpor {
  readonly sandboxes: Sandboxes;
  readonly builds: Builds;
  readonly sessions: Sessions;
  readonly checkpoints: Checkpoints;
  readonly operations: Operations;
  readonly jobs: Jobs;
  readonly templates: Templates;
  readonly keys: Keys;
  readonly orgs: Orgs;
  readonly nodes: Nodes;
  readonly page: PageSessions;
  readonly webhooks: Webhooks;
  readonly secrets: Secrets;
  readonly #calls: JsonCalls;

  constructor(options: TransportOptions = {}) {
    this.#calls = new JsonCalls(new Transport(options));
    this.sandboxes = new Sandboxes(this.#calls);
    this.builds = new Builds(this.#calls);
    this.sessions = new Sessions(this.#calls);
    this.checkpoints = new Checkpoints(this.#calls);
    this.operations = new Operations(this.#calls);
    this.jobs = new Jobs(this.#calls);
    this.templates = new Templates(this.#calls);
    this.keys = new Keys(this.#calls);
    this.orgs = new Orgs(this.#calls);
    this.nodes = new Nodes(this.#calls);
    this.page = new PageSessions(this.#calls);
    this.webhooks = new Webhooks(this.#calls);
    this.secrets = new Secrets(this.#calls);
  }

  /** The address of the server. */
  get url(): string {
    return this.#calls.transport.url;
  }

  /** Needs no key. */
  health(options: ReadOptions = {}): Promise<Health> {
    return this.#calls.get('/health', healthSchema, options);
  }

  /** The organisation, user and rights of the key. */
  identity(options: ReadOptions = {}): Promise<IdentityView> {
    return this.#calls.get('/v1/identity', identityViewSchema, options);
  }

  async runtimes(options: ReadOptions = {}): Promise<readonly RuntimeView[]> {
    return (await this.#calls.get('/v1/runtimes', runtimePage, options)).items;
  }

  /** Sandboxes of all organisations that run or are starting. For operator keys. */
  awake(options: ReadOptions = {}): AsyncGenerator<AwakeSandbox> {
    return everyItem((cursor) =>
      this.#calls.get('/v1/admin/awake', awakePage, { query: { cursor }, ...options }),
    );
  }

  /** Pauses a sandbox of any organisation, before a server is taken down. For operator keys. */
  putToSleep(id: SandboxId, options: MutationOptions = {}): Promise<PutToSleepReply> {
    return this.#calls.post(`/v1/admin/sandboxes/${id}/pause`, putToSleepReplySchema, {}, options);
  }

  /** Free space on the disk of the checkpoints, and its history. For operator keys. */
  disk(options: ReadOptions = {}): Promise<DiskView> {
    return this.#calls.get('/v1/admin/disk', diskViewSchema, options);
  }

  /** Memory, processors and load of the server's machine, and what should be done about it. For operator keys. */
  machine(options: ReadOptions = {}): Promise<MachineView> {
    return this.#calls.get('/v1/admin/machine', machineViewSchema, options);
  }

  /** Checks everything that the server needs from its machine. May take seconds. For operator keys. */
  doctor(options: ReadOptions = {}): Promise<DoctorReport> {
    return this.#calls.get('/v1/admin/doctor', doctorReportSchema, options);
  }

  /** The settings of the server, and the source of each value. For service keys. */
  async settings(options: ReadOptions = {}): Promise<readonly SettingView[]> {
    return (await this.#calls.get('/v1/admin/settings', settingPage, options)).items;
  }

  /** Every event of the organisation after `after`, then every new event as it happens. */
  events(options: FollowOptions = {}): AsyncGenerator<EventView, void> {
    return followEvents(this.#calls.transport, '/v1/events', ({ position }) => position, options);
  }

  /** One page of the ledger, oldest first unless `order` says otherwise. */
  eventPage({
    sandboxId,
    limit,
    cursor,
    order,
    ...options
  }: EventPageOptions = {}): Promise<Page<EventView>> {
    const path =
      sandboxId === undefined ? '/v1/events' : `/v1/sandboxes/${encodeURIComponent(sandboxId)}/events`;
    return this.#calls.get(path, eventPage, { query: { limit, cursor, order }, ...options });
  }

  /** Who changed what, oldest first, after a position of the ledger. For service keys. */
  audit({ after, orgId, ...options }: AuditOptions = {}): AsyncGenerator<AuditEntry, void> {
    const first = after === undefined ? undefined : String(after);
    return everyItem((cursor = first) =>
      this.#calls.get('/v1/audit', auditPage, { query: { cursor, orgId, limit: 1_000 }, ...options }),
    );
  }

  /** The usage of the organisation; without `from` and `to` in this month so far. */
  usage({ orgId, from, to, ...options }: UsageOptions = {}): Promise<UsageView> {
    const query = { orgId, from: momentOf(from), to: momentOf(to) };
    return this.#calls.get('/v1/usage', usageViewSchema, { query, ...options });
  }

  /** Reconciles the database with what exists, and reports what it found. */
  fsck(options: MutationOptions = {}): Promise<FsckReport> {
    return this.#calls.post('/v1/admin/fsck', fsckReportSchema, {}, options);
  }
}

function momentOf(moment: number | string | Date | undefined): number | string | undefined {
  return moment instanceof Date ? moment.getTime() : moment;
}
