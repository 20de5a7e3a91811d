/** Which machine this is, as far as a proof or a memory image made on it depends on that. */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { arch, hostname, release } from 'node:os';

export interface MachineIdentity {
  readonly machine: string;
  readonly kernel: string;
  /** The processor's model and what it can do. An image made on one that can do more may not run on another. */
  readonly processor: string;
}

export async function machineIdentity(): Promise<MachineIdentity> {
  const id = await readFile('/etc/machine-id', 'utf8').catch(() => hostname());
  const processors = await readFile('/proc/cpuinfo', 'utf8').catch(() => '');
  return { machine: digest(id.trim()), kernel: release(), processor: digest(processorOf(processors)) };
}

/** Of the first processor, what stays the same from one boot to the next; its clock rate does not. */
export function processorOf(cpuinfo: string): string {
  const [first = ''] = cpuinfo.split('\n\n');
  const kept = /^(model name|vendor_id|cpu family|model|flags|Features|CPU implementer|CPU part)\s*:/;
  return [arch(), ...first.split('\n').filter((line) => kept.test(line))].join('\n');
}

function digest(content: string): string {
  return createHash('sha256').update(content).digest('hex').slice(0, 16);
}
