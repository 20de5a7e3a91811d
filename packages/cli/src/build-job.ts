/** Which build is meant: by its id, or the last. */
import { isId, type JobId } from '@torpor/protocol';
import type { Cli } from './cli.ts';
import { CliError } from './failure.ts';

/** The last that can be looked at or gone on from; one that failed after it is not in the way. */
export async function readyJobOf(cli: Cli, text = 'last', project?: string): Promise<JobId> {
  if (text !== 'last') return jobOf(cli, text);
  const { builds } = await cli.torpor();
  for await (const { job_id, status, project_id } of builds.list({ signal: cli.signal })) {
    if (status === 'ready' && (project === undefined || project === project_id)) return job_id;
  }
  throw new CliError('NOT_FOUND', 'There is no build yet that is ready.', {
    hint: '`torpor build ls` has all of them.',
  });
}

export async function jobOf(cli: Cli, text = 'last'): Promise<JobId> {
  if (isId('job', text)) return text;
  if (text !== 'last') {
    throw new CliError('INVALID_ARGUMENT', `${text} is no build.`, {
      hint: '`torpor build ls` has their ids.',
    });
  }
  const { builds } = await cli.torpor();
  const [newest] = (await builds.page({ limit: 1, signal: cli.signal })).items;
  if (newest === undefined) throw new CliError('NOT_FOUND', 'There is no build yet.');
  return newest.job_id;
}
