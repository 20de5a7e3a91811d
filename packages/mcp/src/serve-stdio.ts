/** Serves one client over stdin and stdout, until the client closes them or the signal fires. */
import type { Readable, Writable } from 'node:stream';
import { StdioServerTransport, serveStdio as serve } from '@modelcontextprotocol/server/stdio';
import type { Torpor } from '@torpor/sdk';
import type { Limits } from './limits.ts';
import { createMcpServer } from './mcp-server.ts';

export interface StdioOptions {
  readonly torpor: Torpor;
  readonly limits: Limits;
  readonly version: string;
  readonly stdin: Readable;
  readonly stdout: Writable;
  readonly signal: AbortSignal;
}

export async function serveStdio(options: StdioOptions): Promise<void> {
  const { torpor, limits, version, stdin, stdout, signal } = options;
  const transport = new StdioServerTransport(stdin, stdout);
  const serving = serve(() => createMcpServer(torpor, limits, version), { transport });
  await new Promise<void>((resolve) => {
    stdin.once('close', resolve).once('end', resolve);
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
  await serving.close();
}
