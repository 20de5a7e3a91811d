/**
 * No failed request: clients send requests and talk over WebSockets while their sandbox is paused again and again. Every
 * request is answered correctly and runs once, in the order in which its client sent it. Every WebSocket is closed with
 * code 1012, and its conversation continues on a new one.
 */
import { once } from 'node:events';
import { Agent } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { ask } from '@torpor/gateway/testing';
import { bareSandboxId, type SandboxId } from '@torpor/protocol';
import { WebSocket } from 'ws';
import { startTorpor, type TorporProcess } from '../crash/torpor-process.ts';
import { guestService } from './guest-app.ts';

export interface Campaign {
  readonly runtime: 'process' | 'gvisor';
  readonly requests: number;
  readonly clients: number;
  readonly conversations: number;
  readonly pauses: number;
}

export interface WakeReport {
  readonly requests: number;
  readonly messages: number;
  readonly pauses: number;
  readonly wakes: number;
  /** How often a WebSocket was closed, by code. */
  readonly closes: Readonly<Record<number, number>>;
  readonly slowestMs: number;
  readonly medianMs: number;
}

const COME_BACK = 1012;

export async function runWake(dataDir: string, campaign: Campaign): Promise<WakeReport> {
  const server = await startTorpor(dataDir, { TORPOR_LOG_LEVEL: 'error' }, campaign.runtime);
  try {
    const { id } = await server.torpor.sandboxes.create({ services: [guestService()], idleSeconds: 86_400 });
    const preview = {
      port: Number(new URL(server.url).port),
      host: `3000-${bareSandboxId(id)}.sbx.localhost`,
    };
    const over = new AbortController();
    const times: number[] = [];
    const closes: Record<number, number> = {};
    const sending = Promise.all(
      Array.from({ length: campaign.clients }, (_, client) => send(preview, client, campaign, times)),
    );
    const talking = Promise.all(
      Array.from({ length: campaign.conversations }, (_, name) => talk(preview, name, over.signal, closes)),
    );
    // The first failure is the one to report.
    const pausing = Promise.race([
      pauseAgainAndAgain(server, id, campaign.pauses),
      failureOf(sending),
      failureOf(talking),
    ]);
    await pausing;
    await sending;
    over.abort();
    const said = await talking;
    await checkRuns(server, id, campaign);
    await checkMessages(server, id, said);
    const events = await eventTypes(server, id);
    times.sort((a, b) => a - b);
    return {
      requests: times.length,
      messages: said.reduce((sum, count) => sum + count, 0),
      pauses: events.filter((type) => type === 'sandbox.paused').length,
      wakes: events.filter((type) => type === 'sandbox.resumed').length,
      closes,
      slowestMs: Math.round(times.at(-1) ?? 0),
      medianMs: Math.round(times[Math.floor(times.length / 2)] ?? 0),
    };
  } finally {
    await server.end();
  }
}

function failureOf(work: Promise<unknown>): Promise<never> {
  return new Promise((_, reject) => work.catch(reject));
}

interface PreviewAddress {
  readonly port: number;
  readonly host: string;
}

/** One client on one kept connection: it sends each request after the response to the one before. Half are mutations. */
async function send(
  { port, host }: PreviewAddress,
  client: number,
  { requests, clients }: Campaign,
  times: number[],
): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  try {
    for (let n = 0; n < requests / clients; n++) {
      const name = `${client}-${n}`;
      const method = n % 2 === 0 ? 'GET' : 'POST';
      const body = method === 'POST' ? `body of ${name}` : '';
      const began = performance.now();
      const answer = await ask(port, host, {
        method,
        path: `/run/${name}`,
        agent,
        ...(body === '' ? {} : { body }),
      });
      times.push(performance.now() - began);
      if (answer.status !== 200 || answer.text !== `${method} ${name} ${body}`) {
        throw new Error(`Request ${name} was answered ${answer.status} ${answer.text.slice(0, 300)}`);
      }
      await delay(Math.random() * 20);
    }
  } finally {
    agent.destroy();
  }
}

