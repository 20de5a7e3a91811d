/** The sockets of a server in its router. */
import { Socket as DatagramSocket } from 'node:dgram';
import type { FileHandle } from 'node:fs/promises';
import { Server } from 'node:net';
import { TorporError } from '@torpor/protocol';
import { EGRESS_PORT, RESOLVER_PORT } from './firewall.ts';
import { socketsInNamespace } from './namespace-sockets.ts';
import { runSystemProgram } from './system-program.ts';

export interface RouterSockets {
  readonly egress: Server;
  readonly resolverStreams: Server;
  readonly resolverDatagrams: DatagramSocket;
  readonly conntrack: FileHandle | undefined;
}

/** Resets the connections of an earlier process first. */
export async function openRouterSockets(netns: string): Promise<RouterSockets> {
  await runSystemProgram('ss', ['-N', netns, '-K', '-H', '-n', '-t', 'state', 'connected']);
  const everywhere = '0.0.0.0';
  const { sockets, conntrack } = await socketsInNamespace(netns, [
    { kind: 'tcp', host: everywhere, port: EGRESS_PORT },
    { kind: 'tcp', host: everywhere, port: RESOLVER_PORT },
    { kind: 'udp', host: everywhere, port: RESOLVER_PORT },
  ]);
  const [egress, resolverStreams, resolverDatagrams] = sockets;
  if (
    egress instanceof Server &&
    resolverStreams instanceof Server &&
    resolverDatagrams instanceof DatagramSocket
  ) {
    return { egress, resolverStreams, resolverDatagrams, conntrack };
  }
  throw new TorporError('internal', 'The sockets in the router are not of the requested kinds.');
}

export async function closeRouterSockets(sockets: RouterSockets): Promise<void> {
  sockets.egress.close();
  sockets.resolverStreams.close();
  sockets.resolverDatagrams.close();
  await sockets.conntrack?.close();
}
