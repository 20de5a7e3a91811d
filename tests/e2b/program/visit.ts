/** Requests to a port of a sandbox, at its own host name. */
import { request } from 'node:http';

/** Resolves to the status and the body. */
export async function visit(
  host: string,
  path: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<[number, string]> {
  const isTls = process.env['E2B_DOMAIN'] !== undefined;
  // Without TLS the program must resolve a name below localhost itself.
  if (!isTls) return plainRequest(host, path, headers);
  const answer = await fetch(`https://${host}${path}`, { headers });
  return [answer.status, await answer.text()];
}

function plainRequest(
  host: string,
  path: string,
  headers: Readonly<Record<string, string>>,
): Promise<[number, string]> {
  const port = host.split(':')[1] ?? '';
  return new Promise((resolve, reject) => {
    const sent = request({ host: '127.0.0.1', port, path, headers: { ...headers, host } }, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (piece: string) => {
        text += piece;
      });
      answer.on('end', () => resolve([answer.statusCode ?? 0, text]));
    });
    sent.on('error', reject).end();
  });
}
