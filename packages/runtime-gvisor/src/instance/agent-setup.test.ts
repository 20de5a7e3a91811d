import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
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
  async function agent(first: (answer: ServerResponse, apply: () => void, body: string) => void) {
    const calls: string[] = [];
    let credential = 'old';
    const serve = (request: IncomingMessage, answer: ServerResponse, body: string) => {
      calls.push(request.url ?? '');
      const apply = () => {
        credential = 'next';
      };
      if (calls.length === 1) return first(answer, apply, body);
      if (request.url === '/health') return void answer.writeHead(204).end();
      if (request.headers[CREDENTIAL_HEADER] !== credential) return void answer.writeHead(401).end('{}');
      apply();
      return void answer.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    };
    server = createServer(
      (request, answer) => void text(request).then((body) => serve(request, answer, body)),
    );
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
    memory: 'restored',
    isAlive: async () => true,
  };
  const setUp = async (changed: Partial<AgentSetupOptions> = {}) =>
    (await setUpAgent({ ...options, ...changed }, systemClock, unhurried)).agent.close();

  it('is set up by one call', async () => {
    const calls = await agent((answer) => void answer.writeHead(200).end('{}'));
    await setUp();
    expect(calls).toEqual(['/init']);
  });

  it('is told about its machine after a restore, and not when it only goes on', async () => {
    const bodies: Record<string, unknown>[] = [];
    await agent((answer, apply, body) => {
      apply();
      bodies.push(JSON.parse(body));
      answer.writeHead(200).end('{}');
    });
    await setUp({ memory: 'restored', processes: 7 });
    server?.close();
    server?.closeAllConnections();
    await agent((answer, _, body) => {
      bodies.push(JSON.parse(body));
      answer.writeHead(200).end('{}');
    });
    await setUp({ memory: 'goes on', processes: 7 });

    const [restored, goesOn] = bodies.map((body) => Object.keys(body).sort());
    const ofMachine = ['hostname', 'hosts', 'maxProcesses', 'processors', 'resolvConf'];
    expect(restored).toEqual(
      expect.arrayContaining([...ofMachine, 'accessToken', 'credential', 'timestamp']),
    );
    expect(goesOn).toEqual(restored?.filter((name) => !ofMachine.includes(name)));
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
