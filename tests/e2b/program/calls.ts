/** Notes which public methods of the package the program calls, to find methods that it never calls. */
import type { SandboxPaginator, SnapshotPaginator, WatchHandle } from 'e2b';
import type { Scene } from './chapter.ts';
import { declaredMethods } from './declared-methods.ts';

/** Classes of the package whose methods send requests. The program calls all of them. */
export const CALLED_CLASSES = [
  ...['Sandbox', 'SandboxApi', 'TemplateBase', 'Commands', 'CommandHandle', 'Pty', 'Filesystem', 'Git'],
  ...['WatchHandle', 'SandboxPaginator', 'SnapshotPaginator'],
] as const;

interface Handles {
  readonly command: object;
  readonly watch: WatchHandle;
  readonly pages: SandboxPaginator;
  readonly snapshotPages: SnapshotPaginator;
}

/** Objects that only calls return. */
export async function openHandles({ sandbox, e2b }: Scene): Promise<Handles> {
  const command = await sandbox.commands.run('true', { background: true });
  const watch = await sandbox.files.watchDir('/tmp', () => {});
  await watch.stop();
  return { command, watch, pages: e2b.Sandbox.list(), snapshotPages: sandbox.listSnapshots() };
}

/** Wraps every declared method. The returned function lists the methods that were never called. */
export async function watchCalls(
  name: string,
  { e2b, sandbox }: Scene,
  handles: Handles,
): Promise<() => string[]> {
  const { Sandbox, TemplateBase } = e2b;
  const owners: Readonly<Record<(typeof CALLED_CLASSES)[number], object>> = {
    Sandbox: Sandbox.prototype,
    SandboxApi: Sandbox.prototype,
    TemplateBase: TemplateBase.prototype,
    Commands: sandbox.commands,
    CommandHandle: handles.command,
    Pty: sandbox.pty,
    Filesystem: sandbox.files,
    Git: sandbox.git,
    WatchHandle: handles.watch,
    SandboxPaginator: handles.pages,
    SnapshotPaginator: handles.snapshotPages,
  };
  const missed = new Set<string>();
  const declared = await declaredMethods(name);
  for (const type of CALLED_CLASSES)
    for (const method of declared.get(type) ?? []) {
      const [, statically, key = ''] = /^(static )?(.*)$/.exec(method) ?? [];
      const start = statically === undefined ? owners[type] : (owners[type].constructor as object);
      const title = `${type}: ${method}`;
      missed.add(title);
      wrap(ownerOf(start, key, title), key, () => void missed.delete(title));
    }
  return () => [...missed].sort();
}

type Owner = Record<string, (...given: unknown[]) => unknown>;

/** The object on the chain of prototypes that has the method itself. */
function ownerOf(start: object, key: string, title: string): Owner {
  for (
    let level: object | null = start;
    level !== null;
    level = Object.getPrototypeOf(level) as object | null
  )
    if (Object.hasOwn(level, key)) return level as Owner;
  throw new Error(`The package declares ${title} and has no such method.`);
}

function wrap(owner: Owner, key: string, note: () => void): void {
  const call = owner[key];
  owner[key] = function watched(this: unknown, ...given: unknown[]): unknown {
    note();
    return Reflect.apply(call as () => unknown, this, given);
  };
}
