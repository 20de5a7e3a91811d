/** An image in a registry: the part of the OCI distribution protocol that a pull needs. */
import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { TorporError } from '@torpor/protocol';
import { z } from 'zod';
import { type Challenge, parseChallenge } from './challenge.ts';
import type { Credentials } from './credentials.ts';
import type { Descriptor } from './documents.ts';
import { type HttpGet, isPlain, unreachable } from './http-get.ts';
import { documentOf, type ImageParts, MAX_DOCUMENT_BYTES } from './read-image.ts';
import { DOCKER_HUB, type ImageReference } from './reference.ts';
import { unusable } from './unusable.ts';

const MANIFEST_TYPES = [
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
  'application/vnd.docker.distribution.manifest.v2+json',
].join(', ');

/** How often the rest of a layer is asked for after its connection broke. */
const MAX_RESUMES = 3;
/** Token services name their answer either way. */
const tokenSchema = z.object({ token: z.string().optional(), access_token: z.string().optional() });

export class RegistryImage implements ImageParts {
  readonly #reference: ImageReference;
  readonly #credentials: Credentials | undefined;
  readonly #get: HttpGet;
  #authorization: string | undefined;

  constructor(reference: ImageReference, credentials: Credentials | undefined, get: HttpGet) {
    this.#reference = reference;
    this.#credentials = credentials;
    this.#get = get;
  }

  async root(signal: AbortSignal) {
    const { digest, tag } = this.#reference;
    const response = await this.#ask(`manifests/${digest ?? tag}`, { accept: MANIFEST_TYPES }, signal);
    const bytes = await wholeOf(response);
    const found = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
    if (digest !== null && found !== digest)
      throw unusable(`the registry has another manifest under ${digest}`);
    return { bytes, digest: found };
  }

  async manifest(descriptor: Descriptor, signal: AbortSignal): Promise<Buffer> {
    const response = await this.#ask(`manifests/${descriptor.digest}`, { accept: MANIFEST_TYPES }, signal);
    return documentOf(response, descriptor, 'its manifest');
  }

  /** When the connection breaks, the rest is asked for: large layers over slow lines do not begin again. */
  async *blob({ digest }: Descriptor, signal: AbortSignal): AsyncGenerator<Buffer> {
    let [bytes, resumes] = [0, 0];
    for (;;) {
      const range = bytes === 0 ? {} : { range: `bytes=${bytes}-` };
      const response = await this.#ask(`blobs/${digest}`, range, signal);
      if (bytes > 0 && response.statusCode !== 206) {
        response.destroy();
        throw new TorporError('unreachable', `${this.#url('').host} does not continue a broken transfer.`);
      }
      try {
        for await (const chunk of response) {
          bytes += (chunk as Buffer).length;
          yield chunk as Buffer;
        }
        return;
      } catch (thrown) {
        signal.throwIfAborted();
        resumes += 1;
        if (resumes > MAX_RESUMES) throw unreachable(this.#url(''), thrown);
      } finally {
        response.destroy();
      }
    }
  }

  /** Answers the challenge of the registry once: a token may also have expired meanwhile. */
  async #ask(
    path: string,
    headers: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<IncomingMessage> {
    const url = this.#url(path);
    const ask = () => this.#get({ url, headers, authorization: this.#authorization, signal });
    let response = await ask();
    if (response.statusCode === 401) {
      response.destroy();
      this.#authorization = await this.#answer(parseChallenge(response.headers['www-authenticate']), signal);
      if (this.#authorization === undefined) throw this.#refused();
      response = await ask();
    }
    const { statusCode = 0 } = response;
    if (statusCode === 200 || statusCode === 206) return response;
    response.destroy();
    throw this.#failure(statusCode);
  }

  async #answer(challenge: Challenge | undefined, signal: AbortSignal): Promise<string | undefined> {
    const basic = this.#credentials === undefined ? undefined : basicOf(this.#credentials);
    if (challenge?.scheme !== 'bearer') return challenge === undefined ? undefined : basic;
    const realm = URL.parse(challenge.realm);
    if (realm === null)
      throw new TorporError('unreachable', `${this.#reference.registry} names no valid token service.`);
    realm.searchParams.set('scope', `repository:${this.#reference.repository}:pull`);
    if (challenge.service !== undefined) realm.searchParams.set('service', challenge.service);
    const response = await this.#get({ url: realm, authorization: basic, signal });
    if (response.statusCode !== 200) {
      response.destroy();
      throw response.statusCode === 401 || response.statusCode === 403
        ? this.#refused()
        : this.#failure(response.statusCode ?? 0);
    }
    const parsed = tokenSchema.safeParse(jsonOf(await wholeOf(response)));
    const token = parsed.data?.token ?? parsed.data?.access_token;
    if (token === undefined || !/^[\x21-\x7e]+$/.test(token))
      throw new TorporError('unreachable', `The token service of ${this.#reference.registry} gave no token.`);
    return `Bearer ${token}`;
  }

  #url(path: string): URL {
    const { registry, repository } = this.#reference;
    const host = registry === DOCKER_HUB ? 'registry-1.docker.io' : registry;
    const scheme = isPlain(host.replace(/:\d+$/, '')) ? 'http' : 'https';
    return new URL(`${scheme}://${host}/v2/${repository}/${path}`);
  }

  #refused(): TorporError {
    const which = this.#credentials === undefined ? 'needs credentials' : 'does not accept the credentials';
    return new TorporError(
      'forbidden',
      `The registry ${this.#reference.registry} ${which} for ${this.#reference.text}.`,
      {
        hint: 'Send credentials with the request (--registry-user), or log the server in with docker login.',
      },
    );
  }

  #failure(status: number): TorporError {
    const { registry, text } = this.#reference;
    if (status === 401 || status === 403) return this.#refused();
    if (status === 404)
      return new TorporError('not_found', `The registry ${registry} has no image ${text}.`, {
        hint: 'Check the name, the tag and the digest. Some registries answer so when credentials are missing.',
      });
    if (status === 429)
      return new TorporError('unreachable', `The registry ${registry} limits how often images are fetched.`, {
        hint: 'Try again later, or send credentials.',
      });
    return new TorporError('unreachable', `The registry ${registry} answered with status ${status}.`);
  }
}

function basicOf({ username, password }: Credentials): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
}

function jsonOf(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString('utf8'));
  } catch {
    return undefined;
  }
}

async function wholeOf(response: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_DOCUMENT_BYTES) throw unusable('a document of it is too large');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
