import { createHash } from 'node:crypto';
import type { Instance, SealedCheckpoint } from '@torpor/engine';
import { NO_SPEC, newInstance, nextOf, paused, startFrom } from '@torpor/engine/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type GvisorWorld, makeGvisorWorld, whyNoGvisor } from '../../testing/gvisor-world.ts';

const why = await whyNoGvisor();
/** 20 in `npm run test:gvisor`. */
const CYCLES = Number(process.env['TORPOR_CYCLES'] ?? 3);
const PORT = 8_080;

/**
 * A program with all kinds of state: a counter in memory, an open file, a timer, a child process that counts
 * too, a loopback connection to a "database" of its own, a WebSocket server.
 */
const PROGRAM = `
const fs = require('node:fs'), http = require('node:http'), net = require('node:net');
const { spawn } = require('node:child_process');
const { createHash } = require('node:crypto');
let count = 0, ticks = 0, asked = 0;
const log = fs.openSync('/home/user/open.log', 'a');
setInterval(() => ticks++, 20);
const child = spawn('sh', ['-c', 'n=0; while read line; do n=$((n+1)); echo $n; done']);
const database = net.createServer((socket) => socket.on('data', () => socket.write(String(++asked) + '\\n')));
database.listen(5432, '127.0.0.1', () => {
  const connection = net.connect(5432, '127.0.0.1');
  const ask = (to, say) => new Promise((resolve) => { to.once('data', (d) => resolve(Number(String(d)))); say(); });
  const server = http.createServer(async (request, response) => {
    count++;
    fs.writeSync(log, 'line ' + count + '\\n');
    const before = ticks;
    await new Promise((resolve) => setTimeout(resolve, 50));
    const fromChild = await ask(child.stdout, () => child.stdin.write('x\\n'));
    const fromDatabase = await ask(connection, () => connection.write('x'));
    const digest = createHash('sha256').update(fs.readFileSync('/home/user/open.log')).digest('hex');
    response.end(JSON.stringify({ count, fromChild, fromDatabase, ticking: ticks > before, digest }));
  });
  server.on('upgrade', (request, socket) => {
    const key = request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
    const accept = createHash('sha1').update(key).digest('base64');
    socket.write('HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: ' + accept + '\\r\\n\\r\\n');
    socket.on('data', () => socket.end(Buffer.from([0x81, 0x02, 0x6f, 0x6b])));
  });
  server.listen(${PORT}, () => console.log('ready'));
});
`;

interface Answer {
  readonly count: number;
  readonly fromChild: number;
  readonly fromDatabase: number;
  readonly ticking: boolean;
  readonly digest: string;
}

describe.skipIf(why !== null)('a program with all kinds of state', () => {
  let world: GvisorWorld;
  beforeAll(async () => {
    world = await makeGvisorWorld();
  }, 120_000);
  afterAll(async () => {
    await world?.dispose();
    await world?.close();
  }, 120_000);

  const ask = async (instance: Instance) => JSON.parse(await world.get(instance, PORT)) as Answer;

  async function expectWhole(instance: Instance, expected: number): Promise<void> {
    const lines = Array.from({ length: expected }, (_, i) => `line ${i + 1}\n`).join('');
    const digest = createHash('sha256').update(lines).digest('hex');
    expect(await ask(instance)).toEqual({
      count: expected,
      fromChild: expected,
      fromDatabase: expected,
      ticking: true,
      digest,
    });
    expect(await echo(instance)).toBe('ok');
    // An old directory can be renamed after every pause (package managers do).
    const { exitCode, output } = await world.run(
      instance,
      'mv ~/old ~/moved && mv ~/moved ~/old && cat ~/old/deep/file',
    );
    expect([exitCode, output]).toEqual([0, 'kept\n']);
  }

  /** Sends one message over a WebSocket and returns the answer. */
  async function echo(instance: Instance): Promise<string> {
    const address = await world.runtime.dial(instance, PORT, new AbortController().signal);
    if (address === null || !('host' in address)) throw new Error('The program does not listen.');
    const socket = new WebSocket(`ws://${address.host}:${address.port}/`);
    return new Promise((resolve, reject) => {
      socket.onopen = () => socket.send('word');
      socket.onmessage = ({ data }) => resolve(String(data));
      socket.onerror = () => reject(new Error('The WebSocket failed.'));
    });
  }

  it(
    `keeps its state through ${CYCLES} pauses and three forks (R85-R94, R111)`,
    async () => {
      let instance = await world.started();
      await world.run(instance, 'mkdir -p ~/old/deep && echo kept > ~/old/deep/file');
      await world.start(instance, PROGRAM);
      await expectWhole(instance, 1);
      let checkpoint: SealedCheckpoint | undefined;
      for (let cycle = 0; cycle < CYCLES; cycle++) {
        checkpoint = await paused(world, instance, 'memory');
        instance = nextOf(instance);
        expect(await startFrom(world, instance, checkpoint, 'memory')).toEqual({ mode: 'memory', lost: [] });
        await expectWhole(instance, cycle + 2);
      }
      if (checkpoint === undefined) throw new Error('There was no cycle.');
      const source = checkpoint;
      const forks = [newInstance(), newInstance(), newInstance()];
      await Promise.all(forks.map((fork) => startFrom(world, fork, source, 'memory', NO_SPEC)));
      for (const fork of forks) await expectWhole(fork, CYCLES + 1);
      // The forks run independently.
      await expectWhole(forks[0] as Instance, CYCLES + 2);
      await expectWhole(forks[1] as Instance, CYCLES + 2);
      await expectWhole(instance, CYCLES + 2);
    },
    60_000 + CYCLES * 30_000,
  );

  it('gets its port in PORT when it is a service, and is not started again by a resume (R100)', async () => {
    const page = `let n = 0; require('http').createServer((q, s) => s.end(String(++n))).listen(process.env.PORT)`;
    const command = `exec ${await world.node()} -e "${page}"`;
    const services = [{ name: 'web', command, port: PORT, ready: { path: '/' } }];
    const instance = await world.started({ services });
    // Every ready check sends one request.
    expect(await world.get(instance, PORT)).toBe('2');
    const checkpoint = await paused(world, instance, 'memory');
    const next = nextOf(instance);
    await world.started({ services }, checkpoint, next);
    expect(await world.get(next, PORT)).toBe('4');
  }, 60_000);
});
