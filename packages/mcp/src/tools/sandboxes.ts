/** Tools about whole sandboxes: create, list, pause, resume, kill. */
import type { SandboxView } from '@torpor/sdk';
import { z } from 'zod';
import { tellingEvents } from '../progress.ts';
import { answer, defineTool } from '../tool.ts';

export const sandboxInput = z.string().min(1).max(128).describe('Id (sbx_…) or name of the sandbox.');

/** What a model needs to know of a sandbox. */
export function shown({ id, name, state, template, endsAt, lost, services, urls }: SandboxView) {
  return {
    id,
    name,
    state,
    template,
    endsAt: endsAt === null ? null : new Date(endsAt).toISOString(),
    lost,
    services: services.map((service) => service.name),
    previews: urls,
  };
}

export const sandboxTools = [
  defineTool({
    name: 'create_sandbox',
    title: 'Create a sandbox',
    description:
      'Creates an isolated Linux sandbox and returns its id. Use one sandbox for one task, and reuse it: it sleeps when ' +
      'idle and wakes by itself, with files and processes as they were.',
    input: z.object({
      name: z
        .string()
        .min(1)
        .max(64)
        .optional()
        .describe('A name of your choice, usable in place of the id.'),
      template: z
        .string()
        .min(1)
        .max(64)
        .optional()
        .describe('What the sandbox starts from. Default: the usual one.'),
      env: z.record(z.string(), z.string()).optional().describe('Environment variables of its commands.'),
      timeoutSeconds: z
        .number()
        .int()
        .min(1)
        .max(86_400)
        .optional()
        .describe('It is paused after this time.'),
    }),
    effect: 'adds',
    idempotent: false,
    run: async ({ sandboxes, signal, progress }, { name, template, env, timeoutSeconds }) => {
      progress.tell('creating');
      const request = {
        ...(name === undefined ? {} : { name }),
        ...(template === undefined ? {} : { template }),
        ...(env === undefined ? {} : { env }),
        ...(timeoutSeconds === undefined ? {} : { timeoutSeconds }),
      };
      return answer(shown(await sandboxes.create(request, signal)));
    },
  }),
  defineTool({
    name: 'list_sandboxes',
    title: 'List sandboxes',
    description: 'Lists your sandboxes with their state. Does not wake them.',
    input: z.object({ includeEnded: z.boolean().default(false).describe('Also killed and lost ones.') }),
    effect: 'reads',
    idempotent: true,
    run: async ({ sandboxes, signal }, { includeEnded }) =>
      answer({ sandboxes: (await sandboxes.list(includeEnded, signal)).map(shown) }),
  }),
  defineTool({
    name: 'get_sandbox',
    title: 'Show a sandbox',
    description:
      'Returns state, remaining time, services and preview addresses of a sandbox. Does not wake it.',
    input: z.object({ sandbox: sandboxInput }),
    effect: 'reads',
    idempotent: true,
    run: async ({ sandboxes, signal }, { sandbox }) => answer(shown(await sandboxes.find(sandbox, signal))),
  }),
  defineTool({
    name: 'pause_sandbox',
    title: 'Pause a sandbox',
    description:
      'Puts a sandbox to sleep with memory and files intact. Commands, file calls and visits to its previews wake it.',
    input: z.object({ sandbox: sandboxInput }),
    effect: 'changes',
    idempotent: true,
    run: async ({ torpor, sandboxes, signal, progress }, { sandbox }) => {
      const { id } = await sandboxes.find(sandbox, signal);
      const paused = await tellingEvents(torpor, id, progress, () =>
        torpor.sandboxes.pause(id, {}, { signal }),
      );
      return answer({ ...shown(paused.sandbox), checkpointId: paused.checkpoint.id });
    },
  }),
  defineTool({
    name: 'resume_sandbox',
    title: 'Resume a sandbox',
    description: 'Wakes a paused sandbox. `lost` says what could not be restored, usually nothing.',
    input: z.object({ sandbox: sandboxInput }),
    effect: 'changes',
    idempotent: true,
    run: async ({ torpor, sandboxes, signal, progress }, { sandbox }) => {
      const { id } = await sandboxes.find(sandbox, signal);
      const resumed = await tellingEvents(torpor, id, progress, () =>
        torpor.sandboxes.resume(id, {}, { signal }),
      );
      return answer(shown(resumed.sandbox));
    },
  }),
  defineTool({
    name: 'kill_sandbox',
    title: 'Kill a sandbox',
    description: 'Ends a sandbox for good. Its files are lost, unless a named snapshot keeps them.',
    input: z.object({ sandbox: sandboxInput }),
    effect: 'destroys',
    idempotent: true,
    run: async ({ torpor, sandboxes, signal }, { sandbox }) => {
      const { id } = await sandboxes.find(sandbox, signal);
      return answer(shown(await torpor.sandboxes.kill(id, { signal })));
    },
  }),
];
