/** `torpor build`: starts a build from a goal, and manages builds. */
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
    .argument('[goal...]', 'what to build, in plain language')
    .option('-p, --project <id>', 'project of the build (default: default)')
    .addOption(
      new Option('--runner <name>', "runner that writes the application (default: the server's)").choices([
        ...RUNNERS,
      ]),
    )
    .option('--port <port>', 'port that the application listens on (default: from its files)', parseNumber)
    .option('--from <job>', 'continue from this build; "last" is the last ready one')
    .option('-f, --follow', 'wait for the build and show its progress (default)')
    .option('--no-follow', 'do not wait; print the job id')
    .action(handler<StartOptions>((cli, words, options) => start(cli, goalOf(words), options)));
  const job = ['<job>', 'job id, job_…, or "last"'] as const;
  command
    .command('ls')
    .alias('list')
    .summary('list builds, newest first')
    .option('-l, --limit <n>', 'number of builds', parseNumber, 20)
    .action(handler<{ limit: number }>((cli, _, { limit }) => list(cli, limit)));
  command
    .command('status')
    .alias('get')
    .summary('show one build')
    .argument(...job)
    .action(handler((cli, [id]) => status(cli, id)));
  command
    .command('logs')
    .summary('show the log of a build')
    .argument(...job)
    .option('-f, --follow', 'also print new lines')
    .option('-l, --limit <n>', 'number of past lines', parseNumber, 100)
    .action(handler<{ follow?: boolean; limit: number }>((cli, [id], options) => logs(cli, id, options)));
  command
    .command('files')
    .summary('list the files of a build, or print one')
    .argument(...job)
    .argument('[path]', 'file to print')
    .action(handler((cli, [id, path]) => files(cli, id, path)));
  command
    .command('docs')
    .summary('show the documentation of a build')
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
    .summary('allow a build more iterations')
    .argument(...job)
    .action(
      handler(async (cli, [id]) => {
        const { builds } = await cli.torpor();
        const granted = await builds.confirm(await jobOf(cli, id), { signal: cli.signal });
        cli.answer(granted, () => `${granted.job_id} may run ${granted.iterations_granted} more iterations`);
      }),
    );
  command
    .command('open')
    .summary('wake a preview and print its address')
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
    .summary('pause a preview')
    .argument(...job)
    .action(
      handler(async (cli, [id]) => {
        const { builds } = await cli.torpor();
        const answer = await builds.snapshot(await readyJobOf(cli, id), { signal: cli.signal });
        const { outcome, error } = answer.snapshot;
        cli.answer(answer, () =>
          outcome === 'failed' ? `the preview is not paused: ${error}` : `${answer.job_id} is paused`,
        );
        return outcome === 'failed' ? EXIT.api : EXIT.ok;
      }),
    );
  command
    .command('rebuild')
    .summary('build again, as a new version')
    .argument(...job)
    .action(
      handler(async (cli, [id]) => {
        const { builds } = await cli.torpor();
        return answerStarted(cli, await builds.rebuild(await jobOf(cli, id), { signal: cli.signal }), true);
      }),
    );
  addExamples(command, {
    examples: [
      ['torpor build "a live dashboard"', 'prints the address of the preview'],
      ['torpor build "make it blue" --from last', 'a new version; the previous one stays'],
      ['torpor build logs last -f', 'follow its log'],
      ['torpor build ls', 'list all builds'],
    ],
    seeAlso: ['up', 'events', 'get'],
  });
};

function goalOf(words: readonly string[]): string {
  const goal = words.join(' ');
  if (goal.trim() === '') {
    throw new CliError('INVALID_ARGUMENT', 'The goal is missing.', {
      hint: 'torpor build "a page about otters"',
    });
  }
  const [, job = ''] = words;
  if (words.length === 2 && (job === 'last' || isId('job', job))) {
    throw new CliError('INVALID_ARGUMENT', `Unknown command \`torpor build ${words[0]}\`.`, {
      hint: 'See `torpor build --help`. Put a goal in quotation marks.',
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

/** A build that is scheduled for tomorrow is not followed. */
async function answerStarted(cli: Cli, started: BuildStarted, follow: boolean): Promise<number> {
  if (follow && started.status !== 'scheduled') return finish(cli, started.job_id);
  cli.answer(started, () => started.job_id);
  if (started.status === 'scheduled')
    cli.note('The daily limit is reached. The build is scheduled for tomorrow.');
  return EXIT.ok;
}

/** Follows a build to its end and prints the result. */
async function finish(cli: Cli, id: JobId): Promise<number> {
  const { builds } = await cli.torpor();
  await followBuild(cli, id).catch((thrown: unknown) => {
    if (cli.signal.aborted) cli.note(`\nThe build continues. \`torpor build cancel ${id}\` stops it.`);
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
    `${errorColors.red('build failed:')} ${error_message ?? 'no message'}`,
    `${errorColors.yellow('        hint:')} torpor build logs ${job_id}`,
    errorColors.dim(`              debug id ${debug_id}`),
  ].join('\n');
}

async function wake(cli: Cli, id: string | undefined): Promise<void> {
  const { builds } = await cli.torpor();
  const resumed = await cli.withSpinner(
    'Waking the preview…',
    builds.resume(await readyJobOf(cli, id), { signal: cli.signal }),
  );
  cli.answer(resumed, () => resumed.preview_url);
}
