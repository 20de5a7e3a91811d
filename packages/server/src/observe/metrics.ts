/**
 * Metrics for Prometheus. No label holds an id, because the number of ids is unlimited. Organisations are labels of a
 * few metrics, and only a limited number of them.
 */
import type { OrgTotals } from '@torpor/engine';
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';

const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];

export class Metrics {
  readonly registry = new Registry();
  readonly requests = this.#counter('torpor_http_requests_total', 'Requests answered.', [
    'method',
    'route',
    'status',
  ]);
  readonly requestSeconds = this.#histogram('torpor_http_request_seconds', 'Time to answer.', [
    'method',
    'route',
  ]);
  readonly streams = new Gauge({
    name: 'torpor_http_streams',
    help: 'Open streams of events and output.',
    registers: [this.registry],
  });
  readonly failures = this.#counter('torpor_http_errors_total', 'Errors answered.', ['code', 'retryable']);
  /** One per event of the ledger: pauses, resumes, recoveries, repairs and everything else. */
  readonly events = this.#counter('torpor_events_total', 'Events of the ledger, by type.', ['type']);
  readonly starts = this.#counter('torpor_starts_total', 'Sandboxes started, by source.', ['source']);
  readonly losses = this.#counter('torpor_losses_total', 'Starts and pauses that lost something.', ['what']);
  readonly fallbacks = this.#counter('torpor_fallbacks_total', 'Starts that used a fallback.', ['kind']);
  readonly takeovers = this.#counter('torpor_takeovers_total', 'Operations retried for a dead server.', [
    'kind',
  ]);
  readonly lifecycleSeconds = this.#histogram('torpor_lifecycle_seconds', 'Time to pause or start.', [
    'event',
  ]);
  readonly checkpointBytes = this.#counter(
    'torpor_checkpoint_bytes_total',
    'Bytes sealed in checkpoints.',
    [],
  );
  /** From the last inspection of the checkpoints. */
  readonly checkpointsUnhealthy = new Gauge({
    name: 'torpor_checkpoints_unhealthy',
    help: 'Sealed checkpoints that are damaged, missing, or could not be read.',
    labelNames: ['health'],
    registers: [this.registry],
  });
  readonly checkpointsWaiting = this.#gauge(
    'torpor_checkpoints_waiting',
    'Sealed checkpoints that are not in the store outside this machine yet. 0 without a store.',
    [],
  );
  readonly nodes = this.#gauge('torpor_nodes', 'Nodes of the cluster, by state.', ['state']);
  readonly nodeSandboxes = this.#gauge('torpor_node_sandboxes', 'Sandboxes of each node, by state.', [
    'node',
    'state',
  ]);
  readonly nodeMemory = this.#gauge(
    'torpor_node_memory_mb',
    'Memory of each node for sandboxes: what it has, and what its running sandboxes are allowed.',
    ['node', 'what'],
  );
  readonly diskFree = this.#gauge('torpor_disk_free_bytes', 'Free space on the disk of the checkpoints.', []);
  readonly diskTotal = this.#gauge('torpor_disk_total_bytes', 'Size of the disk of the checkpoints.', []);
  readonly cacheBytes = this.#gauge(
    'torpor_cache_bytes',
    'What the checkpoints on the disk of this machine take. Only with a store.',
    [],
  );
  readonly cacheLimit = this.#gauge(
    'torpor_cache_limit_bytes',
    'Above this, checkpoints that the store has are evicted from the disk. Only with a store and a bound.',
    [],
  );
  readonly diskReserve = this.#gauge(
    'torpor_disk_reserve_bytes',
    'Space reserved for kills, deletions and starts on a full disk.',
    [],
  );
  readonly diskLevel = this.#gauge(
    'torpor_disk_level',
    '1 for the current level of the checkpoint disk: ok, low, refusing or full.',
    ['level'],
  );
  readonly previews = this.#counter('torpor_previews_total', 'Requests to ports of sandboxes.', ['by']);
  readonly previewRefusals = this.#counter(
    'torpor_preview_refusals_total',
    'Requests to ports of sandboxes that the gateway answered itself.',
    ['code'],
  );
  readonly hops = this.#counter('torpor_hops_total', 'Requests that were passed on to another node.', [
    'node',
  ]);
  readonly hopFailures = this.#counter(
    'torpor_hop_failures_total',
    'Requests about sandboxes of other nodes that this node answered itself.',
    ['code'],
  );
  readonly hopRefusals = this.#counter(
    'torpor_hop_refusals_total',
    'Requests that claimed to come from another node and were refused.',
    ['why'],
  );
  readonly wakeSeconds = this.#histogram(
    'torpor_wake_seconds',
    'Time to wake a sandbox for a preview request.',
    ['outcome'],
  );
  readonly reports = this.#counter('torpor_reports_total', 'Problems in background work.', ['what']);

  constructor(options: { readonly process: boolean } = { process: true }) {
    if (options.process) collectDefaultMetrics({ register: this.registry });
  }

  /** Reports how many requests wait for a sandbox. */
  watchWaitingRequests(held: () => number): void {
    new Gauge({
      name: 'torpor_preview_held',
      help: 'Requests that wait for a sandbox.',
      registers: [this.registry],
      collect() {
        this.set(held());
      },
    });
  }

  /** Reports what organisations have used. The database is queried at each scrape. */
  watchOrgs(read: () => Promise<OrgTotals[]>): void {
    const figures = {
      torpor_org_running_seconds_total: ['Seconds that sandboxes ran.', 'runningMs', 1_000],
      torpor_org_paused_seconds_total: ['Seconds that sandboxes were paused.', 'pausedMs', 1_000],
      torpor_org_disk_bytes: ['Bytes of sealed checkpoints.', 'diskBytes', 1],
    } as const;
    // One query for all metrics of a scrape, which are collected at the same time.
    let query: Promise<OrgTotals[]> | undefined;
    const ask = () => {
      query ??= read().finally(() => {
        query = undefined;
      });
      return query;
    };
    for (const [name, [help, field, unit]] of Object.entries(figures)) {
      new (name.endsWith('_total') ? Counter : Gauge)({
        name,
        help,
        labelNames: ['org'],
        registers: [this.registry],
        async collect() {
          const totals = await ask();
          this.reset();
          for (const total of totals) this.inc({ org: total.org }, total[field] / unit);
        },
      });
    }
  }

  #counter<L extends string>(name: string, help: string, labelNames: L[]): Counter<L> {
    return new Counter({ name, help, labelNames, registers: [this.registry] });
  }

  #gauge<L extends string>(name: string, help: string, labelNames: L[]): Gauge<L> {
    return new Gauge({ name, help, labelNames, registers: [this.registry] });
  }

  #histogram<L extends string>(name: string, help: string, labelNames: L[]): Histogram<L> {
    return new Histogram({ name, help, labelNames, buckets: SECONDS, registers: [this.registry] });
  }
}
