/** How long a client waits for a paused sandbox, compared with a resume through the API. */
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type { SandboxId } from '@torpor/protocol';
import type { TorporProcess } from '../../tests/crash/torpor-process.ts';
import { row } from '../measure.ts';
import type { Target } from './target.ts';

/** Right after a pause the old container is still being removed. Both measurements wait until that is done. */
const SETTLE_MS = 300;

/** Alternates, so that other load of the machine affects both measurements alike. */
export async function wakes(
  { torpor }: TorporProcess,
  id: SandboxId,
  gateway: Target,
  rounds: number,
): Promise<void> {
  const times = { 'bare resume': [] as number[], 'first byte to a client': [] as number[] };
  const timed = async (name: keyof typeof times, wake: () => Promise<unknown>) => {
    await torpor.sandboxes.pause(id);
    await delay(SETTLE_MS);
    const began = performance.now();
    await wake();
    times[name].push(performance.now() - began);
  };
  for (let i = 0; i < rounds; i++) {
    await timed('bare resume', () => torpor.sandboxes.resume(id));
    await timed('first byte to a client', () => firstByte(gateway));
  }
  console.log(`\n${row(['a paused sandbox', 'p50 ms', '× resume'])}`);
  const median = (of: number[]) => of.toSorted((a, b) => a - b)[Math.floor(of.length / 2)] ?? 0;
  const unit = median(times['bare resume']);
  for (const [name, of] of Object.entries(times)) console.log(row([name, median(of), median(of) / unit]));
}

/** From the first byte sent to the first byte received. */
function firstByte({ address, port, host }: Target): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: address });
    socket.once('error', reject);
    socket.once('data', () => {
      socket.destroy();
      resolve();
    });
    socket.write(`GET /x/y HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  });
}
