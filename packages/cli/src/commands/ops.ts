/** `torpor ops` */
import type { OperationId, OperationView } from '@torpor/protocol';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import type { Colors } from '../colors.ts';
import { columns, fieldLines } from '../columns.ts';
import { elapsed, relative } from '../human-units.ts';
import { anySandboxOf } from '../sandbox-argument.ts';

export const define: Define = (command, handler) => {
  command.argument(
    '[sandbox-or-operation]',
    'sandbox id or name, or the id of one operation (default: all operations)',
  );
  addExamples(command, {
    examples: [
      ['torpor ops web', 'operations of web'],
      ['torpor ops op_…', 'one operation'],
    ],
    seeAlso: ['events', 'get'],
  });
  command.action(
    handler(async (cli, [given]) => {
      const { operations } = await cli.torpor();
      const now = cli.io.now();
      if (given?.startsWith('op_')) {
        const operation = await operations.get(given as OperationId, { signal: cli.signal });
        cli.answer(operation, () => operationDetails(operation, now, cli.io.colors));
        return;
      }
      const sandboxId = given === undefined ? undefined : await anySandboxOf(cli, given);
      const items: OperationView[] = [];
      for await (const one of operations.list({ sandboxId, limit: 1_000, signal: cli.signal }))
        items.push(one);
      items.sort((a, b) => a.startedAt - b.startedAt);
      const rows = items.map((one) => [
        one.id,
        one.sandboxId,
        one.kind,
        outcomeText(one, cli.io.colors),
        relative(one.startedAt, now),
        one.endedAt === null ? '-' : elapsed(one.endedAt - one.startedAt),
        one.error?.message ?? '',
      ]);
      cli.answer({ items, nextCursor: null }, () =>
        rows.length === 0
          ? ''
          : columns(['ID', 'SANDBOX', 'KIND', 'OUTCOME', 'STARTED', 'TOOK', ''], rows, cli.io.colors),
      );
    }),
  );
};

function outcomeText({ outcome, phase }: OperationView, colors: Colors): string {
  if (outcome === null) return colors.yellow(phase ?? 'in progress');
  return outcome === 'succeeded'
    ? colors.green(outcome)
    : outcome === 'failed'
      ? colors.red(outcome)
      : outcome;
}

function operationDetails(operation: OperationView, now: number, colors: Colors): string {
  const { endedAt, startedAt, error } = operation;
  return fieldLines(
    [
      ['id', operation.id],
      ['sandbox', operation.sandboxId],
      ['kind', operation.kind],
      ['outcome', outcomeText(operation, colors)],
      ['phase', operation.phase],
      ['started', relative(startedAt, now)],
      ['took', endedAt === null ? null : elapsed(endedAt - startedAt)],
      ['deadline', endedAt === null ? relative(operation.deadlineAt, now) : null],
      ['error', error === null ? null : `${error.code}: ${error.message}`],
      ['hint', error?.hint],
    ],
    colors,
  );
}
