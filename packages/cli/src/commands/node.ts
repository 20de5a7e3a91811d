/** `torpor node` with `ls`, `get`, `cordon`, `uncordon`, `drain` and `forget`. */
import { setTimeout as delay } from 'node:timers/promises';
import type { NodeView } from '@torpor/protocol';
import { addExamples } from '../build-command.ts';
import type { Define } from '../cli.ts';
import { columns } from '../columns.ts';
import { confirm } from '../confirm.ts';
import { EXIT } from '../exit-codes.ts';
import { bytes, relative } from '../human-units.ts';

const LOOK_EVERY_MS = 1_000;

export const define: Define = (command, handler) => {
  command
    .command('ls', { isDefault: true })
    .alias('list')
    .summary('list nodes')
    .action(
      handler(async (cli) => {
        const items = await (await cli.torpor()).nodes.list({ signal: cli.signal });
        const rows = items.map((node) => [
          node.self ? `${node.name} *` : node.name,
          stateOf(node),
          `${node.used.running}`,
          `${node.used.paused}`,
          `${node.used.memoryMb}/${node.capacity.memoryMb} MB`,
          `${bytes(node.capacity.diskBytes - node.used.diskBytes)} free`,
          cacheText(node),
          node.version,
          node.address,
        ]);
        cli.answer({ items, nextCursor: null }, () =>
          items.length === 0
            ? 'This server is alone. docs/many-machines.md says how to run several nodes.'
            : columns(
                ['NODE', 'STATE', 'RUNNING', 'PAUSED', 'MEMORY', 'DISK', 'CACHE', 'VERSION', 'ADDRESS'],
                rows,
                cli.io.colors,
              ),
        );
      }),
    );
  command
    .command('get')
    .alias('show')
    .summary('show a node, and how far its drain is')
    .argument('<node>', 'name of the node')
    .action(
      handler(async (cli, [name = '']) => {
        const node = await (await cli.torpor()).nodes.get(name, { signal: cli.signal });
        cli.answer(node, () => nodeText(node, cli.io.now()));
      }),
    );
  command
    .command('cordon')
    .summary('give a node no new sandboxes')
    .argument('<node>', 'name of the node')
    .action(
      handler(async (cli, [name = '']) => {
        const node = await (await cli.torpor()).nodes.cordon(name, { signal: cli.signal });
        cli.answer(node, () => `${name} is cordoned`);
      }),
    );
  command
    .command('uncordon')
    .summary('give a node new sandboxes again, and end its drain')
    .argument('<node>', 'name of the node')
    .action(
      handler(async (cli, [name = '']) => {
        const node = await (await cli.torpor()).nodes.uncordon(name, { signal: cli.signal });
        cli.answer(node, () => `${name} takes new sandboxes`);
      }),
    );
  command
    .command('drain')
    .summary('move the sandboxes of a node to other nodes, and wait for it')
    .argument('<node>', 'name of the node')
    .option('--no-wait', 'return at once; get has the progress')
    .action(
      handler<{ wait: boolean }>(async (cli, [name = ''], { wait }) => {
        const { nodes } = await cli.torpor();
        let node = await nodes.drain(name, { signal: cli.signal });
        let told = '';
        while (wait && node.drain?.endedAt === null) {
          const progress = drainText(node);
          if (progress !== told) cli.note(progress);
          told = progress;
          await delay(LOOK_EVERY_MS, undefined, { signal: cli.signal });
          node = await nodes.get(name, { signal: cli.signal });
        }
        cli.answer(node, () => `${name}: ${drainText(node)}`);
        return wait && node.drain?.endedAt == null ? EXIT.general : EXIT.ok;
      }),
    );
  command
    .command('forget')
    .summary('give up a node that will not come back')
    .argument('<node>', 'name of the node')
    .option('-y, --yes', 'do not ask')
    .action(
      handler<{ yes?: boolean }>(async (cli, [name = ''], { yes }) => {
        const { nodes } = await cli.torpor();
        const { used } = await nodes.get(name, { signal: cli.signal });
        if (!yes) {
          const many = used.running + used.paused;
          await confirm(
            cli,
            `Forget ${name}? It has ${many} sandboxes. Those of which nothing is in the store are lost.`,
          );
        }
        const forgotten = await nodes.forget(name, { signal: cli.signal });
        const { lost, kept } = forgotten;
        cli.answer(forgotten, () => `${name} is forgotten: ${kept} sandboxes kept, ${lost} lost`);
      }),
    );
  addExamples(command, {
    examples: [
      ['torpor node ls', 'all nodes, with what they have and use'],
      ['torpor node drain a', 'before maintenance: move everything away'],
      ['torpor node uncordon a', 'after maintenance'],
      ['torpor node forget a', 'the machine is gone for good'],
    ],
    seeAlso: ['up', 'doctor'],
  });
};

function stateOf({ state, cordoned, draining, drain }: NodeView): string {
  if (state === 'away') return 'away';
  if (draining) return drain?.endedAt === null ? 'draining' : 'drained';
  return cordoned ? 'cordoned' : 'alive';
}

/** What the checkpoints take on the disk of the node, and the bound for it. */
function cacheText({ capacity, used }: NodeView): string {
  if (used.cacheBytes === null) return '-';
  const limit = capacity.cacheBytes === null ? '' : ` of ${bytes(capacity.cacheBytes)}`;
  return `${bytes(used.cacheBytes)}${limit}`;
}

function drainText({ drain }: NodeView): string {
  if (drain === null) return 'not drained';
  const { moved, replicated, left, endedAt, failures } = drain;
  const lines = failures.map(({ sandboxId, why }) => `  ${sandboxId}: ${why}`);
  const state = endedAt === null ? `${left} left` : 'done';
  return [`${state}, ${moved} moved, ${replicated} asleep and replicated`, ...lines].join('\n');
}

function nodeText(node: NodeView, now: number): string {
  const { capacity, used } = node;
  return [
    `${node.name} at ${node.address}: ${stateOf(node)}`,
    `version ${node.version}, epoch ${node.epoch}, lease until ${relative(node.leaseUntil, now)}`,
    `sandboxes: ${used.running} running, ${used.paused} paused${used.unknown === 0 ? '' : `, ${used.unknown} unknown`}`,
    `memory: ${used.memoryMb} of ${capacity.memoryMb} MB, ${capacity.processors} processors`,
    `disk: ${bytes(capacity.diskBytes - used.diskBytes)} of ${bytes(capacity.diskBytes)} free`,
    ...(used.cacheBytes === null ? [] : [`checkpoints on the disk: ${cacheText(node)}`]),
    ...(node.drain === null ? [] : [`drain: ${drainText(node)}`]),
  ].join('\n');
}
