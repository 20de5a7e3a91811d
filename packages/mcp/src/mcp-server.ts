/** One MCP server for one client: the tools that the limits allow. */
import { McpServer } from '@modelcontextprotocol/server';
import type { Torpor } from '@torpor/sdk';
import type { Limits } from './limits.ts';
import { ScopedSandboxes } from './scoped-sandboxes.ts';
import { checkpointTools } from './tools/checkpoints.ts';
import { previewTools } from './tools/previews.ts';
import { sandboxTools } from './tools/sandboxes.ts';
import { workTools } from './tools/work.ts';

const TOOLS = [...sandboxTools, ...workTools, ...checkpointTools, ...previewTools];

const INSTRUCTIONS =
  'Torpor runs isolated Linux sandboxes that sleep when idle and wake when used, with files and processes intact. Create ' +
  'one sandbox per task and reuse it. Before a risky step make a snapshot; roll back if it fails. Start servers with ' +
  'run_command in the background, then give people the address of get_preview_link. Kill sandboxes that are not needed ' +
  'any more.';

export function createMcpServer(torpor: Torpor, limits: Limits, version: string): McpServer {
  const server = new McpServer(
    { name: 'torpor', title: 'Torpor sandboxes', version },
    { capabilities: { tools: {} }, instructions: INSTRUCTIONS },
  );
  const ctx = { torpor, limits, sandboxes: new ScopedSandboxes(torpor, limits) };
  for (const tool of TOOLS) if (!limits.readOnly || tool.effect === 'reads') tool.register(server, ctx);
  return server;
}
