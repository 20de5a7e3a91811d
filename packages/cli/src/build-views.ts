/** Prints builds: the list, one build, its log, its files and its docs. */
import type { BuildLogLine, BuildSandboxState, BuildState, BuildStatus, JobId } from '@torpor/protocol';
import { jobOf } from './build-job.ts';
import type { Cli } from './cli.ts';
import { columns } from './columns.ts';
import { bytes, relative } from './human-units.ts';

export async function list(cli: Cli, limit: number): Promise<void> {
  const { builds } = await cli.torpor();
  const page = await builds.page({ limit, signal: cli.signal });
  const now = cli.io.now();
  const rows = page.items.map((one) => [
    one.job_id,
    one.project_id,
    one.build_version ?? '-',
    stateOf(one),
    relative(Date.parse(one.created_at), now),
    short(one.goal),
    one.preview_url ?? one.error_message ?? '',
  ]);
  cli.answer(page, () =>
    columns(['JOB', 'PROJECT', 'VERSION', 'STATE', 'CREATED', 'GOAL', 'PREVIEW'], rows, cli.io.colors),
  );
}

const GOAL_WIDTH = 28;

function short(goal: string): string {
  const words = goal.replace(/\s+/g, ' ').trim();
  return words.length > GOAL_WIDTH ? `${words.slice(0, GOAL_WIDTH - 1)}…` : words;
}

const SANDBOX_TEXT: Readonly<Record<BuildSandboxState, string>> = {
  running: 'awake',
  paused: 'asleep',
  expired: 'expired',
  unknown: 'unknown',
};

function stateOf({ status, sandbox_state }: BuildStatus): string {
  return sandbox_state === null ? status : `${status}, ${SANDBOX_TEXT[sandbox_state]}`;
}

/** A note about the preview of a build that is ready. */
export function previewNote({ sandbox_state, sandbox_expires_at, sandbox_reason }: BuildStatus): string {
  if (sandbox_state === 'paused') return ' The preview is paused and wakes when it is opened.';
  if (sandbox_state === 'expired') return ` The preview has expired: ${sandbox_reason}.`;
  if (sandbox_state !== 'running') return '';
  return sandbox_expires_at === null
    ? ' The preview runs.'
    : ` The preview runs until ${sandbox_expires_at}.`;
}

export async function status(cli: Cli, id: string | undefined): Promise<void> {
  const { builds } = await cli.torpor();
  const found = await builds.status(await jobOf(cli, id), { signal: cli.signal });
  const lines = Object.entries(found)
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${cli.io.colors.dim(name.padEnd(20))} ${value}`);
  cli.answer(found, () => lines.join('\n'));
}

export async function logs(
  cli: Cli,
  id: string | undefined,
  { follow, limit }: { follow?: boolean; limit: number },
) {
  const { builds } = await cli.torpor();
  const job = await jobOf(cli, id);
  const { signal } = cli;
  const lines = await lastLines(cli, job, limit);
  const show = (line: { phase: BuildState; source: string; text: string }) =>
    cli.answerLine(line, () => `${cli.io.colors.dim(`${line.phase} ${line.source}`)} ${line.text}`);
  for (const line of lines) show(line);
  if (!follow) return;
  for await (const line of builds.followLogs(job, { afterId: lines.at(-1)?.id ?? 0, signal })) show(line);
}

const PAGE_LINES = 500;

async function lastLines(cli: Cli, job: JobId, limit: number): Promise<BuildLogLine[]> {
  const { builds } = await cli.torpor();
  const lines: BuildLogLine[] = [];
  while (lines.length < limit) {
    const wanted = Math.min(limit - lines.length, PAGE_LINES);
    const page = await builds.logs(job, { beforeId: lines[0]?.id, limit: wanted, signal: cli.signal });
    lines.unshift(...page.lines);
    if (!page.has_more) break;
  }
  return lines;
}

export async function files(cli: Cli, id: string | undefined, path: string | undefined): Promise<void> {
  const { builds } = await cli.torpor();
  const job = await jobOf(cli, id);
  const { signal } = cli;
  if (path !== undefined) {
    cli.io.stdout.write(await builds.readFile(job, path, { signal }));
    return;
  }
  const items = await builds.files(job, { signal });
  cli.answer({ items }, () =>
    columns(
      ['PATH', 'SIZE'],
      items.map(({ path, size }) => [path, bytes(size)]),
      cli.io.colors,
    ),
  );
}

export async function docs(cli: Cli, id: string | undefined): Promise<void> {
  const { builds } = await cli.torpor();
  const found = await builds.docs(await jobOf(cli, id), { signal: cli.signal });
  const { bold } = cli.io.colors;
  const { overview, ...others } = found;
  cli.answer(found, () =>
    [
      ...(overview === null ? [] : [overview]),
      ...Object.entries(others).flatMap(([name, text]) =>
        text === null ? [] : [`${bold(`## ${name.replace('_', ' ')}`)}\n\n${text}`],
      ),
    ].join('\n\n'),
  );
}
