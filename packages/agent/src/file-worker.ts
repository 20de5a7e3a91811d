/**
 * The file face in a process of its own, with the rights of one user and nobody else's: then it is the
 * kernel that decides what the user may touch. It speaks HTTP/2 over the one pipe to its parent, so
 * nobody else can call it, and it ends when the parent does.
 */
import { stat } from 'node:fs/promises';
import { createServer } from 'node:http2';
import { Socket } from 'node:net';
import { join } from 'node:path';
import { type FileFace, fileFace } from './file-face.ts';
import type { Request, Response } from './http-answers.ts';
import { Paths } from './paths.ts';
import { tidyMemory } from './tidy-memory.ts';
import type { User } from './users.ts';

/** Where the parent keeps its end of the pipe. */
export const PIPE_FD = 3;

/** The parent's answer to the one thing of the sandbox that an empty path depends on. */
export const WORKDIR_HEADER = 'torpor-default-workdir';

/** One stream that nobody reads may keep this much waiting; all together far more, so as not to block each other. */
export const STREAM_WINDOW = 256 * 1024;
export const SESSION_WINDOW = 64 * 1024 * 1024;

export async function runFileWorker(user: User, stateDir: string, newId: () => string): Promise<void> {
  // The first use makes the threads for it, and a user who has used up their processes could have none.
  await stat('/');
  giveUpRights(user);
  const face = fileFace({
    paths: new Paths(undefined),
    metadataFile: join(stateDir, 'file-metadata.json'),
    newId,
  });
  serve(user, face);
}

/** In this order: once the user is changed the rest is no longer allowed. */
function giveUpRights(user: User): void {
  process.setgroups?.([]);
  process.setgid?.(user.gid);
  process.setuid?.(user.uid);
  if (process.getuid?.() !== user.uid || process.getgid?.() !== user.gid) {
    throw new Error('The rights of the parent could not be given up.');
  }
}

function serve(user: User, face: FileFace): void {
  const server = createServer({ settings: { initialWindowSize: STREAM_WINDOW } }, (request, response) => {
    const workdir = request.headers[WORKDIR_HEADER];
    face(request as unknown as Request, response as unknown as Response, {
      user,
      workdir: workdir === undefined ? undefined : decodeURIComponent(String(workdir)),
    });
  });
  server.on('session', (session) => {
    session.setLocalWindowSize(SESSION_WINDOW);
    // Only sent to have it ready; nothing is under way then.
    session.on('ping', tidyMemory);
  });
  const pipe = new Socket({ fd: PIPE_FD, readable: true, writable: true });
  pipe.on('close', () => process.exit(0));
  server.emit('connection', pipe);
}
