/** Sandboxes and checkpoints as text. */
import type { CheckpointView, SandboxState, SandboxView } from '@torpor/protocol';
import type { Colors } from './colors.ts';
import { columns, fieldLines } from './columns.ts';
import { bytes, relative, retentionText, span } from './human-units.ts';

export function stateText(state: SandboxState, colors: Colors): string {
  if (state === 'running') return colors.green(state);
  if (state === 'paused') return colors.blue(state);
  if (state === 'lost' || state === 'failed') return colors.red(state);
  return state === 'killed' ? colors.dim(state) : colors.yellow(state);
}

export function sandboxColumns(sandboxes: readonly SandboxView[], now: number, colors: Colors): string {
  const rows = sandboxes.map((sandbox) => [
    sandbox.id,
    sandbox.name ?? '-',
    stateText(sandbox.state, colors),
    sandbox.runtime,
    relative(sandbox.createdAt, now),
    sandbox.state === 'running' ? relative(sandbox.endsAt, now) : '-',
    [sandbox.reason, checkpointProblem(sandbox)].filter(Boolean).join('; '),
  ]);
  return columns(['ID', 'NAME', 'STATE', 'RUNTIME', 'CREATED', 'ENDS', ''], rows, colors);
}

export function sandboxDetails(sandbox: SandboxView, now: number, colors: Colors): string {
  const { state, evidence, observedAt, timeoutSeconds, endsAt, idleSeconds } = sandbox;
  const { deletePausedAfterSeconds, deletesAt } = sandbox;
  const known = evidence === 'ledger' ? 'from the ledger' : `${evidence} by the runtime`;
  const metadata = Object.entries(sandbox.metadata).map(([key, value]) => `${key}=${value}`);
  return fieldLines(
    [
      ['id', sandbox.id],
      ['name', sandbox.name],
      ['state', `${stateText(state, colors)} ${colors.dim(`(${known}, ${relative(observedAt, now)})`)}`],
      ['reason', sandbox.reason],
      ['lost', sandbox.lost.length > 0 ? colors.yellow(sandbox.lost.join(', ')) : null],
      ['operation', sandbox.operationId],
      ['runtime', sandbox.runtime],
      ['template', sandbox.template],
      ['checkpoint', sandbox.checkpointId],
      ['health', healthDetail(sandbox, now, colors)],
      ['generation', String(sandbox.generation)],
      ['created', relative(sandbox.createdAt, now)],
      ['started', sandbox.startedAt === null ? null : relative(sandbox.startedAt, now)],
      ['ends', endsAt === null ? null : `${relative(endsAt, now)}, then ${sandbox.onTimeout}`],
      [
        'timeout',
        timeoutSeconds === null ? null : `${span(timeoutSeconds * 1_000)}, then ${sandbox.onTimeout}`,
      ],
      ['deleted', deletesAt === null ? null : `${relative(deletesAt, now)}, unless it is used`],
      [
        'kept',
        deletePausedAfterSeconds === null ? null : `${retentionText(deletePausedAfterSeconds)} while paused`,
      ],
      ['idle', `${span(idleSeconds * 1_000)}, then ${sandbox.onIdle}`],
      ['wakes', sandbox.autoResume ? 'automatically' : 'only by resume'],
      ['fallback', sandbox.fallback.join(', ') || 'none'],
      ['metadata', metadata.join(' ')],
      ...sandbox.services.map(
        ({ name, command, port }) => ['service', `${name}${port ? ` on ${port}` : ''}: ${command}`] as const,
      ),
      ...Object.entries(sandbox.urls ?? {}).map(([, url]) => ['url', colors.cyan(url)] as const),
    ],
    colors,
  );
}

export function checkpointColumns(
  checkpoints: readonly CheckpointView[],
  now: number,
  colors: Colors,
): string {
  const rows = checkpoints.map((checkpoint) => [
    checkpoint.id,
    checkpoint.names.join(', ') || '-',
    checkpoint.state,
    healthColored(checkpoint.health, colors),
    keptPartsText(checkpoint),
    bytes(checkpoint.bytes),
    relative(checkpoint.sealedAt ?? checkpoint.createdAt, now),
  ]);
  return columns(['ID', 'NAME', 'STATE', 'HEALTH', 'KEEPS', 'SIZE', 'SEALED'], rows, colors);
}

export function checkpointDetails(checkpoint: CheckpointView, now: number, colors: Colors): string {
  return fieldLines(
    [
      ['id', checkpoint.id],
      ['names', checkpoint.names.join(', ')],
      ['sandbox', checkpoint.sandboxId],
      ['parent', checkpoint.parentId],
      ['state', checkpoint.state],
      ['health', healthColored(checkpoint.health, colors)],
      ['detail', checkpoint.healthDetail],
      ...checkpoint.faults.map(({ part, code, detail }) => [part, `${code}: ${detail}`] as const),
      ['verified', checkpoint.verifiedAt === null ? 'not yet' : relative(checkpoint.verifiedAt, now)],
      ['keeps', keptPartsText(checkpoint)],
      ['size', bytes(checkpoint.bytes)],
      ['runtime', checkpoint.runtime],
      ['location', checkpoint.location],
      ['sealed', checkpoint.sealedAt === null ? null : relative(checkpoint.sealedAt, now)],
      ['expires', checkpoint.expiresAt === null ? null : relative(checkpoint.expiresAt, now)],
    ],
    colors,
  );
}

/** The problem of the checkpoint that a resume would use. A lost sandbox has it as its reason. */
function checkpointProblem({ checkpointHealth, state }: SandboxView): string | null {
  if (checkpointHealth === null || checkpointHealth.health === 'ok' || state === 'lost') return null;
  const { health, parts, reason } = checkpointHealth;
  const what = parts.length === 0 ? 'checkpoint' : `${parts.join(' and ')} of its checkpoint`;
  return `${what} ${health}${reason === null ? '' : `: ${reason}`}`;
}

function healthDetail(sandbox: SandboxView, now: number, colors: Colors): string | null {
  if (sandbox.checkpointHealth === null) return null;
  if (sandbox.state === 'lost') return healthColored(sandbox.checkpointHealth.health, colors);
  const { health, verifiedAt } = sandbox.checkpointHealth;
  const read = verifiedAt === null ? 'contents not read yet' : `contents read ${relative(verifiedAt, now)}`;
  return `${healthColored(health, colors)} ${colors.dim(`(${checkpointProblem(sandbox) ?? read})`)}`;
}

function healthColored(health: string, colors: Colors): string {
  if (health === 'ok') return colors.green(health);
  return health === 'unknown' ? colors.yellow(health) : colors.red(health);
}

function keptPartsText({ parts, recovered }: CheckpointView): string {
  const kept = [parts.memory && 'memory', parts.files && 'files'].filter(Boolean).join('+') || '-';
  return recovered ? `${kept} (recovered)` : kept;
}
