/** The images of a lab cluster, as archives. No registry exists, so nothing is ever pulled. */
import { execFileSync } from 'node:child_process';
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { bundleAgent } from '@torpor/agent';
import { librariesOf } from '@torpor/host';
import { writeAgentImage } from '../src/image/agent-image.ts';
import { writeOciArchive } from '../src/image/oci-archive.ts';
import { debianRoot, pauseProgram } from './lab-programs.mjs';

const PAUSE_IMAGE = 'local.test/pause:1';
export const AGENT_IMAGE = 'local.test/torpor-agent:1';
/** An image without a C library, without Node and without an account for the sandbox's user. */
export const PLAIN_IMAGE = 'local.test/plain:1';
/** The same with Node, for builds. */
export const NODE_IMAGE = 'local.test/node:1';

/** Writes the archives into a directory and returns their paths. */
export async function writeLabImages(into: string): Promise<readonly string[]> {
  const work = mkdtempSync(join(tmpdir(), 'torpor-lab-'));
  try {
    const plain = plainRoot(work);
    return [
      await pauseImage(work, into),
      await shellImage(plain, PLAIN_IMAGE, join(into, 'plain.tar')),
      await shellImage(await withNode(plain), NODE_IMAGE, join(into, 'node.tar')),
      await agentImage(into),
    ];
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

async function pauseImage(work: string, into: string): Promise<string> {
  const root = join(work, 'pause');
  mkdirSync(root);
  cpSync(pauseProgram(), join(root, 'pause'));
  const archive = join(into, 'pause.tar');
  const config = { Entrypoint: ['/pause'], User: '65535:65535' };
  await writeOciArchive({ archive, reference: PAUSE_IMAGE, root, config });
  return archive;
}

function plainRoot(work: string): string {
  const root = join(work, 'plain');
  for (const name of ['bin', 'tmp', 'etc', 'proc', 'sys', 'dev', 'home', 'root', 'var', 'usr'])
    mkdirSync(join(root, name), { recursive: true });
  execFileSync('chmod', ['1777', join(root, 'tmp')]);
  const busybox = join(root, 'bin', 'busybox');
  cpSync(join(debianRoot(), 'bin', 'busybox'), busybox);
  for (const name of execFileSync(busybox, ['--list'], { encoding: 'utf8' }).trim().split('\n')) {
    if (!existsSync(join(root, 'bin', name))) symlinkSync('busybox', join(root, 'bin', name));
  }
  writeFileSync(join(root, 'etc', 'passwd'), 'root:x:0:0:root:/root:/bin/sh\n');
  writeFileSync(join(root, 'etc', 'group'), 'root:x:0:\n');
  return root;
}

async function withNode(root: string): Promise<string> {
  const needs = await librariesOf(process.execPath);
  const libraries = needs?.loader === undefined ? [] : [needs.loader, ...needs.libraries];
  cpSync(process.execPath, join(root, 'bin', 'node'));
  for (const library of libraries) {
    mkdirSync(dirname(join(root, library)), { recursive: true });
    copyFileSync(library, join(root, library));
  }
  return root;
}

async function shellImage(root: string, reference: string, archive: string): Promise<string> {
  const config = { Env: ['PATH=/bin'], Cmd: ['/bin/sh'] };
  await writeOciArchive({ archive, reference, root, config });
  return archive;
}

async function agentImage(into: string): Promise<string> {
  const archive = join(into, 'agent.tar');
  const agentDir = await bundleAgent();
  await writeAgentImage({ archive, reference: AGENT_IMAGE, node: process.execPath, agentDir });
  return archive;
}
