/** For whom a call on files acts: whose home it starts from, and who owns what it makes. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { pathOf, queryOf, readBody } from '../http/answers.ts';
import type { SandboxIdentity } from '../identity/sandbox-identity.ts';
import { type Users, userOfAuthorization } from '../identity/users.ts';
import type { FileFace } from './file-handler.ts';
import { parseCompose } from './files-http.ts';

export interface FileDispatchParts {
  readonly users: Users;
  readonly identity: SandboxIdentity;
  readonly face: FileFace;
}

export function fileDispatch({ users, identity, face }: FileDispatchParts) {
  return async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { name, body } = await askedUser(request);
    const user = await users.resolve(name, identity.defaultUser);
    const owner = users.isOther(user) ? user : undefined;
    face(request, response, { user, owner, workdir: identity.defaultWorkdir }, body);
  };
}

/** Each of the three kinds of calls names its user in a place of its own. */
async function askedUser(request: IncomingMessage): Promise<{ name: string | undefined; body?: Buffer }> {
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
