import { databaseKinds } from '@torpor/engine/testing';
import { describe, expect, it } from 'vitest';
import { APP, buildWorld, OWNER } from '../../testing/build-world.ts';
import { textFile } from '../runners/generated-files.ts';
import { STARTERS, type Starter, starterRunner } from '../runners/starter.ts';
import { documentation } from './documentation.ts';
import { sectionsOf } from './sections.ts';

const manifest = (more: object) => textFile('package.json', JSON.stringify(more));
const docs = (...files: ReturnType<typeof textFile>[]) => documentation(files, null, []);

describe('the sections of a Markdown text', () => {
  it('begin at second-level headings, and not inside code blocks', () => {
    const text = '# T\n\nabout\n\n## One ##\n\na\n### deeper\n\n```sh\n## no heading\n```\n## Two\r\nb\n';
    expect(sectionsOf(text)).toEqual([
      { heading: '', text: '# T\n\nabout' },
      { heading: 'One', text: 'a\n### deeper\n\n```sh\n## no heading\n```' },
      { heading: 'Two', text: 'b' },
    ]);
  });
});

describe('the documentation of a build', () => {
  it('comes from the texts of the application', () => {
    const readme = [
      '# Otters',
      'All about them.',
      '## Features',
      '- swim',
      '## Usage',
      'Run it.',
      '## FAQ',
      'Why? Why not.',
      '## Licence',
      'Free.',
    ].join('\n');
    expect(docs(textFile('README.md', readme), textFile('CHANGELOG.md', '# 1.0\nfirst'))).toEqual({
      overview: '# Otters\nAll about them.',
      features: '- swim',
      getting_started: 'Run it.',
      faq: 'Why? Why not.',
      changelog: '# 1.0\nfirst',
    });
  });

  it.each([
    [manifest({ scripts: { start: 'x' } }), '```sh\nnpm start\n```\n\nIt listens on port 3000.'],
    [
      manifest({ scripts: { dev: 'vite', check: 'tsc' }, devDependencies: { vite: '7' } }),
      '```sh\nnpm install\nnpm run check\nnpm run dev\n```\n\nIt listens on port 5173.',
    ],
    [textFile('index.html', '<p>'), '```sh\npython3 -m http.server 3000\n```\n\nIt listens on port 3000.'],
  ])('explains how to run an application that does not explain it', (file, expected) => {
    expect(docs(file)).toEqual({
      overview: null,
      features: null,
      getting_started: expected,
      faq: null,
      changelog: null,
    });
  });

  it('is null where nothing is known', () => {
    const nothing = { overview: null, features: null, getting_started: null, faq: null, changelog: null };
    expect(docs()).toEqual(nothing);
    expect(docs(textFile('README.md', ' \n'), manifest({ scripts: {} }))).toEqual(nothing);
    expect(docs(textFile('package.json', '{'))).toEqual(nothing);
  });

  it('lists the previous versions when there is no changelog', () => {
    const versions = [
      { version: 'build_v0_2', goal: 'make it\nblue' },
      { version: 'build_v0_1', goal: 'a page' },
    ];
    expect(documentation([], null, versions).changelog).toBe(
      '- **build_v0_2**: make it blue\n- **build_v0_1**: a page',
    );
    expect(documentation([textFile('CHANGELOG.md', 'mine')], null, versions).changelog).toBe('mine');
  });

  it.each(STARTERS)('of the starter %s has an overview, features and how to run it', async (starter) => {
    const goals: Record<Starter, string> = { page: 'otters', api: 'an api', dashboard: 'a dashboard' };
    const order = { org: 'o', jobId: 'job_x', projectId: 'p', goal: goals[starter], previous: [] } as const;
    const signal = new AbortController().signal;
    const files = await starterRunner.run({ ...order, output: () => {} }, signal);
    expect(documentation(files, null, [])).toMatchObject({
      overview: expect.stringMatching(/^# /),
      features: expect.stringContaining('- '),
      getting_started: expect.stringContaining('npm start'),
    });
  });
});

describe.each(databaseKinds)('the stored documentation of a build on %s', (kind) => {
  it('is announced by an event, and lists the chain of builds', async () => {
    const world = await buildWorld(kind, { settings: { firstLookMs: 1, longestLookMs: 5 } });
    const build = async (goal: string, more: object = {}) => {
      const { job_id } = await world.builds.begin(OWNER, { project_id: 'p', goal, ...more });
      await world.ended(job_id);
      return job_id;
    };
    const first = await build('a page');
    const second = await build('bluer', { previous_job_id: first });
    const { changelog, getting_started } = await world.builds.docs(OWNER, second);
    expect(changelog).toBe('- **build_v0_2**: bluer\n- **build_v0_1**: a page');
    expect(getting_started).toContain('npm start');
    expect((await world.builds.docs(OWNER, first)).changelog).toBe('- **build_v0_1**: a page');
    const told = (await world.eventsOf(first)).filter(({ type }) => type === 'documentation.updated');
    expect(told.map(({ status }) => status)).toEqual(['code']);
    expect((await world.builds.status(OWNER, first)).docs_ready).toBe(true);
    const none = await build('nothing', { runner: 'none' });
    expect((await world.builds.status(OWNER, none)).docs_ready).toBe(false);
    expect(APP.map(({ path }) => path)).not.toContain('README.md');
    await world.dispose();
  });
});
