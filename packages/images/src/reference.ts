/** Names of images in registries: `debian:12`, `ghcr.io/org/app@sha256:…`, `127.0.0.1:5000/app`. */
import { TorporError } from '@torpor/protocol';

export interface ImageReference {
  /** As the caller wrote it. */
  readonly text: string;
  /** The name under which credentials are kept: `docker.io`, `ghcr.io`, `127.0.0.1:5000`. */
  readonly registry: string;
  /** `library/debian` */
  readonly repository: string;
  /** Null when the digest alone names the image. */
  readonly tag: string | null;
  readonly digest: string | null;
}

export const DOCKER_HUB = 'docker.io';

const COMPONENT = '[a-z0-9]+(?:(?:\\.|_|__|-+)[a-z0-9]+)*';
const REPOSITORY = new RegExp(`^${COMPONENT}(?:/${COMPONENT})*$`);
const REGISTRY = /^[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::\d{1,5})?$/;
const TAG = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;
const DIGEST = /^sha256:[0-9a-f]{64}$/;

export function parseReference(text: string): ImageReference {
  const [name = '', digest, ...rest] = text.split('@');
  if (rest.length > 0) throw invalid(text, 'it has more than one "@"');
  if (digest !== undefined && !DIGEST.test(digest))
    throw invalid(text, 'its digest is not sha256: and 64 hex digits');
  const slash = name.indexOf('/');
  const head = name.slice(0, Math.max(slash, 0));
  // As for Docker: the first part is a registry when it cannot be a part of a repository of Docker Hub.
  const hasRegistry = /[.:]/.test(head) || head === 'localhost';
  const registry = hasRegistry ? head : DOCKER_HUB;
  if (!REGISTRY.test(registry)) throw invalid(text, `"${registry}" is not the name of a registry`);
  const path = hasRegistry ? name.slice(slash + 1) : name;
  const colon = path.lastIndexOf(':');
  const tag = colon < 0 ? undefined : path.slice(colon + 1);
  if (tag !== undefined && !TAG.test(tag)) throw invalid(text, `"${tag}" is not a tag`);
  const repository = colon < 0 ? path : path.slice(0, colon);
  if (!REPOSITORY.test(repository) || repository.length > 255)
    throw invalid(text, `"${repository}" is not the name of a repository`);
  const isOfficial = registry === DOCKER_HUB && !repository.includes('/');
  return {
    text,
    registry,
    repository: isOfficial ? `library/${repository}` : repository,
    tag: tag ?? (digest === undefined ? 'latest' : null),
    digest: digest ?? null,
  };
}

function invalid(text: string, why: string): TorporError {
  return new TorporError('invalid_request', `"${text.slice(0, 200)}" is not the name of an image: ${why}.`, {
    hint: 'Write registry/name:tag or registry/name@sha256:…; without a registry it is one of Docker Hub.',
  });
}
