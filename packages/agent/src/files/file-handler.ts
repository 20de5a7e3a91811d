/**
 * The HTTP handler of all calls on files. It works with the agent's own rights, on behalf of the user that a call
 * names.
 */
import { createContextKey, createContextValues } from '@connectrpc/connect';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import { Filesystem } from '@torpor/envd';
import { TorporError } from '@torpor/protocol';
import { answerError, pathOf, queryOf, type Request, type Response, readBody } from '../http/answers.ts';
import { prepareForConnect, RPC_OPTIONS } from '../http/rpc-options.ts';
import { AccountNames } from '../identity/account-names.ts';
import type { SandboxIdentity } from '../identity/sandbox-identity.ts';
import { type Users, userOfAuthorization } from '../identity/users.ts';
import { OpenWatches } from '../watch/open-watches.ts';
import { extendedAttributes, xattrLibrary } from './extended-attributes.ts';
import { FileMetadata } from './file-metadata.ts';
import { composeFiles, parseCompose, receiveFiles, serveFile } from './files-http.ts';
import { filesystemService } from './filesystem-service.ts';
import type { FileContext, Paths } from './paths.ts';

/** Rejects when the user cannot be resolved. Later errors are answered by the handler itself. */
export type FileHandler = (request: Request, response: Response) => Promise<void>;

export interface FileHandlerOptions {
  readonly users: Users;
  readonly identity: SandboxIdentity;
  readonly paths: Paths;
  /** The file that keeps the metadata of files. */
  readonly metadataFile: string;
  readonly newId: () => string;
}

const FILE_RPC_PREFIX = `/${Filesystem.typeName}/`;

export function isFilePath(path: string): boolean {
  return path === '/files' || path === '/files/compose' || path.startsWith(FILE_RPC_PREFIX);
}

const callContext = createContextKey<FileContext | undefined>(undefined);

export function fileHandler({
  users,
  identity,
  paths,
  metadataFile,
  newId,
}: FileHandlerOptions): FileHandler {
  const metadata = new FileMetadata(metadataFile, extendedAttributes(xattrLibrary));
  const parts = { paths, metadata, newId, names: new AccountNames(), watches: new OpenWatches() };
  const contexts = new WeakMap<object, FileContext>();
  const rpc = connectNodeAdapter({
    ...RPC_OPTIONS,
    contextValues: (request) => createContextValues().set(callContext, contexts.get(request)),
    routes: (router) => {
      router.service(
        Filesystem,
        filesystemService(parts, (call) => requireContext(call.values.get(callContext)), newId),
      );
    },
  });
  const plainCall = async (request: Request, response: Response, context: FileContext, body?: Buffer) => {
    switch (`${request.method} ${pathOf(request)}`) {
      case 'GET /files':
        return serveFile(parts, context, request, response);
      case 'POST /files':
        return receiveFiles(parts, context, request, response);
      case 'POST /files/compose':
        return composeFiles(parts, context, body ?? (await readBody(request)), response);
      default:
        throw new TorporError('not_found', 'There is nothing here for this method.');
    }
  };
  return async (request, response) => {
    const { name, body } = await namedUser(request);
    const user = await users.resolve(name, identity.defaultUser);
    const owner = users.isOtherThanAgent(user) ? user : undefined;
    const context = { user, owner, workdir: identity.defaultWorkdir };
    if (pathOf(request).startsWith(FILE_RPC_PREFIX)) {
      contexts.set(request, context);
      rpc(prepareForConnect(request, response), response);
      return;
    }
    plainCall(request, response, context, body).catch((thrown) => {
      answerError(response, thrown);
      // An unread rest of the body would block the connection.
      request.resume();
    });
  };
}

/** Each of the three kinds of calls names its user in another place. `body` is set when it had to be read for that. */
async function namedUser(request: Request): Promise<{ name: string | undefined; body?: Buffer }> {
  switch (pathOf(request)) {
    case '/files':
      return { name: queryOf(request).get('username') ?? undefined };
    case '/files/compose': {
      const body = await readBody(request);
      return { name: parseCompose(body).username || undefined, body };
    }
    default:
      return { name: userOfAuthorization(request.headers.authorization) };
  }
}

function requireContext(context: FileContext | undefined): FileContext {
  if (context === undefined) throw new TorporError('internal', 'The call has no user.');
  return context;
}
