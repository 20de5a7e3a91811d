/**
 * The documentation of a build. It comes from the application's own texts, from the scripts in its package.json, and
 * from the goals of the builds it is based on. Nothing is invented: a section without a source is null.
 */
import type { BuildDocs } from '@torpor/protocol';
import { describeProject, type Project } from '../pipeline/project.ts';
import { type GeneratedFile, textOf } from '../runners/generated-files.ts';
import { type Section, sectionsOf } from './sections.ts';

/** One ready build in the chain of builds that leads to the described one, with its goal. */
export interface BuiltVersion {
  readonly version: string;
  readonly goal: string;
}

const FEATURES = /^(features?|what it (does|has|can do|offers)|capabilities)$/i;
const GETTING_STARTED =
  /^(getting started|quick ?start|usage|set ?up|install(ing|ation)?|(how to )?run(ning)?( it)?|how to (run|use|start)( it)?)$/i;
const FAQ = /^(faq|frequently asked questions|questions( and answers)?)$/i;
const CHANGELOG = /^(change ?log|changes|history|release notes)$/i;
const MAX_CHARACTERS = 100_000;

/** `versions` are newest first. */
export function documentation(
  files: readonly GeneratedFile[],
  wantedPort: number | null,
  versions: readonly BuiltVersion[],
): BuildDocs {
  const readme = sectionsOf(read(files, 'readme.md') ?? '');
  const about = (heading: RegExp) => bounded(joined(readme.filter((one) => heading.test(one.heading))));
  return {
    overview: bounded(readme[0]?.text ?? ''),
    features: about(FEATURES),
    getting_started: about(GETTING_STARTED) ?? howToRun(files, wantedPort),
    faq: about(FAQ) ?? bounded(read(files, 'faq.md') ?? ''),
    changelog: bounded(read(files, 'changelog.md') ?? '') ?? about(CHANGELOG) ?? changelogOf(versions),
  };
}

export function hasDocumentation(docs: BuildDocs): boolean {
  return Object.values(docs).some((section) => section !== null);
}

function read(files: readonly GeneratedFile[], name: string): string | undefined {
  const file = files.find(({ path }) => path.toLowerCase() === name);
  return file === undefined ? undefined : textOf(file);
}

function joined(sections: readonly Section[]): string {
  return sections.map(({ text }) => text).join('\n\n');
}

function bounded(text: string): string | null {
  const trimmed = text.trim();
  return trimmed === '' ? null : trimmed.slice(0, MAX_CHARACTERS).toWellFormed();
}

/** The commands that the build itself runs, as npm commands. */
function howToRun(files: readonly GeneratedFile[], wantedPort: number | null): string | null {
  const project = projectOf(files, wantedPort);
  if (project === undefined) return null;
  const { install, check, script, port } = project;
  const commands = [
    ...(install === undefined ? [] : ['npm install']),
    ...(check === undefined ? [] : ['npm run check']),
    script === undefined
      ? `python3 -m http.server ${port}`
      : script === 'start'
        ? 'npm start'
        : `npm run ${script}`,
  ];
  return ['```sh', ...commands, '```', '', `It listens on port ${port}.`].join('\n');
}

/** Undefined when the files are not an application. */
function projectOf(files: readonly GeneratedFile[], wantedPort: number | null): Project | undefined {
  try {
    return describeProject(files, wantedPort);
  } catch {
    return undefined;
  }
}

const MAX_GOAL = 300;

function changelogOf(versions: readonly BuiltVersion[]): string | null {
  const lines = versions.map(({ version, goal }) => {
    const words = goal.replace(/\s+/g, ' ').trim();
    return `- **${version}**: ${words.length > MAX_GOAL ? `${words.slice(0, MAX_GOAL).toWellFormed()}…` : words}`;
  });
  return lines.length === 0 ? null : lines.join('\n');
}
