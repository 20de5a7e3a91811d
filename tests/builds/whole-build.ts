/** Helpers for whole builds: a real server, its API, and requests to previews through the gateway. */
import { createHash } from 'node:crypto';
import { request } from 'node:http';
import { text } from 'node:stream/consumers';
import type { BuildState, BuildStatus, JobId, SandboxId } from '@torpor/sdk';
import type { TorporProcess } from '../crash/torpor-process.ts';

export const ALL: readonly BuildState[] = [
  'queued',
  'starting',
  'scaffold',
  'code',
  'deps',
  'checks',
  'ready',
];

export const GOALS = {
  page: 'a page about otters',
  api: 'a REST api for notes',
  dashboard: 'a live dashboard',
} as const;

export async function follow({ torpor }: Pick<TorporProcess, 'torpor'>, id: JobId): Promise<BuildState[]> {
  const states: BuildState[] = [];
  for await (const { type, status } of torpor.builds.events(id)) {
    if (type === 'build.stage.started') states.push(status);
  }
  return states;
}

export async function untilPaused(
  { torpor }: Pick<TorporProcess, 'torpor'>,
  id: JobId,
): Promise<BuildStatus> {
  for (;;) {
    const status = await torpor.builds.status(id);
    if (status.sandbox_paused || status.status !== 'ready') return status;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Requests a preview by its address through the gateway, without DNS. */
export async function requestPreview(
  server: Pick<TorporProcess, 'url'>,
  previewUrl: string,
  path = '/',
  { method = 'GET', body }: { readonly method?: string; readonly body?: unknown } = {},
): Promise<{ readonly status: number; readonly text: string }> {
  const { host } = new URL(previewUrl);
  const { hostname, port } = new URL(server.url);
  return new Promise((resolve, reject) => {
    const asked = request(
      { hostname, port, path, method, headers: { host }, agent: false },
      async (response) => {
        resolve({ status: response.statusCode ?? 0, text: await text(response) });
      },
    );
    asked.on('error', reject);
    asked.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

/** A digest of all names and contents in the workspace. */
export async function treeDigest({ torpor }: TorporProcess, id: SandboxId): Promise<string> {
  const command = 'cd project && find . -type f -print0 | sort -z | xargs -0 sha256sum';
  const { stdout, exitCode } = await torpor.sandboxes.exec(id, command);
  if (exitCode !== 0) throw new Error('the tree could not be read');
  return createHash('sha256').update(stdout).digest('hex');
}

export function sandboxOf(status: BuildStatus): SandboxId {
  if (status.sandbox_id === null) throw new Error(`${status.job_id} has no sandbox.`);
  return status.sandbox_id;
}
