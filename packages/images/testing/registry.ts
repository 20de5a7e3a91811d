/** A real registry on this machine: the program of Debian's package `docker-registry`. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { digestOf, MANIFEST_TYPE, type TestImage } from './test-image.ts';

const PROGRAM = '/usr/bin/docker-registry';

/** Null when the registry is installed. */
export const whyNoRegistry: string | null = existsSync(PROGRAM) ? null : 'docker-registry is not installed';

/** The user of a registry with credentials. */
export const REGISTRY_USER = { username: 'ada', password: 'open sesame' } as const;
const REGISTRY_USERS = 'ada:$2b$04$S2rTNS7wGLAC.kZgHGxSseWXMow7Yhaxvq.aMV5lMHzncfd00Tiie\n';

export interface TestRegistry {
  /** `127.0.0.1:` and a port. */
  readonly name: string;
  push(repository: string, tag: string, image: TestImage): Promise<void>;
  pushManifest(repository: string, tag: string, manifest: Buffer, type?: string): Promise<void>;
  /** Changes a blob behind the registry's back. */
  replaceBlob(digest: string, bytes: Buffer): Promise<void>;
  stop(): Promise<void>;
}

export async function startRegistry(options: { readonly credentials?: boolean } = {}): Promise<TestRegistry> {
  const directory = await mkdtemp(join(tmpdir(), 'torpor-registry-'));
  const name = `127.0.0.1:${await freePort()}`;
  const users = join(directory, 'users');
  await writeFile(users, REGISTRY_USERS);
  const auth = options.credentials === true ? { htpasswd: { realm: 'test', path: users } } : undefined;
  const config = join(directory, 'config.yml');
  // JSON is YAML too.
  await writeFile(
    config,
    JSON.stringify({
      version: '0.1',
      log: { level: 'error', accesslog: { disabled: true } },
      storage: { filesystem: { rootdirectory: join(directory, 'storage') } },
      http: { addr: name, secret: 'test' },
      ...(auth === undefined ? {} : { auth }),
    }),
  );
  const server = spawn(PROGRAM, ['serve', config], { stdio: 'ignore' });
  const headers = {
    authorization: `Basic ${Buffer.from(Object.values(REGISTRY_USER).join(':')).toString('base64')}`,
  };
  await untilListening(`http://${name}/v2/`, server);
  const pushManifest: TestRegistry['pushManifest'] = async (
    repository,
    tag,
    manifest,
    type = MANIFEST_TYPE,
  ) => {
    const url = `http://${name}/v2/${repository}/manifests/${tag}`;
    await expectCreated(
      fetch(url, { method: 'PUT', headers: { ...headers, 'content-type': type }, body: manifest }),
    );
  };
  return {
    name,
    pushManifest,
    push: async (repository, tag, image) => {
      for (const blob of image.blobs.values()) {
        const begun = await fetch(`http://${name}/v2/${repository}/blobs/uploads/`, {
          method: 'POST',
          headers,
        });
        const url = new URL(begun.headers.get('location') ?? '', `http://${name}`);
        url.searchParams.set('digest', digestOf(blob));
        await expectCreated(fetch(url, { method: 'PUT', headers, body: blob }));
      }
      await pushManifest(repository, tag, image.manifest);
    },
    replaceBlob: async (digest, bytes) => {
      const hex = digest.slice('sha256:'.length);
      const blobs = join(directory, 'storage/docker/registry/v2/blobs/sha256');
      await writeFile(join(blobs, hex.slice(0, 2), hex, 'data'), bytes);
    },
    stop: async () => {
      const ended = once(server, 'exit');
      server.kill('SIGKILL');
      await ended;
      await rm(directory, { recursive: true });
    },
  };
}

async function expectCreated(asked: Promise<Response>): Promise<void> {
  const response = await asked;
  if (response.status !== 201)
    throw new Error(`The registry said ${response.status}: ${await response.text()}`);
}

async function untilListening(url: string, server: ChildProcess): Promise<void> {
  while (
    !(await fetch(url).then(
      () => true,
      () => false,
    ))
  ) {
    if (server.exitCode !== null) throw new Error(`The registry ended with ${server.exitCode}.`);
    await sleep(20);
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, 'close');
  return port;
}
