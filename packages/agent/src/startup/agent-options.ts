/** What an agent is told when it is started: by flags, and by variables for what must not stand in a process list. */
import { parseArgs } from 'node:util';
import { AGENT_PORT } from '@torpor/envd';
import { TorporError } from '@torpor/protocol';

export type Listen = { readonly host: string; readonly port: number } | { readonly path: string };

export interface AgentOptions {
  readonly listen: Listen;
  /** Confines the file API to this directory, which stands for the user's home. */
  readonly root: string | undefined;
  readonly stateDir: string | undefined;
  readonly sandboxId: string | undefined;
  /** The first credential that setting up needs; without one the first caller sets up. */
  readonly credential: string | undefined;
  /** Descriptors that it was started with and that are not for it. */
  readonly close: readonly number[];
  /** Holds the first credential, and is removed once read: not every system hides a process's variables. */
  readonly credentialFile: string | undefined;
  /** The machine is the sandbox's alone: its name, its files about names and its /proc are the agent's to set. */
  readonly ownMachine: boolean;
  /** Where the members of the group sudo find a way to act as root. Only for an agent that is root. */
  readonly sudoDir: string | undefined;
}

/** Taken out of the environment once read, so that it is not handed on. */
export const CREDENTIAL_VARIABLE = 'TORPOR_AGENT_CREDENTIAL';

export function readOptions(argv: readonly string[], env: NodeJS.ProcessEnv): AgentOptions {
  const { values } = parse(argv);
  return {
    listen: parseListen(values.listen ?? env['TORPOR_AGENT_LISTEN'] ?? String(AGENT_PORT)),
    root: values.root ?? env['TORPOR_AGENT_ROOT'],
    stateDir: values['state-dir'] ?? env['TORPOR_AGENT_STATE_DIR'],
    sandboxId: values['sandbox-id'] ?? env['TORPOR_AGENT_SANDBOX_ID'],
    credential: env[CREDENTIAL_VARIABLE],
    close: values.close === undefined ? [] : parseDescriptors(values.close),
    credentialFile: values['credential-file'],
    ownMachine: values['own-machine'] ?? false,
    sudoDir: values['sudo-dir'],
  };
}

function parse(argv: readonly string[]) {
  try {
    return parseArgs({
      args: [...argv],
      options: {
        listen: { type: 'string' },
        root: { type: 'string' },
        'state-dir': { type: 'string' },
        'sandbox-id': { type: 'string' },
        close: { type: 'string' },
        'credential-file': { type: 'string' },
        'own-machine': { type: 'boolean' },
        'sudo-dir': { type: 'string' },
      },
    });
  } catch (cause) {
    throw new TorporError('invalid_request', cause instanceof Error ? cause.message : String(cause), {
      cause,
    });
  }
}

/** `17,251`; the first three are its own in any case. */
function parseDescriptors(text: string): number[] {
  const numbers = text.split(',').map((part) => (/^\d{1,9}$/.test(part) ? Number(part) : 0));
  if (numbers.every((number) => number > 2)) return numbers;
  throw new TorporError('invalid_request', `--close ${text}: expected numbers from 3 on, with commas.`);
}

/** `49983`, `0.0.0.0:49983`, `[::]:49983` or `unix:/run/agent.sock`. */
export function parseListen(text: string): Listen {
  if (text.startsWith('unix:')) return { path: text.slice('unix:'.length) };
  const [, host, port] = /^(?:(.*):)?(\d{1,5})$/.exec(text) ?? [];
  if (port === undefined || Number(port) > 65_535) {
    throw new TorporError('invalid_request', `--listen ${text}: expected a port, host:port or unix:path.`);
  }
  return { host: host?.replace(/^\[(.*)\]$/, '$1') || '127.0.0.1', port: Number(port) };
}
