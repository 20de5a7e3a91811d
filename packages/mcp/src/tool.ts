/** A tool: its name and schema as the model sees them, and its work. */
import type { CallToolResult, McpServer } from '@modelcontextprotocol/server';
import { TorporError } from '@torpor/protocol';
import type { Torpor } from '@torpor/sdk';
import type { z } from 'zod';
import type { Limits } from './limits.ts';
import { Progress } from './progress.ts';
import type { ScopedSandboxes } from './scoped-sandboxes.ts';

/** What a tool does to its environment. Clients decide by it which calls a person must confirm. */
type Effect = 'reads' | 'adds' | 'changes' | 'destroys';

interface ToolContext {
  readonly torpor: Torpor;
  readonly sandboxes: ScopedSandboxes;
  readonly limits: Limits;
}

interface CallContext extends ToolContext {
  /** Fires when the client cancels the call. */
  readonly signal: AbortSignal;
  readonly progress: Progress;
}

interface ToolDefinition<S extends z.ZodObject> {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly input: S;
  readonly effect: Effect;
  /** A repeated call has no further effect. */
  readonly idempotent: boolean;
  /** Programs in a sandbox may reach the internet. */
  readonly openWorld?: boolean;
  readonly run: (call: CallContext, input: z.infer<S>) => Promise<CallToolResult>;
}

export interface Tool {
  readonly effect: Effect;
  register(server: McpServer, ctx: ToolContext): void;
}

export function defineTool<S extends z.ZodObject>(definition: ToolDefinition<S>): Tool {
  const { name, title, description, input, effect, idempotent, openWorld = false, run } = definition;
  const annotations = {
    title,
    readOnlyHint: effect === 'reads',
    destructiveHint: effect === 'destroys',
    idempotentHint: idempotent,
    openWorldHint: openWorld,
  };
  const schema: z.ZodObject = input;
  const config = { title, description, inputSchema: schema, annotations };
  return {
    effect,
    register(server, ctx) {
      server.registerTool(name, config, async (given, request) => {
        const progress = new Progress(request);
        const call = { ...ctx, signal: request.mcpReq.signal, progress };
        const result = await run(call, given as z.infer<S>).catch(failed);
        await progress.settled();
        return result;
      });
    },
  };
}

/** An answer as JSON, which models read as well as programs. */
export function answer(value: Readonly<Record<string, unknown>>): CallToolResult {
  return {
    content: [{ type: 'text', text: JSON.stringify(value, null, 1) }],
    structuredContent: { ...value },
  };
}

/** The model can act on the message and the hint, so they are the result of the call and no protocol error. */
function failed(thrown: unknown): CallToolResult {
  const error = TorporError.from(thrown);
  const text = `${error.code}: ${error.message}${error.hint === '' ? '' : ` ${error.hint}`}`;
  return { isError: true, content: [{ type: 'text', text }] };
}
