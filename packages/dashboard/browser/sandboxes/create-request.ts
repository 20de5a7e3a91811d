/** The create form as text, and the request that it means. */
import type { CreateRequest, Service } from '@torpor/sdk';

export interface ServiceDraft {
  readonly name: string;
  readonly command: string;
  readonly port: string;
}

export interface CreateDraft {
  readonly name: string;
  readonly template: string;
  readonly runtime: string;
  readonly timeoutSeconds: string;
  readonly onTimeout: 'pause' | 'kill';
  readonly idleSeconds: string;
  readonly onIdle: 'pause' | 'stop' | 'kill' | 'keep' | '';
  readonly preview: 'public' | 'private';
  readonly network: 'internet' | 'none';
  readonly allow: string;
  readonly env: string;
  readonly metadata: string;
  readonly services: readonly ServiceDraft[];
  readonly memoryMb: string;
  readonly cpus: string;
}

export const EMPTY_DRAFT: CreateDraft = {
  name: '',
  template: '',
  runtime: '',
  timeoutSeconds: '',
  onTimeout: 'pause',
  idleSeconds: '',
  onIdle: '',
  preview: 'public',
  network: 'internet',
  allow: '',
  env: '',
  metadata: '',
  services: [],
  memoryMb: '',
  cpus: '',
};

/** Fields that are left empty are not sent, so that the server's own defaults apply. Throws on a line that is no variable. */
export function requestOf(draft: CreateDraft): CreateRequest {
  const env = variablesIn(draft.env);
  const metadata = variablesIn(draft.metadata);
  const services = draft.services.filter(({ command }) => command.trim() !== '').map(serviceOf);
  const allow = draft.allow.split(/[\s,]+/).filter(Boolean);
  const resources = { memoryMb: numberIn(draft.memoryMb), cpus: numberIn(draft.cpus) };
  const hasResources = Object.values(resources).some((value) => value !== undefined);
  const all = {
    name: draft.name.trim() || undefined,
    template: draft.template || undefined,
    runtime: draft.runtime || undefined,
    timeoutSeconds: numberIn(draft.timeoutSeconds),
    onTimeout: draft.timeoutSeconds === '' ? undefined : draft.onTimeout,
    idleSeconds: numberIn(draft.idleSeconds),
    onIdle: draft.onIdle || undefined,
    preview: draft.preview === 'private' ? draft.preview : undefined,
    network: networkOf(draft.network, allow),
    env: Object.keys(env).length === 0 ? undefined : env,
    metadata: Object.keys(metadata).length === 0 ? undefined : metadata,
    services: services.length === 0 ? undefined : services,
    resources: hasResources ? defined(resources) : undefined,
  };
  return defined(all) as CreateRequest;
}

function networkOf(mode: CreateDraft['network'], allow: readonly string[]): CreateRequest['network'] {
  if (mode === 'internet') return undefined;
  return { mode, ...(allow.length === 0 ? {} : { allow: [...allow] }) };
}

/** One `NAME=value` per line. */
export function variablesIn(text: string): Record<string, string> {
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  return Object.fromEntries(
    lines.map((line) => {
      const at = line.indexOf('=');
      if (at < 1) throw new Error(`"${line.trim()}" is not NAME=value.`);
      return [line.slice(0, at).trim(), line.slice(at + 1)];
    }),
  );
}

function serviceOf({ name, command, port }: ServiceDraft, index: number): Service {
  const number = numberIn(port);
  return {
    name: name.trim() || `service-${index + 1}`,
    command: command.trim(),
    ...(number === undefined ? {} : { port: number }),
  };
}

function numberIn(text: string): number | undefined {
  return text.trim() === '' ? undefined : Number(text);
}

function defined<T extends object>(values: T): Partial<T> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as Partial<T>;
}
