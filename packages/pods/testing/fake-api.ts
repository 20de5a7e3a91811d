/**
 * An API server in memory, for failures that a real one cannot be made to show: refusals, conflicts, dropped watches, lost
 * answers, answers of proxies. It knows objects, labels, finalizers, merge patches, replaced specs and watches; nothing acts
 * on the objects but the test.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text as readText } from 'node:stream/consumers';

export interface FakeObject {
  metadata: {
    name: string;
    uid?: string;
    generation?: number;
    resourceVersion?: string;
    deletionTimestamp?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    finalizers?: readonly string[];
    ownerReferences?: readonly { readonly kind: string; readonly uid: string }[];
  };
  spec?: Record<string, unknown>;
  status?: Record<string, unknown>;
  [field: string]: unknown;
}

/**
 * `status`: answered with this status and the body of Kubernetes. `proxy`: a 404 that no API server sent. `drop`: the
 * connection is cut before the request has an effect. `lose`: it is cut after the effect. `hang`: never answered.
 */
export type Fault = number | 'proxy' | 'drop' | 'lose' | 'hang';

export class FakeApi {
  readonly objects = new Map<string, FakeObject>();
  readonly requests: string[] = [];
  /** The fault of a request; undefined: none. */
  faultOf: (method: string, path: string) => Fault | undefined = () => undefined;
  /** Called with each new or changed object, as a controller would be. */
  onChange: (path: string, object: FakeObject) => void = () => {};
  /** Called with each object that was removed. */
  onRemove: (path: string, object: FakeObject) => void = () => {};
  readonly #directory = mkdtempSync(join(tmpdir(), 'torpor-fake-api-'));
  readonly #server = createServer((request, response) => void this.#answer(request, response));
  readonly #watches = new Set<{ readonly path: string; readonly response: ServerResponse }>();
  #version = 0;

  /** Returns the path of a kubeconfig. */
  async start(): Promise<string> {
    this.#server.listen(0, '127.0.0.1');
    await new Promise((resolve) => this.#server.once('listening', resolve));
    const { port } = this.#server.address() as AddressInfo;
    const kubeconfig = join(this.#directory, 'config');
    const cluster = { server: `http://127.0.0.1:${port}`, 'insecure-skip-tls-verify': true };
    const config = {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'c', cluster }],
      users: [{ name: 'u', user: { token: 't' } }],
      contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
      'current-context': 'x',
    };
    writeFileSync(kubeconfig, JSON.stringify(config));
    return kubeconfig;
  }

  get watchCount(): number {
    return this.#watches.size;
  }

