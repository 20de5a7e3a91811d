/** `buildah` beside Torpor: the same Dockerfile, without a daemon and without a kernel feature that a container lacks. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const PROGRAM = '/usr/bin/buildah';
export const hasBuildah = existsSync(PROGRAM);

export interface Buildah {
  /** Fetches an image and runs a command in it. */
  runIn(image: string, command: readonly string[]): Promise<void>;
  build(context: string): Promise<void>;
}

/** `place` is a directory for its storage. */
export async function openBuildah(place: string): Promise<Buildah> {
  await mkdir(place, { recursive: true });
  const policy = join(place, 'policy.json');
  await writeFile(policy, JSON.stringify({ default: [{ type: 'insecureAcceptAnything' }] }));
  const storage = ['--root', join(place, 'root'), '--runroot', join(place, 'run'), '--storage-driver', 'vfs'];
  const env = { ...process.env, BUILDAH_ISOLATION: 'chroot' };
  const call = async (...args: string[]) => {
    const { stdout } = await promisify(execFile)(PROGRAM, [...storage, ...args], { env });
    return stdout.trim();
  };
  const trust = ['--signature-policy', policy, '--tls-verify=false'];
  return {
    runIn: async (image, command) => {
      const container = await call('from', ...trust, image);
      await call('run', container, '--', ...command);
    },
    build: async (context) => {
      await call('bud', ...trust, '--layers', '-t', 'bench', context);
    },
  };
}
