/** A fake OpenAI-compatible endpoint that streams the answers a test defines. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';

export interface ToolCall {
  readonly name: string;
  /** An object, or the text to send instead, valid JSON or not. */
  readonly arguments: unknown;
}

/** One answer of the model. */
export interface Turn {
  readonly text?: string;
  readonly calls?: readonly ToolCall[];
  readonly tokens?: number;
  /** Answer with this HTTP status instead of a stream. */
  readonly status?: number;
  /** Send this text instead of a generated stream. */
  readonly raw?: string;
  /** Close the connection after this many chunks. */
  readonly breakAfter?: number;
  /** Never answer. */
  readonly hang?: boolean;
}

export interface ModelServer {
  readonly baseUrl: string;
  /** The bodies of the requests, in order. */
  readonly asked: {
    readonly messages: readonly unknown[];
    readonly model: string;
    readonly stream: boolean;
  }[];
  readonly authorizations: (string | undefined)[];
  close(): Promise<void>;
}

export async function modelServer(turns: readonly Turn[]): Promise<ModelServer> {
  const asked: ModelServer['asked'][number][] = [];
  const authorizations: (string | undefined)[] = [];
  const server = createServer((request, response) => void answer(request, response).catch(() => {}));
  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    authorizations.push(request.headers.authorization);
    asked.push((await json(request)) as never);
    const turn = turns[Math.min(asked.length, turns.length) - 1] ?? {};
    if (turn.hang) return;
    if (turn.status !== undefined) {
      response.writeHead(turn.status, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ error: { message: 'sandbox not found 404 timeout', type: 'x' } }));
      return;
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    if (turn.raw !== undefined) {
      response.end(turn.raw);
      return;
    }
    const chunks = chunksOf(turn);
    for (const [index, chunk] of chunks.entries()) {
      if (index === turn.breakAfter) {
        response.destroy();
        return;
      }
      response.write(`data: ${JSON.stringify(chunk)}\n\n`);
    }
    response.end('data: [DONE]\n\n');
  }
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    asked,
    authorizations,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

const PIECE = 40;

function chunksOf({ text = '', calls = [], tokens = 10 }: Turn): unknown[] {
  const chunk = (delta: unknown, finish: string | null = null) => ({
    id: 'c',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'm',
    choices: [{ index: 0, delta, finish_reason: finish }],
  });
  const pieces = (whole: string) => whole.match(new RegExp(`[\\s\\S]{1,${PIECE}}`, 'g')) ?? [];
  return [
    chunk({ role: 'assistant', content: '' }),
    ...pieces(text).map((piece) => chunk({ content: piece })),
    ...calls.flatMap(({ name, arguments: given }, index) => {
      const written = typeof given === 'string' ? given : JSON.stringify(given);
      const call = (more: object) => chunk({ tool_calls: [{ index, ...more }] });
      return [
        call({ id: `call-${index}`, type: 'function', function: { name, arguments: '' } }),
        ...pieces(written).map((piece) => call({ function: { arguments: piece } })),
      ];
    }),
    chunk({}, calls.length > 0 ? 'tool_calls' : 'stop'),
    {
      ...chunk({}),
      choices: [],
      usage: { prompt_tokens: tokens, completion_tokens: 0, total_tokens: tokens },
    },
  ];
}
