/** The states of a sandbox and their transitions. The database has the same table. */
import { z } from 'zod';
import { idSchema } from './ids.ts';

export const SANDBOX_STATES = [
  'creating',
  'running',
  'pausing',
  'paused',
  'resuming',
  'killing',
  'killed',
  'failed',
  'lost',
] as const;
export const sandboxStateSchema = z.enum(SANDBOX_STATES);
export type SandboxState = z.infer<typeof sandboxStateSchema>;

/** The allowed transitions. Other events keep the state. */
export const NEXT_STATES: Readonly<Record<SandboxState, readonly SandboxState[]>> = {
  creating: ['running', 'failed', 'killing'],
  // Straight to paused: the container was proved gone and its files were sealed as a recovered checkpoint.
  running: ['pausing', 'paused', 'killing', 'lost'],
  pausing: ['paused', 'running', 'killing', 'lost'],
  paused: ['resuming', 'killing', 'lost'],
  resuming: ['running', 'paused', 'killing', 'lost'],
  killing: ['killed'],
  killed: [],
  failed: [],
  lost: [],
};

export function isTerminal(state: SandboxState): boolean {
  return NEXT_STATES[state].length === 0;
}

/** The states of other platforms, each with the state that it corresponds to (R84). */
export const FOREIGN_STATES: Readonly<Record<string, SandboxState>> = {
  creating: 'creating',
  idle: 'running',
  running: 'running',
  paused: 'paused',
  suspended: 'paused',
  stopping: 'killing',
  terminated: 'killed',
  deleted: 'killed',
  failed: 'failed',
};

export const OPERATION_KINDS = [
  'create',
  'pause',
  'resume',
  'fork',
  'snapshot',
  'rollback',
  'recover',
  'kill',
] as const;
export const operationKindSchema = z.enum(OPERATION_KINDS);
export type OperationKind = z.infer<typeof operationKindSchema>;

export const OPERATION_OUTCOMES = ['succeeded', 'failed', 'superseded'] as const;
export const operationOutcomeSchema = z.enum(OPERATION_OUTCOMES);
export type OperationOutcome = z.infer<typeof operationOutcomeSchema>;

export const CHECKPOINT_STATES = ['writing', 'sealed', 'deleted'] as const;
export const checkpointStateSchema = z.enum(CHECKPOINT_STATES);
export type CheckpointState = z.infer<typeof checkpointStateSchema>;

export const CHECKPOINT_HEALTH = ['ok', 'damaged', 'unknown'] as const;
export const checkpointHealthSchema = z.enum(CHECKPOINT_HEALTH);
export type CheckpointHealth = z.infer<typeof checkpointHealthSchema>;

/** The parts of a checkpoint. Each part has its own health. */
export const checkpointPartSchema = z.enum(['files', 'memory']);
export type CheckpointPart = z.infer<typeof checkpointPartSchema>;

/** What a seal keeps or a start uses. `memory`: memory and files; `files`: the files alone. */
export const checkpointModeSchema = z.enum(['memory', 'files']);
export type CheckpointMode = z.infer<typeof checkpointModeSchema>;

/** A part of a checkpoint that was not made or not used by a start, and the reason. */
export const skippedSchema = z
  .object({
    checkpointId: idSchema('ckpt').optional().meta({ description: 'Absent when the part was not made.' }),
    part: checkpointPartSchema,
    code: z.string(),
    why: z.string(),
  })
  .meta({ id: 'Skipped' });
export type Skipped = z.infer<typeof skippedSchema>;

/** What a start could not restore. */
export const LOSSES = ['processes', 'files', 'connections'] as const;
export const lossSchema = z.enum(LOSSES);
export type Loss = z.infer<typeof lossSchema>;

/** What a sandbox was started from. */
export const sourceKindSchema = z.enum(['memory', 'files', 'template']);
export type SourceKind = z.infer<typeof sourceKindSchema>;

/** What a resume may start from when the best source cannot be used. Nothing else is ever tried. */
export const fallbackSchema = z.enum(['files', 'previous', 'template']);
export type Fallback = z.infer<typeof fallbackSchema>;
