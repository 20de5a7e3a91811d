/** `torpor logs` */
import type { SandboxId } from '@torpor/protocol';
import { addExamples } from '../build-command.ts';
import type { Cli, Define } from '../cli.ts';
import { CliError } from '../failure.ts';
import { anySandboxOf } from '../sandbox-argument.ts';
import { writeOutput } from '../write-output.ts';

export const define: Define = (command, handler) => {
  command
    .argument('<sandbox>', 'sandbox id or name')
    .argument('[process]', 'service name, job id, or pid (default: the only process)')
    .option('-f, --follow', 'also print new output; with --json one event per line');
  addExamples(command, {
    examples: [
      ['torpor logs web', 'output of its only service'],
      ['torpor logs web app -f', 'follow the output of app'],
    ],
    seeAlso: ['ps', 'job', 'exec', 'events'],
  });
  command.action(
    handler<{ follow?: boolean }>(async (cli, [sandbox, process], { follow }) => {
      const id = await anySandboxOf(cli, sandbox);
      const { sandboxes } = await cli.torpor();
      const wanted = process ?? (await onlyProcess(cli, id));
      await writeOutput(cli, sandboxes.output(id, wanted, { follow, signal: cli.signal }));
    }),
  );
};

async function onlyProcess(cli: Cli, id: SandboxId): Promise<string> {
  const all = await (await cli.torpor()).sandboxes.processes(id, { signal: cli.signal });
  const names = all.flatMap(({ kind, id: name }) => (kind === 'process' || name === null ? [] : [name]));
  const [only, ...more] = names;
  if (only !== undefined && more.length === 0) return only;
  throw new CliError(
    'INVALID_ARGUMENT',
    names.length === 0 ? 'The sandbox has no service or background process.' : 'The process is missing.',
    {
      hint: names.length === 0 ? 'See `torpor ps`.' : `Name one of: ${names.join(', ')}`,
    },
  );
}
