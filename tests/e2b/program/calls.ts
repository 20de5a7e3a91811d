/** Records which public methods of the SDK the program calls, to find methods that it never calls. */
import type { Scene } from './chapter.ts';

/** Private helpers, and methods that need a template with an MCP gateway or a devcontainer. */
const LEFT_OUT = new Set([
  'Sandbox.getMcpToken',
  'Sandbox.getMcpUrl',
  'Sandbox.fileUrl',
  'Sandbox.resolveApiOpts',
  'Sandbox.resolveOpts',
  'Sandbox.createSandbox',
  'Sandbox.connectSandbox',
  'Sandbox.forkSandbox',
  // An alias of the static `pause`.
  'static Sandbox.betaPause',
]);
const PRIVATE_PARTS =
  /^(?:Git\.(?:runGit|runShell|hasUpstream|getRemoteUrl|resolveRemoteName|withRemoteCredentials)|Template\.(?:build|toJSON|toDockerfile|collectStackTrace|instructionsWithHashes|serialize)|static Template\.(?:resolveOpts|resolveApiOpts))$/;

type Methods = Record<string, unknown>;

/** Wraps every method. The returned function lists the methods that were never called. */
export function watchCalls({ e2b, sandbox }: Scene): () => string[] {
  const missed = new Set<string>();
  const watch = (name: string, object: object) => {
    for (let level = object; level !== Object.prototype && level !== Function.prototype; ) {
      for (const method of Object.getOwnPropertyNames(level)) wrap(name, level as Methods, method);
      level = Object.getPrototypeOf(level) as object;
    }
  };
  const wrap = (name: string, level: Methods, method: string) => {
    const call = Object.getOwnPropertyDescriptor(level, method)?.value as unknown;
    const full = `${name}.${method}`;
    const isPublic = typeof call === 'function' && method !== 'constructor' && /^[a-z]/.test(method);
    if (
      !isPublic ||
      LEFT_OUT.has(full) ||
      LEFT_OUT.has(full.replace('static ', '')) ||
      PRIVATE_PARTS.test(full)
    )
      return;
    missed.add(full);
    level[method] = function watched(this: unknown, ...given: unknown[]): unknown {
      missed.delete(full);
      return Reflect.apply(call, this, given);
    };
  };
  watch('static Sandbox', e2b.Sandbox);
  watch('Sandbox', e2b.Sandbox.prototype);
  watch('static Template', e2b.TemplateBase);
  watch('Template', e2b.TemplateBase.prototype);
  for (const [name, part] of Object.entries({
    Commands: sandbox.commands,
    Pty: sandbox.pty,
    Files: sandbox.files,
    Git: sandbox.git,
  })) {
    watch(name, Object.getPrototypeOf(part) as object);
  }
  return () => [...missed].sort();
}
