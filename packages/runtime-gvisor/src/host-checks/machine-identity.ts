/** Identifies the host, as far as the result of the probe and the memory images made on it depend on it. */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { arch, hostname, release } from 'node:os';

export interface MachineIdentity {
  readonly machine: string;
  readonly kernel: string;
  /** The processor's model and features. A memory image may need features that another processor does not have. */
  readonly processor: string;
}

export async function machineIdentity(): Promise<MachineIdentity> {
  const id = await readFile('/etc/machine-id', 'utf8').catch(() => hostname());
  const processors = await readFile('/proc/cpuinfo', 'utf8').catch(() => '');
  return { machine: digest(id.trim()), kernel: release(), processor: digest(processorOf(processors)) };
}

/** The fields of the first processor that are the same after every boot. Its clock rate is not. */
export function processorOf(cpuinfo: string): string {
  const [first = ''] = cpuinfo.split('\n\n');
  const kept = /^(model name|vendor_id|cpu family|model|flags|Features|CPU implementer|CPU part)\s*:/;
  return [arch(), ...first.split('\n').filter((line) => kept.test(line))].join('\n');
}

function digest(content: string): string {
  return createHash('sha256').update(content).digest('hex').slice(0, 16);
}
