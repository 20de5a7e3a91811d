import { open, readdir, readlink } from 'node:fs/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type RunningAgent, runAgent } from '../../testing/running-agent.ts';
import { shell, transcribe } from '../../testing/transcript.ts';

/** Any file. */
const SECRET = import.meta.filename;

let agent: RunningAgent;
let inherited: Awaited<ReturnType<typeof open>>;
beforeEach(async () => {
  inherited = await open(SECRET);
});
afterEach(async () => {
  await agent.stop();
  await inherited.close();
});

async function descriptorsOf(more: object): Promise<string[]> {
  const { stdout, pty } = await transcribe(
    agent.client.process.start({ process: shell('ls /proc/self/fd'), ...more }),
  );
  return (stdout + pty).split(/\s+/).filter(Boolean);
}

async function heldByAgent(): Promise<string[]> {
  const directory = `/proc/${agent.pid}/fd`;
  const names = await readdir(directory);
  return Promise.all(names.map((fd) => readlink(`${directory}/${fd}`).catch(() => '')));
}

describe('an inherited descriptor', () => {
  it.each([17, 251])('is not inherited by processes of the agent when it is named: %d', async (as) => {
    agent = await runAgent({ inherited: { fd: inherited.fd, as }, args: ['--close', String(as)] });
    for (const more of [{ stdin: false }, { pty: { size: { cols: 80, rows: 24 } } }]) {
      expect(await descriptorsOf(more)).not.toContain(String(as));
    }
    // Processes of the same user could open it there.
    expect(await heldByAgent()).not.toContain(SECRET);
  });

  it('is not confused with one of the agent’s own', async () => {
    const all = Array.from({ length: 60 }, (_, index) => index + 3).join(',');
    agent = await runAgent({ inherited: { fd: inherited.fd, as: 40 }, args: ['--close', all] });
    expect(await heldByAgent()).not.toContain(SECRET);
    expect(await descriptorsOf({ stdin: false })).toEqual(expect.arrayContaining(['0', '1', '2']));
  });
});
