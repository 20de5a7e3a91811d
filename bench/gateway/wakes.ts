/** The time to the first byte from a paused sandbox, compared with a resume by the API. */
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type { SandboxId } from '@torpor/protocol';
import type { TorporProcess } from '../../tests/crash/torpor-process.ts';
import { row } from '../measure.ts';
import type { AppAddress } from './app-address.ts';

/** Right after a pause the old container is still being removed; both measurements wait for that. */
const SETTLE_MS = 300;

/** Alternates the two measurements, so that other load on the machine affects both alike. */
export async function wakes(
  { torpor }: TorporProcess,
  id: SandboxId,
  gateway: AppAddress,
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
function firstByte({ address, port, host }: AppAddress): Promise<void> {
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
