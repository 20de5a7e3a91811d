/** Tools about checkpoints: snapshot, list, roll back, fork. */
import { idSchema } from '@torpor/protocol';
import { z } from 'zod';
import { tellingEvents } from '../progress.ts';
import { answer, defineTool } from '../tool.ts';
import { sandboxInput, shown } from './sandboxes.ts';

const MAX_FORKS = 10;

export const checkpointTools = [
  defineTool({
    name: 'create_snapshot',
    title: 'Snapshot a sandbox',
    description:
      'Keeps the present files and memory of a sandbox as a checkpoint, and lets the sandbox run on. Make one before a ' +
      'risky step, and return to it with rollback_sandbox.',
    input: z.object({
      sandbox: sandboxInput,
      name: z.string().min(1).max(64).optional().describe('A name for the checkpoint.'),
    }),
    effect: 'adds',
    idempotent: false,
    run: async ({ torpor, sandboxes, signal, progress }, { sandbox, name }) => {
      const { id } = await sandboxes.find(sandbox, signal);
      const request = name === undefined ? {} : { name };
      const made = await tellingEvents(torpor, id, progress, () =>
        torpor.sandboxes.snapshot(id, request, { signal }),
      );
      return answer({ checkpointId: made.id, name: name ?? null, bytes: made.bytes });
    },
  }),
  defineTool({
    name: 'list_checkpoints',
    title: 'List checkpoints',
    description:
      'Lists the checkpoints of a sandbox, to which rollback_sandbox can return. Does not wake it.',
    input: z.object({ sandbox: sandboxInput }),
    effect: 'reads',
    idempotent: true,
    run: async ({ torpor, sandboxes, signal }, { sandbox }) => {
      const { id } = await sandboxes.find(sandbox, signal);
      const { items } = await torpor.sandboxes.checkpoints(id, { limit: 100, signal });
      const checkpoints = items.map((one) => ({
        checkpointId: one.id,
        names: one.names,
        createdAt: new Date(one.createdAt).toISOString(),
        health: one.health,
        bytes: one.bytes,
      }));
      return answer({ checkpoints });
    },
  }),
  defineTool({
    name: 'rollback_sandbox',
    title: 'Roll a sandbox back',
    description:
      'Returns a sandbox to one of its checkpoints. What it did since then is undone. The state before the rollback is ' +
      'kept as a checkpoint.',
    input: z.object({ sandbox: sandboxInput, checkpointId: idSchema('ckpt') }),
    effect: 'destroys',
    idempotent: false,
    run: async ({ torpor, sandboxes, signal, progress }, { sandbox, checkpointId }) => {
      const { id } = await sandboxes.find(sandbox, signal);
      const rolledBack = await tellingEvents(torpor, id, progress, () =>
        torpor.sandboxes.rollback(id, checkpointId, { signal }),
      );
      return answer(shown(rolledBack.sandbox));
    },
  }),
  defineTool({
    name: 'fork_sandbox',
    title: 'Fork a sandbox',
    description:
      'Makes copies of a sandbox in its present state, processes included. The original runs on. Use it to try several ' +
      'ways at once.',
    input: z.object({
      sandbox: sandboxInput,
      count: z.number().int().min(1).max(MAX_FORKS).default(1).describe('How many copies.'),
    }),
    effect: 'adds',
    idempotent: false,
    run: async ({ torpor, sandboxes, signal, progress }, { sandbox, count }) => {
      const { id } = await sandboxes.find(sandbox, signal);
      const { items } = await sandboxes.whenRoomFor(count, signal, () =>
        tellingEvents(torpor, id, progress, () => torpor.sandboxes.fork(id, { count }, { signal })),
      );
      const forks = items.map((item) =>
        'sandbox' in item ? shown(item.sandbox) : { error: `${item.error.code}: ${item.error.message}` },
      );
      return answer({ forks });
    },
  }),
];
