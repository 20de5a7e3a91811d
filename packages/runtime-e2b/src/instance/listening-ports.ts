/** Which ports are open in a sandbox, asked of its kernel: a provider's own agent has no call for it. */
import type { AgentClient } from '@torpor/envd';

const SCRIPT = 'id -u; cat /proc/net/tcp /proc/net/tcp6';
const COMMAND = { cmd: '/bin/sh', args: ['-c', SCRIPT], envs: {} };
const LISTENING = '0A';

export interface ListeningPorts {
  /** Of everybody in the network that the sandbox is in. */
  readonly all: ReadonlySet<number>;
  /** Of the user that the sandbox's commands run as. */
  readonly own: ReadonlySet<number>;
}

export async function listeningPorts(agent: AgentClient, signal: AbortSignal): Promise<ListeningPorts> {
  let text = '';
  for await (const { event } of agent.process.start({ process: COMMAND, stdin: false }, { signal })) {
    const happened = event?.event;
    if (happened?.case !== 'data' || happened.value.output.case !== 'stdout') continue;
    text += Buffer.from(happened.value.output.value).toString('latin1');
  }
  return parseSockets(text);
}

/** The user's number, then lines as `0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 …`. */
function parseSockets(text: string): ListeningPorts {
  const [user, ...lines] = text.split('\n');
  const all = new Set<number>();
  const own = new Set<number>();
  for (const line of lines) {
    const [, local = '', , state, , , , owner] = line.trim().split(/\s+/);
    const port = Number.parseInt(local.split(':')[1] ?? '', 16);
    if (state !== LISTENING || !(port > 0)) continue;
    all.add(port);
    if (owner === user?.trim()) own.add(port);
  }
  return { all, own };
}
