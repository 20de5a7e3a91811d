/** Which ports are open in a sandbox, asked of its kernel: a provider's own agent has no call for it. */
import type { AgentClient } from '@torpor/envd';

const COMMAND = { cmd: '/bin/cat', args: ['/proc/net/tcp', '/proc/net/tcp6'], envs: {} };
const LISTENING = '0A';

export async function listeningPorts(agent: AgentClient, signal: AbortSignal): Promise<Set<number>> {
  let text = '';
  for await (const { event } of agent.process.start({ process: COMMAND, stdin: false }, { signal })) {
    const happened = event?.event;
    if (happened?.case !== 'data' || happened.value.output.case !== 'stdout') continue;
    text += Buffer.from(happened.value.output.value).toString('latin1');
  }
  return parseSockets(text);
}

/** Lines as `0: 0100007F:1F90 00000000:0000 0A …`. */
function parseSockets(text: string): Set<number> {
  const ports = new Set<number>();
  for (const line of text.split('\n')) {
    const [, local = '', , state] = line.trim().split(/\s+/);
    const port = Number.parseInt(local.split(':')[1] ?? '', 16);
    if (state === LISTENING && port > 0) ports.add(port);
  }
  return ports;
}
