/** A client that starts an upload and disconnects in the middle. */
import { connect } from 'node:net';

/** Resolves once the head and the first bytes are sent. The caller then disconnects. */
export async function beginUpload(
  baseUrl: string,
  path: string,
  headers: Readonly<Record<string, string>>,
  firstBytes: string | Uint8Array,
): Promise<{ breakOff(): void }> {
  const { hostname, port } = new URL(baseUrl);
  const socket = connect(Number(port), hostname);
  socket.on('error', () => {});
  const lines = Object.entries({ host: 'agent', 'content-length': '1000000', ...headers }).map(
    ([name, value]) => `${name}: ${value}`,
  );
  await new Promise<void>((resolve) => {
    socket.write(`POST ${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`);
    socket.write(firstBytes, () => resolve());
  });
  return { breakOff: () => socket.resetAndDestroy() };
}
