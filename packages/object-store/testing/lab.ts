/** The S3 server of the test lab: `npm run lab:setup` builds it. */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { versitygwProgram } from './lab-program.mjs';

/** Why tests on S3 are skipped; undefined when the lab is there. */
export const labMissing: string | undefined = existsSync(versitygwProgram())
  ? undefined
  : 'the S3 server of the lab is not built (npm run lab:setup)';

export interface LabS3 {
  readonly endpoint: string;
  readonly port: number;
  readonly bucket: string;
  /** The variables with which AWS programs find the server. */
  readonly env: Readonly<Record<string, string>>;
  /** Where the server keeps the objects of the bucket, as plain files. */
  readonly files: string;
  stop(): Promise<void>;
}

const BUCKET = 'torpor-test';

export async function startLabS3(): Promise<LabS3> {
  // Extended attributes are needed, which the memory file systems of some machines do not have.
  const top = await mkdtemp(join(process.env['TORPOR_LAB_DIR'] ?? tmpdir(), 'torpor-s3-'));
  await mkdir(join(top, BUCKET), { recursive: true });
  const port = await freePort();
  const endpoint = `http://127.0.0.1:${port}`;
  const env = { ROOT_ACCESS_KEY: 'testkey', ROOT_SECRET_KEY: 'testsecret' };
  const args = ['--quiet', '--port', `127.0.0.1:${port}`, '--region', 'us-east-1', 'posix', top];
  const server = spawn(versitygwProgram(), args, { cwd: top, env, stdio: 'ignore' });
  const ended = new Promise<void>((resolve) => server.once('exit', () => resolve()));
  for (let tries = 0; ; tries++) {
    const answers = await fetch(`${endpoint}/`).then(
      () => true,
      () => false,
    );
    if (answers) break;
    if (tries > 200 || server.exitCode !== null) throw new Error('The S3 server of the lab did not start.');
    await sleep(50);
  }
  return {
    endpoint,
    port,
    bucket: BUCKET,
    env: environmentFor(endpoint),
    files: join(top, BUCKET),
    stop: async () => {
      server.kill('SIGKILL');
      await ended;
      await rm(top, { recursive: true });
    },
  };
}

export function environmentFor(endpoint: string): Readonly<Record<string, string>> {
  return {
    AWS_ENDPOINT_URL: endpoint,
    AWS_REGION: 'us-east-1',
    AWS_ACCESS_KEY_ID: 'testkey',
    AWS_SECRET_ACCESS_KEY: 'testsecret',
  };
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer().once('error', reject);
    probe.listen(0, '127.0.0.1', () => {
      const address = probe.address();
      probe.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
}
