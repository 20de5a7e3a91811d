import { execFileSync } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

const MODULE = join(import.meta.dirname, 'pinned-namespace.ts');
const why =
  process.getuid?.() !== 0 ? ' (needs root)' : availableParallelism() < 2 ? ' (needs two processors)' : null;

const SCRIPT = `
const { execFileSync } = await import('node:child_process');
const { writeFileSync } = await import('node:fs');
const { makePinnedNamespace } = await import(${JSON.stringify(MODULE)});
const run = (...command) => execFileSync(command[0], command.slice(1), { stdio: 'pipe' });
run('mount', '-t', 'tmpfs', 'tmpfs', '/mnt');
run('mount', '--make-private', '/mnt');
writeFileSync('/mnt/pin', '');
await makePinnedNamespace('/mnt/pin', new AbortController().signal);
run('nsenter', '--mount=/mnt/pin', 'true');
console.log('pinned');
`;

describe.skipIf(why !== null)(`a mount namespace${why ?? ''}`, () => {
  const on = (processor: number) => ['taskset', '--cpu-list', String(processor)];

  /** As in a container: the namespace of the server was made a moment ago, on one processor, and the server runs on another. */
  it.each([
    [0, 1],
    [1, 0],
  ])('is pinned by a server whose own was made on processor %i and which runs on %i', (made, runs) => {
    const container = [...on(made), 'unshare', '--mount', '--propagation', 'private'];
    const server = [...on(runs), process.execPath, '--input-type=module', '-e', SCRIPT];
    const [program = '', ...args] = [...container, ...server];
    expect(execFileSync(program, args, { encoding: 'utf8', stdio: 'pipe' })).toBe('pinned\n');
  });
});
