/**
 * Relays TCP between a Unix socket and an address: `lab-relay.mjs LISTEN TARGET`, each a path or host:port. Without delay: a
 * message in two parts would otherwise wait for an acknowledgement, which takes 40 ms, and no cluster does that.
 */
import { connect, createServer } from 'node:net';

/** @param {string} text */
function place(text) {
  if (text.startsWith('/')) return { path: text };
  const colon = text.lastIndexOf(':');
  return { host: text.slice(0, colon), port: Number(text.slice(colon + 1)) };
}

const [, , listen = '', target = ''] = process.argv;
createServer({ noDelay: true }, (client) => {
  const server = connect({ ...place(target), noDelay: true });
  client.pipe(server).pipe(client);
  client.on('error', () => server.destroy());
  server.on('error', () => client.destroy());
}).listen(place(listen));