/** Sends one number after the other, each when the echo of the one before has come, also over several WebSockets. */
async function talk(
  preview: PreviewAddress,
  name: number,
  over: AbortSignal,
  closes: Record<number, number>,
): Promise<number> {
  let said = 0;
  while (!over.aborted) {
    const socket = new WebSocket(`ws://127.0.0.1:${preview.port}/talk`, { headers: { host: preview.host } });
    const closed = once(socket, 'close') as Promise<[number]>;
    await Promise.race([once(socket, 'open'), closed]);
    const leave = () => socket.close(1000);
    over.addEventListener('abort', leave, { once: true });
    while (socket.readyState === WebSocket.OPEN && !over.aborted) {
      const text = `${name} ${said}`;
      const echoed = new Promise<boolean>((resolve) => {
        socket.once('message', (data: Buffer) => resolve(data.toString() === text));
        void closed.then(() => resolve(false));
      });
      socket.send(text);
      if (await echoed) said++;
      await delay(10 + Math.random() * 40);
    }
    const [code] = await closed;
    over.removeEventListener('abort', leave);
    closes[code] = (closes[code] ?? 0) + 1;
    if (code !== COME_BACK && !over.aborted) throw new Error(`Conversation ${name} was closed with ${code}.`);
  }
  return said;
}

/** The clients' requests wake the sandbox; without clients the test does. */
async function pauseAgainAndAgain({ torpor }: TorporProcess, id: SandboxId, times: number): Promise<void> {
  for (let i = 0; i < times; i++) {
    await torpor.sandboxes.pause(id);
    const until = Date.now() + 60_000;
    while ((await torpor.sandboxes.get(id)).state !== 'running') {
      if (Date.now() > until) throw new Error('Nobody woke it.');
      await delay(20);
    }
    await delay(Math.random() * 200);
  }
}

async function linesOf({ torpor }: TorporProcess, id: SandboxId, file: string): Promise<string[]> {
  const { stdout } = await torpor.sandboxes.exec(id, `cat ${file} 2>/dev/null || true`);
  return stdout.split('\n').filter((line) => line !== '');
}

/** Each request ran once, and the requests of one client ran in the order in which it sent them. */
async function checkRuns(
  server: TorporProcess,
  id: SandboxId,
  { requests, clients }: Campaign,
): Promise<void> {
  const runs = await linesOf(server, id, 'runs');
  const perHand = Math.ceil(requests / clients);
  for (let client = 0; client < clients; client++) {
    const own = runs.filter((name) => name.startsWith(`${client}-`));
    const wanted = Array.from({ length: perHand }, (_, n) => `${client}-${n}`);
    if (own.join() !== wanted.join()) {
      const odd = own.find((name, i) => name !== wanted[i]);
      throw new Error(
        `Client ${client} had ${own.length} of ${perHand} requests run; the first odd one is ${odd}.`,
      );
    }
  }
}

/** Every echoed message was received, in order. A message without an echo was sent again, so it may appear twice. */
async function checkMessages(server: TorporProcess, id: SandboxId, said: readonly number[]): Promise<void> {
  const messages = await linesOf(server, id, 'messages');
  for (const [name, count] of said.entries()) {
    const own = messages
      .filter((line) => line.startsWith(`${name} `))
      .map((line) => Number(line.split(' ')[1]));
    const inOrder = own.every((n, i) => i === 0 || n === own[i - 1] || n === (own[i - 1] ?? 0) + 1);
    const all = new Set(own);
    if (!inOrder || Array.from({ length: count }, (_, n) => n).some((n) => !all.has(n))) {
      throw new Error(`Conversation ${name} was not heard as it was said.`);
    }
  }
}

async function eventTypes({ torpor }: TorporProcess, id: SandboxId): Promise<string[]> {
  const types: string[] = [];
  const enough = new AbortController();
  const { state } = await torpor.sandboxes.get(id);
  if (state !== 'running') throw new Error(`It is ${state} in the end.`);
  const last = await torpor.sandboxes.get(id);
  for await (const event of torpor.sandboxes.events(id, { signal: enough.signal })) {
    types.push(event.type);
    // Each start has its own generation; after the event of the last one the list is complete.
    if (event.type === 'sandbox.resumed' && event.generation === last.generation) break;
  }
  return types;
}
