/** The form of a new template as text, and the request that it means. */
import type {
  ArchiveTemplateRequest,
  CheckpointId,
  CreateTemplateRequest,
  ImageTemplateRequest,
  TemplateView,
} from '@torpor/sdk';
import { anyGiven, given, numberIn, textIn } from '../ui/form-values.ts';
import { bytes } from '../ui/units.ts';

export type TemplateSource = 'checkpoint' | 'image' | 'archive';

export interface TemplateDraft {
  readonly source: TemplateSource;
  readonly name: string;
  readonly description: string;
  readonly checkpoint: string;
  /** Whether a template of the same name is replaced. */
  readonly replaces: boolean;
  readonly image: string;
  readonly registryUser: string;
  readonly registryPassword: string;
  readonly runsEntrypoint: boolean;
  readonly archive: Blob | undefined;
  readonly format: NonNullable<ArchiveTemplateRequest['format']>;
  readonly command: string;
  readonly port: string;
  readonly memoryMb: string;
  readonly cpus: string;
}

export const EMPTY_TEMPLATE: TemplateDraft = {
  source: 'checkpoint',
  name: '',
  description: '',
  checkpoint: '',
  replaces: false,
  image: '',
  registryUser: '',
  registryPassword: '',
  runsEntrypoint: false,
  archive: undefined,
  format: 'root',
  command: '',
  port: '',
  memoryMb: '',
  cpus: '',
};

export type TemplateRequest = CreateTemplateRequest | ImageTemplateRequest | ArchiveTemplateRequest;

/** Fields of the other sources are left out, whatever they contain. */
export function templateRequestOf(draft: TemplateDraft): TemplateRequest {
  const { source, archive, format } = draft;
  const name = draft.name.trim();
  const definition = given({
    description: textIn(draft.description),
    resources: anyGiven({ memoryMb: numberIn(draft.memoryMb), cpus: numberIn(draft.cpus) }),
  });
  if (source === 'checkpoint') {
    const from = draft.checkpoint.trim() as CheckpointId;
    return { name, from, ...(draft.replaces ? { replace: true } : {}), ...definition };
  }
  const command = textIn(draft.command);
  const services =
    command === undefined
      ? {}
      : { services: [{ name: 'start', command, ...given({ port: numberIn(draft.port) }) }] };
  if (source === 'image') {
    const username = textIn(draft.registryUser);
    return {
      name,
      image: draft.image.trim(),
      ...(draft.runsEntrypoint ? { entrypoint: true } : {}),
      ...(username === undefined
        ? {}
        : { registryCredentials: { username, password: draft.registryPassword } }),
      ...definition,
      ...services,
    };
  }
  if (archive === undefined) throw new Error('Choose the file of the archive.');
  return { name, archive, ...(format === 'root' ? {} : { format }), ...definition, ...services };
}

/** The limits of sandboxes whose create names none. */
export function limitsText({ resources: { memoryMb, cpus, diskMb, processes } }: TemplateView): string {
  const limits = [
    memoryMb !== undefined && bytes(memoryMb * 1_000_000),
    cpus !== undefined && `${cpus} ${cpus === 1 ? 'CPU' : 'CPUs'}`,
    diskMb !== undefined && `${bytes(diskMb * 1_000_000)} disk`,
    processes !== undefined && `${processes} processes`,
  ];
  return limits.filter(Boolean).join(', ') || 'none';
}
