/** The parts of the OpenAPI document that do not come from the routes' schemas. */
import type { FastifyDynamicSwaggerOptions } from '@fastify/swagger';
import { jsonSchemaTransform, jsonSchemaTransformObject } from 'fastify-type-provider-zod';
import type { OpenAPIV3_1 } from 'openapi-types';
import { TAR } from './routes/templates.ts';

const DESCRIPTION = `
Sandboxes that sleep, and always wake.

Every response has an \`X-Request-Id\`, which finds the request in the server's log. Every error has the same shape and one of
a closed set of codes; the builds API has its own shape. Routes that name \`Idempotency-Key\` accept it: for a day the same key
with the same body gets the same answer.`.trim();

export function openapiOptions(version: string): FastifyDynamicSwaggerOptions {
  return {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Torpor',
        version,
        description: DESCRIPTION,
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      },
      servers: [{ url: '/', description: 'The server of this document.' }],
      tags: [
        { name: 'sandboxes', description: 'Create, list and kill sandboxes.' },
        { name: 'lifecycle', description: 'Pause, resume, fork, snapshot, rollback.' },
        { name: 'commands', description: 'Run commands in a sandbox.' },
        { name: 'files', description: 'Read and write files of a sandbox.' },
        { name: 'checkpoints', description: 'What a sandbox is resumed from.' },
        { name: 'events', description: 'The ledger.' },
        { name: 'operations', description: 'Requested changes and their outcome.' },
        { name: 'catalogue', description: 'Runtimes and templates.' },
        {
          name: 'builds',
          description: 'From a goal to a preview. Builds have their own error shape.',
        },
        { name: 'keys', description: 'API keys.' },
        { name: 'page', description: 'Sign-in at the page for people.' },
        { name: 'organisations', description: 'Organisations, their quotas and usage.' },
        { name: 'server', description: 'The server itself.' },
      ],
      components: {
        securitySchemes: {
          bearer: { type: 'http', scheme: 'bearer', description: 'The API key.' },
          apiKey: { type: 'apiKey', in: 'header', name: 'X-API-Key', description: 'The API key.' },
        },
      },
      security: [{ bearer: [] }, { apiKey: [] }],
    },
    transform: jsonSchemaTransform,
    transformObject: (document) =>
      withHeadersAndFiles(jsonSchemaTransformObject(document) as OpenAPIV3_1.Document),
  };
}

const IDEMPOTENCY_KEY: OpenAPIV3_1.ParameterObject = {
  name: 'Idempotency-Key',
  in: 'header',
  description: 'For a day, the same key with the same body gets the same answer.',
  schema: { type: 'string', pattern: '^[!-~]{1,255}$' },
};

const LAST_EVENT_ID: OpenAPIV3_1.ParameterObject = {
  name: 'Last-Event-ID',
  in: 'header',
  description: 'The last event that the client has; the stream continues after it.',
  schema: { type: 'string', pattern: '^[0-9]{1,15}$' },
};

const ORG_ID: OpenAPIV3_1.ParameterObject = {
  name: 'orgId',
  in: 'query',
  description:
    "The organisation of the request. Another one than the key's is `forbidden`. An operator key may name any " +
    'organisation in the routes for keys, organisations and usage.',
  schema: { type: 'string', pattern: '^[!-~]{1,200}$' },
};

/** Routes that ignore idempotency keys: a command runs each time it is sent; the others can be repeated. */
const UNKEYED: ReadonlySet<string> = new Set([
  'exec',
  'resumeBuild',
  'snapshotBuild',
  'viewPreview',
  'confirmIterations',
]);
/** Streams of builds that accept `Last-Event-ID`. */
const RESUMED_STREAMS: ReadonlySet<string> = new Set(['streamBuildEvents', 'streamBuildLogs']);

/** Adds the headers, parameters and bodies that hooks and handlers accept and that no route schema has. */
function withHeadersAndFiles(document: OpenAPIV3_1.Document): OpenAPIV3_1.Document {
  for (const path of Object.values(document.paths ?? {})) {
    for (const [method, operation] of Object.entries(path ?? {}) as [string, OpenAPIV3_1.OperationObject][]) {
      const { operationId = '', tags = [] } = operation;
      const isKeyed = ['post', 'delete'].includes(method) && !UNKEYED.has(operationId);
      const isStream = tags.includes('events') || RESUMED_STREAMS.has(operationId);
      const takesOrgId =
        operation.security === undefined &&
        !operation.parameters?.some((one) => 'name' in one && one.name === 'orgId');
      if (takesOrgId) operation.parameters = [...(operation.parameters ?? []), ORG_ID];
      const headers = [...(isKeyed ? [IDEMPOTENCY_KEY] : []), ...(isStream ? [LAST_EVENT_ID] : [])];
      if (headers.length > 0) operation.parameters = [...(operation.parameters ?? []), ...headers];
      if (operation.operationId === 'writeFile') operation.requestBody = FILE_BODY;
      if (operation.operationId === 'createTemplate') addArchive(operation);
    }
  }
  return document;
}

const BYTES: OpenAPIV3_1.MediaTypeObject = { schema: { type: 'string', format: 'binary' } };

const FILE_BODY: OpenAPIV3_1.RequestBodyObject = {
  description: 'The file, of any size.',
  required: true,
  content: { 'application/octet-stream': BYTES },
};

function addArchive({ requestBody }: OpenAPIV3_1.OperationObject): void {
  if (requestBody !== undefined && 'content' in requestBody) requestBody.content[TAR] = BYTES;
}
