/** `--memory`, `--cpus` and `--disk`: the limits of a sandbox, or of the sandboxes of a template. */
import type { Resources } from '@torpor/protocol';
import type { Command } from 'commander';
import { parseNumber } from './human-units.ts';
import { withoutUndefined } from './without-undefined.ts';

export interface ResourceOptions {
  memory?: number;
  cpus?: number;
  disk?: number;
}

/** Completes the help of the options for a template. */
export const LIMITS_OF_TEMPLATE = ' of its sandboxes, unless their create names one';

export function addResourceOptions(command: Command, whose = ''): Command {
  return command
    .option('--memory <MB>', `memory limit${whose}`, parseNumber)
    .option('--cpus <n>', `processor limit${whose}`, parseNumber)
    .option('--disk <MB>', `disk limit${whose}`, parseNumber);
}

/** Undefined when no limit is named. */
export function resourcesOf({ memory, cpus, disk }: ResourceOptions): Resources | undefined {
  if (memory === undefined && cpus === undefined && disk === undefined) return undefined;
  return withoutUndefined({ memoryMb: memory, cpus, diskMb: disk });
}
