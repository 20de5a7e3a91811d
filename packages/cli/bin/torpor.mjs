#!/usr/bin/env node
/**
 * Starts the CLI on Node 24, which runs its TypeScript directly. This file is plain JavaScript, because an older Node
 * may run it. Then it starts the Node that npm has installed with Torpor.
 */
import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync } from 'node:fs';
import module from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));

// Node reads this when it starts its first thread. With the usual four, every small write of a pause would wait while all of
// them compress memory images.
process.env['UV_THREADPOOL_SIZE'] ??= '16';

if (Number(process.versions.node.split('.')[0]) >= 24) {
  cacheCompiledCode(join(here, '..', 'node_modules', '.cache', 'compiled'));
  const { main } = await import('../src/main.ts');
  await main();
} else {
  const node = findInstalledNode(here);
  if (node === undefined) {
    console.error(
      `torpor needs Node 24 or newer; this is ${process.version}. Install a newer Node, or run \`npm install\` ` +
        'again: it installs one with Torpor, unless install scripts are switched off.',
    );
    process.exit(1);
  }
  runWith(node);
}

/**
 * The cached code is executed, so the cache must not be in a directory that others can write to. Others cannot read it either:
 * a sandbox that sees the system directories of this machine needs one mount to cover the directory, and one for each of its
 * files otherwise.
 * @param {string} directory
 */
function cacheCompiledCode(directory) {
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    chmodSync(directory, 0o700);
  } catch {
    // Another user has installed Torpor. Then Node does not cache.
  }
  module.enableCompileCache?.(directory);
}

/** @param {string} from */
function findInstalledNode(from) {
  for (let at = from; ; at = dirname(at)) {
    const node = join(at, 'node_modules', '.bin', 'node');
    if (existsSync(node)) return node;
    if (at === dirname(at)) return undefined;
  }
}

/** @param {string} node */
function runWith(node) {
  const child = spawn(node, process.argv.slice(1), { stdio: 'inherit' });
  // The terminal sends an interrupt to both processes; the child decides what to do.
  process.on('SIGINT', () => {});
  for (const signal of /** @type {const} */ (['SIGTERM', 'SIGHUP']))
    process.on(signal, () => child.kill(signal));
  child.on('error', (error) => {
    console.error(`torpor could not start ${node}: ${error.message}`);
    process.exit(1);
  });
  child.on('exit', (code, signal) => {
    if (signal === null) process.exit(code ?? 1);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}
