/** The agent's start options: flags, and environment variables for values that a process list must not show. */
import { parseArgs } from 'node:util';
import { AGENT_PORT } from '@torpor/envd';
import { TorporError } from '@torpor/protocol';

export type Listen = { readonly host: string; readonly port: number } | { readonly path: string };

export interface AgentOptions {
  readonly listen: Listen;
  /** Confines the file API to this directory, which is then the user's home. */
  readonly root: string | undefined;
  readonly stateDir: string | undefined;
  readonly sandboxId: string | undefined;
  /** The credential that the first `/init` must carry. Without one, the first caller may set the agent up. */
  readonly credential: string | undefined;
  /** Inherited file descriptors that the agent closes at start. */
  readonly close: readonly number[];
  /** A file with the first credential, removed once read. Some systems show a process's variables to other users. */
  readonly credentialFile: string | undefined;
  /** The sandbox has a machine of its own, so the agent may set its host name, resolv.conf, hosts and /proc mount. */
  readonly ownMachine: boolean;
  /** Directory of the sudo sockets. Only for an agent that runs as root. */
  readonly sudoDir: string | undefined;
  /** Directory of the files that are mounted over /proc/cpuinfo and its like. Only for an agent on gVisor. */
  readonly processorsDir: string | undefined;
  /** The name by which clients call the agent's own user, whom the image of a container may not know. */
  readonly user: string | undefined;
  readonly home: string | undefined;
  /** Makes what the first command needs before anything asks for it: the agent waits in a warm pool. */
  readonly warmUp: boolean;
}

/** Removed from the environment once read, so that no child process inherits it. */
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
    processorsDir: values['processors-dir'],
    user: values.user,
    home: values.home,
    warmUp: values['warm-up'] ?? false,
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
        'processors-dir': { type: 'string' },
        user: { type: 'string' },
        home: { type: 'string' },
        'warm-up': { type: 'boolean' },
      },
    });
  } catch (cause) {
    throw new TorporError('invalid_request', cause instanceof Error ? cause.message : String(cause), {
      cause,
    });
  }
}

/** Parses `17,251`. Refuses 0 to 2: the agent needs its own stdin, stdout and stderr. */
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
