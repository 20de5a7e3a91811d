/** The public methods of the SDK, and which of them the program calls, to find methods that it never calls. */
import type { Package, Scene } from './chapter.ts';

/** Methods that the program does not call, because they need a template with an MCP gateway, and an alias of `pause`. */
export const LEFT_OUT: readonly string[] = [
  'Sandbox.getMcpToken',
  'Sandbox.getMcpUrl',
  'static Sandbox.betaPause',
  'Sandbox.betaPause',
];
const PRIVATE_PARTS =
  /^(?:(?:static )?Sandbox\.(?:fileUrl|resolveApiOpts|resolveOpts|createSandbox|connectSandbox|forkSandbox)|Commands\.start|Git\.(?:runGit|runShell|hasUpstream|getRemoteUrl|resolveRemoteName|withRemoteCredentials)|Template\.(?:build|toJSON|toDockerfile|collectStackTrace|instructionsWithHashes|serialize)|static Template\.(?:resolveOpts|resolveApiOpts))$/;

export interface PublicMethod {
  /** `static Sandbox.create`, `Files.read`. */
  readonly name: string;
  /** The object that has the method, and the name of the method there. */
  readonly owner: Record<string, unknown>;
  readonly method: string;
}

export function publicMethods({ Sandbox, TemplateBase }: Package, sandbox: Scene['sandbox']): PublicMethod[] {
  const parts = { Commands: sandbox.commands, Pty: sandbox.pty, Files: sandbox.files, Git: sandbox.git };
  return [
    ...methodsOf('static Sandbox', Sandbox),
    ...methodsOf('Sandbox', Sandbox.prototype),
    ...methodsOf('static Template', TemplateBase),
    ...methodsOf('Template', TemplateBase.prototype),
    ...Object.entries(parts).flatMap(([name, part]) => methodsOf(name, Object.getPrototypeOf(part))),
  ].filter(({ name }) => !PRIVATE_PARTS.test(name));
}

function methodsOf(name: string, object: object): PublicMethod[] {
  const found: PublicMethod[] = [];
  for (let level = object; level !== Object.prototype && level !== Function.prototype; ) {
    for (const method of Object.getOwnPropertyNames(level)) {
      const call: unknown = Object.getOwnPropertyDescriptor(level, method)?.value;
      if (typeof call === 'function' && method !== 'constructor' && /^[a-z]/.test(method))
        found.push({ name: `${name}.${method}`, owner: level as PublicMethod['owner'], method });
    }
    level = Object.getPrototypeOf(level) as object;
  }
  return found;
}

/** Wraps every method. The returned function lists the methods that were never called. */
export function watchCalls({ e2b, sandbox }: Scene): () => string[] {
  const missed = new Set<string>();
  for (const { name, owner, method } of publicMethods(e2b, sandbox)) {
    if (LEFT_OUT.includes(name)) continue;
    const call = owner[method] as (...given: unknown[]) => unknown;
    missed.add(name);
    owner[method] = function watched(this: unknown, ...given: unknown[]): unknown {
      missed.delete(name);
      return Reflect.apply(call, this, given);
    };
  }
  return () => [...missed].sort();
}
