/** A page that shows what its machine does, as it happens. */
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { freemem, loadavg, totalmem } from 'node:os';
import { acceptWebSocket } from './web-socket.js';

const { goals } = JSON.parse(readFileSync(new URL('./goal.json', import.meta.url), 'utf8'));
const page = readFileSync(new URL('./public/index.html', import.meta.url));
const EVERY_MS = 1_000;
const KEPT = 60;
const startedAt = Date.now();
const viewers = new Set();
const samples = [];
let timer;

function sample() {
  return {
    at: Date.now(),
    load: loadavg()[0],
    memory: 1 - freemem() / totalmem(),
    heap: process.memoryUsage().heapUsed,
    viewers: viewers.size,
    uptime: Math.round((Date.now() - startedAt) / 1_000),
  };
}

function tick() {
  samples.push(sample());
  samples.splice(0, samples.length - KEPT);
  const text = JSON.stringify({ samples: samples.slice(-1) });
  for (const viewer of viewers) viewer.send(text);
}

/** Measures only while a client is connected. */
function watch(isWatched) {
  if (isWatched && timer === undefined) timer = setInterval(tick, EVERY_MS);
  if (!isWatched && timer !== undefined) timer = clearInterval(timer);
}

const server = createServer((request, response) => {
  const { pathname } = new URL(request.url, 'http://dashboard');
  if (pathname === '/') {
    response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' });
    return response.end(page);
  }
  const found = pathname === '/about' ? { goals } : pathname === '/now' ? sample() : undefined;
  response.writeHead(found === undefined ? 404 : 200, { 'content-type': 'application/json; charset=utf-8' });
  return response.end(JSON.stringify(found ?? { error: 'there is nothing here' }));
});

server.on('upgrade', (request, socket) => {
  if (new URL(request.url, 'http://dashboard').pathname !== '/live') return socket.destroy();
  const viewer = acceptWebSocket(request, socket, () => {
    viewers.delete(viewer);
    watch(viewers.size > 0);
  });
  if (viewer === undefined) return undefined;
  viewers.add(viewer);
  samples.push(sample());
  viewer.send(JSON.stringify({ goals, samples }));
  return watch(true);
});

server.listen(Number(process.env.PORT ?? 3000), () => console.log('dashboard: listening'));
