import { afterEach, describe, expect, it } from 'vitest';
import { type ModelServer, modelServer, type Turn } from '../../testing/model-server.ts';
import { DEFAULT_BUILD_SETTINGS } from '../settings.ts';
import { type GeneratedFile, textFile, textOf } from './generated-files.ts';
import { openaiRunner } from './openai.ts';

const write = (path: string, content: string) => ({ name: 'write_file', arguments: { path, content } });
const DONE: Turn = { text: 'I made a page.' };

describe('the openai runner', () => {
  let server: ModelServer;
  const said: string[] = [];
  afterEach(() => server.close());

  async function run(
    turns: readonly Turn[],
    more: { previous?: GeneratedFile[]; signal?: AbortSignal; maxSteps?: number } = {},
  ) {
    server = await modelServer(turns);
    said.length = 0;
    const runner = openaiRunner({
      baseUrl: server.baseUrl,
      model: 'small-model',
      apiKey: 'the-key',
      maxSteps: more.maxSteps ?? 8,
      maxTokens: 1_000,
      retries: 0,
      limits: { ...DEFAULT_BUILD_SETTINGS.files, fileBytes: 10_000, totalBytes: 20_000 },
    });
    const order = {
      org: 'acme',
      jobId: 'job_00000000000000000000',
      projectId: 'p',
      goal: 'a page about otters',
      previous: more.previous ?? [],
      output: (_: string, text: string) => void said.push(text),
    } as const;
    const files = await runner.run(order, more.signal ?? new AbortController().signal);
    return Object.fromEntries(files.map((file) => [file.path, textOf(file)]));
  }

  it('streams, receives files by tool calls, and logs what the model says', async () => {
    const files = await run([
      { text: 'Let me write ', calls: [write('package.json', '{"scripts":{"start":"node s.js"}}')] },
      { calls: [write('s.js', 'x'.repeat(500)), write('public/index.html', '<p>otters\n</p>')] },
      DONE,
    ]);
    expect(Object.keys(files)).toEqual(['package.json', 's.js', 'public/index.html']);
    expect(files['public/index.html']).toBe('<p>otters\n</p>');
    expect(server.asked[0]).toMatchObject({ model: 'small-model', stream: true });
    expect(JSON.stringify(server.asked[0]?.messages)).toContain('a page about otters');
    expect(server.authorizations[0]).toBe('Bearer the-key');
    expect(said.join('')).toContain('write_file public/index.html');
    expect(said.join('')).toContain('I made a page.');
  });

  it('starts from the existing files', async () => {
    const previous = [textFile('package.json', '{}'), textFile('old.js', 'old')];
    const files = await run(
      [
        {
          calls: [
            { name: 'read_file', arguments: { path: 'old.js' } },
            { name: 'list_files', arguments: {} },
          ],
        },
        { calls: [{ name: 'delete_file', arguments: { path: 'old.js' } }, write('new.js', 'new')] },
        DONE,
      ],
      { previous },
    );
    expect(files).toEqual({ 'package.json': '{}', 'new.js': 'new' });
    expect(JSON.stringify(server.asked[1]?.messages)).toContain('old.js');
  });

  it.each([
    '../../etc/passwd',
    '/etc/passwd',
    'a/../../b',
    '~/x',
    'a\\..\\b',
    'node_modules/x/index.js',
    '.git/hooks/pre-commit',
    'a\u0000b',
    'C:/x',
    '',
  ])('refuses the hostile path %j with a message to the model', async (path) => {
    const files = await run([{ calls: [write(path, 'x'), write('ok.txt', 'ok')] }, DONE]);
    expect(Object.keys(files)).toEqual(['ok.txt']);
    expect(JSON.stringify(server.asked[1]?.messages)).toContain('Refused');
  });

  it('refuses files that are too large, alone or together', async () => {
    const files = await run([
      {
        calls: [
          write('large.txt', 'x'.repeat(10_001)),
          write('a.txt', 'x'.repeat(9_000)),
          write('b.txt', 'x'.repeat(9_000)),
          write('c.txt', 'x'.repeat(9_000)),
        ],
      },
      DONE,
    ]);
    expect(Object.keys(files)).toEqual(['a.txt', 'b.txt']);
  });

  it('survives arguments that are not JSON, wrong arguments, and unknown tools', async () => {
    const files = await run([
      { calls: [{ name: 'write_file', arguments: '{"path": "a.txt", "cont' }] },
      { calls: [{ name: 'write_file', arguments: { path: 7 } }] },
      { calls: [{ name: 'run_shell', arguments: { command: 'rm -rf /' } }] },
      { calls: [write('a.txt', 'a')] },
      DONE,
    ]);
    expect(files).toEqual({ 'a.txt': 'a' });
  });

  it.each([
    ['temporarily refuses', { status: 429 }, 'quota_exceeded'],
    ['is not let in', { status: 401 }, 'conflict'],
    ['answers 404, which says nothing about a sandbox', { status: 404 }, 'conflict'],
    ['gets something that is no stream', { raw: 'data: {"choices": [\n\ndata: nonsense\n\n' }, 'conflict'],
  ] as const)('fails by type when it %s', { timeout: 30_000 }, async (_, turn, code) => {
    await expect(run([turn])).rejects.toMatchObject({ code });
  });

  it('fails when the stream is interrupted', async () => {
    await expect(run([{ text: 'x'.repeat(500), breakAfter: 3 }])).rejects.toThrow();
  });

  it('stops at the limit of steps', async () => {
    const endless = { calls: [write('a.txt', 'a')] };
    await expect(run([endless], { maxSteps: 3 })).rejects.toMatchObject({ code: 'quota_exceeded' });
    expect(server.asked).toHaveLength(3);
  });

  it('stops at the limit of tokens', async () => {
    const dear = { calls: [write('a.txt', 'a')], tokens: 600 };
    await expect(run([dear])).rejects.toMatchObject({ code: 'quota_exceeded' });
    expect(server.asked).toHaveLength(2);
  });

  it('stops waiting for a model when the signal fires', async () => {
    const leaving = new AbortController();
    const running = run([{ hang: true }], { signal: leaving.signal });
    setTimeout(() => leaving.abort(new Error('cancelled')), 50);
    await expect(running).rejects.toThrow('cancelled');
  });
});
