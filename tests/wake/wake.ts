/**
 * Zero failed requests: clients send and talk on while their sandbox is put to sleep again and again. Every request
 * is answered correctly and run once, in the order its client sent them; every WebSocket is closed with a code that
 * says to come back, and its conversation goes on where it was.
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
  readonly hands: number;
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
    const visit = { port: Number(new URL(server.url).port), host: `3000-${bareSandboxId(id)}.sbx.localhost` };
    const over = new AbortController();
    const times: number[] = [];
    const closes: Record<number, number> = {};
    const sending = Promise.all(
      Array.from({ length: campaign.hands }, (_, hand) => send(visit, hand, campaign, times)),
    );
    const talking = Promise.all(
      Array.from({ length: campaign.conversations }, (_, name) => talk(visit, name, over.signal, closes)),
    );
    // Whoever fails first is the one to hear of.
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

interface Visit {
  readonly port: number;
  readonly host: string;
}

/** One client on one kept connection: the next request when the one before it is answered. Half of them mutate. */
async function send(
  { port, host }: Visit,
  hand: number,
  { requests, hands }: Campaign,
  times: number[],
): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  try {
    for (let n = 0; n < requests / hands; n++) {
      const name = `${hand}-${n}`;
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

/** Says one number after the other, the next when the one before it came back; after a goodbye it goes on. */
async function talk(
  visit: Visit,
  name: number,
  over: AbortSignal,
  closes: Record<number, number>,
): Promise<number> {
  let said = 0;
  while (!over.aborted) {
    const socket = new WebSocket(`ws://127.0.0.1:${visit.port}/talk`, { headers: { host: visit.host } });
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

/** Visitors wake it; if there are none left, we do. */
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

/** Each request once, and those of one client in the order in which it sent them. */
async function checkRuns(server: TorporProcess, id: SandboxId, { requests, hands }: Campaign): Promise<void> {
  const runs = await linesOf(server, id, 'runs');
  const perHand = Math.ceil(requests / hands);
  for (let hand = 0; hand < hands; hand++) {
    const own = runs.filter((name) => name.startsWith(`${hand}-`));
    const wanted = Array.from({ length: perHand }, (_, n) => `${hand}-${n}`);
    if (own.join() !== wanted.join()) {
      const odd = own.find((name, i) => name !== wanted[i]);
      throw new Error(
        `Client ${hand} had ${own.length} of ${perHand} requests run; the first odd one is ${odd}.`,
      );
    }
  }
}

/** What was echoed was heard, in order. A message whose echo did not come back was said again, so it may stand twice. */
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
    // Each start has a generation of its own; with the last one everything has been told.
    if (event.type === 'sandbox.resumed' && event.generation === last.generation) break;
  }
  return types;
}
