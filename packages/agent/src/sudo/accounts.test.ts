import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Accounts } from './accounts.ts';

let etc = '';

beforeAll(async () => {
  etc = await mkdtemp(join(tmpdir(), 'torpor-accounts-'));
  await writeFile(
    join(etc, 'passwd'),
    'root:x:0:0::/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\nann:x:1001:27::/home/ann:/bin/sh\nbob:x:1002:1002::/home/bob:/bin/sh\n',
  );
  await writeFile(join(etc, 'group'), 'sudo:x:27:user,ghost\nstaff:x:50:bob\n');
});

afterAll(() => rm(etc, { recursive: true }));

describe('the users who may use sudo', () => {
  it('are root, the members of the group sudo, and users with it as primary group', async () => {
    expect((await new Accounts(etc).allowed()).map(({ name }) => name)).toEqual(['root', 'user', 'ann']);
  });

  it('are only root without account files', async () => {
    expect((await new Accounts('/nowhere').allowed()).map(({ uid }) => uid)).toEqual([0]);
  });
});

describe('the target user', () => {
  const target = (user: string, group?: string) => new Accounts(etc).target({ user, group });

  it('is found by name or id, with a group if requested', async () => {
    expect(await target('bob')).toMatchObject({ uid: 1002, gid: 1002 });
    expect(await target('#1001')).toMatchObject({ name: 'ann' });
    expect(await target('#4242')).toMatchObject({ uid: 4242, gid: 4242, home: '/' });
    expect(await target('bob', 'staff')).toMatchObject({ uid: 1002, gid: 50 });
    expect(await target('root', '#7')).toMatchObject({ uid: 0, gid: 7 });
  });

  it.each([
    ['mallory', undefined],
    ['#x', undefined],
    ['#4294967295', undefined],
    ['bob', 'nogroup'],
  ])('does not exist for %s and %s', async (user, group) => {
    await expect(target(user, group)).rejects.toThrow(/unknown (user|group)/);
  });
});
