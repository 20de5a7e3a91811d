/**
 * Metadata of files as extended attributes `user.e2b.…`, as E2B keeps it: programs in the sandbox can read and set them, and
 * they follow a file that a program moves. Not every file system has them: the root of a sandbox has them with a runsc of
 * 2026. Node has no calls for them, so a native library is used where it is installed.
 */
import { createRequire } from 'node:module';

type Attributes = Readonly<Record<string, string>>;

/** The part of `@napi-rs/xattr` that is used. Links are not followed. */
interface Library {
  getAttribute(path: string, name: string): Promise<Buffer | null>;
  listAttributes(path: string): Promise<string[]>;
  setAttribute(path: string, name: string, value: string): Promise<void>;
  removeAttribute(path: string, name: string): Promise<void>;
}

/**
 * The library for this platform, which is loaded directly: its package decides by the files of the machine which C library
 * Node uses, and the agent brings its own into every image.
 */
export const XATTR_LIBRARY = `@napi-rs/xattr-${process.platform}-${process.arch}${process.platform === 'linux' ? '-gnu' : ''}`;
const PREFIX = 'user.e2b.';

export interface ExtendedAttributes {
  /** None where there are none, and where the file system or this machine has no extended attributes. */
  read(path: string): Promise<Attributes>;
  /** Replaces all of them. False, and none are left, when they cannot be kept there. */
  replace(path: string, attributes: Attributes): Promise<boolean>;
}

/** Without a library there are none. It is loaded by the first call: most agents never need it. */
export function extendedAttributes(load: () => Library | undefined): ExtendedAttributes {
  let loaded: ExtendedAttributes | undefined;
  const attributes = () => {
    loaded ??= attributesBy(load());
    return loaded;
  };
  return {
    read: (path) => attributes().read(path),
    replace: (path, wanted) => attributes().replace(path, wanted),
  };
}

function attributesBy(library: Library | undefined): ExtendedAttributes {
  if (library === undefined) return { read: async () => ({}), replace: async () => false };
  const names = async (path: string) =>
    (await library.listAttributes(path).catch(() => [])).filter((name) => name.startsWith(PREFIX));
  const removeAll = async (path: string) => {
    for (const name of await names(path)) await library.removeAttribute(path, name).catch(() => {});
  };
  return {
    read: async (path) => {
      const found: Record<string, string> = {};
      for (const name of await names(path)) {
        const value = await library.getAttribute(path, name).catch(() => null);
        if (value !== null) found[name.slice(PREFIX.length)] = value.toString('utf8');
      }
      return found;
    },
    replace: async (path, attributes) => {
      await removeAll(path);
      try {
        for (const [name, value] of Object.entries(attributes))
          await library.setAttribute(path, `${PREFIX}${name}`, value);
        return true;
      } catch {
        await removeAll(path);
        return false;
      }
    },
  };
}

/** Undefined where it is not installed. */
export function xattrLibrary(): Library | undefined {
  try {
    return createRequire(import.meta.url)(XATTR_LIBRARY) as Library;
  } catch {
    return undefined;
  }
}
