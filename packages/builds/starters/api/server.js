/** Notes by HTTP, kept in a database file. */
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { fileURLToPath } from 'node:url';
import { Store } from './store.js';

const store = new Store(fileURLToPath(new URL('./data/notes.log', import.meta.url)));
const { goals } = JSON.parse(readFileSync(new URL('./goal.json', import.meta.url), 'utf8'));
const page = readFileSync(new URL('./public/index.html', import.meta.url));
const MAX_BODY = 20_000;

class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function textIn(request) {
  let body = '';
  for await (const chunk of request) {
    body += chunk;
    if (body.length > MAX_BODY) throw new Refusal(413, 'the note is too long');
  }
  let value;
  try {
    value = JSON.parse(body);
  } catch {
    throw new Refusal(400, 'the body is not JSON');
  }
  const { text } = value ?? {};
  if (typeof text !== 'string' || text.trim() === '') throw new Refusal(422, 'a note needs a text');
  return text;
}

function found(id) {
  const note = store.get(id);
  if (note === undefined) throw new Refusal(404, 'there is no such note');
  return note;
}

/** [status, body] */
async function answer(request, path) {
  if (path === '/about') return [200, { goals, notes: store.all().length }];
  if (path === '/notes' && request.method === 'GET') return [200, store.all()];
  if (path === '/notes' && request.method === 'POST')
    return [201, store.put({ text: await textIn(request) })];
  const id = Number(/^\/notes\/(\d+)$/.exec(path)?.[1] ?? Number.NaN);
  if (Number.isNaN(id)) throw new Refusal(404, 'there is nothing here');
  if (request.method === 'GET') return [200, found(id)];
  if (request.method === 'PUT') return [200, store.put({ id: found(id).id, text: await textIn(request) })];
  if (request.method === 'DELETE') return [200, { deleted: store.delete(found(id).id) }];
  throw new Refusal(405, 'this cannot be done here');
}

createServer(async (request, response) => {
  const { pathname } = new URL(request.url, 'http://api');
  if (pathname === '/' && request.headers.accept?.includes('text/html')) {
    response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' });
    return response.end(page);
  }
  const [status, body] = await answer(request, pathname === '/' ? '/about' : pathname).catch((error) => [
    error.status ?? 500,
    { error: error.message },
  ]);
  response.writeHead(status, { 'content-type': 'application/json; charset=utf-8' });
  return response.end(JSON.stringify(body));
}).listen(Number(process.env.PORT ?? 3000), () => console.log('api: listening'));
