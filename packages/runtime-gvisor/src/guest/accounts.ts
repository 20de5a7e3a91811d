/** The users and groups of a guest: those of every Debian, and `user`. None of the host's accounts. */
import { GUEST_HOME, GUEST_UID, GUEST_USER } from './layout.ts';

const SYSTEM_USERS: readonly (readonly [name: string, uid: number, gid: number, home: string])[] = [
  ['daemon', 1, 1, '/usr/sbin'],
  ['bin', 2, 2, '/bin'],
  ['sys', 3, 3, '/dev'],
  ['games', 5, 60, '/usr/games'],
  ['man', 6, 12, '/var/cache/man'],
  ['mail', 8, 8, '/var/mail'],
  ['www-data', 33, 33, '/var/www'],
  ['backup', 34, 34, '/var/backups'],
  ['_apt', 42, 65534, '/nonexistent'],
  ['nobody', 65534, 65534, '/nonexistent'],
];

const SYSTEM_GROUPS: readonly (readonly [name: string, gid: number])[] = [
  ['root', 0],
  ['daemon', 1],
  ['bin', 2],
  ['sys', 3],
  ['adm', 4],
  ['tty', 5],
  ['disk', 6],
  ['mail', 8],
  ['man', 12],
  ['sudo', 27],
  ['www-data', 33],
  ['backup', 34],
  ['shadow', 42],
  ['utmp', 43],
  ['video', 44],
  ['staff', 50],
  ['games', 60],
  ['users', 100],
  ['nogroup', 65534],
];

/** Debian's id of the group that may read `shadow`. */
export const SHADOW_GID = 42;
const SUDO_GROUP = 'sudo';
const SUDO_GID = 27;

export interface AccountFiles {
  readonly passwd: string;
  readonly group: string;
  /** Undefined when the root has no such file; guests need no passwords. */
  readonly shadow: string | undefined;
}

/** The accounts of `base`, before its user is added. */
export function systemAccounts(): AccountFiles {
  const users = SYSTEM_USERS.map(
    ([name, uid, gid, home]) => `${name}:x:${uid}:${gid}:${name}:${home}:/usr/sbin/nologin\n`,
  );
  return {
    passwd: `root:x:0:0:root:/root:/bin/bash\n${users.join('')}`,
    group: SYSTEM_GROUPS.map(([name, gid]) => `${name}:x:${gid}:\n`).join(''),
    shadow: ['root', ...SYSTEM_USERS.map(([name]) => name)].map(lockedAccount).join(''),
  };
}

export interface WithUser {
  readonly files: AccountFiles;
  readonly uid: number;
  readonly gid: number;
  readonly home: string;
}

/** Adds root, `user`, and the group `sudo` with `user` in it, where they are missing. Existing accounts stay. */
export function withGuestUser({ passwd, group, shadow }: AccountFiles, shell: string): WithUser {
  const users = rows(passwd);
  const groups = rows(group);
  const added = { passwd: '', group: '', shadow: '' };
  if (!users.some(([, , uid]) => uid === '0')) added.passwd += `root:x:0:0:root:/root:${shell}\n`;
  const own = users.find(([name]) => name === GUEST_USER);
  const ids = own === undefined ? freeIds(users, groups) : { uid: Number(own[2]), gid: Number(own[3]) };
  const home = own?.[5] || GUEST_HOME;
  if (own === undefined) {
    added.passwd += `${GUEST_USER}:x:${ids.uid}:${ids.gid}::${home}:${shell}\n`;
    added.group += `${GUEST_USER}:x:${ids.gid}:\n`;
    added.shadow += lockedAccount(GUEST_USER);
  }
  return {
    ...ids,
    home,
    files: {
      passwd: ended(passwd) + added.passwd,
      group: withSudoer(ended(group) + added.group),
      shadow: shadow === undefined ? undefined : ended(shadow) + added.shadow,
    },
  };
}

/** The usual id, or the next one that neither a user nor a group has. */
function freeIds(users: readonly string[][], groups: readonly string[][]): { uid: number; gid: number } {
  const taken = new Set([...users, ...groups].map(([, , id]) => Number(id)));
  let id = GUEST_UID;
  while (taken.has(id)) id += 1;
  return { uid: id, gid: id };
}

function withSudoer(group: string): string {
  const isThere = rows(group).some(([name]) => name === SUDO_GROUP);
  const lines = isThere ? group : `${group}${SUDO_GROUP}:x:${freeGid(group)}:\n`;
  return lines.replace(new RegExp(`^(${SUDO_GROUP}:[^:\\n]*:[^:\\n]*:)(.*)$`, 'm'), (line, head, members) => {
    const names = String(members).split(',').filter(Boolean);
    return names.includes(GUEST_USER) ? line : `${head}${[...names, GUEST_USER].join(',')}`;
  });
}

function freeGid(group: string): number {
  const taken = new Set(rows(group).map(([, , gid]) => Number(gid)));
  let gid = SUDO_GID;
  while (taken.has(gid)) gid += 1;
  return gid;
}

function rows(text: string): string[][] {
  return text
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => line.split(':'));
}

/** An account without a valid password. */
function lockedAccount(name: string): string {
  return `${name}:*:19000:0:99999:7:::\n`;
}

function ended(text: string): string {
  return text === '' || text.endsWith('\n') ? text : `${text}\n`;
}
