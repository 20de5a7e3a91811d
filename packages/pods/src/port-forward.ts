/**
 * One TCP connection to a port of a pod, through the API server. The stream protocol has a channel for data and one for
 * errors; the first message of each only repeats the port.
 */
import { Duplex } from 'node:stream';
import type { WebSocket } from 'ws';
import type { Cluster } from './cluster.ts';

const PROTOCOL = 'v4.channel.k8s.io';
const DATA = 0;
/** Stops reading from the socket above this, and from the pod while the reader is behind. */
const MOST_UNSENT = 1024 * 1024;
const CHECK_UNSENT_MS = 5;

export async function forwardPort(
  cluster: Cluster,
  namespace: string,
  pod: string,
  port: number,
): Promise<Duplex> {
  const path = `/api/v1/namespaces/${namespace}/pods/${pod}/portforward?ports=${port}`;
  const socket = await cluster.openSocket(path, PROTOCOL);
  // Listens before the socket is open: the first messages may come together with the answer to the handshake.
  const stream = streamOf(socket);
  await new Promise<void>((resolve, reject) => {
    socket.once('open', () => resolve());
    stream.once('error', reject);
  });
  return stream;
}

function streamOf(socket: WebSocket): Duplex {
  const seen = new Set<number>();
  const stream = new Duplex({
    read: () => socket.resume(),
    write: (chunk: Buffer, _, done) => {
      socket.send(Buffer.concat([Buffer.of(DATA), chunk]), { binary: true });
      whenSent(socket, done);
    },
    // The protocol cannot close one direction only.
    final: (done) => whenSent(socket, done),
    destroy: (error, done) => {
      socket.terminate();
      done(error);
    },
  });
  socket.on('message', (message: Buffer) => {
    const channel = message[0] ?? 0;
    // The first message of a channel is its port.
    if (!seen.has(channel)) return void seen.add(channel);
    if (channel !== DATA) return void stream.destroy(new Error(message.subarray(1).toString('utf8')));
    if (!stream.push(message.subarray(1))) socket.pause();
  });
  socket.on('close', () => stream.push(null));
  socket.on('error', (error) => stream.destroy(error));
  return stream;
}

function whenSent(socket: WebSocket, done: (error?: Error | null) => void): void {
  if (socket.readyState !== socket.OPEN) done(new Error('The connection to the pod was closed.'));
  else if (socket.bufferedAmount < MOST_UNSENT) done();
  else setTimeout(() => whenSent(socket, done), CHECK_UNSENT_MS);
}
