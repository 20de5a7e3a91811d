/** The groups of the sandbox, as /etc/group knows them. */

export interface Group {
  readonly name: string;
  readonly gid: number;
  readonly members: readonly string[];
}

export function parseGroups(text: string): Group[] {
  return text.split('\n').flatMap((line) => {
    const [name, , gid, members] = line.split(':');
    if (!name || !gid || line.startsWith('#')) return [];
    return [{ name, gid: Number(gid), members: (members ?? '').split(',').filter(Boolean) }];
  });
}
