/** `torpor events` */
import type { EventView } from '@torpor/protocol';
import { addExamples } from '../build-command.ts';
import type { Cli, Define } from '../cli.ts';
import { parseNumber } from '../human-units.ts';
import { anySandboxOf } from '../sandbox-argument.ts';
import { stateText } from '../sandbox-text.ts';

interface EventsOptions {
  follow?: boolean;
  after?: number;
  limit?: number;
  reverse?: boolean;
}

export const define: Define = (command, handler) => {
  command
    .argument('[sandbox]', 'sandbox id or name (default: all sandboxes of the organisation)')
    .option('-f, --follow', 'also print new events; with --json one event per line')
    .option('--after <number>', 'only events after this seq (without a sandbox: position)', parseNumber)
    .option('-l, --limit <n>', 'only the last n events', parseNumber)
    .option('-r, --reverse', 'newest first');
  addExamples(command, {
    examples: [
      ['torpor events web', 'all events of web'],
      ['torpor events -f', 'follow all events'],
    ],
    seeAlso: ['ops', 'get'],
  });
  command.action(
    handler<EventsOptions>(async (cli, [sandbox], options) => {
      const torpor = await cli.torpor();
      const sandboxId = sandbox === undefined ? undefined : await anySandboxOf(cli, sandbox);
      if (options.follow) {
        const follow = { after: options.after, signal: cli.signal };
        const events =
          sandboxId === undefined ? torpor.events(follow) : torpor.sandboxes.events(sandboxId, follow);
        for await (const event of events) cli.answerLine(event, () => eventText(cli, event));
        return;
      }
      const items = await readEvents(cli, sandboxId, options);
      cli.answer({ items, nextCursor: null }, () => items.map((event) => eventText(cli, event)).join('\n'));
    }),
  );
};

async function readEvents(
  cli: Cli,
  sandboxId: EventView['sandboxId'] | undefined,
  options: EventsOptions,
): Promise<EventView[]> {
  const torpor = await cli.torpor();
  const items: EventView[] = [];
  let cursor = options.after === undefined ? undefined : String(options.after);
  do {
    const page = await torpor.eventPage({ sandboxId, cursor, limit: 1_000, signal: cli.signal });
    items.push(...page.items);
    if (options.limit !== undefined && items.length > options.limit)
      items.splice(0, items.length - options.limit);
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined);
  return options.reverse ? items.reverse() : items;
}

function eventText({ io: { colors } }: Cli, event: EventView): string {
  const at = new Date(event.at).toISOString().replace('T', ' ').replace('Z', '');
  const changed = event.previousState !== null && event.previousState !== event.state;
  const state = changed ? `${event.previousState} → ${stateText(event.state, colors)}` : '';
  const data = Object.entries(event.data)
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([key, value]) => `${key}=${typeof value === 'object' ? JSON.stringify(value) : value}`);
  const parts = [colors.dim(at), event.sandboxId, colors.bold(event.type), state, colors.dim(data.join(' '))];
  return parts.filter((part) => part !== '').join('  ');
}
