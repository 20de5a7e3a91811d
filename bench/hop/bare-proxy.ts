/** The proxy that the hop is compared with: Node's own HTTP client behind Node's own HTTP server, with kept connections. */
import { Agent, createServer, request as httpRequest } from 'node:http';

const target = Number(process.argv[2]);
const agent = new Agent({ keepAlive: true });
const server = createServer({ keepAliveTimeout: 72_000 }, (request, response) => {
  const { method, url, headers } = request;
  const passedOn = httpRequest({ host: '127.0.0.1', port: target, method, path: url, headers, agent });
  passedOn.on('response', (answer) => {
    response.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(response);
  });
  passedOn.on('error', () => response.destroy());
  request.pipe(passedOn);
});
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  if (typeof address === 'object' && address !== null) console.log(address.port);
});
