/** Converts the start of a template build of E2B's API into an order. */
import { envSchema, TorporError, userNameSchema } from '@torpor/protocol';
import type { BuildOrder, BuildStep } from '@torpor/template-builds';
import { z } from 'zod';
import { parseTemplateReference } from './template-reference.ts';

const MAX_STEPS = 1_000;
const text = (max: number) => z.string().max(max);

const registrySchema = z.discriminatedUnion('type', [
  z.object({ type: z.literal('registry'), username: text(1_024), password: text(16_384) }),
  z.object({ type: z.literal('gcp'), serviceAccountJson: text(16_384) }),
  z.object({
    type: z.literal('aws'),
    awsAccessKeyId: text(1_024),
    awsSecretAccessKey: text(1_024),
    awsRegion: text(100),
  }),
]);

const stepSchema = z.object({
  type: text(20),
  args: z.array(text(262_144)).max(1_000).nullish(),
  filesHash: text(200).nullish(),
  force: z.boolean().nullish(),
});
type E2bStep = z.infer<typeof stepSchema>;

export const buildStartSchema = z.object({
  fromImage: text(1_024).nullish(),
  fromTemplate: text(200).nullish(),
  fromImageRegistry: registrySchema.nullish(),
  force: z.boolean().nullish(),
  steps: z.array(stepSchema).max(MAX_STEPS).nullish(),
  startCmd: text(32_000).nullish(),
  readyCmd: text(32_000).nullish(),
});
type E2bBuildStart = z.infer<typeof buildStartSchema>;

/** E2B's own image is at no registry that a server without their account can use. */
const E2B_BASE = /^(?:docker\.io\/)?e2bdev\/base(?::[\w.-]+)?$/;

export function buildOrderOf(body: E2bBuildStart, org: string): BuildOrder {
  return {
    base: baseOf(body, org),
    steps: (body.steps ?? []).map(stepOf),
    force: body.force ?? false,
    startCommand: body.startCmd || undefined,
    readyCommand: body.readyCmd || undefined,
    credentials: credentialsOf(body),
  };
}

function baseOf({ fromImage, fromTemplate }: E2bBuildStart, org: string): BuildOrder['base'] {
  if (!fromImage === !fromTemplate) throw invalid('Give "fromImage" or "fromTemplate", and not both.');
  if (fromTemplate) {
    const named = parseTemplateReference(fromTemplate, org);
    if (named.is === 'template') return named;
    throw invalid('A build begins with a template that has a name.');
  }
  const reference = fromImage ?? '';
  if (E2B_BASE.test(reference)) return { is: 'template', name: 'base' };
  return { is: 'image', reference };
}

function credentialsOf({ fromImageRegistry: registry }: E2bBuildStart) {
  switch (registry?.type) {
    case undefined:
      return undefined;
    case 'registry':
      return { username: registry.username, password: registry.password };
    case 'gcp':
      // Google's registries take the key of a service account as a password.
      return { username: '_json_key', password: registry.serviceAccountJson };
    case 'aws':
      throw new TorporError('capability_unsupported', 'Keys of AWS for a registry: not supported yet.', {
        hint: 'Use fromImage with the user AWS and the password of `aws ecr get-login-password`.',
      });
  }
}

function stepOf(step: E2bStep, index: number): BuildStep {
  const args = step.args ?? [];
  const force = step.force ?? false;
  const refuse = (why: string) => invalid(`Step ${index + 1} (${step.type.slice(0, 20)}): ${why}.`);
  const [first = '', second = '', third = '', fourth = ''] = args;
  switch (step.type.toUpperCase()) {
    case 'RUN':
      if (first.trim() === '') throw refuse('it has no command');
      return { is: 'run', force, command: first, user: second === '' ? undefined : userOf(second, refuse) };
    case 'USER':
      return { is: 'user', force, name: userOf(first, refuse) };
    case 'WORKDIR':
      if (first === '' || !isPath(first)) throw refuse('it takes a path');
      return { is: 'workdir', force, path: first };
    case 'ENV':
      return { is: 'env', force, pairs: pairsOf(args, refuse) };
    case 'COPY': {
      if (first === '' || !isPath(first) || second === '' || !isPath(second))
        throw refuse('it takes a source and a target');
      if (first.startsWith('/') || first.split('/').includes('..'))
        throw refuse('its source is outside of the archive');
      if (third !== '' && !OWNER.test(third)) throw refuse('its owner is not an account');
      if (fourth !== '' && !/^[0-7]{3,4}$/.test(fourth)) throw refuse('its mode is not an octal number');
      const filesHash = step.filesHash ?? '';
      if (!/^[0-9a-f]{64}$/.test(filesHash))
        throw refuse('its filesHash does not have 64 hexadecimal digits');
      const owner = third === '' ? undefined : third;
      const mode = fourth === '' ? undefined : fourth;
      return { is: 'copy', force, source: first, target: second, owner, mode, filesHash };
    }
    default:
      throw refuse('there are RUN, COPY, ENV, WORKDIR and USER');
  }
}

const OWNER = /^[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,31}(?::[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,31})?$/;

function isPath(path: string): boolean {
  return path.length <= 4_096 && !path.includes('\0');
}

function userOf(name: string, refuse: (why: string) => TorporError): string {
  if (userNameSchema.safeParse(name).success) return name;
  throw refuse('it names no account');
}

function pairsOf(args: readonly string[], refuse: (why: string) => TorporError): [string, string][] {
  if (args.length === 0 || args.length % 2 !== 0) throw refuse('each name needs a value');
  const pairs: [string, string][] = [];
  for (let at = 0; at < args.length; at += 2) pairs.push([args[at] ?? '', args[at + 1] ?? '']);
  if (!envSchema.safeParse(Object.fromEntries(pairs)).success)
    throw refuse('a name or a value cannot be used');
  return pairs;
}

function invalid(message: string): TorporError {
  return new TorporError('invalid_request', message);
}
