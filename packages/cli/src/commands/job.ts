/** `torpor job` with `ls`, `get`, `end` and `logs`. */
import type { AnyJobView, JobId, TrackedJobView } from '@torpor/protocol';
import { addExamples } from '../build-command.ts';
import type { Cli, Define } from '../cli.ts';
import type { Colors } from '../colors.ts';
import { columns, fieldLines } from '../columns.ts';
import { CliError } from '../failure.ts';
import { parseSpan, relative } from '../human-units.ts';
import { sandboxOf } from '../sandbox-argument.ts';
import { writeOutput } from '../write-output.ts';

export const define: Define = (command, handler) => {
  command
    .command('ls', { isDefault: true })
    .alias('list')
    .summary('list services and background processes of a sandbox, newest first')
    .argument('[sandbox]', 'sandbox id or name')
    .option('--state <state>', 'running, suspended, completed or lost; several separated by commas')
    .action(
      handler<{ state?: string }>(async (cli, [sandbox], { state }) => {
        const id = await sandboxOf(cli, sandbox);
        const { jobs } = await cli.torpor();
        const states = state?.split(',') as TrackedJobView['state'][] | undefined;
        const items: TrackedJobView[] = [];
        for await (const job of jobs.list(id, { state: states, limit: 1_000, signal: cli.signal }))
          items.push(job);
        const now = cli.io.now();
        const rows = items.map((job) => [
          job.id,
          job.name ?? '-',
          job.kind,
          stateText(job, cli.io.colors),
          relative(job.startedAt, now),
          job.command,
        ]);
        const titles = ['ID', 'NAME', 'KIND', 'STATE', 'STARTED', 'COMMAND'];
        cli.answer({ items, nextCursor: null }, () =>
          rows.length === 0 ? '' : columns(titles, rows, cli.io.colors),
        );
        if (items.length === 0) cli.note(`${id} has no such job.`);
      }),
    );
  command
    .command('get')
    .alias('show')
    .summary('show one job')
    .argument('<job>', 'job id')
    .action(
      handler(async (cli, [id]) => {
        const job = await (await cli.torpor()).jobs.get(id as JobId, { signal: cli.signal });
        cli.answer(job, () => jobDetails(job, cli.io.now(), cli.io.colors));
      }),
    );
  command
    .command('end')
    .alias('rm')
    .summary('end a job: SIGTERM, then SIGKILL after the grace period')
    .argument('<job>', 'job id')
    .option('--grace <span>', 'grace period, as 10s; 0 kills it at once', parseSpan)
    .action(
      handler<{ grace?: number }>(async (cli, [id], { grace }) => {
        const { jobs } = await cli.torpor();
        const ending = jobs.end(id as JobId, { graceSeconds: grace, signal: cli.signal });
        const job = await cli.withSpinner(`Ending ${id}…`, ending);
        cli.answer(job, () => jobDetails(job, cli.io.now(), cli.io.colors));
      }),
    );
  command
    .command('logs')
    .summary('show the output of a job; its sandbox must run')
    .argument('<job>', 'job id')
    .option('-f, --follow', 'also print new output; with --json one event per line')
    .action(
      handler<{ follow?: boolean }>(async (cli, [id], { follow }) => {
        const job = await trackedJob(cli, id as JobId);
        const { sandboxes } = await cli.torpor();
        await writeOutput(cli, sandboxes.output(job.sandboxId, job.id, { follow, signal: cli.signal }));
      }),
    );
  addExamples(command, {
    examples: [
      ['torpor job ls web', 'running and ended jobs of web'],
      ['torpor job end job_… --grace 30s', 'give it 30 seconds to finish'],
    ],
    seeAlso: ['ps', 'logs', 'exec'],
  });
};

async function trackedJob(cli: Cli, id: JobId): Promise<TrackedJobView> {
  const job = await (await cli.torpor()).jobs.get(id, { signal: cli.signal });
  if (job.kind !== 'build') return job;
  throw new CliError('INVALID_ARGUMENT', `${id} is a build.`, { hint: `Use \`torpor build logs ${id}\`.` });
}

function stateText({ state, exitCode, restarts, lost }: TrackedJobView, colors: Colors): string {
  switch (state) {
    case 'running':
      return colors.green(restarts === 0 ? state : `${state} (restarts: ${restarts})`);
    case 'suspended':
      return colors.yellow(state);
    case 'completed':
      return `${state} (${exitCode})`;
    case 'lost':
      return colors.red(`${state} (${lost?.reason})`);
  }
}

function jobDetails(job: AnyJobView, now: number, colors: Colors): string {
  if (job.kind === 'build') {
    const { id, kind, status, sandboxId, url } = job;
    return fieldLines(Object.entries({ id, kind, status, sandbox: sandboxId, url }), colors);
  }
  return fieldLines(
    [
      ['id', job.id],
      ['kind', job.kind],
      ['name', job.name],
      ['sandbox', job.sandboxId],
      ['state', stateText(job, colors)],
      ['why', job.lost?.message],
      ['command', job.command],
      ['cwd', job.cwd],
      ['pid', job.pid === null ? null : String(job.pid)],
      ['forked from', job.forkedFrom],
      ['started', relative(job.startedAt, now)],
      ['ended', job.endedAt === null ? null : relative(job.endedAt, now)],
      ['exit code', job.exitCode === null ? null : String(job.exitCode)],
      ['signal', job.signal],
    ],
    colors,
  );
}
