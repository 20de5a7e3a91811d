/** Serves the files of public/, and a guest book in memory. */
import { createReadStream, readFileSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join, normalize, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('./public', import.meta.url));
const { goals } = JSON.parse(readFileSync(new URL('./goal.json', import.meta.url), 'utf8'));
const startedAt = new Date().toISOString();
const guests = [];
const MAX_GUESTS = 100;
const MAX_BODY = 2_000;

const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};

function json(response, status, value) {
  response.writeHead(status, { 'content-type': 'application/json; charset=utf-8' });
  response.end(JSON.stringify(value));
}

async function bodyOf(request) {
  let text = '';
  for await (const chunk of request) {
    text += chunk;
    if (text.length > MAX_BODY) throw new Error('too long');
  }
  return JSON.parse(text);
}

async function sign(request, response) {
  const { name } = await bodyOf(request);
  if (typeof name !== 'string' || name.trim() === '')
    return json(response, 422, { error: 'a name is needed' });
  guests.unshift({ name: name.trim().slice(0, 60), at: new Date().toISOString() });
  guests.length = Math.min(guests.length, MAX_GUESTS);
  return json(response, 201, guests[0]);
}

async function serveFile(path, response) {
  const place = join(root, normalize(path === '/' ? '/index.html' : path));
  const found = place.startsWith(root + sep) ? await stat(place).catch(() => undefined) : undefined;
  if (found === undefined || !found.isFile()) return json(response, 404, { error: 'there is nothing here' });
  response.writeHead(200, { 'content-type': TYPES[extname(place)] ?? 'application/octet-stream' });
  createReadStream(place).pipe(response);
}

const server = createServer(async (request, response) => {
  try {
    const { pathname } = new URL(request.url, 'http://page');
    if (pathname === '/api/about') return json(response, 200, { goals, startedAt, visitors: guests.length });
    if (pathname !== '/api/guests') return await serveFile(decodeURIComponent(pathname), response);
    if (request.method === 'POST') return await sign(request, response);
    return json(response, 200, guests);
  } catch {
    return json(response, 400, { error: 'this cannot be understood' });
  }
});

server.listen(Number(process.env.PORT ?? 3000), () => console.log('page: listening'));
