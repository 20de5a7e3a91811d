/** The server that every contender of `bench:lifecycle` runs, and how its first byte is fetched. */
import { type RequestOptions, request } from 'node:http';
import type { SandboxView } from '@torpor/protocol';

/** A small server that holds this many megabytes of random bytes. */
export const serverCode = (megabytes: number) =>
  `globalThis.held = require('node:crypto').randomBytes(${megabytes} * 1048576);` +
  'let n = 0; require("node:http").createServer((q, r) => r.end(String(++n))).listen(8080, () => console.log("ready"))';

export function service(megabytes: number) {
  return {
    name: 'web',
    command: `node -e '${serverCode(megabytes).replaceAll("'", `'"'"'`)}'`,
    port: 8080,
    ready: { path: '/', timeoutSeconds: 60 },
  };
}

/** Sends a request through the gateway, to the loopback address: Node does not resolve names below localhost. */
export async function get(sandbox: SandboxView): Promise<void> {
  const url = sandbox.urls?.['8080'];
  if (url === undefined) throw new Error('The sandbox names no address for its port.');
  const { host, port } = new URL(url);
  await answer({ host: '127.0.0.1', port, headers: { host }, agent: false });
}

export function answer(options: RequestOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    request(options, (response) => response.resume().on('end', resolve))
      .on('error', reject)
      .end();
  });
}
