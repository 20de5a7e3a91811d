/** Tools about the ports of a sandbox and the addresses under which people open them. */
import type { CallToolResult } from '@modelcontextprotocol/server';
import { z } from 'zod';
import { answer, defineTool } from '../tool.ts';
import { sandboxInput } from './sandboxes.ts';

export const previewTools = [
  defineTool({
    name: 'list_ports',
    title: 'List ports',
    description: 'Lists the ports on which programs in a sandbox listen, with their preview addresses.',
    input: z.object({ sandbox: sandboxInput }),
    effect: 'reads',
    idempotent: true,
    run: async ({ torpor, sandboxes, signal }, { sandbox }) => {
      const { id, name } = await sandboxes.findForRead(sandbox, signal);
      const ports = await torpor.sandboxes.ports(id, { signal });
      const shownPorts = ports.map(({ port, url, service, listening, process }) => ({
        port,
        url,
        service,
        listening,
        process,
      }));
      const result = answer({ ports: shownPorts });
      const links = ports.flatMap(({ port, url }) => (url === null ? [] : [linkTo(url, port, name ?? id)]));
      return { ...result, content: [...result.content, ...links] };
    },
  }),
  defineTool({
    name: 'get_preview_link',
    title: 'Get a preview link',
    description:
      'Returns an address at which a person can open a port of the sandbox in a browser. A visit wakes the sandbox. Start ' +
      'the server first, with run_command in the background.',
    input: z.object({ sandbox: sandboxInput, port: z.number().int().min(1).max(65_535) }),
    effect: 'adds',
    idempotent: false,
    run: async ({ torpor, sandboxes, signal }, { sandbox, port }) => {
      const { id, name } = await sandboxes.find(sandbox, signal);
      const { url, expiresAt } = await torpor.sandboxes.previewLink(id, { port }, { signal });
      const expires = expiresAt === null ? null : new Date(expiresAt).toISOString();
      const result = answer({ url, expires });
      return { ...result, content: [...result.content, linkTo(url, port, name ?? id)] };
    },
  }),
];

function linkTo(uri: string, port: number, sandbox: string): CallToolResult['content'][number] {
  return {
    type: 'resource_link',
    uri,
    name: `preview-${port}`,
    title: `Port ${port} of ${sandbox}`,
    mimeType: 'text/html',
  };
}
