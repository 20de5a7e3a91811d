/**
 * Credentials for a registry of Amazon (ECR). Keys of an AWS account are not for the registry itself: they sign a request
 * to Amazon, which answers with a password that the registry accepts for twelve hours.
 */
import { createHash, createHmac } from 'node:crypto';
import { text } from 'node:stream/consumers';
import { SignatureV4 } from '@smithy/signature-v4';
import type { Clock } from '@torpor/engine';
import { TorporError } from '@torpor/protocol';
import { z } from 'zod';
import type { Credentials } from './credentials.ts';
import type { HttpGet } from './http-get.ts';

/** Keys of an AWS account. */
export interface AmazonKeys {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly region: string;
}

/** The keys are sent to no other host than Amazon's in the region of such a registry. */
const REGISTRY = /^\d{12}\.dkr\.ecr\.([a-z0-9-]{1,40})\.(amazonaws\.com(?:\.cn)?)$/;
const ACTION = 'AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken';
const BODY = '{}';
const answerSchema = z.object({
  authorizationData: z.array(z.object({ authorizationToken: z.string() })).min(1),
});

export async function amazonCredentials(
  registry: string,
  { region, ...keys }: AmazonKeys,
  { get, clock }: { readonly get: HttpGet; readonly clock: Clock },
  signal: AbortSignal,
): Promise<Credentials> {
  const url = endpointOf(registry, region);
  const signer = new SignatureV4({ credentials: keys, region, service: 'ecr', sha256: Sha256 });
  const { headers } = await signer.sign(
    {
      method: 'POST',
      protocol: 'https:',
      hostname: url.hostname,
      path: '/',
      query: {},
      headers: { host: url.host, 'content-type': 'application/x-amz-json-1.1', 'x-amz-target': ACTION },
      body: BODY,
    },
    { signingDate: new Date(clock.now()) },
  );
  const { authorization, ...others } = headers;
  const response = await get({ url, headers: others, authorization, body: BODY, signal });
  const answer = await text(response);
  if (response.statusCode !== 200) throw refused(url, response.statusCode ?? 0);
  return credentialsIn(url, answer);
}

function endpointOf(registry: string, region: string): URL {
  const [, found, domain] = REGISTRY.exec(registry) ?? [];
  if (found === region) return new URL(`https://api.ecr.${region}.${domain}/`);
  throw new TorporError(
    'invalid_request',
    `${registry} is not a registry of AWS in the region "${region.slice(0, 40)}".`,
    { hint: 'AWS keys are for images such as 123456789012.dkr.ecr.eu-west-1.amazonaws.com/app:1.' },
  );
}

function credentialsIn({ host }: URL, answer: string): Credentials {
  const parsed = answerSchema.safeParse(jsonOf(answer));
  const [data] = parsed.data?.authorizationData ?? [];
  const [, username, password] =
    /^([^:]+):(.+)$/s.exec(Buffer.from(data?.authorizationToken ?? '', 'base64').toString('utf8')) ?? [];
  if (username !== undefined && password !== undefined) return { username, password };
  throw new TorporError('unreachable', `${host} gave no password for the registry.`);
}

function refused({ host }: URL, status: number): TorporError {
  // 400 is Amazon's answer to keys that are unknown, expired, or not allowed to ask.
  if (status === 400 || status === 401 || status === 403)
    return new TorporError('forbidden', `AWS does not accept the keys for ${host}.`, {
      hint: 'The keys need the permission ecr:GetAuthorizationToken.',
    });
  return new TorporError('unreachable', `${host} answered with status ${status}.`);
}

function jsonOf(answer: string): unknown {
  try {
    return JSON.parse(answer);
  } catch {
    return undefined;
  }
}

/** The hash of Node in the form that the signer takes: with a secret, an HMAC. */
class Sha256 {
  readonly #hash: ReturnType<typeof createHash | typeof createHmac>;

  constructor(secret?: string | ArrayBuffer | ArrayBufferView) {
    this.#hash = secret === undefined ? createHash('sha256') : createHmac('sha256', bytesOf(secret));
  }

  update(chunk: string | ArrayBuffer | ArrayBufferView): void {
    this.#hash.update(bytesOf(chunk));
  }

  async digest(): Promise<Uint8Array> {
    return this.#hash.digest();
  }

  reset(): void {
    throw new Error('The signer makes a new hash for each text.');
  }
}

function bytesOf(data: string | ArrayBuffer | ArrayBufferView): Uint8Array {
  if (typeof data === 'string') return Buffer.from(data);
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}
