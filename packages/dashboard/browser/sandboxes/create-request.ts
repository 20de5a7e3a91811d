/** The create form as text, and the request that it means. */
import type { CreateRequest, Service } from '@torpor/sdk';
import { anyGiven, given, numberIn, textIn, variablesIn } from '../ui/form-values.ts';
import { EMPTY_NETWORK, type NetworkDraft, networkOf } from './network-rules.ts';

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
  readonly network: NetworkDraft;
  readonly env: string;
  readonly metadata: string;
  readonly services: readonly ServiceDraft[];
  readonly memoryMb: string;
  readonly cpus: string;
  readonly diskMb: string;
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
  network: EMPTY_NETWORK,
  env: '',
  metadata: '',
  services: [],
  memoryMb: '',
  cpus: '',
  diskMb: '',
};

/** Fields that are left empty are not sent, so that the server's own defaults apply. Throws on a line that is no variable. */
export function requestOf(draft: CreateDraft): CreateRequest {
  const services = draft.services.filter(({ command }) => command.trim() !== '').map(serviceOf);
  return given({
    name: textIn(draft.name),
    template: textIn(draft.template),
    runtime: textIn(draft.runtime),
    timeoutSeconds: numberIn(draft.timeoutSeconds),
    onTimeout: draft.timeoutSeconds === '' ? undefined : draft.onTimeout,
    idleSeconds: numberIn(draft.idleSeconds),
    onIdle: draft.onIdle || undefined,
    preview: draft.preview === 'private' ? draft.preview : undefined,
    network: draft.network === EMPTY_NETWORK ? undefined : networkOf(draft.network),
    env: anyGiven(variablesIn(draft.env)),
    metadata: anyGiven(variablesIn(draft.metadata)),
    services: services.length === 0 ? undefined : services,
    resources: anyGiven({
      memoryMb: numberIn(draft.memoryMb),
      cpus: numberIn(draft.cpus),
      diskMb: numberIn(draft.diskMb),
    }),
  }) as CreateRequest;
}

function serviceOf({ name, command, port }: ServiceDraft, index: number): Service {
  return {
    name: name.trim() || `service-${index + 1}`,
    command: command.trim(),
    ...given({ port: numberIn(port) }),
  };
}
