/** What sandboxes of a template get from the configuration of its image. */
import { type Service, type TemplateImage, TorporError } from '@torpor/protocol';
import type { Image } from '../ports/image.ts';
import type { Definition } from './template.ts';

/** The name of the service, as for templates of the command line. */
const START = 'start';

/** The directory of commands in an image that names none, as for `docker run`. */
const TOP = '/';

/** What the caller defines goes before what the image says. */
export function withImage(definition: Definition, { about }: Image, entrypoint: boolean): Definition {
  const isTaken = definition.services.some(({ name }) => name === START);
  return {
    ...definition,
    image: about,
    env: { ...about.env, ...definition.env },
    workdir: definition.workdir ?? about.workdir ?? TOP,
    services: entrypoint && !isTaken ? [...definition.services, startService(about)] : definition.services,
  };
}

function startService({ entrypoint, cmd, ports }: TemplateImage): Service {
  const words = [...entrypoint, ...cmd];
  if (words.length === 0) {
    throw new TorporError(
      'invalid_request',
      'The image has neither ENTRYPOINT nor CMD, so there is nothing to start.',
      {
        hint: 'Declare a service instead.',
      },
    );
  }
  const [port] = ports;
  return {
    name: START,
    command: `exec ${words.map(quoted).join(' ')}`,
    ...(port !== undefined && ports.length === 1 ? { port } : {}),
  };
}

/** One word of a shell. */
function quoted(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}
