/**
 * All checks before a commit, the cheapest first. A check that passes prints one line; a check that fails prints its output.
 * All checks run, so that one run shows everything to fix. The tests come last and print their own output.
 */
import { spawnSync } from 'node:child_process';
import { delimiter, join } from 'node:path';
import manifest from '../package.json' with { type: 'json' };

type Script = keyof typeof manifest.scripts;

const CHECKS: readonly (readonly [script: Script, what: string])[] = [
  ['lint', 'format and lint'],
  ['typecheck', 'types'],
  ['arrows', 'imports follow the arrows'],
  ['deadcode', 'no dead code'],
];

const ROOT = join(import.meta.dirname, '..');
// So that `node scripts/checks.ts` finds the same programs as `npm test`.
const PATH = [join(ROOT, 'node_modules', '.bin'), process.env['PATH'] ?? ''].join(delimiter);
const COLOR = process.stdout.isTTY ? {} : { NO_COLOR: '1' };

/** Runs a script of package.json without the start time of npm. */
function run(script: Script, stdio: 'pipe' | 'inherit') {
  return spawnSync(manifest.scripts[script], {
    shell: true,
    cwd: ROOT,
    stdio: ['ignore', stdio, stdio],
    encoding: 'utf8',
    env: { ...process.env, PATH, ...COLOR },
  });
}

const failed: Script[] = [];
for (const [script, what] of CHECKS) {
  const started = performance.now();
  const { status, stdout, stderr } = run(script, 'pipe');
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  console.log(`${status === 0 ? 'ok    ' : 'FAILED'} ${what}, ${seconds} s`);
  if (status === 0) continue;
  failed.push(script);
  console.log(`${stdout}${stderr}`.trimEnd());
}

if (run('test:unit', 'inherit').status !== 0) failed.push('test:unit');

if (failed.length > 0) {
  console.log(`FAILED: ${failed.map((script) => `npm run ${script}`).join(', ')}`);
  process.exitCode = 1;
}
