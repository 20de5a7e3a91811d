/** Which of the SDK's public methods the program has called, so that one that it never calls is noticed. */
import type { Scene } from './chapter.ts';

/** Private helpers, and what needs a template with an MCP gateway in it. */
const LEFT_OUT = new Set([
  'Sandbox.getMcpToken',
  'Sandbox.getMcpUrl',
  'Sandbox.fileUrl',
  'Sandbox.resolveApiOpts',
  'Sandbox.resolveOpts',
  'Sandbox.createSandbox',
  'Sandbox.connectSandbox',
  'Sandbox.forkSandbox',
  // Only another name for `pause`, on the class.
  'static Sandbox.betaPause',
]);
const PRIVATE_PARTS =
  /^(?:Git\.(?:runGit|runShell|hasUpstream|getRemoteUrl|resolveRemoteName|withRemoteCredentials))$/;

type Methods = Record<string, unknown>;

/** Watches every method from now on; the result lists those that were never called. */
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
