import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { systemClock } from '@torpor/engine';
import { withFaults } from '@torpor/engine/testing';
import { describe, expect, it } from 'vitest';
import { testServer } from '../../testing/test-server.ts';

describe('a stop', () => {
  it('lets requests in progress finish and accepts no more', async () => {
    let letGo = () => {};
    const frozen = Promise.withResolvers<void>();
    const server = await testServer({
      wrap: (_, runtime) => {
        const freeze = runtime.freeze.bind(runtime);
        runtime.freeze = async (instance) => {
          frozen.resolve();
          await new Promise<void>((resolve) => (letGo = resolve));
          await freeze(instance);
        };
        return {};
      },
    });
    const url = await server.listen();
    const id = await server.create();
    const headers = { 'x-api-key': server.keys.default };
    const pausing = fetch(`${url}/v1/sandboxes/${id}/pause`, { method: 'POST', headers });
    await frozen.promise;
    const stopped = server.app.stop();
    const late = await fetch(`${url}/health`).then(
      ({ status }) => status,
      () => 'refused',
    );
    expect(['refused', 503]).toContain(late);
    letGo();
    const response = await pausing;
    expect([response.status, await response.json()]).toMatchObject([200, { sandbox: { state: 'paused' } }]);
    await stopped;
    await server.dispose();
  });

  it('does not wait forever: a command is killed and its client gets an error', async () => {
    const server = await testServer({ settings: { stopMs: 100 } });
    const url = await server.listen();
    const id = await server.create();
    const exec = fetch(`${url}/v1/sandboxes/${id}/exec`, {
      method: 'POST',
      headers: { 'x-api-key': server.keys.default, 'content-type': 'application/json' },
      body: JSON.stringify({ command: 'touch begun; sleep 1000' }),
    });
    const begun = join(await server.runtime.homeOf(id), 'begun');
    while (!(await stat(begun).catch(() => undefined))) await delay(10);
    await server.app.stop();
    const response = await exec;
    expect([response.status, await response.json()]).toMatchObject([503, { error: { code: 'unreachable' } }]);
    await server.dispose();
  });

  it('does not wait forever: connections of hanging requests are closed', async () => {
    const server = await testServer({
      settings: { stopMs: 50 },
      engineSettings: { callMs: 3_000, operationMs: 3_000 },
      wrap: (_, runtime) => {
        const faulty = withFaults(runtime, systemClock, (call) => (call === 'freeze' ? 'hang' : undefined));
        return { runtimes: new Map([[faulty.name, faulty]]) };
      },
    });
    const url = await server.listen();
    const id = await server.create();
    const pausing = fetch(`${url}/v1/sandboxes/${id}/pause`, {
      method: 'POST',
      headers: { 'x-api-key': server.keys.default },
    }).catch((error: unknown) => error);
    while ((await server.ask('GET', `/v1/sandboxes/${id}`)).json().state !== 'pausing') await delay(10);
    await server.app.stop();
    expect(await pausing).toBeInstanceOf(TypeError);
    await server.dispose();
  });

  it('leaves sandboxes running', async () => {
    const server = await testServer();
    const id = await server.create();
    await server.app.stop();
    expect(await server.runtime.observe({ sandboxId: id, generation: 1 })).toEqual({ is: 'running' });
    await server.dispose();
  });
});
