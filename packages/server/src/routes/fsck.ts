/** `POST /v1/admin/fsck`: runs the reconciler once, inspects every checkpoint, and reports. */
import { type Engine, inPages } from '@torpor/engine';
import {
  type Finding,
  type FsckReport,
  fsckReportSchema,
  type Page,
  type SandboxId,
  type SandboxState,
  type SandboxView,
} from '@torpor/protocol';
import { z } from 'zod';
import { requireOperator } from '../http/org-id.ts';
import { errors, json } from '../http/route-schema.ts';
import type { RoutesApp } from '../http/routes-app.ts';
import type { RouteContext } from '../route-context.ts';

const PAGE = 200;
const STATES = ['creating', 'running', 'pausing', 'paused', 'resuming', 'killing', 'lost'] as const;

export function fsckRoutes(app: RoutesApp, ctx: RouteContext): void {
  app.post(
    '/v1/admin/fsck',
    {
      config: { deadline: 'lifecycle' },
      schema: {
        operationId: 'fsck',
        summary:
          'Compare the records with the sandboxes and checkpoints, repair what can be repaired, report the rest',
        description:
          'Checks presence and sizes of every checkpoint of the organisation while the caller waits. ' +
          'For operator keys. The round covers all sandboxes of the server; the findings are those of the organisation.',
        tags: ['server'],
        body: z.strictObject({}),
        response: { 200: json('What was found.', fsckReportSchema), ...errors('forbidden') },
      },
    },
    async (request) => {
      // The figures of the round include all organisations.
      requireOperator(request.identity);
      const { org } = request.identity;
      return request.deadline.run((signal) => runFsck(ctx, org, signal));
    },
  );
}

async function runFsck(ctx: RouteContext, org: string, signal: AbortSignal): Promise<FsckReport> {
  const { engine, clock } = ctx;
  const began = clock.monotonic();
  const { did, ...round } = await engine.reconcile();
  const { inspected: checkpoints, unusableMemory } = await engine.inspectCheckpoints(
    { org, external: true },
    signal,
  );
  const findings: Finding[] = [];
  const states = new Map<SandboxId, SandboxState>();
  for (let cursor: string | null = ''; cursor !== null; ) {
    signal.throwIfAborted();
    const page: Page<SandboxView> = await engine.list({ org, states: [...STATES] }, cursor, PAGE);
    for (const sandbox of page.items) {
      states.set(sandbox.id, sandbox.state);
      const finding = await findingFor(engine, org, sandbox);
      if (finding !== undefined) findings.push(finding);
    }
    cursor = page.nextCursor;
  }
  for await (const finding of unhealthy(engine, org, signal)) findings.push(finding);
  for (const { checkpointId, sandboxId, why } of unusableMemory) {
    const state = sandboxId === null ? null : (states.get(sandboxId) ?? null);
    const detail = `Its memory cannot be restored: ${why}.`;
    findings.push({ sandboxId, state, checkpointId, what: 'unusable', detail });
  }
  const own = did.filter((action) => action.org === org || action.org === null);
  const actions = own.map(({ sandboxId, what }) => ({ sandboxId, what }));
  const durationMs = Math.round(clock.monotonic() - began);
  return { round, did: actions, sandboxes: states.size, checkpoints, findings, durationMs };
}

async function findingFor(engine: Engine, org: string, sandbox: SandboxView): Promise<Finding | undefined> {
  const { id: sandboxId, state, checkpointId, checkpointHealth, evidence, lost, reason } = sandbox;
  const about = { sandboxId, state, checkpointId };
  if (state === 'lost') {
    const lostId = sandbox.lostCheckpoint?.checkpointId ?? null;
    const detail = reason ?? 'Nothing usable is left of the sandbox.';
    return { ...about, checkpointId: lostId, what: 'lost', detail };
  }
  if (state === 'running' && evidence === 'unknown') {
    return { ...about, what: 'unknown', detail: 'The runtime could not observe the sandbox.' };
  }
  // A damaged checkpoint is a finding of its own; see `unhealthy`.
  if (state !== 'paused' || checkpointId === null || checkpointHealth?.health !== 'ok') return undefined;
  const { recovered } = await engine.checkpoint(org, checkpointId);
  if (recovered)
    return { ...about, what: 'recovered', detail: `The sandbox was recovered without: ${lost.join(', ')}.` };
  return undefined;
}

/** Every checkpoint of the organisation that is not healthy, of any sandbox or template. */
async function* unhealthy(engine: Engine, org: string, signal: AbortSignal): AsyncGenerator<Finding> {
  const pages = inPages((after, limit) => engine.unhealthyCheckpoints(org, after, limit), PAGE);
  for await (const { id: checkpointId, sandboxId, sandboxState: state, health, detail } of pages) {
    signal.throwIfAborted();
    if (health === 'ok') continue;
    yield { sandboxId, state, checkpointId, what: health, detail: detail ?? `The checkpoint is ${health}.` };
  }
}
