/** The whole server on a real disk of 96 MiB that is filled to the last byte. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, open, readFile, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { canMount, withSmallDisk } from '@torpor/engine/testing';
import { hostProcesses } from '@torpor/host';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

const MAIN = join(import.meta.dirname, 'main.ts');
const DISK_KIB = 96 * 1024;

describe.skipIf(!canMount())('a server on a disk that fills up', () => {
  let directory: string;
  let disk: string;
  const children: ChildProcess[] = [];

  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'torpor-full-disk-'));
    disk = join(directory, 'disk');
  });
  afterEach(async () => {
    await rm(directory, { recursive: true });
  });

  async function started(): Promise<{ child: ChildProcess; url: string }> {
    const settings = ['engine.diskReserveBytes=16MiB', 'engine.diskEveryMs=100ms'];
    const child = spawn(
      process.execPath,
      [
        MAIN,
        '--port',
        '0',
        '--log-level',
        'warn',
        '--runtime',
        'process',
        ...settings.flatMap((s) => ['--set', s]),
      ],
      {
        env: { PATH: process.env['PATH'], HOME: directory, TORPOR_DATA_DIR: join(disk, 'data') },
        stdio: ['ignore', 'pipe', 'pipe'],
      },
    );
    children.push(child);
    const errors = text(child.stderr as NodeJS.ReadableStream as never);
    for await (const line of createInterface({ input: child.stdout as NodeJS.ReadableStream })) {
      const [, url] = /^torpor ready (\S+) /.exec(line) ?? [];
      if (url !== undefined) return { child, url };
    }
    throw new Error(`it did not start: ${await errors}`);
  }

  async function stop(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
    const exited = once(child, 'exit');
    child.kill(signal);
    await exited;
  }

  /** Sandboxes outlive their server. */
  async function killSandboxes(instances: string): Promise<void> {
    for (const { pid } of await hostProcesses().all()) {
      const environment = await readFile(`/proc/${pid}/environ`, 'latin1').catch(() => '');
      if (!environment.includes(instances)) continue;
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // The process has ended by itself.
      }
    }
  }

  async function onSmallDisk(work: () => Promise<void>): Promise<void> {
    await withSmallDisk(disk, DISK_KIB, async () => {
      let instances: string | undefined;
      try {
        await work();
      } finally {
        // As root the runtime keeps its instances outside the data directory and leaves a link to them.
        instances = await realpath(join(disk, 'data/process')).catch(() => undefined);
        for (const child of children.splice(0)) {
          if (child.exitCode === null && child.signalCode === null) await stop(child, 'SIGKILL');
        }
        if (instances !== undefined) {
          await killSandboxes(instances);
          await rm(instances, { recursive: true, force: true });
        }
      }
    });
  }

  async function ask(url: string, method: string, path: string, body?: unknown) {
    const key = (await readFile(join(disk, 'data/api-key'), 'utf8')).trim();
    const response = await fetch(`${url}${path}`, {
      method,
      headers: { 'x-api-key': key, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: (await response.json()) as Record<string, never> };
  }

  /** Writes again and again until the disk is full, as a program that fills the disk does. */
  async function fillUp(): Promise<void> {
    const file = await open(join(disk, 'ballast'), 'a');
    try {
      for (let size = 1 << 20; size >= 1; size >>= 4) {
        for (;;) {
          const { bytesWritten } = await file.write(Buffer.alloc(size)).catch(() => ({ bytesWritten: 0 }));
          if (bytesWritten < size) break;
        }
      }
    } finally {
      await file.close();
    }
  }

  const freeBytes = () =>
    Number(execFileSync('df', ['--output=avail', '-B1', disk], { encoding: 'utf8' }).split('\n')[1]);

  async function withPausedSandbox(url: string): Promise<string> {
    const { body } = await ask(url, 'POST', '/v1/sandboxes', {});
    const id = String(body['id']);
    const command = 'head -c 8000000 /dev/urandom > big';
    expect((await ask(url, 'POST', `/v1/sandboxes/${id}/exec`, { command })).body).toMatchObject({
      exitCode: 0,
    });
    expect((await ask(url, 'POST', `/v1/sandboxes/${id}/pause`)).status).toBe(200);
    return id;
  }

  it(
    'kills sandboxes while no byte is free, and frees the space of their checkpoints (R112)',
    {
      timeout: 90_000,
    },
    () =>
      onSmallDisk(async () => {
        const { child, url } = await started();
        const paused = await withPausedSandbox(url);
        const { body } = await ask(url, 'POST', '/v1/sandboxes', {});
        await fillUp();

        expect(await ask(url, 'DELETE', `/v1/sandboxes/${body['id']}`)).toMatchObject({
          status: 200,
          body: { state: 'killed' },
        });
        const refused = await ask(url, 'POST', '/v1/sandboxes', {});
        expect(refused).toMatchObject({ status: 507, body: { error: { code: 'storage_full' } } });
        await fillUp();
        const before = freeBytes();
        expect(await ask(url, 'DELETE', `/v1/sandboxes/${paused}`)).toMatchObject({
          status: 200,
          body: { state: 'killed' },
        });
        await vi.waitFor(() => expect(freeBytes()).toBeGreaterThan(before + 4_000_000), { timeout: 20_000 });
        await stop(child, 'SIGTERM');
      }),
  );

  it(
    'starts on a full disk after a crash, says so, refuses new sandboxes, and deletes old ones (R112, R115)',
    {
      timeout: 90_000,
    },
    () =>
      onSmallDisk(async () => {
        const first = await started();
        const paused = await withPausedSandbox(first.url);
        await stop(first.child, 'SIGKILL');
        await fillUp();

        const { child, url } = await started();

        expect(await ask(url, 'GET', '/health')).toMatchObject({
          status: 200,
          body: { status: 'degraded', disk: 'full' },
        });
        const metrics = await (await fetch(`${url}/metrics`)).text();
        expect(metrics).toMatch(/^torpor_disk_level\{level="full"\} 1$/m);
        expect(metrics).toMatch(/^torpor_disk_reserve_bytes \d+$/m);
        expect(await ask(url, 'POST', '/v1/sandboxes', {})).toMatchObject({
          status: 507,
          body: {
            error: {
              code: 'storage_full',
              details: {
                freeBytes: expect.any(Number),
                neededBytes: expect.any(Number),
                boundBytes: expect.any(Number),
              },
            },
          },
        });
        expect((await ask(url, 'DELETE', `/v1/sandboxes/${paused}`)).status).toBe(200);
        await rm(join(disk, 'ballast'));
        await vi.waitFor(
          async () =>
            expect((await ask(url, 'GET', '/health')).body).toMatchObject({ status: 'ok', disk: 'ok' }),
          { timeout: 20_000 },
        );
        expect((await ask(url, 'POST', '/v1/sandboxes', {})).status).toBe(201);
        await stop(child, 'SIGTERM');
      }),
  );
});
