/** The image whose files the init container of every pod copies. */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { IMAGE_TOOLS } from '../pod-spec.ts';
import { type AgentToolsOptions, writeAgentTools } from './agent-tools.ts';
import { writeOciArchive } from './oci-archive.ts';

export interface AgentImageOrder extends AgentToolsOptions {
  readonly archive: string;
  readonly reference: string;
}

/** Mount points: the root file system of the init container is read-only. */
const DIRECTORIES = ['copy/tools', 'copy/run', 'credential', 'tmp', 'proc', 'sys', 'dev', 'etc'];

export async function writeAgentImage({ archive, reference, ...tools }: AgentImageOrder): Promise<void> {
  const root = await mkdtemp(join(tmpdir(), 'torpor-agent-image-'));
  try {
    for (const name of DIRECTORIES) await mkdir(join(root, name), { recursive: true });
    await writeAgentTools(join(root, IMAGE_TOOLS), tools);
    await writeOciArchive({ archive, reference, root, config: {} });
  } finally {
    await rm(root, { recursive: true, force: true });
  }
}
