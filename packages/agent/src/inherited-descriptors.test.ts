import { open, readdir, readlink } from 'node:fs/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type RunningAgent, runAgent } from '../testing/running-agent.ts';
import { shell, transcribe } from '../testing/transcript.ts';

/** Any file will do. */
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

describe('a descriptor that an agent was started with', () => {
  // Of the low ones Node takes care itself; those beyond a gap it does not look for.
  it.each([5, 17, 251])('reaches neither its processes nor its terminals: %d', async (as) => {
    agent = await runAgent({ inherited: { fd: inherited.fd, as } });
    const { process } = agent.client;
    const terminal = { pty: { size: { cols: 80, rows: 24 } } };
    for (const more of [{ stdin: false }, terminal]) {
      const { stdout, pty } = await transcribe(
        process.start({ process: shell('ls /proc/self/fd'), ...more }),
      );
      // The last is the directory that is listed.
      expect((stdout + pty).split(/\s+/).filter(Boolean)).toEqual(['0', '1', '2', '3']);
    }
  });

  it('is not kept where its processes could fetch it', async () => {
    agent = await runAgent({ inherited: { fd: inherited.fd, as: 251 } });
    const directory = `/proc/${agent.pid}/fd`;
    const targets = await Promise.all(
      (await readdir(directory)).map((fd) => readlink(`${directory}/${fd}`).catch(() => '')),
    );
    expect(targets).not.toContain(SECRET);
  });
});
