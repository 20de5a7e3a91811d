/**
 * A runner that uses a model at an OpenAI-compatible endpoint. The model writes files by tool calls into a workspace in
 * memory. Nothing reaches a disk or a sandbox before it is checked.
 */
import { TorporError } from '@torpor/protocol';
import { z } from 'zod';
import { checkFiles, type FileLimits, type GeneratedFile, textFile, textOf } from './generated-files.ts';
import type { Runner, RunnerInput } from './runner.ts';

export interface OpenAiOptions {
  /** For example `https://api.example.com/v1`. */
  readonly baseUrl: string;
  readonly model: string;
  readonly apiKey: string | undefined;
  /** Limit for the requests to the model in one build. */
  readonly maxSteps: number;
  /** Limit for the input and output tokens of one build together. */
  readonly maxTokens: number;
  /** How often a request that the endpoint temporarily refused is repeated. */
  readonly retries: number;
  readonly limits: FileLimits;
}

const INSTRUCTIONS = `You write small, complete web applications.

Make files with the tools. The application runs on Node in a sandbox that may have no network:
- Always write package.json with a "start" script. Prefer no dependencies.
- Listen on the port in the environment variable PORT (default 3000).
- Answer GET / with a page or JSON. Write a README.md of a few lines.
- Paths are relative to the workspace. When everything is written, call no more tools and say in a sentence what you made.`;

export function openaiRunner(options: OpenAiOptions): Runner {
  return { run: (input, signal) => run(options, input, signal) };
}

async function run(
  options: OpenAiOptions,
  input: RunnerInput,
  signal: AbortSignal,
): Promise<readonly GeneratedFile[]> {
  // Loaded on demand, because most servers do not use this runner.
  const [{ stepCountIs, streamText, tool }, { createOpenAICompatible }] = await Promise.all([
    import('ai'),
    import('@ai-sdk/openai-compatible'),
  ]);
  const { baseUrl: baseURL, apiKey, model } = options;
  const provider = createOpenAICompatible({
    name: 'openai',
    baseURL,
    includeUsage: true,
    ...(apiKey === undefined ? {} : { apiKey }),
  });
  const workspace = new ModelWorkspace(input.previous, options.limits);
  const result = streamText({
    model: provider.chatModel(model),
    instructions: INSTRUCTIONS,
    prompt: promptOf(input),
    tools: {
      write_file: tool({
        description: 'Write a text file, whole.',
        inputSchema: z.object({ path: z.string(), content: z.string() }),
        execute: ({ path, content }) => workspace.write(path, content),
      }),
      read_file: tool({
        description: 'Read a file.',
        inputSchema: z.object({ path: z.string() }),
        execute: ({ path }) => workspace.read(path),
      }),
      delete_file: tool({
        description: 'Delete a file.',
        inputSchema: z.object({ path: z.string() }),
        execute: ({ path }) => workspace.delete(path),
      }),
      list_files: tool({
        description: 'The paths of all files.',
        inputSchema: z.object({}),
        execute: () => workspace.list(),
      }),
    },
    stopWhen: [stepCountIs(options.maxSteps), ({ steps }) => tokensOf(steps) > options.maxTokens],
    abortSignal: signal,
    maxRetries: options.retries,
    // Errors are thrown below. Without this, the library also writes them to the console.
    onError: () => {},
  });
  for await (const part of result.stream) {
    if (part.type === 'text-delta') input.output('model', part.text);
    if (part.type === 'tool-call') input.output('model', `\n${part.toolName} ${pathIn(part.input)}\n`);
    if (part.type === 'error') throw toTorporError(part.error, signal);
    if (part.type === 'abort') throw toTorporError(signal.reason, signal);
  }
  input.output('model', '\n');
  const steps = await result.steps;
  if (tokensOf(steps) > options.maxTokens) {
    throw new TorporError('quota_exceeded', `The model used more than ${options.maxTokens} tokens.`);
  }
  if (steps.at(-1)?.finishReason === 'tool-calls') {
    throw new TorporError('quota_exceeded', `The model was not done after ${options.maxSteps} steps.`);
  }
  return workspace.files();
}

function promptOf({ goal, previous }: RunnerInput): string {
  if (previous.length === 0) return goal;
  const paths = previous.map(({ path }) => `- ${path}`).join('\n');
  return `The workspace has an application already:\n${paths}\n\nRead what you need, then change it as follows:\n${goal}`;
}

function tokensOf(
  steps: readonly { readonly usage: { readonly totalTokens: number | undefined } }[],
): number {
  return steps.reduce((sum, { usage }) => sum + (usage.totalTokens ?? 0), 0);
}

function pathIn(input: unknown): string {
  const { path } = (input ?? {}) as { readonly path?: unknown };
  return typeof path === 'string' ? path.slice(0, 200) : '';
}

/** Chooses the code by the HTTP status of the endpoint, never by its message. */
function toTorporError(cause: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  const last = ((cause ?? {}) as { readonly lastError?: unknown }).lastError ?? cause;
  const { statusCode } = (last ?? {}) as { readonly statusCode?: unknown };
  if (statusCode === 429)
    return new TorporError('quota_exceeded', 'The model temporarily refuses requests (429).', { cause });
  if (statusCode === 408 || statusCode === 504) {
    return new TorporError('timeout', `The model did not answer in time (${statusCode}).`, { cause });
  }
  const said = typeof statusCode === 'number' ? ` (${statusCode})` : '';
  return new TorporError('conflict', `The model could not be used${said}.`, { cause });
}

/** The files of the model, in memory. Tools return errors as text, for the model to read. */
class ModelWorkspace {
  readonly #byPath: Map<string, GeneratedFile>;
  readonly #limits: FileLimits;

  constructor(previous: readonly GeneratedFile[], limits: FileLimits) {
    this.#byPath = new Map(previous.map((file) => [file.path, file]));
    this.#limits = limits;
  }

  write(path: string, content: string): string {
    const file = textFile(path, content);
    const next = new Map(this.#byPath).set(path, file);
    try {
      checkFiles([...next.values()], this.#limits);
    } catch (thrown) {
      return `Refused: ${TorporError.from(thrown).message}`;
    }
    this.#byPath.set(path, file);
    return `Written: ${content.length} characters.`;
  }

  read(path: string): string {
    const file = this.#byPath.get(path);
    return file === undefined ? `There is no ${path}.` : textOf(file);
  }

  delete(path: string): string {
    return this.#byPath.delete(path) ? 'Deleted.' : `There is no ${path}.`;
  }

  list(): string {
    return [...this.#byPath.keys()].join('\n') || 'The workspace is empty.';
  }

  files(): GeneratedFile[] {
    return [...this.#byPath.values()];
  }
}
