/** `torpor build`: a goal in, a preview out; and what there is to do with builds. */
import {
  type BuildStarted,
  type BuildStatus,
  isId,
  type JobId,
  RUNNERS,
  type RunnerName,
} from '@torpor/protocol';
import { Option } from 'commander';
import { addExamples } from '../build-command.ts';
import { jobOf, readyJobOf } from '../build-job.ts';
import { followBuild } from '../build-progress.ts';
import { docs, files, list, logs, previewNote, status } from '../build-views.ts';
import type { Cli, Define } from '../cli.ts';
import { EXIT } from '../exit-codes.ts';
import { CliError } from '../failure.ts';
import { parseNumber } from '../human-units.ts';
import { withoutUndefined } from '../without-undefined.ts';

interface StartOptions {
  project?: string;
  runner?: RunnerName;
  port?: number;
  from?: string;
  follow?: boolean;
}

export const define: Define = (command, handler) => {
  command
    .argument('[goal...]', 'what to build, in your own words')
    .option('-p, --project <id>', 'the project it is a version of (default: default)')
    .addOption(new Option('--runner <name>', "what writes it (default: the server's)").choices([...RUNNERS]))
    .option('--port <port>', 'where it will listen (default: as its files say)', parseNumber)
    .option('--from <job>', 'go on from this build; "last" is the last that became ready')
    .option('-f, --follow', 'wait for it, and show how far it is (default)')
    .option('--no-follow', 'do not wait for it: answer with the job')
    .action(handler<StartOptions>((cli, words, options) => start(cli, goalOf(words), options)));
  const job = ['<job>', 'its id, job_…; or "last"'] as const;
  command
    .command('ls')
    .alias('list')
    .summary('list builds, newest first')
    .option('-l, --limit <n>', 'how many', parseNumber, 20)
    .action(handler<{ limit: number }>((cli, _, { limit }) => list(cli, limit)));
  command
    .command('status')
    .alias('get')
    .summary('everything about one build')
    .argument(...job)
    .action(handler((cli, [id]) => status(cli, id)));
  command
    .command('logs')
    .summary('what a build has said')
    .argument(...job)
    .option('-f, --follow', 'go on with what it says next')
    .option('-l, --limit <n>', 'how many lines of the past', parseNumber, 100)
    .action(handler<{ follow?: boolean; limit: number }>((cli, [id], options) => logs(cli, id, options)));
  command
    .command('files')
    .summary('what its runner made: the names, or one file')
    .argument(...job)
    .argument('[path]', 'one of them, to standard output')
    .action(handler((cli, [id, path]) => files(cli, id, path)));
  command
    .command('docs')
    .summary('what there is to read about a build')
    .argument(...job)
    .action(handler((cli, [id]) => docs(cli, id)));
  command
    .command('cancel')
    .summary('stop a build')
    .argument(...job)
    .action(
      handler(async (cli, [id]) => {
        const { builds } = await cli.torpor();
        const cancelled = await builds.cancel(await jobOf(cli, id), { signal: cli.signal });
        cli.answer(cancelled, () => `${cancelled.job_id} is cancelled`);
      }),
    );
  command
    .command('confirm')
    .summary('let a build have more iterations')
    .argument(...job)
    .action(
      handler(async (cli, [id]) => {
        const { builds } = await cli.torpor();
        const granted = await builds.confirm(await jobOf(cli, id), { signal: cli.signal });
        cli.answer(granted, () => `${granted.iterations_granted} more for ${granted.job_id}`);
      }),
    );
  command
    .command('open')
    .summary('the address of a preview, awake')
    .argument(...job)
    .action(handler((cli, [id]) => wake(cli, id)));
  command
    .command('resume')
    .alias('wake')
    .summary('wake a preview')
    .argument(...job)
    .action(handler((cli, [id]) => wake(cli, id)));
  command
    .command('snapshot')
    .alias('sleep')
    .summary('put a preview to sleep')
    .argument(...job)
    .action(
      handler(async (cli, [id]) => {
        const { builds } = await cli.torpor();
        const answer = await builds.snapshot(await readyJobOf(cli, id), { signal: cli.signal });
        const { outcome, error } = answer.snapshot;
        cli.answer(answer, () =>
          outcome === 'failed' ? `it is awake: ${error}` : `${answer.job_id} sleeps`,
        );
        return outcome === 'failed' ? EXIT.api : EXIT.ok;
      }),
    );
  command
    .command('rebuild')
    .summary('build it again, as a new version')
    .argument(...job)
    .action(
      handler(async (cli, [id]) => {
        const { builds } = await cli.torpor();
        return answerStarted(cli, await builds.rebuild(await jobOf(cli, id), { signal: cli.signal }), true);
      }),
    );
  addExamples(command, {
    examples: [
      ['torpor build "a live dashboard"', 'an address that answers, and sleeps until you look'],
      ['torpor build "make it blue" --from last', 'another version; the one before it stays'],
      ['torpor build logs last -f', 'what it says'],
      ['torpor build ls', 'all of them'],
    ],
    seeAlso: ['up', 'events', 'get'],
  });
};

