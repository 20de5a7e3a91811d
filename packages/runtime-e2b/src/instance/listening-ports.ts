/** Reads the listening ports from the kernel of a sandbox, because the agent of a provider has no call for that. */
import type { AgentClient } from '@torpor/envd';

const SCRIPT = 'id -u; cat /proc/net/tcp /proc/net/tcp6';
const COMMAND = { cmd: '/bin/sh', args: ['-c', SCRIPT], envs: {} };
const LISTENING = '0A';

export interface ListeningPorts {
  /** Of all users in the network of the sandbox. */
  readonly all: ReadonlySet<number>;
  /** Of the user who runs the sandbox's commands. */
  readonly own: ReadonlySet<number>;
}

export async function listeningPorts(agent: AgentClient, signal: AbortSignal): Promise<ListeningPorts> {
  let text = '';
  for await (const { event } of agent.process.start({ process: COMMAND, stdin: false }, { signal })) {
    const output = event?.event;
    if (output?.case !== 'data' || output.value.output.case !== 'stdout') continue;
    text += Buffer.from(output.value.output.value).toString('latin1');
  }
  return parseSockets(text);
}

/** The first line is the user id, the others are like `0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 …`. */
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
