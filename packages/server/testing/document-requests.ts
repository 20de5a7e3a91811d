/** Generates requests from the OpenAPI document: what an unknown program could send to each route. */
import fc, { type Arbitrary } from 'fast-check';
import type { InjectOptions } from 'fastify';
import { anything, type Components, type JsonSchema, roughly } from './schema-values.ts';

interface Parameter {
  readonly name: string;
  readonly in: 'path' | 'query' | 'header';
  readonly schema: JsonSchema;
}

interface OperationObject {
  readonly operationId: string;
  readonly tags?: readonly string[];
  readonly summary?: string;
  readonly security?: readonly unknown[];
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: JsonSchema }>> };
  readonly responses: Readonly<Record<string, { readonly description: string }>>;
}

export interface ApiDocument {
  readonly openapi: string;
  readonly paths: Readonly<Record<string, Readonly<Record<string, OperationObject>>>>;
  readonly components: { readonly schemas: Components };
}

export interface DocumentedRoute {
  readonly method: string;
  readonly path: string;
  readonly operation: OperationObject;
}

export function routesOf(document: ApiDocument): DocumentedRoute[] {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ method: method.toUpperCase(), path, operation })),
  );
}

/** `idsFor` returns existing ids for a path. */
export function requestsFor(
  route: DocumentedRoute,
  document: ApiDocument,
  key: string,
  idsFor: (path: string) => readonly string[],
): Arbitrary<InjectOptions> {
  const components = document.components.schemas;
  const { parameters = [], requestBody } = route.operation;
  const path = fc.tuple(
    ...parameters
      .filter((one) => one.in === 'path')
      .map(({ name, schema }) =>
        pathValue(schema, components, idsFor(route.path)).map((value) => [name, value] as const),
      ),
  );
  const query = fc.tuple(
    ...parameters
      .filter((one) => one.in === 'query')
      .map(({ name, schema }) =>
        fc.option(roughly(schema, components)).map((value) => [name, value] as const),
      ),
  );
  return fc
    .record({ path, query, body: bodyOf(requestBody, components), headers: headers(key) })
    .map((parts) => {
      const filled = parts.path.reduce(
        (url, [name, value]) => url.replace(`{${name}}`, encodeURIComponent(value)),
        route.path,
      );
      const search = new URLSearchParams();
      for (const [name, value] of parts.query) if (value !== null) search.append(name, asText(value));
      const { type, payload } = parts.body ?? {};
      return {
        method: route.method as NonNullable<InjectOptions['method']>,
        url: search.size === 0 ? filled : `${filled}?${search}`,
        headers: { ...parts.headers, ...(type === undefined ? {} : { 'content-type': type }) },
        ...(payload === undefined ? {} : { payload }),
      };
    });
}

/** A URL cannot hold lone surrogates, and an empty segment would lead to another route. */
function pathValue(schema: JsonSchema, components: Components, ids: readonly string[]): Arbitrary<string> {
  const wild = roughly(schema, components)
    .map(asText)
    .map((text) => text.toWellFormed().replace(/^\.{0,2}$/, '-'));
  return ids.length === 0
    ? wild
    : fc.oneof({ weight: 3, arbitrary: fc.constantFrom(...ids) }, { weight: 2, arbitrary: wild });
}

function bodyOf(requestBody: OperationObject['requestBody'], components: Components) {
  const schema = requestBody?.content['application/json']?.schema;
  const json = (value: Arbitrary<unknown>) =>
    value.map((content) => ({ type: 'application/json', payload: JSON.stringify(content) ?? '' }));
  return fc.option(
    fc.oneof(
      { weight: 12, arbitrary: json(schema === undefined ? anything : roughly(schema, components)) },
      { weight: 1, arbitrary: json(anything) },
      { weight: 1, arbitrary: fc.record({ type: fc.constant('application/json'), payload: fc.string() }) },
      {
        weight: 1,
        arbitrary: fc.record({
          type: fc.constantFrom('text/plain', 'application/xml', ''),
          payload: fc.string(),
        }),
      },
    ),
    { freq: 8, nil: undefined },
  );
}

function headers(key: string): Arbitrary<Record<string, string>> {
  const authorization = fc.oneof(
    { weight: 20, arbitrary: fc.constant(`Bearer ${key}`) },
    {
      weight: 1,
      arbitrary: fc.constantFrom('', 'Bearer', 'Bearer x', `Bearer ${'0'.repeat(64)}`, `Basic ${key}`),
    },
  );
  const visible = fc.string({ unit: fc.constantFrom(...'abc123 -_"{}\\%é'), maxLength: 20 });
  const some = fc.dictionary(
    fc.constantFrom('idempotency-key', 'last-event-id', 'torpor-user', 'x-request-id', 'x-api-key', 'range'),
    visible,
    { maxKeys: 1 },
  );
  return fc
    .tuple(authorization, fc.oneof({ weight: 4, arbitrary: fc.constant({}) }, { weight: 1, arbitrary: some }))
    .map(([auth, other]) => ({ authorization: auth, ...other }));
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
}
