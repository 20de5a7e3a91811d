/**
 * Where the image of a template comes from.
 *
 * ```ts
 * const source = images.inRegistry('ghcr.io/org/app:1', {});
 * await engine.prepareTemplate(caller, { name: 'app', image: source });
 * ```
 */
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { Clock, ImageSource } from '@torpor/engine';
import { AddressCheck, type Resolve } from '@torpor/network/address-check';
import { TorporError } from '@torpor/protocol';
import { type AmazonKeys, amazonCredentials } from './amazon-registry.ts';
import { type Credentials, credentialsFromDocker } from './credentials.ts';
import { readDockerArchive } from './docker-archive.ts';
import { type HttpGet, httpGet } from './http-get.ts';
import { OciArchive } from './oci-archive.ts';
import { machinePlatform } from './platform.ts';
import { readImage } from './read-image.ts';
import { parseReference } from './reference.ts';
import { RegistryImage } from './registry.ts';
import { indexTar } from './tar-index.ts';

export interface ImagesOptions {
  /** Private networks that images may be fetched from. */
  readonly allowed: readonly string[];
  readonly clock: Clock;
  /** The configuration of Docker with the server's credentials for registries. */
  readonly dockerConfig?: string;
  readonly resolve?: Resolve;
}

export interface FromRegistry {
  /** Of the caller. Used for this image only. */
  readonly credentials?: Credentials | AmazonKeys | undefined;
  /** Whether the server's own credentials may be used when the caller sends none. */
  readonly mayUseServerCredentials: boolean;
}

export class Images {
  readonly #get: HttpGet;
  readonly #clock: Clock;
  readonly #dockerConfig: string;

  constructor({ allowed, clock, dockerConfig = dockerConfigPath(), resolve }: ImagesOptions) {
    this.#get = httpGet(new AddressCheck({ allowed, clock, refused }), resolve);
    this.#clock = clock;
    this.#dockerConfig = dockerConfig;
  }

  /** Throws at once when the reference is not one. */
  inRegistry(text: string, options: FromRegistry): ImageSource {
    const reference = parseReference(text);
    return {
      open: async (signal) => {
        const own = options.mayUseServerCredentials
          ? await credentialsFromDocker(this.#dockerConfig, reference.registry)
          : undefined;
        const given = await this.#given(reference.registry, options.credentials, signal);
        const parts = new RegistryImage(reference, given ?? own, this.#get);
        return readImage(parts, { reference: text, platform: machinePlatform() }, signal);
      },
    };
  }

  async #given(
    registry: string,
    given: FromRegistry['credentials'],
    signal: AbortSignal,
  ): Promise<Credentials | undefined> {
    if (given === undefined || 'password' in given) return given;
    return amazonCredentials(registry, given, { get: this.#get, clock: this.#clock }, signal);
  }

  /** The file must not change until the template is made. */
  inArchive(path: string, format: 'oci' | 'docker'): ImageSource {
    return {
      open: async (signal) => {
        const archive = await indexTar(path, signal);
        const platform = machinePlatform();
        if (format === 'docker') return readDockerArchive(archive, platform);
        return readImage(new OciArchive(archive), { reference: null, platform }, signal);
      },
    };
  }
}

function dockerConfigPath(): string {
  return join(process.env['DOCKER_CONFIG'] ?? join(homedir(), '.docker'), 'config.json');
}

function refused(why: string): TorporError {
  return new TorporError('forbidden', `Images are not fetched from there: ${why}.`, {
    hint: 'Use a registry with a public IPv4 address. The operator of the server can allow networks with --registry-networks.',
  });
}
