import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parsePasswd, type User, Users, userOfAuthorization } from './users.ts';

const root: User = { name: 'root', uid: 0, gid: 0, home: '/root', shell: '/bin/bash' };
const alice: User = { name: 'alice', uid: 1000, gid: 1001, home: '/home/alice', shell: '/bin/zsh' };

let directory = '';
let passwdFile = '';

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'torpor-users-'));
  passwdFile = join(directory, 'passwd');
  await writeFile(
    passwdFile,
    '# users\nroot:x:0:0:root:/root:/bin/bash\nalice:x:1000:1001:A,,,:/home/alice:/bin/zsh\nbob:x:5:5::/:\n',
  );
});

afterAll(() => rm(directory, { recursive: true }));

describe('users', () => {
  it('are those of /etc/passwd when the agent is root', async () => {
    const users = new Users({ own: root, isSingleUser: false, passwdFile });
    expect(await users.resolve('alice', undefined)).toEqual(alice);
    expect(users.isOtherThanAgent(alice)).toBe(true);
    expect(await users.resolve(undefined, 'alice')).toEqual(alice);
    expect(await users.resolve('root', 'alice')).toEqual(root);
    expect(await users.resolve(undefined, undefined)).toEqual(root);
  });

  it('are refused when they do not exist', async () => {
    const users = new Users({ own: root, isSingleUser: false, passwdFile });
    await expect(users.resolve('mallory', undefined)).rejects.toMatchObject({ code: 'unauthenticated' });
    await expect(users.resolve('../alice', undefined)).rejects.toMatchObject({ code: 'unauthenticated' });
  });

  it('are refused when the agent may not act for them', async () => {
    const users = new Users({ own: alice, isSingleUser: false, passwdFile });
    expect(await users.resolve('alice', undefined)).toEqual(alice);
    await expect(users.resolve('root', undefined)).rejects.toMatchObject({ code: 'forbidden' });
  });

  it('are only one in a sandbox without isolation, under its own or the default name', async () => {
    const users = new Users({ own: root, isSingleUser: true, passwdFile });
    expect(await users.resolve('user', 'user')).toEqual(root);
    await expect(users.resolve('alice', 'user')).rejects.toMatchObject({ code: 'forbidden' });
  });

  it('have a home and a shell even when /etc/passwd names none', () => {
    expect(parsePasswd('bob:x:5:5:::\nbroken\n:x:1:1::/:')).toEqual([
      { name: 'bob', uid: 5, gid: 5, home: '/', shell: '/bin/sh' },
    ]);
  });
});

describe('the user in an Authorization header', () => {
  const basic = (text: string) => `Basic ${Buffer.from(text).toString('base64')}`;

  it('is the text before the colon', () => {
    expect(userOfAuthorization(basic('root:'))).toBe('root');
    expect(userOfAuthorization(basic('user:ignored'))).toBe('user');
  });

  it('is undefined without the header, or with another scheme', () => {
    expect(userOfAuthorization(undefined)).toBeUndefined();
    expect(userOfAuthorization('Bearer x')).toBeUndefined();
  });

  it('must not be empty', () => {
    expect(() => userOfAuthorization(basic(':'))).toThrow(
      expect.objectContaining({ code: 'unauthenticated' }),
    );
  });
});
