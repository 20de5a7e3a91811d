/** The first message of a real TLS client. */
import { Duplex } from 'node:stream';
import { connect } from 'node:tls';

export function clientHello(servername?: string): Promise<Buffer> {
  const { promise, resolve } = Promise.withResolvers<Buffer>();
  const wire = new Duplex({
    read() {},
    write(chunk: Buffer, _, done) {
      resolve(chunk);
      done();
    },
  });
  const socket = connect({ socket: wire, ...(servername === undefined ? {} : { servername }) });
  socket.on('error', () => {});
  return promise.finally(() => socket.destroy());
}
