/**
 * Installs the MCP Inspector from npm, once for all clones on a machine. It is no dependency of the project: it brings some
 * hundred packages for its page. It appears in its place only when it is complete.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { INSPECTOR_VERSION, inspectorDirectory, inspectorProgram } from '../../tests/mcp/lab-program.mjs';

/** @param {(line: string) => void} say @returns {Promise<string>} */
export async function installInspector(say) {
  const program = inspectorProgram();
  if (existsSync(program)) return program;
  const lab = dirname(inspectorDirectory());
  mkdirSync(lab, { recursive: true, mode: 0o755 });
  const place = mkdtempSync(join(lab, '.building-'));
  try {
    writeFileSync(join(place, 'package.json'), '{"private":true}');
    say(`installing the inspector ${INSPECTOR_VERSION}`);
    const inspector = `@modelcontextprotocol/inspector@${INSPECTOR_VERSION}`;
    execFileSync('npm', ['install', '--ignore-scripts', '--no-audit', '--no-fund', inspector], {
      cwd: place,
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    // Another process may have installed it meanwhile.
    if (!existsSync(program)) renameSync(place, inspectorDirectory());
    return program;
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
}
