/** Finds the build that an argument names: by id, or the last one. */
import { isId, type JobId } from '@torpor/protocol';
import type { Cli } from './cli.ts';
import { CliError } from './failure.ts';

/** Finds a build by id. Without an id it finds the last ready build and skips failed builds. */
export async function readyJobOf(cli: Cli, text = 'last', project?: string): Promise<JobId> {
  if (text !== 'last') return jobOf(cli, text);
  const { builds } = await cli.torpor();
  for await (const { job_id, status, project_id } of builds.list({ signal: cli.signal })) {
    if (status === 'ready' && (project === undefined || project === project_id)) return job_id;
  }
  throw new CliError('NOT_FOUND', 'No build is ready yet.', {
    hint: '`torpor build ls` lists all builds.',
  });
}

export async function jobOf(cli: Cli, text = 'last'): Promise<JobId> {
  if (isId('job', text)) return text;
  if (text !== 'last') {
    throw new CliError('INVALID_ARGUMENT', `"${text}" is not a build.`, {
      hint: '`torpor build ls` lists all builds.',
    });
  }
  const { builds } = await cli.torpor();
  const [newest] = (await builds.page({ limit: 1, signal: cli.signal })).items;
  if (newest === undefined) throw new CliError('NOT_FOUND', 'There are no builds yet.');
  return newest.job_id;
}
