/** `torpor fsck` */
import type { Finding } from '@torpor/protocol';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { columns } from '../columns.ts';
import { EXIT } from '../exit-codes.ts';
import { elapsed } from '../human-units.ts';

const BAD: ReadonlySet<Finding['what']> = new Set(['damaged', 'missing', 'lost']);

export const define: Define = (command, handler) => {
  addExamples(command, {
    examples: [
      ['torpor fsck', 'compare, repair and report; exits with 1 when something is damaged, missing or lost'],
    ],
    seeAlso: ['doctor', 'checkpoints', 'events'],
  });
  command.action(
    handler(async (cli) => {
      const torpor = await cli.torpor();
      const report = await cli.withSpinner(
        'Checking sandboxes and checkpoints…',
        torpor.fsck({ signal: cli.signal }),
      );
      const { round, did, findings, sandboxes, checkpoints, durationMs } = report;
      const { colors } = cli.io;
      cli.answer(report, () => {
        const summary =
          `${sandboxes} sandboxes in ${elapsed(durationMs)}: ${round.repaired} repaired, ` +
          `${round.takenUp} operations continued, ${round.unknown} unknown, ${round.failed} failed, ${checkpoints} checkpoints checked`;
        const actions = did.map(({ sandboxId, what }) => `${sandboxId}: ${what}\n`).join('');
        if (findings.length === 0) return `${actions}${summary}`;
        const rows = findings.map((one) => [
          one.sandboxId ?? '-',
          one.state ?? '-',
          one.what,
          one.checkpointId ?? '-',
          one.detail,
        ]);
        return `${columns(['SANDBOX', 'STATE', 'FOUND', 'CHECKPOINT', 'DETAIL'], rows, colors)}\n${actions}${summary}`;
      });
      const bad = round.failed > 0 || findings.some(({ what }) => BAD.has(what));
      return bad ? EXIT.general : EXIT.ok;
    }),
  );
};
