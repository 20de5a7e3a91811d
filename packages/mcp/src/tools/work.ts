/** Tools for the work in a sandbox: commands, their output, and files. */
import { z } from 'zod';
import { BoundedText } from '../bounded-text.ts';
import { answer, defineTool } from '../tool.ts';
import { sandboxInput } from './sandboxes.ts';

/** The end of each output that a result has. */
const OUTPUT_CHARACTERS = 30_000;
const MAX_FILE_CHARACTERS = 200_000;
const DEFAULT_SECONDS = 300;

const pathInput = z.string().min(1).max(4_096).describe("Absolute, or relative to the sandbox's home.");

export const workTools = [
  defineTool({
    name: 'run_command',
    title: 'Run a command',
    description:
      'Runs a shell command in a sandbox and returns exit code, stdout and stderr (the ends of long output). Wakes a paused ' +
      'sandbox. With background, returns at once and leaves the process running, for servers; read_logs shows its output.',
    input: z.object({
      sandbox: sandboxInput,
      command: z.string().min(1).max(100_000).describe('Run by a login shell.'),
      cwd: z
        .string()
        .min(1)
        .max(4_096)
        .optional()
        .describe("Working directory. Default: the sandbox's home."),
      env: z.record(z.string(), z.string()).optional(),
      timeoutSeconds: z.number().int().min(1).max(3_600).default(DEFAULT_SECONDS),
      background: z.boolean().default(false).describe('Leave the process running.'),
    }),
    effect: 'destroys',
    idempotent: false,
    openWorld: true,
    run: async (
      { torpor, sandboxes, signal, progress },
      { sandbox, background, timeoutSeconds, ...rest },
    ) => {
      const { id } = await sandboxes.find(sandbox, signal);
      const { command, cwd, env } = rest;
      const request = {
        command,
        ...(cwd === undefined ? {} : { cwd }),
        ...(env === undefined ? {} : { env }),
      };
      if (background) {
        const { process } = await torpor.sandboxes.execInBackground(id, request, { signal });
        return answer({ process: process.id, pid: process.pid, running: true });
      }
      const output = {
        stdout: new BoundedText(OUTPUT_CHARACTERS),
        stderr: new BoundedText(OUTPUT_CHARACTERS),
      };
      const events = torpor.sandboxes.execStream(id, { ...request, timeoutSeconds }, { signal });
      for await (const event of events) {
        if (event.type === 'stdout' || event.type === 'stderr') {
          output[event.type].add(event.data);
          const line = event.data.trimEnd().split('\n').at(-1);
          if (line) progress.tell(line.slice(-200));
        }
        if (event.type === 'end') {
          const { exitCode, signal: endedBy, durationMs } = event;
          return answer({
            exitCode,
            signal: endedBy,
            durationMs,
            stdout: `${output.stdout}`,
            stderr: `${output.stderr}`,
          });
        }
      }
      return answer({ exitCode: null, stdout: `${output.stdout}`, stderr: `${output.stderr}` });
    },
  }),
  defineTool({
    name: 'read_logs',
    title: 'Read the output of a process',
    description:
      'Returns the end of the output so far of a background process (by the id that run_command returned) or of a ' +
      'service (by its name), and its exit code when it has ended.',
    input: z.object({
      sandbox: sandboxInput,
      process: z.string().min(1).max(128).describe('Process id or service name.'),
    }),
    effect: 'reads',
    idempotent: true,
    run: async ({ torpor, sandboxes, signal }, { sandbox, process }) => {
      const { id } = await sandboxes.findForRead(sandbox, signal);
      const text = new BoundedText(OUTPUT_CHARACTERS);
      let exitCode: number | null = null;
      for await (const event of torpor.sandboxes.output(id, process, { signal })) {
        if (event.type === 'stdout' || event.type === 'stderr') text.add(event.data);
        if (event.type === 'end') exitCode = event.exitCode;
      }
      return answer({ output: `${text}`, exitCode });
    },
  }),
  defineTool({
    name: 'list_files',
    title: 'List a directory',
    description: 'Lists the files of a directory in a sandbox.',
    input: z.object({ sandbox: sandboxInput, path: pathInput.default('.') }),
    effect: 'reads',
    idempotent: true,
    run: async ({ torpor, sandboxes, limits, signal }, { sandbox, path }) => {
      const { id } = await sandboxes.findForRead(sandbox, signal);
      const { path: shownPath, entries } = await torpor.sandboxes
        .files(id)
        .list(path, { wake: !limits.readOnly, signal });
      const files = entries.map(({ name, type, size }) => ({ name, type, size }));
      return answer({ path: shownPath, files });
    },
  }),
  defineTool({
    name: 'read_file',
    title: 'Read a file',
    description:
      'Returns the text of a file in a sandbox. Of a long file only the end is returned; use run_command for parts.',
    input: z.object({ sandbox: sandboxInput, path: pathInput }),
    effect: 'reads',
    idempotent: true,
    run: async ({ torpor, sandboxes, limits, signal }, { sandbox, path }) => {
      const { id } = await sandboxes.findForRead(sandbox, signal);
      const text = new BoundedText(MAX_FILE_CHARACTERS);
      text.add(await torpor.sandboxes.files(id).readText(path, { wake: !limits.readOnly, signal }));
      return { content: [{ type: 'text', text: `${text}` }] };
    },
  }),
  defineTool({
    name: 'write_file',
    title: 'Write a file',
    description: 'Writes text to a file in a sandbox. Directories are created; an existing file is replaced.',
    input: z.object({ sandbox: sandboxInput, path: pathInput, content: z.string().max(2_000_000) }),
    effect: 'destroys',
    idempotent: true,
    run: async ({ torpor, sandboxes, signal }, { sandbox, path, content }) => {
      const { id } = await sandboxes.find(sandbox, signal);
      const written = await torpor.sandboxes.files(id).write(path, content, { signal });
      return answer({ path: written.path, characters: content.length });
    },
  }),
  defineTool({
    name: 'delete_file',
    title: 'Delete a file',
    description: 'Deletes a file or a directory with everything in it.',
    input: z.object({ sandbox: sandboxInput, path: pathInput }),
    effect: 'destroys',
    idempotent: true,
    run: async ({ torpor, sandboxes, signal }, { sandbox, path }) => {
      const { id } = await sandboxes.find(sandbox, signal);
      await torpor.sandboxes.files(id).remove(path, { signal });
      return answer({ deleted: path });
    },
  }),
];