function goalOf(words: readonly string[]): string {
  const goal = words.join(' ');
  if (goal.trim() === '') {
    throw new CliError('INVALID_ARGUMENT', 'Say what to build.', {
      hint: 'torpor build "a page about otters"',
    });
  }
  const [, job = ''] = words;
  if (words.length === 2 && (job === 'last' || isId('job', job))) {
    throw new CliError('INVALID_ARGUMENT', `There is no \`torpor build ${words[0]}\`.`, {
      hint: 'See `torpor build --help`. If it is what to build, put it in quotation marks.',
    });
  }
  return goal;
}

async function start(cli: Cli, goal: string, options: StartOptions): Promise<number> {
  const { builds } = await cli.torpor();
  const { signal } = cli;
  const previous =
    options.from === undefined ? undefined : await readyJobOf(cli, options.from, options.project);
  const before = previous === undefined ? undefined : await builds.status(previous, { signal });
  const started = await builds.start(
    {
      project_id: options.project ?? before?.project_id ?? 'default',
      goal,
      ...withoutUndefined({ runner: options.runner, port: options.port, previous_job_id: previous }),
    },
    { signal },
  );
  return answerStarted(cli, started, options.follow !== false);
}

/** What waits for tomorrow is not waited for. */
async function answerStarted(cli: Cli, started: BuildStarted, follow: boolean): Promise<number> {
  if (follow && started.status !== 'scheduled') return finish(cli, started.job_id);
  cli.answer(started, () => started.job_id);
  if (started.status === 'scheduled') cli.note("The day's limit is reached: it is scheduled for tomorrow.");
  return EXIT.ok;
}

/** Shows it to its end, and says how it ended. */
async function finish(cli: Cli, id: JobId): Promise<number> {
  const { builds } = await cli.torpor();
  await followBuild(cli, id).catch((thrown: unknown) => {
    if (cli.signal.aborted) cli.note(`\nIt goes on without you; \`torpor build cancel ${id}\` stops it.`);
    throw thrown;
  });
  const status = await builds.status(id, { signal: cli.signal });
  if (status.status === 'ready') {
    cli.answer(status, () => status.preview_url ?? id);
    cli.note(`${status.build_version} of ${status.project_id}, ${id}.${previewNote(status)}`);
    return EXIT.ok;
  }
  cli.answer(status, () => '');
  if (!cli.json) cli.io.stderr.write(`${failureOf(cli, status)}\n`);
  return EXIT.buildFailed;
}

function failureOf({ io: { errorColors } }: Cli, { job_id, error_message, debug_id }: BuildStatus): string {
  return [
    `${errorColors.red('build failed:')} ${error_message ?? 'it said nothing'}`,
    `${errorColors.yellow('        hint:')} torpor build logs ${job_id}`,
    errorColors.dim(`              debug id ${debug_id}`),
  ].join('\n');
}

async function wake(cli: Cli, id: string | undefined): Promise<void> {
  const { builds } = await cli.torpor();
  const resumed = await cli.withSpinner(
    'Waking it…',
    builds.resume(await readyJobOf(cli, id), { signal: cli.signal }),
  );
  cli.answer(resumed, () => resumed.preview_url);
}
