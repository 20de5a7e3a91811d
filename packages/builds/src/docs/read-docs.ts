/** Reads the documentation of a build from its stored files and from the builds before it. */
import type { Queryable } from '@torpor/engine';
import type { BuildDocs, JobId } from '@torpor/protocol';
import type { BuildJob } from '../jobs/job.ts';
import { readFiles } from '../jobs/stored-files.ts';
import { type BuiltVersion, documentation } from './documentation.ts';

/** At most this many builds appear in the changelog. */
const MAX_VERSIONS = 100;

export async function docsOf(db: Queryable, job: BuildJob): Promise<BuildDocs> {
  const files = await readFiles(db, job.id);
  return documentation(files, job.wantedPort, await versionsUpTo(db, job.id));
}

/** The event was written together with the files, when they contain documentation. */
export async function hasDocs(db: Queryable, id: JobId): Promise<boolean> {
  const [told] = await db.query(
    `SELECT seq FROM build_events WHERE job_id = $1 AND type = 'documentation.updated' LIMIT 1`,
    [id],
  );
  return told !== undefined;
}

/** Newest first. Iterations and rebuilds form one chain. */
async function versionsUpTo(db: Queryable, id: JobId): Promise<BuiltVersion[]> {
  return db.query<{ version: string; goal: string }>(
    `WITH RECURSIVE line (id, depth) AS (
       SELECT id, 1 FROM build_jobs WHERE id = $1
       UNION ALL
       SELECT j.previous_id, line.depth + 1 FROM build_jobs j JOIN line ON j.id = line.id
       WHERE j.previous_id IS NOT NULL AND line.depth < $2
     )
     SELECT j.build_version AS version, j.goal FROM line JOIN build_jobs j ON j.id = line.id
     WHERE j.status = 'ready' AND j.build_version IS NOT NULL ORDER BY line.depth`,
    [id, MAX_VERSIONS],
  );
}
