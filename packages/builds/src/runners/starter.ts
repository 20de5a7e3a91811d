/** A runner with small built-in applications, which need no network, no key and no model. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { type GeneratedFile, textFile, textOf } from './generated-files.ts';
import type { Runner } from './runner.ts';

const STARTERS_DIR = join(import.meta.dirname, '../../starters');

export const STARTERS = ['page', 'api', 'dashboard'] as const;
export type Starter = (typeof STARTERS)[number];

/** Keywords in the goal that choose the starter; the first match wins, and `page` is the default. */
const KEYWORDS: readonly (readonly [Starter, RegExp])[] = [
  [
    'dashboard',
    /\b(dashboards?|live|real[- ]?time|web ?sockets?|charts?|monitor(ing)?|metrics|telemetry)\b/i,
  ],
  ['api', /\b(apis?|rest|json|crud|database|backend|endpoints?|notes?|todos?|store)\b/i],
];

export function chooseStarter(goal: string): Starter {
  return KEYWORDS.find(([, words]) => words.test(goal))?.[0] ?? 'page';
}

/** The application reads its goals from this file and shows them. */
const GOAL_FILE = 'goal.json';

export const starterRunner: Runner = {
  async run({ goal, previous, output }) {
    // An iteration keeps the starter of the previous build.
    const starter = starterOf(previous) ?? chooseStarter(goal);
    output('starter', `The starter "${starter}".\n`);
    if (previous.length > 0) {
      output('starter', 'A starter shows its goal but writes no code; other runners do.\n');
    }
    const files = await readStarter(starter);
    const goals = [...goalsOf(previous), goal];
    return [...files, textFile(GOAL_FILE, `${JSON.stringify({ starter, goals }, null, 2)}\n`)];
  },
};

/** A runner of another kind may have changed the file, so every part may be missing. */
const goalFileSchema = z.object({
  starter: z.enum(STARTERS).optional().catch(undefined),
  goals: z.array(z.unknown()).optional().catch(undefined),
});

function readGoalFile(files: readonly GeneratedFile[]): z.infer<typeof goalFileSchema> {
  const file = files.find(({ path }) => path === GOAL_FILE);
  if (file === undefined) return {};
  try {
    return goalFileSchema.parse(JSON.parse(textOf(file)));
  } catch {
    return {};
  }
}

function starterOf(previous: readonly GeneratedFile[]): Starter | undefined {
  return readGoalFile(previous).starter;
}

function goalsOf(previous: readonly GeneratedFile[]): string[] {
  const { goals = [] } = readGoalFile(previous);
  return goals.filter((goal) => typeof goal === 'string');
}

async function readStarter(starter: Starter): Promise<GeneratedFile[]> {
  const root = join(STARTERS_DIR, starter);
  const entries = await readdir(root, { recursive: true, withFileTypes: true });
  const paths = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return Promise.all(
    paths.map(async (path) => ({
      path: path.slice(root.length + 1),
      content: new Uint8Array(await readFile(path)),
      executable: false,
    })),
  );
}
