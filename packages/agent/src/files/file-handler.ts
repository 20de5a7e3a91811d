/** Everything that touches files, as one HTTP handler that acts with the agent's own rights. */
import { createContextKey, createContextValues } from '@connectrpc/connect';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import { Filesystem } from '@torpor/envd';
import { TorporError } from '@torpor/protocol';
import { answerFailure, pathOf, type Request, type Response, readBody } from '../http/answers.ts';
import { RPC_OPTIONS, safeForConnect } from '../http/rpc-options.ts';
import { AccountNames } from '../identity/account-names.ts';
import { OpenWatches } from '../watch/open-watches.ts';
import { FileMetadata } from './file-metadata.ts';
import { composeFiles, serveFile, takeFiles } from './files-http.ts';
import { filesystemService } from './filesystem-service.ts';
import type { FileContext, Paths } from './paths.ts';

/** `body` is what was already read of the request. */
export type FileFace = (request: Request, response: Response, context: FileContext, body?: Buffer) => void;

export interface FileFaceOptions {
  readonly paths: Paths;
  /** Where metadata of files is kept. */
  readonly metadataFile: string;
  readonly newId: () => string;
}

const FILE_RPC_PREFIX = `/${Filesystem.typeName}/`;

export function isFilePath(path: string): boolean {
  return path === '/files' || path === '/files/compose' || path.startsWith(FILE_RPC_PREFIX);
}

const callContext = createContextKey<FileContext | undefined>(undefined);

export function fileFace({ paths, metadataFile, newId }: FileFaceOptions): FileFace {
  const metadata = new FileMetadata(metadataFile);
  const parts = { paths, metadata, newId, names: new AccountNames(), watches: new OpenWatches() };
  const contexts = new WeakMap<object, FileContext>();
  const rpc = connectNodeAdapter({
    ...RPC_OPTIONS,
    contextValues: (request) => createContextValues().set(callContext, contexts.get(request)),
    routes: (router) => {
      router.service(
        Filesystem,
        filesystemService(parts, (call) => present(call.values.get(callContext)), newId),
      );
    },
  });
  const plain = async (request: Request, response: Response, context: FileContext, body?: Buffer) => {
    switch (`${request.method} ${pathOf(request)}`) {
      case 'GET /files':
        return serveFile(parts, context, request, response);
      case 'POST /files':
        return takeFiles(parts, context, request, response);
      case 'POST /files/compose':
        return composeFiles(parts, context, body ?? (await readBody(request)), response);
      default:
        throw new TorporError('not_found', 'There is nothing here for this method.');
    }
  };
  return (request, response, context, body) => {
    if (pathOf(request).startsWith(FILE_RPC_PREFIX)) {
      contexts.set(request, context);
      rpc(safeForConnect(request, response), response);
      return;
    }
    plain(request, response, context, body).catch((thrown) => {
      answerFailure(response, thrown);
      // What is left of a body nobody wants would block the connection.
      request.resume();
    });
  };
}

function present(context: FileContext | undefined): FileContext {
  if (context === undefined) throw new TorporError('internal', 'The call has no user.');
  return context;
}