  put(path: string, object: FakeObject): FakeObject {
    const before = this.objects.get(path);
    const { uid = `uid-${++this.#version}`, generation = 0 } = before?.metadata ?? {};
    const isChanged = JSON.stringify(before?.spec) !== JSON.stringify(object.spec);
    const metadata = {
      uid,
      ...object.metadata,
      generation: isChanged ? generation + 1 : generation,
      resourceVersion: String(++this.#version),
    };
    const stored = { ...object, metadata };
    this.objects.set(path, stored);
    this.#tell(path, before === undefined ? 'ADDED' : 'MODIFIED', stored);
    this.onChange(path, stored);
    return this.objects.get(path) ?? stored;
  }

  /** Changes parts of an object, such as its status. */
  merge(path: string, change: object): FakeObject {
    const before = this.objects.get(path);
    if (before === undefined) throw new Error(`There is no ${path}.`);
    return this.put(path, merged(before, change) as FakeObject);
  }

  remove(path: string): void {
    const before = this.objects.get(path);
    this.objects.delete(path);
    if (before === undefined) return;
    this.#tell(path, 'DELETED', before);
    this.onRemove(path, before);
  }

  dropWatches(): void {
    for (const { response } of this.#watches) response.destroy();
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
    rmSync(this.#directory, { recursive: true, force: true });
  }

  #tell(path: string, type: string, object: FakeObject): void {
    for (const watch of this.#watches) {
      if (path.startsWith(`${watch.path}/`)) watch.response.write(`${JSON.stringify({ type, object })}\n`);
    }
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://api');
    const method = request.method ?? 'GET';
    this.requests.push(`${method} ${pathname}`);
    const fault = this.faultOf(method, pathname);
    if (fault === 'hang') return;
    if (fault === 'drop') return void request.destroy();
    if (fault === 'proxy') return void response.writeHead(404).end('no such page');
    if (typeof fault === 'number') return refuse(response, fault, `the answer is ${fault}`);
    const text = await readText(request);
    const body = text === '' ? {} : (JSON.parse(text) as object);
    const found = this.#handle(method, pathname, searchParams, body, response);
    if (found === undefined) return;
    if (fault === 'lose') return void request.destroy();
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(found));
  }

  #handle(
    method: string,
    path: string,
    query: URLSearchParams,
    body: object,
    response: ServerResponse,
  ): object | undefined {
    const exact = this.objects.get(path);
    if (method === 'POST') {
      const made = body as FakeObject;
      const at = `${path}/${made.metadata.name}`;
      if (this.objects.has(at)) return void refuse(response, 409, 'it exists', 'AlreadyExists');
      const data = encoded(made['stringData']);
      return this.put(at, data === undefined ? made : { ...made, data });
    }
    if (method === 'PATCH' && exact !== undefined) return this.#patch(path, exact, body);
    if (method === 'DELETE' && exact !== undefined) {
      if (isKept(exact)) this.merge(path, { metadata: { deletionTimestamp: 'now' } });
      else this.remove(path);
      return {};
    }
    if (method === 'GET' && exact !== undefined) return exact;
    const isList = method === 'GET' && !ONE_OBJECT.test(path);
    if (!isList) return void refuse(response, 404, 'there is none', 'NotFound');
    if (query.get('watch') === '1') return void this.#watch(path, response);
    const items = [...this.objects].filter(
      ([at, object]) => at.startsWith(`${path}/`) && matches(object, query.get('labelSelector') ?? ''),
    );
    return { metadata: { resourceVersion: String(this.#version) }, items: items.map(([, object]) => object) };
  }

  /** A JSON patch replaces the spec. */
  #patch(path: string, before: FakeObject, change: object): FakeObject {
    const [replaced] = Array.isArray(change) ? (change as { value: FakeObject['spec'] & object }[]) : [];
    if (replaced !== undefined) return this.put(path, { ...before, spec: replaced.value });
    const changed = merged(before, change) as FakeObject;
    if (changed.metadata.deletionTimestamp === undefined || isKept(changed)) return this.put(path, changed);
    this.remove(path);
    return changed;
  }

  #watch(path: string, response: ServerResponse): void {
    const watch = { path, response };
    this.#watches.add(watch);
    response.on('close', () => this.#watches.delete(watch));
    response.writeHead(200, { 'content-type': 'application/json' });
    response.flushHeaders();
  }
}

const ONE_OBJECT =
  /\/namespaces\/[^/]+\/(pods|secrets|sandboxes|persistentvolumeclaims|sandboxclaims|sandboxtemplates|sandboxwarmpools)\/[^/]+$/;

function isKept({ metadata }: FakeObject): boolean {
  return (metadata.finalizers ?? []).length > 0;
}

function refuse(response: ServerResponse, status: number, message: string, reason = `Status${status}`): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ kind: 'Status', status: 'Failure', reason, message, code: status }));
}

function matches({ metadata }: FakeObject, selector: string): boolean {
  const wanted = selector.split(',').filter(Boolean);
  return wanted.every((one) => {
    const [key = '', value] = one.split('=');
    return metadata.labels?.[key] === value;
  });
}

function encoded(texts: unknown): Record<string, string> | undefined {
  if (typeof texts !== 'object' || texts === null) return undefined;
  return Object.fromEntries(
    Object.entries(texts).map(([key, value]) => [key, Buffer.from(String(value)).toString('base64')]),
  );
}

/** RFC 7386. */
function merged(before: unknown, change: unknown): unknown {
  if (typeof change !== 'object' || change === null || Array.isArray(change)) return change;
  const result: Record<string, unknown> = { ...(typeof before === 'object' ? before : {}) };
  for (const [key, value] of Object.entries(change)) {
    if (value === null) delete result[key];
    else result[key] = merged(result[key], value);
  }
  return result;
}
