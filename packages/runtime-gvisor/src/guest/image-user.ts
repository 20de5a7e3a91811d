/** The account for USER of a container image: `name`, `uid`, `name:group` or `uid:gid`. */
import { TorporError } from '@torpor/protocol';
import { readInside, writeInside } from './inside-root.ts';

/** The account that is added when the image has none for its USER. */
const ADDED = 'image-user';
/** As for `docker run` with an image that names no user. */
const ROOT = 'root';

type Account = readonly [name: string, password: string, id: string, gid: string, ...rest: string[]];

/** The name of the account. `root` is a complete root, whose files may be changed. */
export async function imageUser(root: string, wanted: string | null): Promise<string> {
  const [who = '', group] = (wanted ?? ROOT).split(':');
  const passwd = (await readInside(root, '/etc/passwd')) ?? '';
  const users = accountsIn(passwd);
  const found = users.find(([name, , uid]) => name === who || uid === who);
  if (found === undefined && !isId(who)) throw unknown('user', who);
  const uid = found?.[2] ?? who;
  const gid = group === undefined ? (found?.[3] ?? '0') : await groupId(root, group);
  const same = users.find(([name, , id, gidOfUser]) => id === uid && gidOfUser === gid && name !== '');
  if (same !== undefined) return found !== undefined && found[3] === gid ? found[0] : same[0];
  const [home = '/', shell = '/bin/sh'] = found?.slice(5) ?? [];
  await writeInside(root, '/etc/passwd', `${ended(passwd)}${ADDED}:x:${uid}:${gid}::${home}:${shell}\n`);
  return ADDED;
}

async function groupId(root: string, group: string): Promise<string> {
  if (isId(group)) return group;
  const found = accountsIn((await readInside(root, '/etc/group')) ?? '').find(([name]) => name === group);
  if (found === undefined) throw unknown('group', group);
  return found[2];
}

function accountsIn(text: string): Account[] {
  return text
    .split('\n')
    .filter((line) => !line.startsWith('#'))
    .map((line) => line.split(':'))
    .filter((fields): fields is [string, string, string, string] => fields.length >= 3);
}

function isId(text: string): boolean {
  return /^\d{1,10}$/.test(text) && Number(text) < 2 ** 32 - 1;
}

function ended(text: string): string {
  return text === '' || text.endsWith('\n') ? text : `${text}\n`;
}

function unknown(what: string, name: string): TorporError {
  return new TorporError(
    'invalid_request',
    `The image has USER with the ${what} "${name.slice(0, 64)}", which it does not have.`,
  );
}
