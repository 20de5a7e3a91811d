/** Credentials for registries, from Docker's configuration file. */
import { readFile } from 'node:fs/promises';
import { isMissing } from '@torpor/host';
import { TorporError } from '@torpor/protocol';
import { z } from 'zod';
import { DOCKER_HUB } from './reference.ts';

export interface Credentials {
  readonly username: string;
  readonly password: string;
}

const entrySchema = z.object({
  auth: z.string().optional(),
  username: z.string().optional(),
  password: z.string().optional(),
});
const configSchema = z.object({ auths: z.record(z.string(), entrySchema).optional() });

/** The keys under which Docker keeps the credentials of Docker Hub. */
const HUB_KEYS = ['https://index.docker.io/v1/', 'index.docker.io', 'docker.io', 'registry-1.docker.io'];

/** Undefined when the file has none for this registry. Credential helpers, which are programs, are not asked. */
export async function credentialsFromDocker(
  file: string,
  registry: string,
): Promise<Credentials | undefined> {
  const text = await readFile(file, 'utf8').catch((thrown: unknown) => {
    if (isMissing(thrown)) return undefined;
    throw thrown;
  });
  if (text === undefined) return undefined;
  const keys = registry === DOCKER_HUB ? HUB_KEYS : [registry, `https://${registry}`, `http://${registry}`];
  const auths = parse(file, text).auths ?? {};
  for (const key of keys) {
    const found = Object.hasOwn(auths, key) ? credentialsOf(auths[key]) : undefined;
    if (found !== undefined) return found;
  }
  return undefined;
}

function parse(file: string, text: string): z.infer<typeof configSchema> {
  try {
    return configSchema.parse(JSON.parse(text));
  } catch {
    // The cause is left out: it may show parts of the file.
    throw new TorporError('conflict', `The server cannot read the credentials for registries in ${file}.`);
  }
}

function credentialsOf(entry: z.infer<typeof entrySchema> | undefined): Credentials | undefined {
  const { auth, username, password } = entry ?? {};
  if (username && password !== undefined) return { username, password };
  const [, name, secret] = /^([^:]+):(.*)$/s.exec(Buffer.from(auth ?? '', 'base64').toString('utf8')) ?? [];
  return name === undefined || secret === undefined ? undefined : { username: name, password: secret };
}
