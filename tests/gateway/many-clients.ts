/** Many concurrent clients of one server, and the memory that they take. */
import { readFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { ask } from '@torpor/gateway/testing';
import { bareSandboxId, type SandboxId } from '@torpor/protocol';
import type { TorporProcess } from '../crash/torpor-process.ts';
import { guestService } from '../wake/guest-app.ts';

interface PreviewAddress {
  readonly id: SandboxId;
  readonly port: number;
  readonly host: string;
}

/** A paused sandbox. With a delay its app takes that long to start again, because the pause keeps only files. */
async function pausedSandbox({ torpor, url }: TorporProcess, delayMs = 0): Promise<PreviewAddress> {
  const { id } = await torpor.sandboxes.create({ services: [guestService({ delayMs })] });
  await torpor.sandboxes.pause(id, delayMs === 0 ? {} : { mode: 'files' });
  return { id, port: Number(new URL(url).port), host: `3000-${bareSandboxId(id)}.sbx.localhost` };
}

interface FirstRequests {
  readonly answered: number;
  readonly resumes: number;
  /** How many requests the app ran; a request that it ran twice counts twice. */
  readonly runs: number;
}

/** Sends `count` concurrent requests to a paused sandbox, half of them mutations. */
export async function firstRequests(server: TorporProcess, count: number): Promise<FirstRequests> {
  const { sandboxes } = server.torpor;
  const { id, port, host } = await pausedSandbox(server);
  const { generation: before } = await sandboxes.get(id);
  const answers = await Promise.all(
    Array.from({ length: count }, (_, i) =>
      ask(port, host, { path: `/run/${i}`, method: i % 2 === 0 ? 'GET' : 'POST' }),
    ),
  );
  const { generation: after } = await sandboxes.get(id);
  const { stdout } = await sandboxes.exec(id, 'cat runs');
  const answered = answers.filter(({ status, text }, i) => status === 200 && text.includes(` ${i} `)).length;
  return { answered, resumes: after - before, runs: stdout.trim().split('\n').length };
}

/** Connections that are opened concurrently. */
const AT_ONCE = 50;

interface ClientMemory {
  /** The next three are megabytes of resident memory. */
  readonly before: number;
  readonly withIdle: number;
  readonly withHeld: number;
  readonly idle: number;
  readonly held: number;
  readonly answered: number;
}

export async function measureClientMemory(
  server: TorporProcess,
  idle: number,
  held: number,
): Promise<ClientMemory> {
  const awake = await pausedSandbox(server);
  await ask(awake.port, awake.host, { path: '/x/warm' });
  const before = await residentMb(server);
  const sockets: Socket[] = [];
  while (sockets.length < idle) {
    const more = Math.min(AT_ONCE, idle - sockets.length);
    sockets.push(...(await Promise.all(Array.from({ length: more }, () => idleConnection(awake)))));
  }
  const withIdle = await residentMb(server);
  const asleep = await pausedSandbox(server, 2_000);
  // The gateway does not read these bodies before the sandbox is awake.
  const body = Buffer.alloc(256 * 1024, 'x');
  const asked = Array.from({ length: held }, (_, i) =>
    ask(asleep.port, asleep.host, { method: 'POST', path: `/x/${i}`, body }),
  );
  while ((await heldNow(server)) < held) await delay(20);
  const withHeld = await residentMb(server);
  const answered = (await Promise.all(asked)).filter(({ status }) => status === 200).length;
  for (const socket of sockets) socket.destroy();
  return { before, withIdle, withHeld, idle, held, answered };
}

/** A connection that has carried one request, and is kept open. */
async function idleConnection({ port, host }: PreviewAddress): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1' });
  await new Promise((resolve, reject) => {
    socket.once('error', reject);
    socket.once('data', resolve);
    socket.write(`GET /x/idle HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  });
  return socket;
}

async function heldNow({ url }: TorporProcess): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(/^torpor_preview_held (\d+)/m.exec(text)?.[1] ?? 0);
}

async function residentMb({ pid }: TorporProcess): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Math.round(Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1_024);
}
