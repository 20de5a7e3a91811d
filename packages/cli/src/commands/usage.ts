/** `torpor usage` */
import type { UsageView } from '@torpor/protocol';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { columns } from '../columns.ts';
import { bytes } from '../human-units.ts';

interface Options {
  readonly org?: string;
  readonly from?: string;
  readonly to?: string;
}

const GIB = 1024 ** 3;
const HOUR = 3_600;

export const define: Define = (command, handler) => {
  command
    .option('--org <org>', 'another organisation, with an operator key')
    .option(
      '--from <moment>',
      'start, as 2026-01-31, ISO 8601 or milliseconds (default: first of the month, UTC)',
    )
    .option('--to <moment>', 'end, in the same form (default: now)')
    .action(
      handler<Options>(async (cli, _, { org, from, to }) => {
        const usage = await (await cli.torpor()).usage({ orgId: org, from, to, signal: cli.signal });
        cli.answer(usage, () => columns(['USED', usage.orgId], rowsOf(usage), cli.io.colors));
      }),
    );
  addExamples(command, {
    examples: [
      ['torpor usage', 'usage of the current month'],
      ['torpor usage --org acme --from 2026-01-01 --to 2026-02-01', 'one month of another organisation'],
    ],
    seeAlso: ['org'],
  });
};

function rowsOf(usage: UsageView): string[][] {
  const { egressBytes, memoryMbSeconds } = usage;
  const hours = (seconds: number) => `${(seconds / HOUR).toFixed(2)} h`;
  const unknown = 'unknown';
  return [
    ['from', new Date(usage.from).toISOString()],
    ['to', new Date(usage.to).toISOString()],
    ['running', hours(usage.runningSeconds)],
    ['paused', hours(usage.pausedSeconds)],
    ['memory', memoryMbSeconds === null ? unknown : `${(memoryMbSeconds / 1024 / HOUR).toFixed(2)} GB h`],
    ['disk now', bytes(usage.diskBytes)],
    ['disk', `${(usage.diskByteSeconds / GIB / HOUR).toFixed(2)} GB h`],
    ['sent', egressBytes === null ? unknown : bytes(egressBytes.sent)],
    ['received', egressBytes === null ? unknown : bytes(egressBytes.received)],
  ];
}
