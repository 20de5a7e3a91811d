import type { EventView, SandboxId, SandboxView } from '@torpor/sdk';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { applyEvent, forgetSandboxes, loadSandboxes, put, sandboxes } from './sandboxes.ts';

const server = vi.hoisted(() => ({ list: vi.fn(), get: vi.fn() }));
vi.mock('../shell/session.ts', () => ({ torpor: () => ({ sandboxes: server }) }));

const ID = 'sbx_aaaaaaaaaaaaaaaaaaaa' as SandboxId;
const view = (state: SandboxView['state'], more: Partial<SandboxView> = {}) =>
  ({ id: ID, state, generation: 1, warm: null, warmReason: null, ...more }) as SandboxView;
const event = (state: SandboxView['state']) => ({ sandboxId: ID, state, generation: 1 }) as EventView;
const shown = () => sandboxes.value.get(ID);

beforeEach(() => {
  forgetSandboxes();
  vi.resetAllMocks();
});

describe('the list of sandboxes', () => {
  it('reads a sandbox again that changed while the list was on its way', async () => {
    let answer = (_: SandboxView) => {};
    const listed = new Promise<SandboxView>((resolve) => {
      answer = resolve;
    });
    server.list.mockImplementation(async function* () {
      yield await listed;
    });
    server.get.mockResolvedValue(view('paused'));
    const loaded = loadSandboxes();
    applyEvent(event('paused'));
    // What the event led to was read before the list arrives.
    await expect.poll(() => shown()?.state).toBe('paused');
    answer(view('running'));
    await loaded;
    await expect.poll(() => shown()?.state).toBe('paused');
  });

  it('does not show why a sandbox was not in memory the last time', () => {
    server.get.mockReturnValue(new Promise(() => {}));
    put([view('paused', { warm: false, warmReason: 'The machine was short of memory.' })]);
    applyEvent(event('resuming'));
    expect(shown()).toMatchObject({ state: 'resuming', warm: null, warmReason: null });
  });
});
