/** Load generators: each client sends its next request as soon as it has the previous answer. */
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { Agent } from 'node:http';
import { promisify } from 'node:util';
import { ask, open } from '@torpor/gateway/testing';
import { WebSocket } from 'ws';
import { commandOnPath } from '../../scripts/setup/command-on-path.mjs';
import type { Target } from './target.ts';

const run = promisify(execFile);
const MEGABYTES = 100;

/** Requests per second, and their median and 99th percentile. */
export async function smallRequests(target: Target, connections: number, seconds: number): Promise<number[]> {
  const wrk = commandOnPath('wrk');
  return wrk === undefined
    ? withNodeClient(target, connections, seconds)
    : withWrk(wrk, target, connections, seconds);
}

async function withWrk(
  wrk: string,
  { address, port, host }: Target,
  connections: number,
  seconds: number,
): Promise<number[]> {
  const { stdout } = await run(wrk, [
    ...['-t', '1', '-c', String(connections), '-d', `${seconds}s`, '--latency'],
    ...['-H', `Host: ${host}`, `http://${address}:${port}/x/small`],
  ]);
  if (/Non-2xx|Socket errors/.test(stdout)) console.log(stdout);
  const time = (share: string) => inMs(new RegExp(`${share}%\\s+([\\d.]+)(us|ms|s)`).exec(stdout));
  return [Number(/Requests\/sec:\s+([\d.]+)/.exec(stdout)?.[1] ?? 0), time('50'), time('99')];
}

function inMs(found: RegExpExecArray | null): number {
  const unit = { us: 0.001, ms: 1, s: 1_000 }[found?.[2] ?? 'ms'] ?? 1;
  return Number(found?.[1] ?? 0) * unit;
}

async function withNodeClient(
  { address, port, host }: Target,
  connections: number,
  seconds: number,
): Promise<number[]> {
  const agent = new Agent({ keepAlive: true, maxSockets: connections });
  const times: number[] = [];
  const until = performance.now() + seconds * 1_000;
  const client = async () => {
    while (performance.now() < until) {
      const began = performance.now();
      await ask(port, host, { path: '/x/small', agent, address });
      times.push(performance.now() - began);
    }
  };
  await Promise.all(Array.from({ length: connections }, client));
  agent.destroy();
  return [times.length / seconds, ...ranks(times)];
}

export async function download({ address, port, host }: Target): Promise<number[]> {
  const rates: number[] = [];
  const firsts: number[] = [];
  for (let i = 0; i < 3; i++) {
    const began = performance.now();
    const response = await open(port, host, { path: `/big/${MEGABYTES * 1e6}`, address });
    firsts.push(performance.now() - began);
    let bytes = 0;
    for await (const chunk of response) bytes += (chunk as Buffer).length;
    rates.push(bytes / 1e6 / ((performance.now() - began) / 1_000));
  }
  return [Math.max(...rates), Math.min(...firsts)];
}

export async function echo({ address, port, host }: Target, messages: number): Promise<number[]> {
  const socket = new WebSocket(`ws://${address}:${port}/`, { headers: { host }, perMessageDeflate: false });
  await once(socket, 'open');
  const times: number[] = [];
  const began = performance.now();
  for (let i = 0; i < messages; i++) {
    const sent = performance.now();
    socket.send(`message ${i}`);
    await once(socket, 'message');
    times.push(performance.now() - sent);
  }
  const seconds = (performance.now() - began) / 1_000;
  socket.terminate();
  return [messages / seconds, ...ranks(times)];
}

function ranks(times: number[]): number[] {
  const sorted = times.toSorted((a, b) => a - b);
  return [0.5, 0.99].map((share) => sorted[Math.floor(share * sorted.length)] ?? 0);
}
