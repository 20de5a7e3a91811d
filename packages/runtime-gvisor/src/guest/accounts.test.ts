import { describe, expect, it } from 'vitest';
import { systemAccounts, withGuestUser } from './accounts.ts';

const EMPTY = { passwd: '', group: '', shadow: '' };

describe('the accounts of a guest', () => {
  it('are root, user and the group sudo in an empty root', () => {
    const { files, uid, gid, home } = withGuestUser(EMPTY, '/bin/sh');
    expect(files).toEqual({
      passwd: 'root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n',
      group: 'user:x:1000:\nsudo:x:27:user\n',
      shadow: 'user:*:19000:0:99999:7:::\n',
    });
    expect([uid, gid, home]).toEqual([1000, 1000, '/home/user']);
  });

  it('stay unchanged where all of them exist', () => {
    const once = withGuestUser(systemAccounts(), '/bin/bash').files;
    expect(withGuestUser(once, '/bin/zsh').files).toEqual(once);
  });

  it('get another id where an image gives the usual one to another account', () => {
    const image = {
      passwd: 'root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\nnext:x:1001:5::/:/bin/sh',
      group: 'root:x:0:\nnode:x:1000:\n# a comment\nother:x:1002:',
      shadow: undefined,
    };
    const { files, uid, gid } = withGuestUser(image, '/bin/sh');
    expect([uid, gid]).toEqual([1003, 1003]);
    expect(files.passwd).toContain('node:x:1000:1000');
    expect(files.passwd.split('\n').filter(Boolean)).toHaveLength(4);
    expect(files.group).toContain('# a comment\nother:x:1002:\n');
    expect(files.shadow).toBeUndefined();
  });

  it('add an existing user to the group sudo, and keep the home of that user', () => {
    const image = {
      passwd: 'root:x:0:0::/root:/bin/sh\nuser:x:501:20::/Users/user:/bin/zsh\n',
      group: 'staff:x:20:\nsudo:x:99:ann\n',
      shadow: 'user:$6$hash:1::::::\n',
    };
    const made = withGuestUser(image, '/bin/sh');
    expect(made).toMatchObject({ uid: 501, gid: 20, home: '/Users/user' });
    expect(made.files.group).toBe('staff:x:20:\nsudo:x:99:ann,user\n');
    expect(made.files.shadow).toBe(image.shadow);
  });

  it('have no valid password, and none is from the host', () => {
    const { files } = withGuestUser(systemAccounts(), '/bin/bash');
    for (const line of (files.shadow ?? '').trim().split('\n')) expect(line).toMatch(/^[\w-]+:\*:/);
    expect(files.passwd).toMatch(/^root:x:0:0:/);
    expect(files.group).toMatch(/^sudo:x:27:user$/m);
  });
});
