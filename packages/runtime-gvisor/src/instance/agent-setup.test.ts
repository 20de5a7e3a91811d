import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { systemClock } from '@torpor/engine';
import { unhurried } from '@torpor/engine/testing';
import { CREDENTIAL_HEADER } from '@torpor/envd';
import { afterEach, describe, expect, it } from 'vitest';
import { AGENT_PORT } from '../container/container-setup.ts';
import { type AgentSetupOptions, setUpAgent } from './agent-setup.ts';

/** A loopback address on which no other program uses the agent's port. */
const guestAddress = '127.83.71.2';

describe('an agent that was restored with its memory', () => {
  let server: Server | undefined;
  afterEach(async () => {
    server?.closeAllConnections();
    server?.close();
  });

  /** An agent whose credential each configuration replaces; `first` answers the first call. */
  async function agent(first: (answer: ServerResponse, apply: () => void) => void) {
    const calls: string[] = [];
    let credential = 'old';
    const serve = (request: IncomingMessage, answer: ServerResponse) => {
      calls.push(request.url ?? '');
      const apply = () => {
        credential = 'next';
      };
      if (calls.length === 1) return first(answer, apply);
      if (request.url === '/health') return void answer.writeHead(204).end();
      if (request.headers[CREDENTIAL_HEADER] !== credential) return void answer.writeHead(401).end('{}');
      apply();
      return void answer.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    };
    server = createServer((request, answer) => void request.resume().on('end', () => serve(request, answer)));
    server.listen(AGENT_PORT, guestAddress);
    await once(server, 'listening');
    return calls;
  }

  const options: AgentSetupOptions = {
    attachment: { guestAddress, resolverAddress: '192.0.2.1' },
    credential: 'old',
    nextCredential: 'next',
    token: 'token',
    sandboxId: 'sbx_1',
    hostname: 'box',
    env: {},
    processors: 1,
    isRestored: true,
    isAlive: async () => true,
  };
  const setUp = async () => (await setUpAgent(options, systemClock, unhurried)).agent.close();

  it('is set up by one call', async () => {
    const calls = await agent((answer) => void answer.writeHead(200).end('{}'));
    await setUp();
    expect(calls).toEqual(['/init']);
  });

  it('is asked again when it does not answer the first call', async () => {
    const calls = await agent(() => {});
    await setUp();
    expect(calls).toEqual(['/init', '/health', '/init']);
  });

  it('is set up although the answer to the first call was lost', async () => {
    const calls = await agent((answer, apply) => {
      apply();
      answer.destroy();
    });
    await setUp();
    expect(calls).toEqual(['/init', '/health', '/init', '/init']);
  });
});
